#include "packstone/cli/layer_scales.h"

#include <cmath>
#include <optional>

#include "packstone/cli/calibrated.h"
#include "packstone/model/registry.h"
#include "packstone/quantize/awq.h"
#include "packstone/quantize/second_moment.h"

namespace packstone::cli {
namespace {

// Text that a search looks at: a layer's scales settle long before its Hessian does.
constexpr std::int64_t kSequencesMax = 32;

// A norm smaller than this after 1 is taken away would lose bits of 1 + w.
constexpr float kPlusOneLeast = 0x1p-12f;

struct GroupNames {
  LayerStage stage;
  std::vector<std::string> consumers;
  std::string producer;  // a norm, or the matrix whose rows make the channels
  bool norm = false;
};

std::optional<DecoderRecipe> recipe_of(const ModelConfig& config) {
  for (const ArchitectureEntry& entry : kArchitectures)
    if (entry.architecture == config.architecture) return entry.recipe(config);
  return std::nullopt;
}

// The groups of a layer, by the names of Hugging Face.
std::vector<GroupNames> group_names(const DecoderRecipe& recipe, std::int64_t layer) {
  const auto name = [&](std::string_view part) {
    return fmt::format("model.layers.{}.{}.weight", layer, part);
  };
  return {{LayerStage::kAttentionInput,
           {name("self_attn.q_proj"), name("self_attn.k_proj"), name("self_attn.v_proj")},
           name(recipe.attention_norm),
           true},
          {LayerStage::kAttentionOutput, {name("self_attn.o_proj")}, name("self_attn.v_proj")},
          {LayerStage::kFeedForwardInput,
           {name("mlp.gate_proj"), name("mlp.up_proj")},
           name(recipe.ffn_norm),
           true},
          {LayerStage::kFeedForwardOutput, {name("mlp.down_proj")}, name("mlp.up_proj")}};
}

using Plans = std::map<std::string, TensorPlan*, std::less<>>;

Plans plans_by_name(ConversionPlan& plan) {
  Plans found;
  for (TensorPlan& tensor : plan.tensors) found[tensor.source->name] = &tensor;
  return found;
}

// Why a group keeps its channels as they are; empty: it is scaled.
std::string unscaled_reason(const GroupNames& group, const Plans& plans, const Checkpoint& source) {
  const auto action = [&](const std::string& name) {
    const auto found = plans.find(name);
    return found == plans.end() ? Action::kNone : found->second->action;
  };
  for (const std::string& name : group.consumers)
    if (action(name) != Action::kQuantize) return fmt::format("{} is not quantized", name);
  const auto producer = plans.find(group.producer);
  if (producer == plans.end()) return fmt::format("{} is absent", group.producer);
  if (group.norm)
    return is_float_format(producer->second->target.id) ? "" : group.producer + " is packed";
  if (producer->second->action != Action::kQuantize)
    return fmt::format("{} is not quantized", group.producer);
  constexpr std::string_view kSuffix = "weight";
  const std::string bias =
      group.producer.substr(0, group.producer.size() - kSuffix.size()) + "bias";
  return source.find(bias) == nullptr ? "" : fmt::format("{} has a bias", group.producer);
}

// The nearest number of a stored type.
float stored_value(FormatId id, float value) {
  if (id == kFloat32) return value;
  const FloatType type = id == kFloat16 ? FloatType::kF16 : FloatType::kBF16;
  return decode_float(type, encode_float(type, value));
}

}  // namespace

struct LayerScales::Group {
  GroupNames names;
  std::vector<TensorPlan*> consumers;
  TensorPlan* producer;
};

// What a stage's inputs are like.
struct LayerScales::Inputs {
  SecondMoment moment;
  std::vector<double> sums;  // of |x|, a channel each

