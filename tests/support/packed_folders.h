// Folders of every dialect for tests: a llama of one layer, wide enough for all layouts, whose
// projections are packed, with the config and the tensor names of the dialect's producers.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>

#include "packstone/checkpoint/folder_parts.h"
#include "packstone/checkpoint/quantization_writer.h"
#include "packstone/format/registry.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::tiny {

inline constexpr std::int64_t kWide = 256;

// Attention is [256, hidden] and back, the feed-forward part `intermediate` wide; the embedding is
// tied.
inline Folder wide_folder(std::int64_t hidden = kWide, std::int64_t intermediate = kWide) {
  Folder made;
  made.config = config("llama", 1);
  made.config["hidden_size"] = hidden;
  made.config["intermediate_size"] = intermediate;
  made.config["num_attention_heads"] = made.config["num_key_value_heads"] = 16;
  std::mt19937 random(3);
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    made.tensors.push_back(random_tensor(name, std::move(shape), random));
  };
  const std::string p = "model.layers.0.";
  add("model.embed_tokens.weight", {kVocab, hidden});
  add(p + "input_layernorm.weight", {hidden});
  add(p + "post_attention_layernorm.weight", {hidden});
  for (const std::string name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
    add(p + name + ".weight", {kWide, hidden});
  add(p + "self_attn.o_proj.weight", {hidden, kWide});
  add(p + "mlp.gate_proj.weight", {intermediate, hidden});
  add(p + "mlp.up_proj.weight", {intermediate, hidden});
  add(p + "mlp.down_proj.weight", {hidden, intermediate});
  add("model.norm.weight", {hidden});
  return made;
}

inline std::vector<std::string> projections(const Folder& made) {
  std::vector<std::string> modules;
  for (const Tensor& tensor : made.tensors)
    if (tensor.name.ends_with("_proj.weight"))
      modules.push_back(tensor.name.substr(0, tensor.name.size() - 7));
  return modules;
}

// Small bytes: as floats of any width small positive numbers.
inline std::vector<std::byte> small_bytes(std::uint64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 60);
  return bytes;
}

inline Tensor small_tensor(std::string name, std::string type, std::vector<std::int64_t> shape,
                           std::mt19937& random) {
  std::int64_t count = safetensors_type(type)->block_bytes;
  for (const std::int64_t axis : shape) count *= axis;
  return {std::move(name), std::move(type), std::move(shape),
          small_bytes(static_cast<std::uint64_t>(count), random)};
}

// Replaces every projection by the tensors that `parts` makes of its module's name.
inline void replace_projections(
    Folder& made, const std::function<std::vector<Tensor>(const std::string&)>& parts) {
  for (const std::string& module : projections(made)) {
    made.erase(module + ".weight");
    for (Tensor& tensor : parts(module)) made.tensors.push_back(std::move(tensor));
  }
}

// The projections of a folder of floats in a format that has a place in folders, as its consumers
// read them. Groups of 256 are whole rows.
inline Folder packed_folder(FormatId format, const FormatParams& asked,
                            Folder made = wide_folder()) {
  std::mt19937 random(11);
  std::vector<OutputTensor> outputs;
  for (const std::string& module : projections(made)) {
    const std::vector<std::int64_t> sides = made.at(module + ".weight").shape;
    const Shape shape{sides[0], sides[1]};
    FormatParams params = asked;
    const std::string_view layout = format_info(format).layout;
    if (layout.starts_with("bnb-nf4") || layout.starts_with("bnb-fp4")) {
      // A block is a run of the flat weights.
      params.group_cols = std::gcd(static_cast<std::int32_t>(shape.cols), asked.group_cols);
      params.group_rows = asked.group_cols / params.group_cols;
    } else {
      if (asked.group_cols == kWide) params.group_cols = static_cast<std::int32_t>(shape.cols);
      if (asked.group_rows == kWide) params.group_rows = static_cast<std::int32_t>(shape.rows);
    }
    outputs.push_back({module + ".weight", sides, format, params});
    made.erase(module + ".weight");
    for (const FolderPart& part : folder_parts(format, shape, params)) {
      Tensor tensor{module + part.suffix, std::string(part.type->name), part.shape, part.bytes};
      if (part.plane >= 0)
        tensor.bytes = small_bytes(plane_bytes(format, part.plane, shape, params), random);
      if (part.plane >= 0 && part.plane == format_info(format).index_plane)
        for (std::int64_t col = 0; col < shape.cols; ++col)
          store_le(tensor.bytes.data() + 4 * col,
                   static_cast<std::int32_t>(col / params.group_cols));
      made.tensors.push_back(std::move(tensor));
    }
  }
  const Json keys = quantization_keys(outputs, false);
  for (const auto& [key, block] : keys.items()) made.config[key] = block;
  return made;
}

