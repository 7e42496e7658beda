#include <algorithm>
#include <new>
#include <vector>

#include "packstone/quantize/error_report.h"
#include "packstone/quantize/group_rules.h"
#include "packstone/quantize/quantizer.h"

namespace packstone {
namespace {

constexpr std::int64_t kRowsAtATime = 8;
constexpr std::string_view kWhere = "quantize.rtn";

using Rule = void (*)(std::span<const float> x, const FormatInfo& format,
                      const FormatParams& params, std::span<std::uint32_t> codes, RawParams& raw);

template <void (*Block)(std::span<const float>, std::span<std::uint32_t>, RawParams&)>
void block_rule(std::span<const float> x, const FormatInfo&, const FormatParams&,
                std::span<std::uint32_t> codes, RawParams& raw) {
  Block(x, codes, raw);
}

void mlx_rule(std::span<const float> x, const FormatInfo& format, const FormatParams& params,
              std::span<std::uint32_t> codes, RawParams& raw) {
  quantize_mlx_affine(x, format.code_bits, params.metadata, codes, raw);
}

struct RuleEntry {
  std::string_view layout;
  Rule rule;
};

// The list of rules.
constexpr RuleEntry kRules[] = {
    {"mlx-affine", mlx_rule},
    {"gguf:Q4_0", block_rule<quantize_q4_0>},
    {"gguf:Q4_1", block_rule<quantize_q4_1>},
    {"gguf:Q8_0", block_rule<quantize_q8_0>},
};

Rule find_rule(FormatId target) {
  for (const RuleEntry& entry : kRules)
    if (entry.layout == format_info(target).layout) return entry.rule;
  return nullptr;
}

struct Worker {
  std::vector<float> values, decoded;
  std::vector<std::uint32_t> codes;
  std::vector<RawParams> raw;
  std::vector<GroupValues> groups;
  ValueFault fault;
  QuantizeReport report;  // all but relative_rms
};

struct Job {
  const RowSource& source;
  OwnedWeight& target;
  Rule rule;
  std::int64_t width;  // columns of a group
  std::span<unsigned char* const> planes;
  std::span<ErrorSums> errors;
};

void quantize_row(const Job& job, std::int64_t row, Worker& worker) {
  if (row > worker.fault.row) return;
  job.source(row, worker.values);
  if (!check_finite(worker.values, row, worker.fault)) return;
  const FormatInfo& format = format_info(job.target.id);
  const auto width = static_cast<std::size_t>(job.width);
  for (std::size_t group = 0; group < worker.raw.size(); ++group)
    job.rule(std::span(worker.values).subspan(group * width, width), format, job.target.params,
             std::span(worker.codes).subspan(group * width, width), worker.raw[group]);
  decode_params(job.target.id, job.target.params, worker.raw, worker.groups);
  for (std::size_t group = 0; group < worker.groups.size(); ++group) {
    const auto values = std::span(worker.values).subspan(group * width, width);
    worker.report.lost_groups += is_lost(values, worker.groups[group]);
    for (std::size_t i = 0; i < width; ++i)
      worker.decoded[group * width + i] =
          decode_value<LinearScheme>(worker.groups[group], worker.codes[group * width + i]);
  }
  if (!add_errors(worker.values, worker.decoded, row, worker.report,
                  job.errors[static_cast<std::size_t>(row)], worker.fault))
    return;
  pack_row(job.target.id, job.target.shape, job.target.params, job.planes.data(), row, worker.codes,
           worker.raw);
}

Status check(Shape shape, FormatId target, const FormatParams& params, std::string_view subject) {
  const FormatInfo& format = format_info(target);
  if (!rtn_supports(target))
    return fail(ErrorCode::kUnsupported, kWhere, subject, format.name,
                "mlx-affine, gguf:Q4_0, gguf:Q4_1 or gguf:Q8_0");
  if (const char* rule = layout_rule(target, shape, params))
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} of [{}, {}], group {}", format.name, shape.rows, shape.cols,
                            params.group_cols),
                rule);
  return {};
}

Result<Quantized> run(const RowSource& source, OwnedWeight target, ThreadPool& pool,
                      std::string_view subject) {
  const Shape shape = target.shape;
  const std::int64_t width = group_cols(target.id, target.params);
  const auto planes = target.pointers();
  std::vector<ErrorSums> errors(static_cast<std::size_t>(shape.rows));
  std::vector<Worker> workers(static_cast<std::size_t>(pool.size()));
  for (Worker& worker : workers) {
    worker.values.resize(static_cast<std::size_t>(shape.cols));
    worker.decoded.resize(worker.values.size());
    worker.codes.resize(worker.values.size());
    worker.raw.resize(static_cast<std::size_t>(ceil_div(shape.cols, width)));
    worker.groups.resize(worker.raw.size());
  }
  const Job job{source, target, find_rule(target.id), width, planes, errors};
  auto work = [&](std::int64_t begin, std::int64_t end, int index) {
    for (std::int64_t row = begin; row < end; ++row)
      quantize_row(job, row, workers[static_cast<std::size_t>(index)]);
  };
  pool.parallel(shape.rows, kRowsAtATime, work);
  QuantizeReport report;
  ValueFault fault;
  for (const Worker& worker : workers) {
    merge_reports(report, worker.report);
    if (worker.fault.row < fault.row) fault = worker.fault;
  }
  PACKSTONE_CHECK_OK(fault_status(fault, kWhere, target.id, subject));
  report.relative_rms = relative_rms(errors);
  PACKSTONE_TRY(PackedWeight weight, std::move(target).release(subject));
  return Quantized{std::move(weight), report};
}

}  // namespace

bool rtn_supports(FormatId target) {
  return find_rule(target) != nullptr;
}

Result<Quantized> rtn(const RowSource& source, Shape shape, FormatId target,
                      const FormatParams& params, ThreadPool& pool, std::string_view subject) {
  PACKSTONE_CHECK_OK(check(shape, target, params, subject));
  try {
    PACKSTONE_TRY(OwnedWeight owned, OwnedWeight::allocate(target, shape, params));
    return run(source, std::move(owned), pool, subject);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                "the result and one row per thread");
  }
}

}  // namespace packstone