  std::vector<float> mean_abs() const {
    std::vector<float> means(sums.size());
    const double rows = static_cast<double>(std::max<std::int64_t>(moment.rows(), 1));
    for (std::size_t c = 0; c < means.size(); ++c) means[c] = static_cast<float>(sums[c] / rows);
    return means;
  }
};

void plan_scales(const Checkpoint& source, ConversionPlan& plan) {
  const std::optional<DecoderRecipe> recipe = recipe_of(source.config);
  if (!recipe) return;
  const Plans plans = plans_by_name(plan);
  for (std::int64_t layer = 0; layer < source.config.layers; ++layer)
    for (const GroupNames& group : group_names(*recipe, layer)) {
      const std::string reason = unscaled_reason(group, plans, source);
      for (const std::string& name : group.consumers)
        if (const auto found = plans.find(name); !reason.empty() && found != plans.end())
          found->second->plan.conditions.push_back("channels not scaled: " + reason);
      if (!reason.empty() || !group.norm) continue;
      TensorPlan& norm = *plans.find(group.producer)->second;
      norm.action = Action::kVector;
      norm.plan.verdict = Verdict::kChanged;
      norm.plan.conditions.push_back("divided by the scales of the channels that it makes");
    }
}

LayerScales::LayerScales(const Checkpoint& source, ConversionPlan& plan,
                         const MatrixProduct& product, Context& context)
    : source_(source), product_(product), context_(context), plans_(plans_by_name(plan)) {}

TensorPlan* LayerScales::find(std::string_view name) const {
  const auto found = plans_.find(name);
  return found == plans_.end() ? nullptr : found->second;
}

std::vector<LayerScales::Group> LayerScales::groups(std::int64_t layer) const {
  std::vector<Group> found;
  const std::optional<DecoderRecipe> recipe = recipe_of(source_.config);
  if (!recipe) return found;
  for (GroupNames& names : group_names(*recipe, layer)) {
    if (!unscaled_reason(names, plans_, source_).empty()) continue;
    Group& group = found.emplace_back(std::move(names));
    for (const std::string& name : group.names.consumers) group.consumers.push_back(find(name));
    group.producer = find(group.names.producer);
  }
  return found;
}

Status LayerScales::search(LayerWalk& walk) {
  scales_.clear();
  const std::vector<Group> all = groups(walk.layer());
  std::map<LayerStage, Inputs> inputs;
  for (const Group& group : all) {
    const TensorPlan& first = *group.consumers.front();
    const std::int64_t cols = first.source->weight.shape().cols;
    PACKSTONE_TRY(SecondMoment moment, SecondMoment::make(cols, first.source->name));
    inputs.emplace(group.names.stage,
                   Inputs{std::move(moment), std::vector<double>(static_cast<std::size_t>(cols))});
  }
  PACKSTONE_CHECK_OK(
      walk.probe(kSequencesMax, [&](LayerStage stage, const MatrixView& rows) {
        const auto found = inputs.find(stage);
        if (found == inputs.end()) return;
        Inputs& seen = found->second;
        seen.moment.add(rows, product_);
        for (std::int64_t r = 0; r < rows.rows; ++r)
          for (std::int64_t c = 0; c < rows.cols; ++c)
            if (const float x = std::abs(rows.row(r)[c]); std::isfinite(x))
              seen.sums[static_cast<std::size_t>(c)] += x;
      }));
  for (const Group& group : all) {
    Inputs& seen = inputs.at(group.names.stage);
    seen.moment.finish(product_);
    PACKSTONE_CHECK_OK(context_.check_cancel("quantize"));
    PACKSTONE_TRY(std::vector<float> scales, find_scales(group, seen));
    if (group.names.norm) fold_into_norm(group, scales, walk);
    const Shape shape = group.consumers.front()->source->weight.shape();
    const auto cols = static_cast<std::size_t>(shape.cols);
    // The heads of grouped queries, each with the scales of the values that it reads.
    const auto dim = static_cast<std::size_t>(source_.config.head_dim);
    const std::size_t repeat = cols / scales.size();
    std::vector<float> in(cols);
    for (std::size_t c = 0; c < cols; ++c)
      in[c] = repeat == 1 ? scales[c] : scales[c / dim / repeat * dim + c % dim];
    for (const std::string& name : group.names.consumers) scales_[name].in = in;
    if (!group.names.norm) scales_[group.names.producer].out = std::move(scales);
  }
  return {};
}

Result<std::vector<float>> LayerScales::find_scales(const Group& group, const Inputs& inputs) {
  std::vector<std::vector<float>> values;
  AwqGroup search;
  search.target = group.consumers.front()->target.id;
  search.params = group.consumers.front()->plan.params;
  for (const TensorPlan* tensor : group.consumers) {
    PACKSTONE_TRY(std::vector<float> matrix, decode_matrix(*tensor->source, context_.pool()));
    values.push_back(std::move(matrix));
    const Shape shape = tensor->source->weight.shape();
    search.weights.push_back({values.back().data(), shape.rows, shape.cols, shape.cols});
  }
  const std::vector<float> mean_abs = inputs.mean_abs();
  search.moment = inputs.moment.matrix();
  search.mean_abs = mean_abs;
  std::vector<std::int32_t> shared;
  const std::int64_t cols = search.weights.front().cols;
  if (group.names.stage == LayerStage::kAttentionOutput) {
    const ModelConfig& config = source_.config;
    const std::int64_t dim = config.head_dim, repeat = config.heads / config.kv_heads;
    search.scales = config.kv_heads * dim;
    for (std::int64_t c = 0; c < cols; ++c)
      shared.push_back(static_cast<std::int32_t>(c / dim / repeat * dim + c % dim));
    search.shared = shared;
  }
  PACKSTONE_TRY(AwqScales found, search_awq_scales(search, product_, context_.pool(),
                                                   group.consumers.front()->source->name));
  return std::move(found.scales);
}

void LayerScales::fold_into_norm(const Group& group, std::vector<float>& scales, LayerWalk& walk) {
  const bool plus_one = recipe_of(source_.config)->norm_plus_one;
  FormatId id = group.producer->target.id;
  if (plus_one && id == kFloat32) id = kBFloat16;  // then 1 + w is exact
  const std::span<const float> old = walk.norm(group.names.stage);
  std::vector<float> factors(old.begin(), old.end()), stored(old.size());
  for (std::size_t c = 0; c < factors.size(); ++c) {
    const float wanted = old[c] / scales[c];
    float value = stored_value(id, plus_one ? wanted - 1 : wanted);
    if (plus_one && std::abs(value) < kPlusOneLeast) value = 0;
    const float factor = plus_one ? 1 + value : value;
    scales[c] = old[c] / factor;
    if (std::isfinite(scales[c]) && scales[c] > 0) {
      factors[c] = factor;
      stored[c] = value;
    } else {
      scales[c] = 1;
      stored[c] = plus_one ? old[c] - 1 : old[c];
    }
  }
  walk.set_norm(group.names.stage, factors);
  group.producer->values = std::move(stored);
}

void LayerScales::apply(std::string_view name, Shape shape, std::span<float> values) const {
  const auto found = scales_.find(name);
  if (found == scales_.end()) return;
  const Scales& scales = found->second;
  const auto cols = static_cast<std::size_t>(shape.cols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!scales.in.empty()) values[i] *= scales.in[i % cols];
    if (!scales.out.empty()) values[i] /= scales.out[i / cols];
  }
}

}  // namespace packstone::cli
