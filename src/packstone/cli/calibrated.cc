#include "packstone/cli/calibrated.h"

#include <map>
#include <new>

#include "packstone/cli/layer_scales.h"
#include "packstone/cli/progress.h"
#include "packstone/kernel/matmul/product.h"
#include "packstone/model/layer_walk.h"
#include "packstone/quantize/second_moment.h"

namespace packstone::cli {
namespace {

class Run {
 public:
  Run(const Checkpoint& source, const CalibratedMethod& method, const Journal& journal,
      ConversionPlan& plan, Context& context, std::string_view command)
      : source_(source), method_(method), journal_(journal), context_(context), command_(command) {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i)
      if (plan.tensors[i].action == Action::kQuantize)
        wanted_[plan.tensors[i].source->name] = {i, &plan.tensors[i]};
    product_ = [this](const MatrixView& a, const MatrixView& b, float* out, std::int64_t stride) {
      float_product(a, b, out, stride, context_.pool());
    };
    if (method.scaled) scales_.emplace(source, plan, product_, context);
  }

  Status layers(LayerWalk& walk, LayerWalk* original);
  Status head(LayerWalk& walk, LayerWalk* original);

 private:
  // Hands over the inputs of a stage, with those of the unquantized model if the method wants them.
  using Inputs = std::function<Status(const LayerWalk::PairSink&)>;
  // Of the inputs that some matrices share.
  struct Statistics {
    SecondMoment moment;
    std::optional<CrossMoment> drift;
  };
  Status stage(LayerWalk& walk, LayerWalk* original, LayerStage stage);
  // Quantizes the wanted ones of these matrices, which share their inputs.
  Status matrices(const std::vector<std::string>& names, const Inputs& inputs, LayerWalk* walk);
  Result<Statistics> statistics(const std::vector<std::string>& names, std::int64_t cols,
                                const Inputs& inputs);
  struct Wanted {
    std::size_t index;
    TensorPlan* tensor;
  };
  Status quantize(TensorPlan& tensor, const Statistics& statistics);
  Status round(const Wanted& wanted);

