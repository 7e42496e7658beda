// Moves parameters pattern by pattern, without going through groups, where that is all a map does:
// patterns change place, zero points become a fixed center or come from one, floats change type, or
// a center becomes an offset of so many scales that is exact. Rows that are no such case are left
// to RowMap (row_map.h), which decides alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "packstone/transcode/format_ops.h"
#include "packstone/transcode/scheme_map.h"
#include "packstone/transcode/transcode.h"

namespace packstone {

// Per group of a row: the code of the zero that changes its sign, or kNoSignCode.
using SignCode = std::int32_t;
inline constexpr SignCode kNoSignCode = -1;

// The scratch of one worker.
class PlainMove {
 public:
  static constexpr std::int64_t kRowsMax = 16;  // of one load

  // `candidates`: the target's parameters that may be chosen; they differ in the metadata type
  // only.
  PlainMove(const PackedWeight& source, FormatId target, std::span<const FormatParams> candidates);

  // Whether rows of these formats can be plain at all; nothing else may be called if not.
  bool possible() const { return possible_; }
  // Whether the first candidate fits whatever the patterns are, so that no other is chosen.
  bool first_fits() const { return first_fits_; }
  // Whether a row can have sign codes.
  bool changes_signs() const { return offsets_; }
  std::size_t groups() const { return groups_; }

  // load(rows) reads the parameters of up to kRowsMax source rows and decides which rows are plain:
  // the target's codes, and the codes that the way back gives, are those of the source, values are
  // equal but for the signs of zeros, and the way back gives the source's patterns.
  // Exact: plain only where RowMap::map gives the same. Errors: none.
  void load(std::span<const std::int64_t> rows);
  // Makes the patterns of candidate `index`; rows that it does not fit are plain no more.
  void fit(std::size_t index);
  bool plain(std::size_t row) const { return plain_[row] != 0; }

  // Groups of loaded row `row` with a scale or offset that is not finite; sets the first of them.
  std::int64_t nonfinite(std::size_t row, std::int64_t& first) const;
  // Of loaded row `row`, which is plain, where changes_signs(): the code of each group that stands
  // for -0 and becomes +0.
  std::span<const SignCode> sign_codes(std::size_t row) const;

  // Writes the patterns last made of plain rows, the first loaded row at `row` of the target.
  void store(const MutablePlanes& target, std::int64_t row) const;

 private:
  struct Side {
    const FormatInfo* info = nullptr;
    const FormatOps* ops = nullptr;
    FormatParams params;
  };
  static ParamCoding coding(const Side& side, int which);
  bool movable(const LinearSide& from, const LinearSide& to);
  bool movable_centers(const LinearSide& from, const LinearSide& to);
  bool always_fits(int from, int to) const;
  void read(int which, std::vector<std::uint32_t>& patterns);
  void check_zeros();
  void find_offsets();
  const std::uint32_t* moved_number(int from, const std::vector<std::uint32_t>& patterns,
                                    const Side& target, int to, std::vector<std::uint32_t>& made);
  void encode(ParamCoding coding, const std::vector<float>& numbers,
              std::vector<std::uint32_t>& made);
  void reject_bad();

  const PackedWeight& source_;
  Side from_;
  std::vector<Side> to_;
  bool possible_ = false, first_fits_ = false, offsets_ = false;
  std::size_t groups_ = 0, count_ = 0;  // count_: of all groups that are loaded
  std::vector<std::int64_t> rows_;
  int level_bits_ = 0;  // of the codes and centers that a scale is multiplied by
  std::uint32_t zero_low_ = 0, zero_high_ = 0;  // zero points that the target has
  bool may_miss_zero_ = false, any_nonfinite_ = false;
  std::vector<std::uint32_t> scale_, offset_, zero_;  // patterns of the source
  std::vector<float> numbers_, offset_numbers_;
  std::vector<std::uint32_t> made_scale_, made_offset_;
  const std::uint32_t* made_[kParamsMax] = {};  // patterns of the target
  std::vector<SignCode> sign_codes_;
  std::vector<std::uint32_t> bad_;
  std::vector<std::uint8_t> plain_;
};

}  // namespace packstone