inline Folder packed_folder(std::string_view layout, int bits, std::int32_t group,
                            Folder made = wide_folder()) {
  FormatParams params;
  params.group_cols = group;
  return packed_folder(*find_layout(layout, bits), params, std::move(made));
}

// The GGUF form of a folder of floats of wide_folder.
inline Gguf wide_gguf(const Folder& source) {
  Gguf made = gguf("llama", 1);
  const auto number = [&](const char* key, const char* of) {
    made.set(std::string("llama.") + key, source.config[of].get<std::uint32_t>());
  };
  number("embedding_length", "hidden_size");
  number("feed_forward_length", "intermediate_size");
  number("attention.head_count", "num_attention_heads");
  number("attention.head_count_kv", "num_key_value_heads");
  made.tensors.clear();
  for (Tensor tensor : source.tensors) {
    if (tensor.name.ends_with("q_proj.weight") || tensor.name.ends_with("k_proj.weight"))
      pair_rows(tensor, 16);
    tensor.name = gguf_name(tensor.name, false);
    made.tensors.push_back(std::move(tensor));
  }
  return made;
}

// EXL3 of 3 bits: exllamav3's names and config, its list of tensors in quantization_config.json.
inline Folder exl3_folder(const std::vector<std::string>& signs = {".suh", ".svh"},
                          const std::string& marker = ".mcg") {
  std::mt19937 random(13);
  Folder made = wide_folder();
  Json storage = Json::object();
  replace_projections(made, [&](const std::string& module) {
    std::vector<Tensor> tensors = {
        small_tensor(module + ".trellis", "I16", {kWide / 16, kWide / 16, 48}, random)};
    for (const std::string& name : signs) {
      const bool packed = name == ".su" || name == ".sv";
      tensors.push_back(small_tensor(module + name, packed ? "I16" : "F16",
                                     {packed ? kWide / 16 : kWide}, random));
    }
    Json entry = {
        {"stored_tensors", Json::object()}, {"quant_format", "exl3"}, {"bits_per_weight", 3}};
    if (!marker.empty()) {
      tensors.push_back(small_tensor(module + marker, "I32", {}, random));
      entry[marker.substr(1) + "_multiplier"] = 3417055213u;
    }
    for (const Tensor& tensor : tensors)
      entry["stored_tensors"][tensor.name] = {{"shape", tensor.shape}};
    storage[module] = std::move(entry);
    return tensors;
  });
  Json block = {{"quant_method", "exl3"},
                {"version", "0.0.6"},
                {"bits", 3.0},
                {"head_bits", 6},
                {"calibration", {{"rows", 100}, {"cols", 2048}}},
                {"out_scales", "auto"}};
  made.config["quantization_config"] = block;
  storage["model.norm"] = {{"stored_tensors", {{"model.norm.weight", {{"shape", {kWide}}}}}}};
  block["tensor_storage"] = std::move(storage);
  made.texts["quantization_config.json"] = block.dump(4);
  return made;
}

// ParoQuant with whole groups of 64 and 8 rotations; pairs are a shuffled permutation.
inline Folder paroquant_folder() {
  constexpr std::int64_t kGroup = 64, kRotations = 8;
  std::mt19937 random(17);
  Folder made = wide_folder();
  replace_projections(made, [&](const std::string& module) {
    Tensor pairs = small_tensor(module + ".pairs", "I16", {kRotations, kWide}, random);
    std::vector<std::int16_t> order(kGroup);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int16_t>(i);
    for (std::int64_t i = 0; i < kRotations * kWide; ++i) {
      if (i % kGroup == 0) std::shuffle(order.begin(), order.end(), random);
      store_le(pairs.bytes.data() + 2 * i, order[static_cast<std::size_t>(i % kGroup)]);
    }
    return std::vector<Tensor>{
        small_tensor(module + ".qweight", "I32", {kWide, kWide / 8}, random),
        small_tensor(module + ".qzeros", "I32", {kWide / kGroup, kWide / 8}, random),
        small_tensor(module + ".scales", "F16", {kWide / kGroup, kWide}, random),
        small_tensor(module + ".theta", "F16", {kRotations, kWide / 2}, random),
        std::move(pairs),
        small_tensor(module + ".channel_scales", "BF16", {1, kWide}, random)};
  });
  made.config["quantization_config"] = {{"quant_method", "paroquant"}, {"bits", 4},
                                        {"group_size", kGroup},        {"krot", kRotations},
                                        {"zero_point", true},          {"format", "paroquant"}};
  return made;
}

}  // namespace packstone::tiny