  const Checkpoint& source_;
  const CalibratedMethod& method_;
  const Journal& journal_;
  Context& context_;
  std::string_view command_;
  std::map<std::string, Wanted, std::less<>> wanted_;
  MatrixProduct product_;
  std::optional<LayerScales> scales_;
};

Result<Run::Statistics> Run::statistics(const std::vector<std::string>& names, std::int64_t cols,
                                        const Inputs& inputs) {
  PACKSTONE_TRY(SecondMoment moment, SecondMoment::make(cols, names.front()));
  std::optional<CrossMoment> drift;
  if (method_.against_original) {
    PACKSTONE_TRY(drift, CrossMoment::make(cols, names.front()));
  }
  PACKSTONE_CHECK_OK(inputs([&](const MatrixView& wanted, const MatrixView& rows) {
    moment.add(rows, product_);
    if (drift) drift->add(wanted, rows, product_);
  }));
  moment.finish(product_);
  if (drift) drift->finish(product_);
  const std::int64_t seen = moment.rows() + moment.dropped();
  if (moment.rows() < 1 || 10 * moment.dropped() > seen)  // make() refuses a walk without tokens
    return fail(ErrorCode::kNotRepresentable, fmt::format("cli.{}", command_), names.front(),
                fmt::format("{} of {} input rows that are not finite", moment.dropped(), seen),
                "at most a tenth", "the model overflows on this text");
  return Statistics{std::move(moment), std::move(drift)};
}

Status Run::quantize(TensorPlan& tensor, const Statistics& statistics) {
  const Shape shape = tensor.source->weight.shape();
  PACKSTONE_TRY(std::vector<float> values, decode_matrix(*tensor.source, context_.pool()));
  if (scales_) scales_->apply(tensor.source->name, shape, values);
  const MatrixView weight{values.data(), shape.rows, shape.cols, shape.cols};
  if (method_.nearest) {
    std::vector<float> importance(static_cast<std::size_t>(shape.cols));
    for (std::size_t c = 0; c < importance.size(); ++c)
      importance[c] = statistics.moment.matrix()[c * (importance.size() + 1)];
    PACKSTONE_TRY(Quantized result,
                  round_to_grid(weight, importance, tensor.target.id, tensor.plan.params,
                                context_.pool(), tensor.source->name));
    tensor.report = result.report;
    tensor.made = std::move(result.weight);
    return {};
  }
  FeedbackInput input{weight, statistics.moment.matrix(), method_.damping};
  if (statistics.drift) input.drift = statistics.drift->matrix();
  PACKSTONE_TRY(
      FeedbackResult result,
      quantize_with_feedback(input, tensor.target.id, tensor.plan.params, method_.feedback,
                             product_, context_.pool(), tensor.source->name));
  tensor.report = result.report;
  tensor.proxy_error = result.proxy_error;
  tensor.loss = result.loss;
  tensor.made = std::move(result.weight);
  return {};
}

Status Run::matrices(const std::vector<std::string>& names, const Inputs& inputs, LayerWalk* walk) {
  std::vector<Wanted> tensors, missing;
  for (const std::string& name : names) {
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) continue;
    tensors.push_back(found->second);
    TensorPlan& tensor = *found->second.tensor;
    tensor.made = journal_.find(found->second.index, tensor);
    if (!tensor.made) missing.push_back(found->second);
  }
  if (!missing.empty()) {
    PACKSTONE_TRY(const Statistics seen,
                  statistics(names, missing.front().tensor->source->weight.shape().cols, inputs));
    for (const Wanted& wanted : missing) {
      PACKSTONE_CHECK_OK(context_.check_cancel(command_));
      PACKSTONE_CHECK_OK(quantize(*wanted.tensor, seen));
      PACKSTONE_CHECK_OK(journal_.add(wanted.index, *wanted.tensor));
    }
  } else {
    PACKSTONE_CHECK_OK(context_.check_cancel(command_));
    PACKSTONE_CHECK_OK(inputs([](const MatrixView&, const MatrixView&) {}));
  }
  for (const Wanted& wanted : tensors)
    if (walk != nullptr)
      PACKSTONE_CHECK_OK(walk->replace(wanted.tensor->source->name, *wanted.tensor->made));
  return {};
}

Status Run::stage(LayerWalk& walk, LayerWalk* original, LayerStage stage) {
  const auto inputs = [&](const LayerWalk::PairSink& sink) {
    if (original != nullptr) return LayerWalk::paired_inputs(*original, walk, stage, sink);
    return walk.inputs(stage, [&](const MatrixView& rows) { sink({}, rows); });
  };
  return matrices(walk.matrices(stage), inputs, &walk);
}

Status Run::layers(LayerWalk& walk, LayerWalk* original) {
  Progress progress(context_, "quantizing", static_cast<std::uint64_t>(walk.layers()));
  while (walk.layer() < walk.layers()) {
    if (scales_) PACKSTONE_CHECK_OK(scales_->search(walk));
    for (const LayerStage one : kLayerStages) PACKSTONE_CHECK_OK(stage(walk, original, one));
    PACKSTONE_CHECK_OK(walk.next_layer());
    if (original != nullptr) PACKSTONE_CHECK_OK(original->next_layer());
    progress.add(1);
  }
  progress.finish();
  return {};
}

Status Run::head(LayerWalk& walk, LayerWalk* original) {
  const auto inputs = [&](const LayerWalk::PairSink& sink) {
    if (original != nullptr) return LayerWalk::paired_head_inputs(*original, walk, sink);
    return walk.head_inputs([&](const MatrixView& rows) { sink({}, rows); });
  };
  constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
  const std::string head(source_.config.tied_embeddings ? kEmbedding : "lm_head.weight");
  PACKSTONE_CHECK_OK(matrices({head}, inputs, nullptr));
  for (const auto& [name, wanted] : wanted_)
    if (!wanted.tensor->made) PACKSTONE_CHECK_OK(round(wanted));
  return {};
}

