#include "packstone/quantize/measure.h"

#include <algorithm>
#include <new>
#include <vector>

#include "packstone/base/check.h"
#include "packstone/quantize/error_report.h"
#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "quantize.measure";
constexpr std::int64_t kRowsAtATime = 8;

struct Worker {
  std::vector<float> decoded;
  std::vector<GroupValues> groups;
  QuantizeReport report;  // all but relative_rms
  ValueFault fault;
};

// Groups of a row that are lost: a scale of zero over a value that is not.
std::int64_t lost_groups(const PackedWeight& weight, std::span<const float> values,
                         std::int64_t row, std::span<GroupValues> groups) {
  if (weight.params().act_order || groups.empty()) return 0;
  group_values_row(weight, row, groups);
  const auto width = static_cast<std::size_t>(group_cols(weight.id(), weight.params()));
  std::int64_t lost = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto part = values.subspan(g * width, std::min(width, values.size() - g * width));
    lost += is_lost(part, groups[g]);
  }
  return lost;
}

}  // namespace

Result<QuantizeReport> measure(const PackedWeight& weight, const MatrixView& values,
                               ThreadPool& pool, std::string_view subject) {
  const Shape shape = weight.shape();
  PACKSTONE_ASSERT(values.rows == shape.rows && values.cols == shape.cols);
  const std::int64_t width = group_cols(weight.id(), weight.params());
  const auto cols = static_cast<std::size_t>(shape.cols);
  std::vector<ErrorSums> sums;
  std::vector<Worker> workers(static_cast<std::size_t>(pool.size()));
  try {
    sums.resize(static_cast<std::size_t>(shape.rows));
    for (Worker& worker : workers) {
      worker.decoded.resize(cols);
      worker.groups.resize(width > 0 ? static_cast<std::size_t>(ceil_div(shape.cols, width)) : 0);
    }
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory", "one row per thread");
  }
  auto work = [&](std::int64_t begin, std::int64_t end, int index) {
    Worker& worker = workers[static_cast<std::size_t>(index)];
    for (std::int64_t row = begin; row < end; ++row) {
      if (row > worker.fault.row) continue;
      const std::span<const float> source(values.row(row), cols);
      decode_row(weight, row, worker.decoded);
      if (add_errors(source, worker.decoded, row, worker.report,
                     sums[static_cast<std::size_t>(row)], worker.fault))
        worker.report.lost_groups += lost_groups(weight, source, row, worker.groups);
    }
  };
  pool.parallel(shape.rows, kRowsAtATime, work);
  QuantizeReport report;
  ValueFault fault;
  for (const Worker& worker : workers) {
    merge_reports(report, worker.report);
    if (worker.fault.row < fault.row) fault = worker.fault;
  }
  PACKSTONE_CHECK_OK(fault_status(fault, kWhere, weight.id(), subject));
  report.relative_rms = relative_rms(sums);
  return report;
}

Status check_finite(const MatrixView& values, std::string_view where, FormatId target,
                    std::string_view subject) {
  ValueFault fault;
  for (std::int64_t row = 0; row < values.rows && !fault.found(); ++row)
    check_finite({values.row(row), static_cast<std::size_t>(values.cols)}, row, fault);
  return fault_status(fault, where, target, subject);
}

}  // namespace packstone
