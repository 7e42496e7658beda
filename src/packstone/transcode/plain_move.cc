#include "packstone/transcode/plain_move.h"

#include <algorithm>
#include <bit>

#include "packstone/transcode/code_mover.h"
#include "packstone/transcode/plain_numbers.h"

namespace packstone {
namespace {

// Bits that are all set in the patterns of infinities and NaNs, and in no others.
std::uint32_t nonfinite_bits(ParamCoding coding) {
  switch (coding) {
    case ParamCoding::kF16:
      return 0x7C00u;
    case ParamCoding::kF32:
      return 0x7F800000u;
    case ParamCoding::kE8M0:
      return 0xFFu;
    default:
      return 0x7F80u;
  }
}

FloatType float_of(ParamCoding coding) {
  return coding == ParamCoding::kF16   ? FloatType::kF16
         : coding == ParamCoding::kF32 ? FloatType::kF32
                                       : FloatType::kBF16;
}

}  // namespace

PlainMove::PlainMove(const PackedWeight& source, FormatId target,
                     std::span<const FormatParams> candidates)
    : source_(source), from_{&source.format(), &format_ops(source.id()), source.params()} {
  for (const FormatParams& params : candidates)
    to_.push_back({&format_info(target), &format_ops(target), params});
  const LinearSide from = linear_side(source.id(), source.params());
  groups_ = static_cast<std::size_t>(ceil_div(source.shape().cols, from.group_cols));
  possible_ = movable(from, linear_side(target, candidates.front()));
  if (!possible_) return;
  const PlainParams &mine = from_.ops->plain, &its = to_[0].ops->plain;
  first_fits_ = always_fits(mine.scale, its.scale) &&
                (offsets_ ? coding(to_[0], its.offset) == ParamCoding::kF32
                          : its.offset < 0 || always_fits(mine.offset, its.offset));
  const std::size_t most = groups_ * static_cast<std::size_t>(kRowsMax);
  for (auto* patterns : {&scale_, &offset_, &zero_, &made_scale_, &made_offset_})
    patterns->resize(most);
  numbers_.resize(most);
  offset_numbers_.resize(offsets_ ? most : 0);
  sign_codes_.resize(offsets_ ? most : 0);
  bad_.resize(most);
  plain_.resize(static_cast<std::size_t>(kRowsMax));
}

// The coding of a parameter; kMetadata stands for bfloat16.
ParamCoding PlainMove::coding(const Side& side, int which) {
  const ParamCoding coding = side.info->params[static_cast<std::size_t>(which)].coding;
  if (coding != ParamCoding::kMetadata || side.params.metadata == FloatType::kBF16) return coding;
  return side.params.metadata == FloatType::kF16 ? ParamCoding::kF16 : ParamCoding::kF32;
}

bool PlainMove::movable(const LinearSide& from, const LinearSide& to) {
  const FormatInfo &mine = *from_.info, &its = *to_[0].info;
  const PlainParams &here = from_.ops->plain, &there = to_[0].ops->plain;
  const SchemeMap map = scheme_map(mine, its);
  if (!here.plain || !there.plain || mine.finite_only || its.finite_only || mine.shares_groups ||
      its.shares_groups || its.shares_rows || from.group_cols != to.group_cols ||
      !block_movable(mine.id, its.id) ||
      (coding(from_, here.scale) == ParamCoding::kE8M0) !=
          (coding(to_[0], there.scale) == ParamCoding::kE8M0))
    return false;
  if (map == SchemeMap::kSameTable)
    return here.offset < 0 && here.zero < 0 && there.offset < 0 && there.zero < 0;
  return map == SchemeMap::kLinear && mine.scheme == SchemeKind::kLinear &&
         from.code_max <= to.code_max && movable_centers(from, to);
}

// Of linear formats.
bool PlainMove::movable_centers(const LinearSide& from, const LinearSide& to) {
  const PlainParams &here = from_.ops->plain, &there = to_[0].ops->plain;
  const auto zero_max = [](int bits) {
    return static_cast<std::uint32_t>((std::uint64_t{1} << bits) - 1);
  };
  if (here.offset >= 0) return there.offset >= 0 && here.center == there.center;
  if (here.zero < 0 && here.center < 0) return false;
  const std::uint32_t largest =
      here.zero < 0 ? static_cast<std::uint32_t>(here.center) : zero_max(from.zero_bits);
  if (there.offset >= 0) {
    offsets_ = true;
    level_bits_ = std::bit_width(from.code_max + to.code_max + largest);
    return there.center == 0 && from.code_bits <= 8 && to.code_bits <= 8 && from.zero_bits <= 8 &&
           level_bits_ < 16 && !source_.params().act_order &&
           coding(from_, here.scale) != ParamCoding::kE8M0;
  }
  if (there.zero < 0 && there.center < 0) return false;
  zero_low_ = there.zero < 0 ? static_cast<std::uint32_t>(there.center) : 0;
  zero_high_ = there.zero < 0 ? zero_low_ : zero_max(to.zero_bits);
  may_miss_zero_ = here.zero >= 0 && (zero_low_ > 0 || largest > zero_high_);
  return here.zero >= 0 || (zero_low_ <= largest && largest <= zero_high_);
}

// Whether every number of a parameter of the source is one of a parameter of the first candidate.
bool PlainMove::always_fits(int from, int to) const {
  const ParamCoding mine = coding(from_, from), its = coding(to_[0], to);
  return mine == its || its == ParamCoding::kF32;
}

void PlainMove::read(int which, std::vector<std::uint32_t>& patterns) {
  const auto planes = source_.plane_pointers();
  const ConstPlanes bytes{planes.data(), source_.shape(), source_.params()};
  const auto rows = static_cast<std::int64_t>(rows_.size());
  bool run = true;
  for (std::size_t i = 1; i < rows_.size(); ++i) run = run && rows_[i] == rows_[i - 1] + 1;
  if (run) return from_.ops->read_patterns(bytes, which, rows_[0], rows, patterns.data());
  for (std::size_t i = 0; i < rows_.size(); ++i)
    from_.ops->read_patterns(bytes, which, rows_[i], 1, patterns.data() + i * groups_);
}

void PlainMove::load(std::span<const std::int64_t> rows) {
  const PlainParams& here = from_.ops->plain;
  rows_.assign(rows.begin(), rows.end());
  count_ = rows.size() * groups_;
  std::ranges::fill(plain_, std::uint8_t{1});
  if (count_ == 0) return;
  read(here.scale, scale_);
  any_nonfinite_ = any_set(scale_.data(), count_, nonfinite_bits(coding(from_, here.scale)));
  if (here.offset >= 0) {
    read(here.offset, offset_);
    any_nonfinite_ = any_nonfinite_ ||
                     any_set(offset_.data(), count_, nonfinite_bits(coding(from_, here.offset)));
  }
  if (here.zero >= 0 && (offsets_ || may_miss_zero_)) {
    read(here.zero, zero_);
    if (may_miss_zero_) check_zeros();
  }
  if (offsets_) find_offsets();
}

void PlainMove::check_zeros() {
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    bad_[i] = zero_[i] < zero_low_ || zero_[i] > zero_high_;
    any |= bad_[i];
  }
  if (any != 0) reject_bad();
}

