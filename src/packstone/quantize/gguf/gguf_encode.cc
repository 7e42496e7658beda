#include "packstone/quantize/gguf/gguf_encode.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "packstone/quantize/error_report.h"
#include "packstone/quantize/gguf/block_encoder.h"
#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

using gguf::BlockEncoder;
using gguf::BlockInput;
using gguf::BlockOutput;

constexpr std::int64_t kRowsAtATime = 4;
constexpr std::string_view kWhere = "quantize.gguf_encode";
constexpr float kImportanceFloor = 0x1p-20f;

constexpr float kHalfMax = 65504.0f;

// The list of encoders. `largest` is a bound of what finite parameters decode to.
constexpr BlockEncoder kEncoders[] = {
    {"gguf:Q1_0", 128, false, kHalfMax, gguf::parity_q1_0, gguf::search_q1_0},
    {"gguf:Q2_0", 64, false, 2 * kHalfMax, gguf::parity_q2_0, gguf::search_q2_0},
    {"gguf:Q4_0", 32, true, 8 * kHalfMax, gguf::parity_q4_0, gguf::search_q4_0},
    {"gguf:Q4_1", 32, true, 16 * kHalfMax, gguf::parity_q4_1, gguf::search_q4_1},
    {"gguf:Q5_0", 32, true, 16 * kHalfMax, gguf::parity_q5_0, gguf::search_q5_0},
    {"gguf:Q5_1", 32, true, 32 * kHalfMax, gguf::parity_q5_1, gguf::search_q5_1},
    {"gguf:Q8_0", 32, false, 128 * kHalfMax, gguf::parity_q8_0, gguf::search_q8_0},
    {"gguf:Q2_K", 256, false, 15 * kHalfMax, gguf::parity_q2_k, gguf::search_q2_k},
    {"gguf:Q3_K", 256, false, 124 * kHalfMax, gguf::parity_q3_k, gguf::search_q3_k},
    {"gguf:Q4_K", 256, false, 63 * kHalfMax, gguf::parity_q4_k, gguf::search_q4_k},
    {"gguf:Q5_K", 256, false, 63 * kHalfMax, gguf::parity_q5_k, gguf::search_q5_k},
    {"gguf:Q6_K", 256, false, 32 * 127 * kHalfMax, gguf::parity_q6_k, gguf::search_q6_k},
    {"gguf:TQ1_0", 256, false, kHalfMax, gguf::parity_ternary, gguf::search_ternary},
    {"gguf:TQ2_0", 256, false, kHalfMax, gguf::parity_ternary, gguf::search_ternary},
    {"gguf:IQ4_NL", 32, false, 127 * kHalfMax, gguf::parity_iq4_nl, gguf::search_iq4_nl},
    {"gguf:IQ4_XS", 256, false, 127 * 31 * kHalfMax, gguf::parity_iq4_xs, gguf::search_iq4_xs},
    {"gguf:MXFP4", 32, false, 0x1.8p127f, gguf::parity_mxfp4, gguf::search_mxfp4},
    {"gguf:NVFP4", 64, false, 2688.0f, gguf::parity_nvfp4, gguf::search_nvfp4},
};

// Buffers of one thread and what it found.
struct alignas(64) Worker {
  std::vector<float> values, decoded;     // of a row
  std::vector<std::uint8_t> codes;        // of a row
  std::vector<RawParams> raw;             // of a row
  std::vector<GroupValues> groups;        // of a row
  std::vector<float> weights;             // of a block
  std::vector<std::uint8_t> tried_codes;  // of a block
  std::vector<RawParams> tried_raw;       // of a block
  std::vector<GroupValues> block_groups;  // of a block
  ValueFault fault;
  QuantizeReport report;  // all but relative_rms
  std::int64_t from_search = 0;
};

struct RowSums {
  ErrorSums plain, weighted;
};

struct Job {
  const RowSource& source;
  const GgufEncodeOptions& options;
  const BlockEncoder& encoder;
  FormatId id;
  Shape shape;
  FormatParams params;
  const FormatOps& ops;
  std::span<unsigned char* const> planes;
  std::span<RowSums> sums;
  std::size_t groups_of_block, group_cols;
};

float mean_square(std::span<const float> x) {
  float sum = 0;
  for (const float value : x) sum += value * value;
  return sum / static_cast<float>(x.size());
}

// sum w (x - decoded)^2 of a block.
double block_error(const Job& job, std::span<const float> x, std::span<const float> w,
                   std::span<const std::uint8_t> codes, std::span<const RawParams> raw,
                   std::span<GroupValues> groups) {
  job.ops.values(job.params, raw, groups);
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference =
        static_cast<double>(x[i]) - job.ops.value(groups[i / job.group_cols], codes[i]);
    error += static_cast<double>(w[i]) * (difference * difference);
  }
  return error;
}

