#include <algorithm>

#include "packstone/checkpoint/value_rule.h"
#include "packstone/cli/calibrated.h"
#include "packstone/cli/conversion.h"
#include "packstone/cli/process.h"
#include "packstone/cli/progress.h"
#include "packstone/cli/vectors.h"
#include "packstone/format/bnb_nf4.h"
#include "packstone/quantize/folder_encode.h"

namespace packstone::cli {
namespace {

// What a run needs beside the weights: the maps of headers and tokenizer while the target's
// metadata is made, and the stack and buffers of the threads.
constexpr std::uint64_t kFixedMemory = 32ull << 20;

// A condition of plan_transcode that does not hold for channels in another order.
constexpr std::string_view kWayBack = "the way back gives the source's bytes";

int badness(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSameBytes:
      return 0;
    case Verdict::kSameValues:
      return 1;
    case Verdict::kSameValuesMoreBytes:
      return 2;
    case Verdict::kChanged:
      return 3;
    case Verdict::kRefused:
      return 4;
  }
  return 4;
}

TensorPlan copy_plan(const CheckpointTensor& tensor) {
  TensorPlan plan;
  plan.source = &tensor;
  plan.target.id = tensor.weight.id();
  plan.plan.verdict = Verdict::kSameBytes;
  plan.plan.params = tensor.weight.params();
  plan.bytes = tensor.weight.bytes();
  return plan;
}

TensorPlan refused_plan(const CheckpointTensor& tensor, std::string reason) {
  TensorPlan plan;
  plan.source = &tensor;
  plan.action = Action::kNone;
  plan.plan.reason = std::move(reason);
  return plan;
}

TensorPlan quantize_plan(const CheckpointTensor& tensor, const QuantizeRequest& request,
                         Proof proof, Context& context) {
  TensorPlan plan;
  plan.source = &tensor;
  plan.action = Action::kQuantize;
  const Shape shape = tensor.weight.shape();
  FormatParams params = request_params(request, shape);
  if (proof == Proof::kFull && format_info(request.format).layout.ends_with("-nested")) {
    // The file says the offset before it says the weight.
    const Result<std::vector<float>> values = decode_matrix(tensor, context.pool());
    if (!values) return refused_plan(tensor, values.error().message);
    params.constant = std::bit_cast<std::uint32_t>(
        nested_offset({values->data(), shape.rows, shape.cols, shape.cols},
                      params.group_cols * params.group_rows));
  }
  plan.target = {request.format, params.group_cols, params.metadata, params.group_rows};
  plan.plan.verdict = Verdict::kChanged;
  plan.plan.params = params;
  plan.parity = request.parity;
  if (is_mlx_format(request.format))
    plan.plan.conditions.push_back(
        fmt::format("scales and biases are {}", float_name(params.metadata)));
  plan.bytes = weight_bytes(request.format, shape, params);
  return plan;
}

// Float tensors stay as they are, except vectors that the container keeps in another way.
TensorPlan float_plan(const CheckpointTensor& tensor, ContainerKind container, Proof proof) {
  TensorPlan plan = copy_plan(tensor);
  const bool vector = tensor.shape.size() == 1;
  const bool widen = vector && container == ContainerKind::kGguf && tensor.weight.id() != kFloat32;
  const bool plus_one =
      tensor.value_rule == ValueRule::kPlusOne && container == ContainerKind::kFolder;
  if (!widen && !plus_one) return plan;
  plan.action = Action::kVector;
  plan.target.id = kFloat32;
  plan.plan.params = {};
  plan.bytes = weight_bytes(plan.target.id, tensor.weight.shape(), {});
  if (plan.bytes > tensor.weight.bytes()) {
    plan.plan.verdict = Verdict::kSameValuesMoreBytes;
    plan.plan.conditions.push_back("widened to float32, exactly");
  }
  if (!plus_one) return plan;
  plan.plan.conditions.push_back("stored as 1 + w in GGUF, as w here; float32 1 + w is the same");
  if (proof == Proof::kHeaders) return plan;
  std::vector<float> values = decode_all(tensor.weight);
  const Status applied =
      apply_value_rule(ValueRule::kPlusOne, ValueRule::kSame, values, tensor.name);
  if (applied) return plan;
  plan.action = Action::kNone;
  plan.plan.verdict = Verdict::kRefused;
  plan.plan.reason = applied.error().message;
  return plan;
}

// What of a tensor moves: its weight, with its columns sorted where a joint move says so, and the
// stored row of each target row.
struct Movable {
  const CheckpointTensor& tensor;
  ChannelOrder channels;
  PackedWeight weight;
  FormatParams
      params;  // of the weight; without act-order even while its columns are not sorted yet
  std::vector<std::int32_t> rows;
};

// The tensor as its joint move has it. From headers only, columns stay unsorted: no code is read.
Result<Movable> movable(const CheckpointTensor& tensor, const ChannelMove* move, Proof proof,
                        Context& context) {
  const ChannelOrder channels = move == nullptr ? ChannelOrder() : move->of(tensor);
  Movable made{tensor, channels, tensor.weight, tensor.weight.params(),
               compose_rows(tensor.stored_rows(), channels.rows())};
  if (channels.columns().empty()) return made;
  made.params.act_order = false;
  if (proof == Proof::kHeaders) return made;
  PACKSTONE_TRY(made.weight, with_columns(tensor.weight, channels, context.pool()));
  return made;
}

// Of rows that move in one format. Rows of other blocks may share parameters: then only doing it
// tells.
TensorPlan ordered_copy_plan(const Movable& from, Proof proof, Context& context) {
  if (proof == Proof::kFull && from.weight.format().shares_rows && !from.channels.rows().empty()) {
    const Result<PackedWeight> made = permute_rows(from.weight, from.rows, context.pool());
    if (!made) return refused_plan(from.tensor, made.error().message);
  }
  TensorPlan plan = copy_plan(from.tensor);
  if (proof == Proof::kHeaders && from.weight.format().shares_rows && !from.channels.rows().empty())
    plan.plan.conditions.push_back("only if rows that share parameters move together");
  return plan;
}

// What the tensor becomes in one packed or float format.
TensorPlan move_plan(const Movable& from, FormatId id, Proof proof, Context& context) {
  const PackedWeight& weight = from.weight;
  if (id == weight.id() && from.channels.columns().empty())
    return ordered_copy_plan(from, proof, context);
  if (from.params.act_order && needs_sorting(weight, id))
    return refused_plan(from.tensor, unsorted_reason(from.tensor, id));
  TensorPlan plan;
  plan.source = &from.tensor;
  plan.action = Action::kTranscode;
  plan.target = TranscodeTarget{id, 0, std::nullopt};
  plan.plan = proof == Proof::kFull
                  ? plan_transcode(weight, plan.target, context.pool(), from.rows)
                  : header_verdict(weight.id(), weight.shape(), from.params, plan.target);
  if (plan.plan.verdict == Verdict::kRefused)
    plan.action = Action::kNone;
  else
    plan.bytes = weight_bytes(id, weight.shape(), plan.plan.params);
  return plan;
}

constexpr std::string_view kEmbedding = "model.embed_tokens.weight";

// Whether the programs that read a layout take packed embeddings. Those of GPTQ, AWQ and the other
// layouts of Hugging Face folders do not.
bool takes_embeddings(const LayoutTarget& layout) {
  return layout.gguf || layout.name.starts_with("mlx-") || layout.name == "mxfp4";
}

// candidate_formats; but an embedding that must not be packed becomes the narrowest float that has
// its values.
std::vector<FormatId> candidates_of(const CheckpointTensor& tensor, const LayoutTarget& layout) {
  std::vector<FormatId> ids = candidate_formats(layout, tensor.weight);
  const bool member = std::ranges::find(ids, tensor.weight.id()) != ids.end();
  if (takes_embeddings(layout) || ids.empty() || is_float_format(ids[0]) || member ||
      tensor.name != kEmbedding)
    return ids;
  return {kFloat16, kBFloat16, kFloat32};
}

// The first candidate that is exact; of a refusal, the first candidate's reason.
TensorPlan exact_plan(const Movable& from, const LayoutTarget& layout, Proof proof,
                      Context& context) {
  const PackedWeight& weight = from.weight;
  std::optional<TensorPlan> refused;
  for (FormatId id : candidates_of(from.tensor, layout)) {
    TensorPlan plan = move_plan(from, id, proof, context);
    if (plan.plan.verdict != Verdict::kRefused) {
      if (refused && (layout.format || id == weight.id()))
        plan.plan.reason = fmt::format("not exact in {}: {}", layout.name, refused->plan.reason);
      return plan;
    }
    if (!refused) refused = std::move(plan);
  }
  if (refused) return *std::move(refused);
  return refused_plan(from.tensor, fmt::format("codes of {} bits do not fit in {}",
                                               weight.format().code_bits, layout.name));
}

// plan(movable) for a tensor and its joint move, with what the move adds: the order is recorded in
// the conditions, and the way back is not in the target alone.
template <class Plan>
TensorPlan plan_in_order(const CheckpointTensor& tensor, const ChannelMoves& moves, Proof proof,
                         Context& context, Plan&& plan_of) {
  const ChannelMove* move = moves.find(tensor);
  if (move != nullptr && !move->fault.empty())
    return refused_plan(tensor, move->consumer == &tensor
                                    ? move->fault
                                    : fmt::format("moves together with {}, which cannot: {}",
                                                  move->consumer->name, move->fault));
  const Result<Movable> from = movable(tensor, move, proof, context);
  if (!from) return refused_plan(tensor, from.error().message);
  TensorPlan plan = plan_of(*from);
  if (move == nullptr || plan.plan.verdict == Verdict::kRefused) return plan;
  plan.channels = from->channels;
  std::erase(plan.plan.conditions, kWayBack);
  plan.plan.conditions.push_back(plan.channels.condition);
  if (plan.plan.verdict == Verdict::kSameBytes) plan.plan.verdict = Verdict::kSameValues;
  return plan;
}

// If one tensor of a joint move is refused, none of them moves.
void refuse_together(const ChannelMoves& moves, std::vector<TensorPlan>& plans) {
  std::map<const ChannelMove*, std::string> reasons;
  for (const TensorPlan& plan : plans) {
    const ChannelMove* move = moves.find(*plan.source);
    if (move != nullptr && plan.plan.verdict == Verdict::kRefused)
      reasons.emplace(move, fmt::format("moves only together with {}: {}", plan.source->name,
                                        plan.plan.reason));
  }
  for (TensorPlan& plan : plans) {
    const auto reason = reasons.find(moves.find(*plan.source));
    if (reason != reasons.end() && plan.plan.verdict != Verdict::kRefused)
      plan = refused_plan(*plan.source, reason->second);
  }
}

// The joint moves that a convert to the layout needs.
ChannelMoves moves_to(const Checkpoint& source, const LayoutTarget& layout) {
  return ChannelMoves(source, [&](const CheckpointTensor& tensor) {
    const std::vector<FormatId> ids = candidates_of(tensor, layout);
    return !ids.empty() && needs_sorting(tensor.weight, ids.front());
  });
}

// Why quantize keeps a tensor, or nothing when it takes it.
std::optional<std::string> kept_reason(const CheckpointTensor& tensor, const LayoutTarget& layout,
                                       const QuantizeRequest& request) {
  if (!takes_embeddings(layout) && (tensor.name == kEmbedding || tensor.name == "lm_head.weight"))
    return fmt::format("kept: readers of {} take no packed embedding or head", layout.name);
  if (tensor.shape.size() < 2) return "kept: a vector, not a matrix";
  if (tensor.shape.size() > 2) return fmt::format("kept: {} axes, not 2", tensor.shape.size());
  const Shape shape = tensor.weight.shape();
  if (const char* rule = layout_rule(request.format, shape, request_params(request, shape)))
    return fmt::format("kept: {} columns, the layout needs {}", shape.cols, rule);
  return std::nullopt;
}

// The first override that names the module of a matrix, or nothing; counts what each one names.
Result<const QuantizeOverride*> override_of(const CheckpointTensor& tensor,
                                            const QuantizeRequest& request,
                                            std::vector<int>& named) {
  constexpr std::string_view kWeight = ".weight";
  std::string_view module = tensor.name;
  if (tensor.shape.size() < 2 || !module.ends_with(kWeight)) return nullptr;
  module.remove_suffix(kWeight.size());
  const QuantizeOverride* first = nullptr;
  for (std::size_t i = 0; i < request.overrides.size(); ++i) {
    PACKSTONE_TRY(const bool matches, request.overrides[i].pattern.matches({module, module}));
    if (!matches) continue;
    ++named[i];
    if (first == nullptr) first = &request.overrides[i];
  }
  return first;
}

TensorPlan plan_tensor(const CheckpointTensor& tensor, const ConversionPlan& whole,
                       const std::optional<QuantizeRequest>& quantize,
                       const QuantizeOverride* own, const ChannelMoves& moves, Proof proof,
                       Context& context) {
  if (whole.layout.described) return copy_plan(tensor);
  std::optional<std::string> kept;
  if (quantize) {
    QuantizeRequest request{quantize->format, quantize->params, quantize->parity};
    if (own != nullptr && own->keep)
      kept = fmt::format("kept: {}", own->text);
    else if (own != nullptr)
      request = {own->format, own->params, quantize->parity};
    if (!kept) kept = kept_reason(tensor, whole.layout, request);
    if (!kept) {
      TensorPlan plan = quantize_plan(tensor, request, proof, context);
      if (own != nullptr) plan.plan.conditions.push_back(own->text);
      return plan;
    }
  }
  TensorPlan plan = plan_in_order(tensor, moves, proof, context, [&](const Movable& from) {
    return is_float_format(tensor.weight.id()) ? float_plan(tensor, whole.container, proof)
                                               : exact_plan(from, whole.layout, proof, context);
  });
  if (kept) plan.plan.reason = plan.plan.reason.empty() ? *kept : *kept + "; " + plan.plan.reason;
  return plan;
}

}  // namespace