// scale * (code - center) becomes scale * code + (-center * scale). Where nothing is rounded the
// way back finds the center, and only the code of zero can change: its sign where the scale is
// negative. With center 0 the formulas are the same for any scale.
void PlainMove::find_offsets() {
  const PlainParams& here = from_.ops->plain;
  decode_numbers(coding(from_, here.scale), scale_.data(), count_, numbers_.data());
  if (here.zero < 0) std::fill_n(zero_.begin(), count_, static_cast<std::uint32_t>(here.center));
  const std::uint32_t code_max = (1u << from_.info->code_bits) - 1;
  if (make_offsets({numbers_.data(), zero_.data(), count_, level_bits_, code_max,
                    offset_numbers_.data(), bad_.data(), sign_codes_.data()}))
    reject_bad();
}

// Rows with a bad group are not plain.
void PlainMove::reject_bad() {
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const auto groups = std::span(bad_).subspan(row * groups_, groups_);
    if (std::ranges::any_of(groups, [](std::uint32_t bad) { return bad != 0; })) plain_[row] = 0;
  }
}

void PlainMove::fit(std::size_t index) {
  const Side& target = to_[index];
  const PlainParams &here = from_.ops->plain, &there = target.ops->plain;
  if (count_ == 0) return;
  made_[there.scale] = moved_number(here.scale, scale_, target, there.scale, made_scale_);
  if (offsets_) {
    encode(coding(target, there.offset), offset_numbers_, made_offset_);
    made_[there.offset] = made_offset_.data();
  } else if (there.offset >= 0) {
    made_[there.offset] = moved_number(here.offset, offset_, target, there.offset, made_offset_);
  }
  if (there.zero < 0) return;
  if (here.zero < 0)
    std::fill_n(zero_.begin(), count_, static_cast<std::uint32_t>(here.center));
  else if (!may_miss_zero_)
    read(here.zero, zero_);
  made_[there.zero] = zero_.data();
}

