// Any text as a certificate: an error in words, or a document of the schema whose text is read
// again as the same document.
#include <cstdlib>

#include "packstone/checkpoint/certificate.h"

namespace {

// A text that is only members is put behind the two that every certificate begins with.
std::string completed(std::string_view text) {
  if (text.starts_with('{')) return std::string(text);
  std::string json = R"({"format":"packstone.certificate","version":1,)";
  json += text;
  return json + "}";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = completed({reinterpret_cast<const char*>(data), size});
  const auto document = packstone::parse_certificate(text, "fuzz.json");
  if (!document) {
    if (document.error().message.empty()) std::abort();
    return 0;
  }
  if (!(*document)["source"]["files"].is_array()) std::abort();
  const auto again =
      packstone::parse_certificate(packstone::certificate_text(*document), "again.json");
  if (!again || *again != *document) std::abort();
  return 0;
}
