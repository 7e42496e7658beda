// packstone bench kernel: y = x W^T of every format, checked against float64, then timed.
#include <algorithm>
#include <chrono>
#include <random>

#include "packstone/cli/arguments.h"
#include "packstone/cli/layouts.h"
#include "packstone/cli/model_options.h"
#include "packstone/cli/output.h"
#include "packstone/cli/process.h"
#include "packstone/cli/statistics.h"
#include "packstone/format/registry.h"
#include "packstone/format/variants.h"
#include "packstone/kernel/matmul/linear.h"
#include "packstone/transcode/transcode.h"
#include "packstone/transcode/unpack.h"

namespace packstone::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct KernelCall {
  std::string layout;
  std::int64_t rows = 2048, cols = 2048, batch = 1, repeats = 5;
};

// More than the caches of today's processors hold, so that weights come from memory as in a model.
constexpr std::uint64_t kFootprint = 256ull << 20;
constexpr double kSecondsPerRepeat = 0.05;
constexpr std::uint64_t kSeed = 1;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A parameter pattern that decodes to a small finite number.
std::uint32_t random_param(const ParamSpec& spec, const FormatParams& params,
                           std::mt19937_64& random) {
  const float value = std::uniform_real_distribution<float>(0.001f, 0.01f)(random);
  switch (spec.coding) {
    case ParamCoding::kMetadata:
      return encode_float(params.metadata, value);
    case ParamCoding::kF16:
      return encode_float(FloatType::kF16, value);
    case ParamCoding::kF32:
      return encode_float(FloatType::kF32, value);
    case ParamCoding::kE8M0:
      return 120;
    case ParamCoding::kE4M3:
      return 32;  // 2^-3
    default:
      return static_cast<std::uint32_t>(random() & ((1ull << spec.bits) - 1));
  }
}

template <CodedFormat F>
void fill_row(Shape shape, const FormatParams& params, unsigned char* const* planes,
              std::int64_t row, std::mt19937_64& random) {
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(shape.cols));
  std::uniform_real_distribution<float> value(-1, 1);
  for (std::uint32_t& code : codes) {
    if constexpr (F::Scheme::kKind == SchemeKind::kFloat) {
      const FloatType type = F::kCodeBits == 32                          ? FloatType::kF32
                             : F::kLayout == std::string_view("float16") ? FloatType::kF16
                                                                         : FloatType::kBF16;
      code = encode_float(type, value(random));
    } else {
      code = static_cast<std::uint32_t>(random() & ((1ull << F::kCodeBits) - 1));
    }
  }
  std::vector<RawParams> raw(static_cast<std::size_t>(ceil_div(shape.cols, F::group_cols(params))));
  for (RawParams& group : raw)
    for (std::size_t which = 0; which < F::kParams.size(); ++which)
      group.pattern[which] = random_param(F::kParams[which], params, random);
  pack_row(kFormatId<F>, shape, params, planes, row, codes, raw);
}

Result<PackedWeight> random_weight(FormatId id, Shape shape, const FormatParams& params) {
  std::mt19937_64 random(kSeed);
  PACKSTONE_TRY(OwnedWeight weight, OwnedWeight::allocate(id, shape, params));
  const std::vector<unsigned char*> planes = weight.pointers();
  visit(id, [&]<class F>() {
    for (std::int64_t row = 0; row < shape.rows; ++row)
      fill_row<F>(shape, params, planes.data(), row, random);
  });
  return std::move(weight).release("cli.bench_kernel");
}

// The same weight at other addresses, until the footprint is reached.
Result<std::vector<Linear>> linears(const PackedWeight& weight) {
  std::vector<Linear> list;
  const std::uint64_t copies =
      std::max<std::uint64_t>(1, kFootprint / std::max<std::uint64_t>(1, weight.bytes()));
  for (std::uint64_t i = 0; i < copies; ++i) {
    PACKSTONE_TRY(OwnedWeight copy,
                  OwnedWeight::allocate(weight.id(), weight.shape(), weight.params()));
    for (int plane = 0; plane < weight.plane_count(); ++plane)
      std::ranges::copy(weight.plane(plane), copy.planes[static_cast<std::size_t>(plane)].begin());
    PACKSTONE_TRY(PackedWeight released, std::move(copy).release("cli.bench_kernel"));
    PACKSTONE_TRY(Linear linear, Linear::prepare(std::move(released)));
    list.push_back(std::move(linear));
  }
  return list;
}