// The weights of a block in best mode, the largest 1.
void search_weights(const Job& job, const BlockInput& input, std::span<float> weights) {
  float largest = 0;
  for (const float value : input.importance) largest = std::max(largest, value);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = largest > 0 ? std::max(input.importance[i] / largest, kImportanceFloor) : 1.0f;
  const bool magnitude = job.options.weighting == GgufWeighting::kAuto
                             ? input.importance.empty()
                             : job.options.weighting == GgufWeighting::kImportanceMagnitude;
  if (!magnitude) return;
  double sigma2 = input.row_mean_square;
  if (!job.encoder.row_sigma) {
    sigma2 = 0;
    for (const float value : input.x) sigma2 += static_cast<double>(value) * value;
    sigma2 /= static_cast<double>(input.x.size());
  }
  double top = 0, scaled[256];
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double value = input.x[i];
    scaled[i] = weights[i] * std::sqrt(sigma2 + value * value);
    top = std::max(top, scaled[i]);
  }
  if (!(top > 0)) return;
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(scaled[i] / top);
}

void encode_block(const Job& job, const BlockInput& input, const BlockOutput& output,
                  Worker& worker) {
  job.encoder.parity(input, output);
  if (job.options.mode == GgufMode::kParity) return;
  search_weights(job, input, worker.weights);
  const double before =
      block_error(job, input.x, worker.weights, output.codes, output.raw, worker.block_groups);
  if (before == 0) return;
  std::ranges::copy(output.codes, worker.tried_codes.begin());
  std::ranges::copy(output.raw, worker.tried_raw.begin());
  job.encoder.search(input.x, worker.weights, {worker.tried_codes, worker.tried_raw});
  const double after = block_error(job, input.x, worker.weights, worker.tried_codes,
                                   worker.tried_raw, worker.block_groups);
  // A NaN before is a block that parity cannot store.
  if (!std::isfinite(after) || before <= after) return;
  std::ranges::copy(worker.tried_codes, output.codes.begin());
  std::ranges::copy(worker.tried_raw, output.raw.begin());
  ++worker.from_search;
}

bool check_range(const Job& job, std::int64_t row, Worker& worker) {
  if (!check_finite(worker.values, row, worker.fault)) return false;
  if (job.options.mode == GgufMode::kParity) return true;
  for (std::size_t col = 0; col < worker.values.size(); ++col)
    if (std::abs(worker.values[col]) > job.encoder.largest) {
      worker.fault = {row, static_cast<std::int64_t>(col), worker.values[col], true};
      return false;
    }
  return true;
}

void count_lost_groups(const Job& job, Worker& worker) {
  job.ops.values(job.params, worker.raw, worker.groups);
  for (std::size_t group = 0; group < worker.groups.size(); ++group)
    worker.report.lost_groups +=
        is_lost(std::span(worker.values).subspan(group * job.group_cols, job.group_cols),
                worker.groups[group]);
}

void add_weighted(const Job& job, const Worker& worker, RowSums& sums) {
  const std::span<const float> importance = job.options.importance;
  if (importance.empty()) {
    sums.weighted = sums.plain;
    return;
  }
  for (std::size_t col = 0; col < importance.size(); ++col) {
    const double value = worker.values[col], error = worker.decoded[col] - value;
    sums.weighted.error += importance[col] * (error * error);
    sums.weighted.weight += importance[col] * (value * value);
  }
}

void encode_row(const Job& job, std::int64_t row, Worker& worker) {
  if (row > worker.fault.row) return;
  job.source(row, worker.values);
  if (!check_range(job, row, worker)) return;
  const auto block = static_cast<std::size_t>(job.encoder.block);
  const std::span<const float> importance = job.options.importance;
  const float row_mean_square = job.encoder.row_sigma ? mean_square(worker.values) : 0.0f;
  for (std::size_t begin = 0; begin < worker.values.size(); begin += block) {
    const BlockInput input{std::span(worker.values).subspan(begin, block),
                           importance.empty() ? importance : importance.subspan(begin, block),
                           row_mean_square};
    encode_block(job, input,
                 {std::span(worker.codes).subspan(begin, block),
                  std::span(worker.raw).subspan(begin / job.group_cols, job.groups_of_block)},
                 worker);
  }
  const MutablePlanes planes{job.planes.data(), job.shape, job.params};
  // Every encoder makes codes of its type only, so that blocks of codes always exist.
  job.ops.write_code_bytes(planes, {row, 1, 0, job.shape.cols, job.shape.cols},
                           worker.codes.data());
  job.ops.write_params(planes, row, worker.raw);
  const ConstPlanes written{job.planes.data(), job.shape, job.params};
  job.ops.decode_row(written, row, worker.decoded.data());
  RowSums& sums = job.sums[static_cast<std::size_t>(row)];
  if (!add_errors(worker.values, worker.decoded, row, worker.report, sums.plain, worker.fault))
    return;
  add_weighted(job, worker, sums);
  count_lost_groups(job, worker);
}

Status check_importance(Shape shape, std::span<const float> importance, std::string_view subject) {
  if (importance.empty()) return {};
  if (static_cast<std::int64_t>(importance.size()) != shape.cols)
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("an importance of {} columns", importance.size()),
                fmt::format("one of {}, the columns of the weight", shape.cols));
  for (std::size_t col = 0; col < importance.size(); ++col)
    if (!std::isfinite(importance[col]) || importance[col] < 0)
      return fail(ErrorCode::kInvalidInput, kWhere, subject,
                  fmt::format("importance {} of column {}", importance[col], col),
                  "finite numbers that are not negative",
                  "an importance is a mean of squares: collect it again");
  return {};
}