// A matrix that the text does not run through, as the embedding of a model with a head of its own:
// rounded to nearest, and the report says so.
Status Run::round(const Wanted& wanted) {
  TensorPlan& tensor = *wanted.tensor;
  tensor.plan.conditions.push_back("rounded to nearest: no calibration text runs through it");
  tensor.made = journal_.find(wanted.index, tensor);
  if (tensor.made) return {};
  const Shape shape = tensor.source->weight.shape();
  PACKSTONE_TRY(const std::vector<float> values, decode_matrix(*tensor.source, context_.pool()));
  PACKSTONE_TRY(Quantized result, round_to_grid({values.data(), shape.rows, shape.cols, shape.cols},
                                                {}, tensor.target.id, tensor.plan.params,
                                                context_.pool(), tensor.source->name));
  tensor.report = result.report;
  tensor.made = std::move(result.weight);
  return journal_.add(wanted.index, tensor);
}

}  // namespace

Result<std::vector<float>> decode_matrix(const CheckpointTensor& tensor, ThreadPool& pool) {
  const Shape shape = tensor.weight.shape();
  const std::vector<std::int32_t> stored = tensor.stored_rows();
  try {
    std::vector<float> values(static_cast<std::size_t>(shape.rows * shape.cols));
    auto work = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row)
        decode_row(tensor.weight, stored.empty() ? row : stored[static_cast<std::size_t>(row)],
                   std::span(values).subspan(static_cast<std::size_t>(row * shape.cols),
                                             static_cast<std::size_t>(shape.cols)));
    };
    pool.parallel(shape.rows, 8, work);
    return values;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "cli.decode_matrix", tensor.name, "too little memory",
                fmt::format("{} MiB", shape.rows * shape.cols >> 18));
  }
}

std::uint64_t calibrated_memory(const Checkpoint& source, const ConversionPlan& plan,
                                const CalibratedMethod& method, std::int64_t samples,
                                std::int64_t length) {
  const ModelConfig& c = source.config;
  const std::int64_t heads = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const std::int64_t between = samples * length * (c.hidden + heads);
  const std::int64_t buffers = length * (3 * c.hidden + 2 * heads + 2 * kv + 2 * c.intermediate) +
                               2 * c.layers * kv * length;
  std::int64_t largest = 0;
  for (const TensorPlan& tensor : plan.tensors) {
    if (tensor.action != Action::kQuantize) continue;
    const auto [rows, cols] = tensor.source->weight.shape();
    // Floats of the matrix and of a slice three times, its codes; the Hessian four times as floats
    // and, while it is factored, twice as doubles; pieces of 512 rows.
    const std::int64_t slice = std::min<std::int64_t>(rows * cols, 1 << 24);
    std::int64_t needed = rows * cols + 3 * slice + 8 * cols * cols + 1152 * cols;
    // The drift, the correction and its transpose; values and their share of a slice.
    if (method.against_original) needed += slice + 5 * cols * cols + 1152 * cols;
    // The moments of the four stages, and a copy of the values with two samples of 256 rows.
    if (method.scaled)
      needed += rows * cols + 1024 * cols + c.intermediate * c.intermediate +
                2 * c.hidden * c.hidden + heads * heads;
    largest = std::max(largest, needed);
  }
  const std::int64_t walks = method.against_original ? 2 : 1;
  return static_cast<std::uint64_t>(walks * (between + buffers) + largest) * sizeof(float);
}

Status quantize_calibrated(const Checkpoint& source, const Calibration& calibration,
                           const CalibratedMethod& method, const Journal& journal,
                           ConversionPlan& plan, Context& context, std::string_view command) {
  PACKSTONE_TRY(LayerWalk walk, LayerWalk::make(source, calibration.sequences, context.pool()));
  std::optional<LayerWalk> original;
  if (method.against_original) {
    PACKSTONE_TRY(original, LayerWalk::make(source, calibration.sequences, context.pool()));
  }
  LayerWalk* const wanted = original ? &*original : nullptr;
  Run run(source, method, journal, plan, context, command);
  PACKSTONE_CHECK_OK(run.layers(walk, wanted));
  return run.head(walk, wanted);
}

}  // namespace packstone::cli
