#include "packstone/quantize/folder_encode.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "packstone/quantize/error_report.h"
#include "packstone/quantize/folder/encoder.h"
#include "packstone/quantize/measure.h"
#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "quantize.folder_encode";

struct Entry {
  std::string_view layout;
  void (*encode)(const folder::Work& work);
  float largest;  // no finite parameters hold a greater magnitude; 0: only binary32 bounds it
};

constexpr float kNvfp4Largest = 448.0f * 6.0f;
constexpr Entry kEncoders[] = {
    {"bnb-nf4", folder::encode_bnb_4bit, 0},  {"bnb-nf4-nested", folder::encode_bnb_4bit, 0},
    {"bnb-fp4", folder::encode_bnb_4bit, 0},  {"bnb-fp4-nested", folder::encode_bnb_4bit, 0},
    {"bnb-int8", folder::encode_bnb_int8, 0}, {"qqq", folder::encode_qqq, 0},
    {"qqq-g128", folder::encode_qqq_g128, 0}, {"mxfp4", folder::encode_mx, 0},
    {"mlx-mxfp8", folder::encode_mx, 0},      {"mlx-nvfp4", folder::encode_nvfp4, kNvfp4Largest},
    {"ct-nvfp4", folder::encode_nvfp4, 0},    {"modelopt-nvfp4", folder::encode_nvfp4, 0},
};
constexpr Entry kFp8{"fp8", folder::encode_fp8, 0};

const Entry* find_encoder(FormatId id) {
  const std::string_view layout = format_info(id).layout;
  if (layout.starts_with("fp8")) return &kFp8;
  for (const Entry& entry : kEncoders)
    if (entry.layout == layout) return &entry;
  return nullptr;
}

Status check(const MatrixView& weight, FormatId target, const FormatParams& params,
             std::string_view subject) {
  const FormatInfo& format = format_info(target);
  const Entry* entry = find_encoder(target);
  if (entry == nullptr)
    return fail(ErrorCode::kUnsupported, kWhere, subject, format.name,
                "fp8, bitsandbytes, qqq, mxfp4, mxfp8 or nvfp4 of folders");
  const char* rule = layout_rule(target, {weight.rows, weight.cols}, params);
  if (rule == nullptr && (weight.rows < 1 || weight.cols < 1)) rule = "at least one value";
  if (rule != nullptr)
    return fail(ErrorCode::kInvalidInput, kWhere, subject,
                fmt::format("{} of [{}, {}], group {}", format.name, weight.rows, weight.cols,
                            params.group_cols),
                rule);
  PACKSTONE_CHECK_OK(check_finite(weight, kWhere, target, subject));
  if (entry->largest == 0) return {};
  for (std::int64_t row = 0; row < weight.rows; ++row)
    for (std::int64_t col = 0; col < weight.cols; ++col)
      if (std::abs(weight.row(row)[col]) > entry->largest)
        return fault_status({row, col, weight.row(row)[col], true}, kWhere, target, subject);
  return {};
}

// Rows that share a place of parameters with others are written by the first of them.
void pack(const folder::Work& work, OwnedWeight& owned) {
  const auto planes = owned.pointers();
  const FormatOps& ops = format_ops(owned.id);
  auto pack_rows = [&](std::int64_t begin, std::int64_t end, int) {
    const MutablePlanes target{planes.data(), owned.shape, owned.params};
    const std::int64_t cols = owned.shape.cols;
    ops.write_code_bytes(target, {begin, end - begin, 0, cols, cols}, work.codes + begin * cols);
    for (std::int64_t row = begin; row < end; ++row)
      ops.write_params(target, row,
                       {work.raw + row * work.groups, static_cast<std::size_t>(work.groups)});
  };
  work.pool->parallel(owned.shape.rows, kPackUnitRows, pack_rows);
}

}  // namespace

bool folder_encode_supports(FormatId target) {
  return find_encoder(target) != nullptr;
}

Result<Quantized> folder_encode(const MatrixView& weight, FormatId target,
                                const FormatParams& params, EncodeMode mode, ThreadPool& pool,
                                std::string_view subject) {
  PACKSTONE_CHECK_OK(check(weight, target, params, subject));
  try {
    PACKSTONE_TRY(OwnedWeight owned,
                  OwnedWeight::allocate(target, {weight.rows, weight.cols}, params));
    const std::int64_t group = group_cols(target, params), groups = ceil_div(weight.cols, group);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(weight.rows * weight.cols));
    std::vector<RawParams> raw(static_cast<std::size_t>(weight.rows * groups));
    const folder::Work work{weight,    target, params, mode == EncodeMode::kBest,
                            &pool,     group,  groups, codes.data(),
                            raw.data()};
    find_encoder(target)->encode(work);
    pack(work, owned);
    PACKSTONE_TRY(PackedWeight packed, std::move(owned).release(subject));
    PACKSTONE_TRY(const QuantizeReport report, measure(packed, weight, pool, subject));
    return Quantized{std::move(packed), report};
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                "the result, its codes as bytes and its parameters");
  }
}

}  // namespace packstone
