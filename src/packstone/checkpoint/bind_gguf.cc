#include <unordered_map>

#include "packstone/checkpoint/binder.h"

namespace packstone {
namespace {
constexpr std::string_view kWhere = "checkpoint.bind_gguf";
constexpr std::string_view kRopeDivisors = "rope_freqs.weight";

using StoredViews = std::unordered_map<std::string_view, const TensorView*>;

// A factor of a whole weight lives in a tensor of its own (llama.cpp: NVFP4 of ModelOpt). One that
// is not 1 makes the weight another one than its blocks say. `.input_scale` is for activations.
const TensorView* factor_of(std::string_view weight, const StoredViews& stored) {
  constexpr std::string_view kWeight = ".weight";
  if (!weight.ends_with(kWeight)) return nullptr;
  const std::string_view stem = weight.substr(0, weight.size() - kWeight.size());
  for (const std::string& name : {fmt::format("{}.scale", stem), fmt::format("{}.scale", weight)}) {
    const auto it = stored.find(name);
    if (it == stored.end()) continue;
    const TensorView& view = *it->second;
    const bool one = view.type->name == "F32" && view.bytes.size() == sizeof(float) &&
                     load_le<float>(view.bytes.data()) == 1.0f;
    if (!one) return &view;
  }
  return nullptr;
}

}  // namespace

Result<Checkpoint> bind_gguf(GgufFile gguf, std::string_view file) {
  Checkpoint checkpoint;
  checkpoint.container = ContainerKind::kGguf;
  PACKSTONE_TRY(const ParsedConfig parsed, config_from_gguf(gguf, file, checkpoint.problems));
  checkpoint.config = parsed.config;
  StoredViews stored;
  for (const TensorView& view : gguf.tensors) stored.emplace(view.name, &view);
  Binder binder(checkpoint, parsed, kWhere, file);
  const bool plus_one = gguf_norms_plus_one(parsed.config.architecture);
  for (std::size_t i = 0; i < binder.expected().size(); ++i) {
    const ExpectedTensor& expected = binder.expected()[i];
    const auto it = stored.find(expected.gguf_name);
    if (it == stored.end()) continue;
    const TensorView& view = *it->second;
    if (const TensorView* factor = factor_of(view.name, stored)) {
      const std::string type =
          fmt::format("{} with a factor in '{}'", view.type->name, factor->name);
      binder.add_unsupported(
          i, {expected.name, view.name, type, view.shape, view.bytes.size(), type, 0, {}});
      stored.erase(factor->name);
      stored.erase(view.name);
      continue;
    }
    PACKSTONE_CHECK_OK(binder.add_view(
        i, view, expected.paired_heads > 0 ? RowOrder::kPairedHeads : RowOrder::kSame,
        expected.norm && plus_one ? ValueRule::kPlusOne : ValueRule::kSame));
    stored.erase(it);
  }
  for (const TensorView& view : gguf.tensors) {
    if (!stored.contains(view.name)) continue;
    if (view.name == kRopeDivisors && view.type->name == "F32") {
      checkpoint.rope_divisors.resize(view.bytes.size() / sizeof(float));
      for (std::size_t i = 0; i < checkpoint.rope_divisors.size(); ++i)
        checkpoint.rope_divisors[i] = load_le<float>(view.bytes.data() + sizeof(float) * i);
      continue;
    }
    PACKSTONE_CHECK_OK(binder.add_unbound(view.name, view.name));
  }
  PACKSTONE_CHECK_OK(binder.finish());
  checkpoint.gguf = std::move(gguf);
  return checkpoint;
}

}  // namespace packstone