// |y - reference| <= k 2^-23 sum |x||w| for every output: float32 sums in any order keep this.
bool check(const PackedWeight& weight, const std::vector<float>& x, const std::vector<float>& y,
           std::int64_t batch) {
  const Shape shape = weight.shape();
  const auto cols = static_cast<std::size_t>(shape.cols);
  std::vector<float> row_values(cols);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    decode_row(weight, row, row_values);
    for (std::int64_t i = 0; i < batch; ++i) {
      double sum = 0, magnitude = 0;
      for (std::size_t c = 0; c < cols; ++c) {
        const double product = static_cast<double>(row_values[c]) *
                               static_cast<double>(x[static_cast<std::size_t>(i) * cols + c]);
        sum += product;
        magnitude += std::abs(product);
      }
      const double got = y[static_cast<std::size_t>(i * shape.rows + row)];
      if (!(std::abs(got - sum) <= static_cast<double>(shape.cols) * 0x1p-23 * magnitude))
        return false;
    }
  }
  return true;
}

// Bytes a second that the pool's threads read from memory, the best of five passes.
double read_ceiling(ThreadPool& pool) {
  std::vector<std::uint64_t> buffer(kFootprint / sizeof(std::uint64_t), 1);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool.size()) * 8);
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const Clock::time_point start = Clock::now();
    auto task = [&](std::int64_t begin, std::int64_t end, int worker) {
      std::uint64_t sum = 0;
      for (std::int64_t i = begin; i < end; ++i) sum += buffer[static_cast<std::size_t>(i)];
      sums[static_cast<std::size_t>(worker) * 8] += sum;
    };
    pool.parallel(static_cast<std::int64_t>(buffer.size()), 1 << 16, task);
    best = std::max(best, static_cast<double>(kFootprint) / seconds_since(start));
  }
  return sums[0] > 0 ? best : 0;
}

struct Timed {
  double seconds = 0;
  bool checked = false;
  std::string kernel;
  std::uint64_t bytes = 0;
};

Result<Timed> time_format(FormatId id, const FormatParams& params, const KernelCall& call,
                          Context& context) {
  const Shape shape{call.rows, call.cols};
  PACKSTONE_TRY(const PackedWeight weight, random_weight(id, shape, params));
  PACKSTONE_TRY(const std::vector<Linear> list, linears(weight));
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> x(static_cast<std::size_t>(call.batch * call.cols)),
      y(static_cast<std::size_t>(call.batch * call.rows));
  for (float& v : x) v = value(random);
  const MatmulWorkspace workspace(context.pool().size(), call.cols);
  std::size_t next = 0;
  const auto run = [&] {
    list[next].run(x.data(), call.batch, call.cols, y.data(), call.rows, context.pool(), workspace);
    next = (next + 1) % list.size();
  };
  run();
  Timed timed{0, check(weight, x, y, call.batch), std::string(list[0].kernel_name()),
              weight.bytes() + 4 * (x.size() + y.size())};
  std::vector<double> seconds;
  for (std::int64_t repeat = 0; repeat < call.repeats; ++repeat) {
    PACKSTONE_CHECK_OK(context.check_cancel("bench_kernel"));
    const Clock::time_point start = Clock::now();
    std::int64_t count = 0;
    do {
      run();
      ++count;
    } while (seconds_since(start) < kSecondsPerRepeat);
    seconds.push_back(seconds_since(start) / static_cast<double>(count));
  }
  timed.seconds = median(seconds);
  return timed;
}