TensorPlan plan_pair(const CheckpointTensor& tensor, FormatId id, ContainerKind container,
                     const ChannelMoves& moves, Context& context) {
  return plan_in_order(tensor, moves, Proof::kFull, context, [&](const Movable& from) {
    return is_float_format(tensor.weight.id()) ? float_plan(tensor, container, Proof::kFull)
                                               : move_plan(from, id, Proof::kFull, context);
  });
}

FormatParams request_params(const QuantizeRequest& request, Shape shape) {
  const FormatInfo& info = format_info(request.format);
  FormatParams params = request.params;
  if (info.layout.starts_with("bnb-") && info.code_bits == 4)
    return bnb_4bit_params(shape, params.group_cols);
  if (params.group_cols == kWholeRow) params.group_cols = static_cast<std::int32_t>(shape.cols);
  if (params.group_rows == kWholeRow) params.group_rows = static_cast<std::int32_t>(shape.rows);
  return params;
}

bool ConversionPlan::refused() const {
  return worst() == Verdict::kRefused;
}

Verdict ConversionPlan::worst() const {
  return worst_verdict(tensors);
}

Verdict worst_verdict(std::span<const TensorPlan> tensors) {
  Verdict worst = Verdict::kSameBytes;
  for (const TensorPlan& tensor : tensors)
    if (badness(tensor.plan.verdict) > badness(worst)) worst = tensor.plan.verdict;
  return worst;
}

