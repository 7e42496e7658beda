// Exact moves between formats: codes and parameters move, no value changes, or the move is refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/thread_pool.h"
#include "packstone/transcode/unpack.h"

namespace packstone {

enum class Verdict { kSameBytes, kSameValues, kSameValuesMoreBytes, kRefused, kChanged };

// "same_bytes", "same_values", "same_values_more_bytes", "refused", "changed".
std::string_view verdict_name(Verdict verdict);

// Owned planes of a weight under construction, zeroed.
struct OwnedWeight {
  FormatId id{};
  Shape shape;
  FormatParams params;
  std::vector<std::vector<std::byte>> planes;
  static Result<OwnedWeight> allocate(FormatId id, Shape shape, const FormatParams& params);
  std::vector<unsigned char*> pointers();
  // The checked, immutable weight; takes the planes over.
  Result<PackedWeight> release(std::string_view subject) &&;
};

// What the transcoder is asked for. `group_cols` 0 and no metadata type mean: choose the smallest
// that is exact (the source's group if the target has it; 16-bit metadata if every value fits, in
// the source's type first, else float32).
struct TranscodeTarget {
  FormatId id{};
  std::int32_t group_cols = 0;
  std::optional<FloatType> metadata = std::nullopt;
  std::int32_t group_rows = 0;  // rows that share parameters; 0: the source's, or 1
};

struct TranscodePlan {
  Verdict verdict = Verdict::kRefused;
  FormatParams params;                  // of the target, chosen
  std::vector<std::string> conditions;  // what was checked on the way
  std::string reason;                   // of a refusal: place, rule, what would work
};

// plan_transcode(source, target, pool) reads the source's parameters (and codes where needed) and
// decides; a plan that is not refused cannot fail later, memory aside.
// Exact: a proof: every value of the target equals the source's as a real number (NaN equals NaN);
// values whose sign of zero changes, and non-finite groups, are counted in conditions. kSameBytes
// is given only after the way back, made in full, gave the source's codes and stored patterns (the
// way back asks for the source's group and metadata type).
// Conditions and reasons count rows as `row_order` has them: row i is source row row_order[i]
// (identity when empty).
// Errors: none beyond the verdict. Threads: the pool given; result independent of its size.
TranscodePlan plan_transcode(const PackedWeight& source, const TranscodeTarget& target,
                             ThreadPool& pool, std::span<const std::int32_t> row_order = {});

// header_verdict(id, shape, params, target): the best verdict possible, from headers only (dry
// run); conditions name what depends on the values. Errors: none. Cost: none.
TranscodePlan header_verdict(FormatId id, Shape shape, const FormatParams& params,
                             const TranscodeTarget& target);

// transcode(source, plan, target, row_order, pool) makes the target weight; target row i is source
// row row_order[i] (identity when empty). Errors: kExhausted (memory); kNotRepresentable when the
// plan says refused.
Result<PackedWeight> transcode(const PackedWeight& source, const TranscodePlan& plan,
                               const TranscodeTarget& target,
                               std::span<const std::int32_t> row_order, ThreadPool& pool);

// How codes and parameters move: plain rows pattern by pattern, or every row group by group, which
// is slower and what the first is tested against.
enum class MoveWay { kPlain, kByGroup };

// plan_transcode_by and transcode_by: plan_transcode and transcode by a way. Exact: the same plans
// and bytes for both ways.
TranscodePlan plan_transcode_by(MoveWay way, const PackedWeight& source,
                                const TranscodeTarget& target, ThreadPool& pool,
                                std::span<const std::int32_t> row_order = {});
Result<PackedWeight> transcode_by(MoveWay way, const PackedWeight& source,
                                  const TranscodePlan& plan, const TranscodeTarget& target,
                                  std::span<const std::int32_t> row_order, ThreadPool& pool);

// permute_rows: the same format and bits, rows reordered.
Result<PackedWeight> permute_rows(const PackedWeight& source,
                                  std::span<const std::int32_t> row_order, ThreadPool& pool);

// Value comparison of two weights of one shape, as real numbers; rows of b through b_rows.
struct ValueComparison {
  bool same_values = true;          // -0 equals +0; NaN equals NaN
  bool same_bits = true;            // of the decoded binary32 values
  double max_abs = 0;               // largest difference; infinity where only one is finite
  std::int64_t row = -1, col = -1;  // where
};
ValueComparison compare_values(const PackedWeight& a, std::span<const std::int32_t> a_rows,
                               const PackedWeight& b, std::span<const std::int32_t> b_rows,
                               ThreadPool& pool);

}  // namespace packstone
