// Any text as a config.json: an error, or a config whose numbers are within their bounds.
#include <cstdlib>

#include "packstone/base/limits.h"
#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/checkpoint/names.h"
#include "packstone/checkpoint/quantization_block.h"

namespace {

// A text that is only members is put into an object with the keys that every config needs, so that
// short inputs reach the rules behind them.
std::string completed(std::string_view text) {
  if (text.starts_with('{')) return std::string(text);
  constexpr std::string_view kTypes[] = {"llama",  "mistral",     "qwen2", "qwen3",
                                         "gemma2", "gemma3_text", "gemma3"};
  const std::size_t type = text.empty() ? 0 : static_cast<unsigned char>(text[0]) % 7;
  if (!text.empty()) text.remove_prefix(1);
  std::string json = R"({"hidden_size":64,"num_hidden_layers":2,"intermediate_size":128,)"
                     R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":96,)"
                     R"("rms_norm_eps":1e-5,"rope_theta":1e4,"query_pre_attn_scalar":16,)"
                     R"("sliding_window":8,"model_type":")";
  json += kTypes[type];
  json += "\",";
  json += text;
  return json + "}";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = completed({reinterpret_cast<const char*>(data), size});
  const auto json = packstone::parse_json(text, "fuzz", "config.json");
  if (!json) return 0;
  std::vector<std::string> problems;
  const auto block = packstone::QuantizationBlock::parse(*json, "config.json");
  if (!block && block.error().message.empty()) std::abort();
  const auto parsed = packstone::config_from_json(*json, *json, "config.json", problems);
  if (!parsed) {
    if (parsed.error().message.empty()) std::abort();
    return 0;
  }
  const packstone::ModelConfig& config = parsed->config;
  const bool sane = config.layers >= 1 && config.layers <= packstone::limits::kLayersMax &&
                    config.kv_heads >= 1 && config.heads % config.kv_heads == 0 &&
                    config.head_dim >= 2 && config.head_dim % 2 == 0 && config.vocab >= 1 &&
                    config.query_scale > 0 && config.rope_theta >= 1;
  if (!sane) std::abort();
  if (!config.sliding_layers.empty() &&
      (config.sliding_layers.size() != static_cast<std::size_t>(config.layers) ||
       config.sliding_window < 1))
    std::abort();
  for (const std::int64_t id : config.eos)
    if (id < 0 || id >= config.vocab) std::abort();
  for (const packstone::ExpectedTensor& tensor : packstone::expected_tensors(config))
    if (tensor.shape.rows < 1 || tensor.shape.cols < 1) std::abort();
  return 0;
}