// The patterns of the same numbers in the target's type.
const std::uint32_t* PlainMove::moved_number(int from, const std::vector<std::uint32_t>& patterns,
                                             const Side& target, int to,
                                             std::vector<std::uint32_t>& made) {
  const ParamCoding mine = coding(from_, from), its = coding(target, to);
  if (mine == its) return patterns.data();
  decode_numbers(mine, patterns.data(), count_, numbers_.data());
  encode(its, numbers_, made);
  return made.data();
}

// encode_float_exact of all numbers.
void PlainMove::encode(ParamCoding coding, const std::vector<float>& numbers,
                       std::vector<std::uint32_t>& made) {
  if (!encode_normal(coding, numbers.data(), count_, made.data(), bad_.data())) return;
  for (std::size_t i = 0; i < count_; ++i)
    if (bad_[i] != 0) bad_[i] = encode_float_exact(float_of(coding), numbers[i], made[i]) ? 0 : 1;
  reject_bad();
}

std::int64_t PlainMove::nonfinite(std::size_t row, std::int64_t& first) const {
  if (!any_nonfinite_) return 0;
  const PlainParams& here = from_.ops->plain;
  const std::uint32_t scale_bits = nonfinite_bits(coding(from_, here.scale));
  const std::uint32_t offset_bits =
      here.offset >= 0 ? nonfinite_bits(coding(from_, here.offset)) : 0;
  std::int64_t count = 0;
  for (std::size_t group = 0; group < groups_; ++group) {
    const std::size_t at = row * groups_ + group;
    if ((scale_[at] & scale_bits) != scale_bits &&
        (offset_bits == 0 || (offset_[at] & offset_bits) != offset_bits))
      continue;
    if (count++ == 0) first = static_cast<std::int64_t>(group);
  }
  return count;
}

std::span<const SignCode> PlainMove::sign_codes(std::size_t row) const {
  return std::span(sign_codes_).subspan(row * groups_, groups_);
}

void PlainMove::store(const MutablePlanes& target, std::int64_t row) const {
  const FormatOps& ops = *to_[0].ops;
  const auto rows = std::span(plain_).first(rows_.size());
  const bool all = std::ranges::all_of(rows, [](std::uint8_t one) { return one != 0; });
  for (const int which : {ops.plain.scale, ops.plain.offset, ops.plain.zero}) {
    if (which < 0) continue;
    if (all) {
      ops.write_patterns(target, which, row, static_cast<std::int64_t>(rows.size()), made_[which]);
      continue;
    }
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (rows[r] != 0)
        ops.write_patterns(target, which, row + static_cast<std::int64_t>(r), 1,
                           made_[which] + r * groups_);
  }
}

}  // namespace packstone
