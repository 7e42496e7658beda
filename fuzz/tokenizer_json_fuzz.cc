// tokenizer.json and tokenizer_config.json: any bytes give a tokenizer or an error, and a tokenizer
// takes any text. The input is split at the first NUL: the file, then the config and the text.
#include <cstdint>
#include <string_view>

#include "packstone/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.find('\0');
  const std::string_view file = input.substr(0, cut);
  const std::string_view rest = cut == std::string_view::npos ? "" : input.substr(cut + 1);
  const auto tokenizer = packstone::Tokenizer::from_json(file, rest.starts_with('{') ? rest : "");
  if (tokenizer) {
    for (const std::string_view text :
         {rest, std::string_view("Hello  <s> 12\n\xFF\xE2\x96\x81")}) {
      for (const bool parse_special : {true, false}) {
        const auto ids = tokenizer->try_encode(text, {.parse_special = parse_special});
        if (!ids) continue;
        packstone::StreamDecoder decoder(*tokenizer);
        std::string streamed;
        for (const std::int32_t id : *ids) streamed += decoder.push(id);
        if (streamed + decoder.finish() != tokenizer->decode(*ids)) __builtin_trap();
      }
    }
  }
  const auto document = packstone::parse_tokenizer_document(file);
  if (document) (void)packstone::vocabulary_from_json(*document, nullptr, 1000);
  return 0;
}