Json row_json(FormatId id, const FormatParams& params, const KernelCall& call, const Timed& timed,
              double ceiling) {
  const double bytes_per_s = rate(static_cast<double>(timed.bytes), timed.seconds);
  const double operations = 2.0 * static_cast<double>(call.batch) * static_cast<double>(call.rows) *
                            static_cast<double>(call.cols);
  Json row;
  row["name"] = layout_text(id, params);
  row["shape"] = {call.batch, call.rows, call.cols};
  row["seconds_median"] = timed.seconds;
  row["bytes"] = timed.bytes;
  row["gb_per_s"] = bytes_per_s / 1e9;
  row["gops"] = rate(operations, timed.seconds) / 1e9;
  row["ceiling_fraction"] = ceiling > 0 ? bytes_per_s / ceiling : 0;
  row["checked"] = timed.checked;
  row["kernel"] = timed.kernel;
  return row;
}

Result<std::vector<FormatId>> wanted_formats(const KernelCall& call) {
  if (call.layout.empty()) return all_formats();
  PACKSTONE_TRY(const LayoutTarget target, parse_layout("bench_kernel", call.layout));
  if (target.described)
    return fail(ErrorCode::kUnsupported, "cli.bench_kernel", "--layout",
                fmt::format("`{}`", target.name), "a layout with kernels",
                "`packstone formats` lists them");
  return target.family;
}

// Groups of 64, or of 128, or the first there is.
FormatParams common_params(const std::vector<FormatParams>& variants) {
  for (const std::int32_t group : {64, 128})
    for (const FormatParams& params : variants)
      if (params.group_cols == group) return params;
  return variants.front();
}

Result<int> run_call(const KernelCall& call, Context& context) {
  PACKSTONE_TRY(const std::vector<FormatId> ids, wanted_formats(call));
  const double ceiling = read_ceiling(context.pool());
  Json rows = Json::array();
  bool all_checked = true;
  for (FormatId id : ids) {
    const std::vector<FormatParams> variants = legal_variants(id, {call.rows, call.cols});
    if (variants.empty() || !format_info(id).writable || format_info(id).block_codes) {
      context.err << fmt::format("{}: left out, no random weight of this shape\n",
                                 format_info(id).name);
      continue;
    }
    const FormatParams params = common_params(variants);
    PACKSTONE_TRY(const Timed timed, time_format(id, params, call, context));
    all_checked &= timed.checked;
    rows.push_back(row_json(id, params, call, timed, ceiling));
    if (context.json) continue;
    const Json& row = rows.back();
    context.out << fmt::format(
                       "{:<30} {}x{}x{}  {:.6f} s  {:7.2f} GB/s  {:7.2f} Gop/s  {:5.1f} % of read "
                       "ceiling  {}  {}\n",
                       layout_text(id, params), call.batch, call.rows, call.cols, timed.seconds,
                       row["gb_per_s"].get<double>(), row["gops"].get<double>(),
                       100 * row["ceiling_fraction"].get<double>(), timed.kernel,
                       timed.checked ? "checked" : "WRONG")
                << std::flush;
  }
  if (context.json)
    print_json(context.out, Json{{"rows", rows},
                                 {"read_ceiling_gb_per_s", ceiling / 1e9},
                                 {"machine", machine_name()}});
  else
    context.out << fmt::format("read ceiling {:.2f} GB/s, {}\n", ceiling / 1e9, machine_name());
  if (all_checked) return 0;
  return fail(ErrorCode::kDevice, "cli.bench_kernel", "check", "a result outside of its bound",
              "none", "the row says WRONG");
}

}  // namespace

Result<int> run_bench_kernel(Arguments arguments, Context& context) {
  Options app("bench kernel",
              "One linear layer in every format: checked against float64 sums, then timed with the "
              "weights coming from memory. The ceiling is this machine's measured read speed.");
  KernelCall call;
  app.text("--layout", call.layout, "one LAYOUT only");
  app.number("--rows", call.rows, 1, 1 << 17, "outputs; default 2048");
  app.number("--cols", call.cols, 1, 1 << 17, "inputs; default 2048");
  app.number("--batch", call.batch, 1, 4096, "rows of x; default 1");
  app.number("--repeats", call.repeats, 1, 1000, "timings; the median counts; default 5");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  return run_call(call, context);
}

}  // namespace packstone::cli