Result<ConversionPlan> plan_conversion(const Checkpoint& source, const LayoutTarget& layout,
                                       ContainerKind container,
                                       const std::optional<QuantizeRequest>& quantize, Proof proof,
                                       Context& context, std::string_view command) {
  ConversionPlan whole;
  whole.layout = layout;
  whole.container = container;
  const std::uint64_t rss = rss_bytes();
  const ChannelMoves moves = quantize ? ChannelMoves() : moves_to(source, layout);
  std::uint64_t largest = 0;
  std::vector<int> named(quantize ? quantize->overrides.size() : 0);
  std::optional<Progress> progress;
  if (proof == Proof::kFull) progress.emplace(context, "proving", source.bytes());
  for (const CheckpointTensor& tensor : source.tensors) {
    PACKSTONE_CHECK_OK(context.check_cancel(command));
    const QuantizeOverride* own = nullptr;
    if (quantize) {
      PACKSTONE_TRY(own, override_of(tensor, *quantize, named));
    }
    whole.tensors.push_back(plan_tensor(tensor, whole, quantize, own, moves, proof, context));
    const TensorPlan& plan = whole.tensors.back();
    // Sorting the columns makes a copy beside the target.
    const std::uint64_t sorted = plan.channels.columns().empty() ? 0 : tensor.weight.bytes();
    largest = std::max(largest, plan.bytes + sorted);
    if (progress) progress->add(tensor.weight.bytes());
  }
  for (std::size_t i = 0; i < named.size(); ++i)
    if (named[i] == 0)
      return fail(ErrorCode::kInvalidInput, fmt::format("cli.{}", command),
                  quantize->overrides[i].text, "no matrix of this name",
                  "an expression that matches a matrix from the start of its name, as "
                  "model.layers.0.mlp.down_proj or mlp.down_proj");
  refuse_together(moves, whole.tensors);
  for (const TensorPlan& plan : whole.tensors) whole.bytes += plan.bytes;
  if (progress) progress->finish();
  for (const UnsupportedTensor& module : source.unsupported) {
    whole.described.push_back(&module);
    whole.bytes += module.bytes;
  }
  if (!whole.refused()) {
    PACKSTONE_TRY(MetadataReport report,
                  CheckpointWriter::report(container, source, planned_outputs(whole),
                                           {.carry_described = !whole.described.empty()}));
    whole.not_carried = std::move(report.not_carried);
  }
  whole.peak_memory_predicted = rss + source.bytes() + largest + moves.bytes() + kFixedMemory;
  return whole;
}

}  // namespace packstone::cli
