#include "packstone/checkpoint/binder.h"

#include <fmt/ranges.h>

namespace packstone {

std::optional<FormatId> format_of_storage(const StorageType& type) {
  if (type.name == "F32") return kFloat32;
  if (type.name == "F16") return kFloat16;
  if (type.name == "BF16") return kBFloat16;
  if (type.gguf_id < 0) return std::nullopt;
  const std::string layout = fmt::format("gguf:{}", type.name);
  for (std::uint16_t i = 0; i < format_count(); ++i)
    if (format_info(FormatId{i}).layout == layout) return FormatId{i};
  return std::nullopt;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Binder::Binder(Checkpoint& checkpoint, const ParsedConfig& parsed, std::string_view where,
               std::string_view file)
    : checkpoint_(checkpoint),
      parsed_(parsed),
      where_(where),
      file_(file),
      expected_(expected_tensors(parsed.config)),
      present_(expected_.size(), false) {}

std::string Binder::subject(std::string_view stored_name) const {
  return fmt::format("{}: '{}'", file_, stored_name);
}

void Binder::add(std::size_t index, CheckpointTensor tensor) {
  present_[index] = true;
  checkpoint_.index.emplace(tensor.name, checkpoint_.tensors.size());
  checkpoint_.tensors.push_back(std::move(tensor));
}

void Binder::add_unsupported(std::size_t index, UnsupportedTensor tensor) {
  present_[index] = true;
  checkpoint_.unsupported.push_back(std::move(tensor));
}

void Binder::add_unsupported(std::size_t index, const TensorView& view) {
  UnsupportedTensor tensor;
  tensor.name = expected_[index].name;
  tensor.stored_name = view.name;
  tensor.type = tensor.detail = view.type->name;
  tensor.shape = view.shape;
  tensor.bytes = view.bytes.size();
  add_unsupported(index, std::move(tensor));
}

Status Binder::add_view(std::size_t index, const TensorView& view, RowOrder order, ValueRule rule) {
  const ExpectedTensor& expected = expected_[index];
  std::vector<std::int64_t> shape = {expected.shape.cols};
  if (!expected.vector) shape.insert(shape.begin(), expected.shape.rows);
  if (view.shape != shape)
    return fail(ErrorCode::kCorruptData, where_, subject(view.name),
                fmt::format("shape {}", shape_text(view.shape)),
                fmt::format("{} by the config", shape_text(shape)));
  const std::optional<FormatId> format = format_of_storage(*view.type);
  if (!format) {
    add_unsupported(index, view);
    return {};
  }
  Shape bound = expected.shape;
  const bool paired = order == RowOrder::kPairedHeads;
  if (paired && expected.vector) bound = {expected.shape.cols, 1};
  PACKSTONE_TRY(PackedWeight weight, PackedWeight::bind(*format, bound, {}, {view.bytes},
                                                        view.owner, subject(view.name)));
  add(index, {.name = expected.name,
              .stored_name = view.name,
              .shape = shape,
              .weight = std::move(weight),
              .row_order = order,
              .order_head_dim = paired ? parsed_.config.head_dim : 0,
              .value_rule = rule,
              .parts = {}});
  return {};
}

Status Binder::add_unbound(const std::string& name, std::string_view stored_name) {
  const std::optional<std::int64_t> layer = layer_of(name);
  if (layer && *layer >= parsed_.config.layers)
    return fail(ErrorCode::kCorruptData, where_, subject(stored_name),
                fmt::format("layer {}", *layer),
                fmt::format("layers below {} by '{}'", parsed_.config.layers, parsed_.layers_key));
  checkpoint_.unbound.emplace_back(stored_name);
  return {};
}

Status Binder::check_biases(Need need, std::optional<bool> stated, std::string_view flag,
                            bool& set) {
  const ExpectedTensor* here = nullptr;
  const ExpectedTensor* absent = nullptr;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (expected_[i].need != need) continue;
    (present_[i] ? here : absent) = &expected_[i];
  }
  set = here != nullptr;
  if (here != nullptr && (absent != nullptr || stated == false))
    return fail(ErrorCode::kCorruptData, where_, fmt::format("{}: '{}'", file_, here->name),
                "a bias",
                absent ? fmt::format("also '{}'", absent->name)
                       : fmt::format("none, as '{}' is false", flag));
  if (here == nullptr && stated == true && absent != nullptr)
    return fail(ErrorCode::kCorruptData, where_, fmt::format("{}: '{}'", file_, absent->name),
                "no such tensor", fmt::format("a bias, as '{}' says", flag));
  return {};
}

Status Binder::check_head() {
  bool head = false;
  for (std::size_t i = 0; i < expected_.size(); ++i)
    if (expected_[i].need == Need::kHead) head = present_[i];
  checkpoint_.config.tied_embeddings = !head;
  if (!head && parsed_.tied_flag == false)
    return fail(ErrorCode::kCorruptData, where_, fmt::format("{}: 'lm_head.weight'", file_),
                "no such tensor", "one, as 'tie_word_embeddings' is false");
  if (head && parsed_.tied_flag == true)
    checkpoint_.problems.push_back(fmt::format(
        "{}: 'tie_word_embeddings' is true, but lm_head.weight is there: it is used", file_));
  return {};
}

Status Binder::finish() {
  std::size_t missing = 0;
  const ExpectedTensor* first = nullptr;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (present_[i] || expected_[i].need != Need::kAlways) continue;
    if (missing++ == 0) first = &expected_[i];
  }
  if (missing != 0)
    return fail(
        ErrorCode::kCorruptData, where_,
        fmt::format("{}: '{}'", file_,
                    checkpoint_.container == ContainerKind::kGguf ? first->gguf_name : first->name),
        fmt::format("no such tensor (and {} more)", missing - 1),
        fmt::format("all tensors of {} layers, as '{}' says", parsed_.config.layers,
                    parsed_.layers_key));
  ModelConfig& config = checkpoint_.config;
  PACKSTONE_CHECK_OK(
      check_biases(Need::kQkvBias, parsed_.qkv_bias, "attention_bias", config.qkv_bias));
  PACKSTONE_CHECK_OK(
      check_biases(Need::kOutBias, parsed_.out_bias, "attention_bias", config.o_bias));
  PACKSTONE_CHECK_OK(check_biases(Need::kMlpBias, parsed_.mlp_bias, "mlp_bias", config.mlp_bias));
  return check_head();
}

}  // namespace packstone