Status check(Shape shape, FormatId target, std::span<const float> importance,
             std::string_view subject) {
  const FormatInfo& format = format_info(target);
  if (!gguf_encode_supports(target))
    return fail(ErrorCode::kUnsupported, kWhere, subject, format.name,
                "a GGUF type of scaled levels: gguf:Q1_0 to Q8_0, Q2_K to Q6_K, TQ1_0, TQ2_0, "
                "IQ4_NL, IQ4_XS, MXFP4 or NVFP4");
  const char* rule = layout_rule(target, shape, {});
  if (rule == nullptr && (shape.rows < 1 || shape.cols < 1))
    rule = "at least one row and one block";
  if (rule != nullptr)
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} of [{}, {}]", format.name, shape.rows, shape.cols), rule);
  return check_importance(shape, importance, subject);
}

std::vector<Worker> make_workers(const Job& job, int count) {
  std::vector<Worker> workers(static_cast<std::size_t>(count));
  const auto cols = static_cast<std::size_t>(job.shape.cols);
  const auto block = static_cast<std::size_t>(job.encoder.block);
  for (Worker& worker : workers) {
    worker.values.resize(cols);
    worker.decoded.resize(cols);
    worker.codes.resize(cols);
    worker.raw.resize(cols / job.group_cols);
    worker.groups.resize(cols / job.group_cols);
    worker.weights.resize(block);
    worker.tried_codes.resize(block);
    worker.tried_raw.resize(job.groups_of_block);
    worker.block_groups.resize(job.groups_of_block);
  }
  return workers;
}

double relative(double error, double weight) {
  return weight > 0 ? std::sqrt(error / weight) : 0.0;
}

Result<GgufEncoded> run(const RowSource& source, OwnedWeight target,
                        const GgufEncodeOptions& options, ThreadPool& pool,
                        std::string_view subject) {
  const BlockEncoder& encoder = *gguf::find_block_encoder(target.id);
  const auto group = static_cast<std::size_t>(group_cols(target.id, target.params));
  const auto planes = target.pointers();
  std::vector<RowSums> sums(static_cast<std::size_t>(target.shape.rows));
  const Job job{source,
                options,
                encoder,
                target.id,
                target.shape,
                target.params,
                format_ops(target.id),
                planes,
                sums,
                static_cast<std::size_t>(encoder.block) / group,
                group};
  std::vector<Worker> workers = make_workers(job, pool.size());
  auto work = [&](std::int64_t begin, std::int64_t end, int index) {
    for (std::int64_t row = begin; row < end; ++row)
      encode_row(job, row, workers[static_cast<std::size_t>(index)]);
  };
  pool.parallel(job.shape.rows, kRowsAtATime, work);
  QuantizeReport report;
  ValueFault fault;
  std::int64_t from_search = 0;
  for (const Worker& worker : workers) {
    merge_reports(report, worker.report);
    from_search += worker.from_search;
    if (worker.fault.row < fault.row) fault = worker.fault;
  }
  PACKSTONE_CHECK_OK(fault_status(fault, kWhere, target.id, subject));
  RowSums total;
  for (const RowSums& row : sums) {
    total.plain.error += row.plain.error;
    total.plain.weight += row.plain.weight;
    total.weighted.error += row.weighted.error;
    total.weighted.weight += row.weighted.weight;
  }
  report.relative_rms = relative(total.plain.error, total.plain.weight);
  const std::int64_t blocks = job.shape.rows * (job.shape.cols / encoder.block);
  PACKSTONE_TRY(PackedWeight weight, std::move(target).release(subject));
  return GgufEncoded{std::move(weight), report,
                     relative(total.weighted.error, total.weighted.weight), blocks, from_search};
}

}  // namespace

const BlockEncoder* gguf::find_block_encoder(FormatId id) {
  for (const BlockEncoder& encoder : kEncoders)
    if (encoder.layout == format_info(id).layout) return &encoder;
  return nullptr;
}

bool gguf_encode_supports(FormatId target) {
  return gguf::find_block_encoder(target) != nullptr;
}

RowSource matrix_rows(const MatrixView& matrix) {
  return [matrix](std::int64_t row, std::span<float> out) {
    std::copy_n(matrix.row(row), out.size(), out.begin());
  };
}

Result<GgufEncoded> gguf_encode(const RowSource& source, Shape shape, FormatId target,
                                const GgufEncodeOptions& options, ThreadPool& pool,
                                std::string_view subject) {
  PACKSTONE_CHECK_OK(check(shape, target, options.importance, subject));
  try {
    PACKSTONE_TRY(OwnedWeight owned, OwnedWeight::allocate(target, shape, {}));
    return run(source, std::move(owned), options, pool, subject);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                "the result and one row per thread");
  }
}

}  // namespace packstone
