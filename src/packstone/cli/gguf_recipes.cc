#include "packstone/cli/gguf_recipes.h"

#include <algorithm>
#include <charconv>

#include "packstone/format/registry.h"

namespace packstone::cli {
namespace {

using enum RecipeLayers;

constexpr std::string_view kValues = "self_attn.v_proj", kOutput = "self_attn.o_proj",
                           kDown = "mlp.down_proj";
constexpr std::string_view kQ3 = "gguf.q3_k", kQ4 = "gguf.q4_k", kQ5 = "gguf.q5_k",
                           kQ6 = "gguf.q6_k";

constexpr RecipeRule kQ2S[] = {{kValues, kSharedByFour, kQ4}, {kDown, kFirstEighth, kQ4}};
constexpr RecipeRule kQ3M[] = {{kValues, kFirstTwo, kQ5},
                               {kValues, kAll, kQ4},
                               {kDown, kFirstSixteenth, kQ5},
                               {kDown, kAll, kQ4},
                               {kOutput, kAll, kQ4}};
constexpr RecipeRule kQ3L[] = {{kValues, kAll, kQ5}, {kDown, kAll, kQ5}, {kOutput, kAll, kQ5}};
constexpr RecipeRule kQ4S[] = {{kValues, kFirstFour, kQ5}, {kDown, kFirstEighth, kQ5}};
constexpr RecipeRule kMedium[] = {{kValues, kMoreBits, kQ6}, {kDown, kMoreBits, kQ6}};

constexpr GgufRecipe kRecipes[] = {
    {"gguf:Q2_K_S", "gguf.q2_k", kQ2S}, {"gguf:Q3_K_S", kQ3, {}},
    {"gguf:Q3_K_M", kQ3, kQ3M},         {"gguf:Q3_K_L", kQ3, kQ3L},
    {"gguf:Q4_K_S", kQ4, kQ4S},         {"gguf:Q4_K_M", kQ4, kMedium},
    {"gguf:Q5_K_S", kQ5, {}},           {"gguf:Q5_K_M", kQ5, kMedium}};

struct SmallerBlocks {
  std::string_view type, instead;
};
constexpr SmallerBlocks kSmallerBlocks[] = {{"gguf.q2_k", "gguf.iq4_nl"},
                                            {kQ3, "gguf.iq4_nl"},
                                            {kQ4, "gguf.q5_0"},
                                            {kQ5, "gguf.q5_1"},
                                            {kQ6, "gguf.q8_0"}};

bool holds(RecipeLayers layers, std::int64_t layer, const ModelConfig& config) {
  const std::int64_t n = config.layers;
  switch (layers) {
    case kAll:
      return true;
    case kMoreBits:
      return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    case kFirstTwo:
      return layer < 2;
    case kFirstFour:
      return layer < 4;
    case kFirstEighth:
      return layer < n / 8;
    case kFirstSixteenth:
      return layer < n / 16;
    case kSharedByFour:
      return config.heads >= 4 * config.kv_heads;
  }
  return false;
}

// "model.layers.7.mlp.down_proj": 7 and "mlp.down_proj"; or -1.
std::pair<std::int64_t, std::string_view> place_of(std::string_view module) {
  constexpr std::string_view kLayers = "model.layers.";
  std::int64_t layer = -1;
  if (!module.starts_with(kLayers)) return {-1, {}};
  module.remove_prefix(kLayers.size());
  const auto [end, error] = std::from_chars(module.data(), module.data() + module.size(), layer);
  const auto digits = static_cast<std::size_t>(end - module.data());
  if (error != std::errc{} || digits >= module.size() || module[digits] != '.') return {-1, {}};
  return {layer, module.substr(digits + 1)};
}

std::string_view type_of(const GgufRecipe& recipe, std::string_view module,
                         const ModelConfig& config) {
  if (module == (config.tied_embeddings ? "model.embed_tokens" : "lm_head")) return kQ6;
  const auto [layer, matrix] = place_of(module);
  if (layer < 0) return recipe.type;
  for (const RecipeRule& rule : recipe.rules)
    if (rule.matrix == matrix && holds(rule.layers, layer, config)) return rule.type;
  return recipe.type;
}

}  // namespace

std::span<const GgufRecipe> gguf_recipes() {
  return kRecipes;
}

const GgufRecipe* find_recipe(std::string_view layout) {
  const auto found = std::ranges::find(kRecipes, layout, &GgufRecipe::name);
  return found == std::end(kRecipes) ? nullptr : &*found;
}

void apply_recipe(const GgufRecipe& recipe, const Checkpoint& source, QuantizeRequest& request) {
  constexpr std::string_view kWeight = ".weight";
  for (const CheckpointTensor& tensor : source.tensors) {
    std::string_view module = tensor.name;
    if (tensor.shape.size() != 2 || !module.ends_with(kWeight)) continue;
    module.remove_suffix(kWeight.size());
    std::string_view type = type_of(recipe, module, source.config);
    FormatId id = *find_format(type);
    const Shape shape = tensor.weight.shape();
    std::string text;
    if (layout_rule(id, shape, {}) != nullptr) {
      type = std::ranges::find(kSmallerBlocks, type, &SmallerBlocks::type)->instead;
      id = *find_format(type);
      text = fmt::format("{}: {} columns do not divide into blocks of 256", recipe.name,
                         shape.cols);
    } else if (type != recipe.type) {
      text = fmt::format("{}: a matrix that matters more", recipe.name);
    } else {
      continue;
    }
    request.overrides.push_back(
        {std::move(text), ModulePattern::exact(module), false, id, FormatParams{}});
  }
}

}  // namespace packstone::cli
