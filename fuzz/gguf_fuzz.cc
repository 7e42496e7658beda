// Any bytes as a GGUF file: an error or a file whose views lie in it and do not meet, whose keys
// are found by name and have one type.
#include <cstdlib>

#include "packstone/container/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const packstone::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = packstone::parse_gguf(bytes, nullptr, "fuzz");
  if (!file) {
    if (file.error().message.empty()) std::abort();
    return 0;
  }
  for (const packstone::GgufKey& key : file->keys) {
    const packstone::GgufValue* value = file->find(key.name);
    if (value == nullptr || !packstone::same_value(*value, key.value)) std::abort();
    const int types = file->text(key.name).has_value() + file->boolean(key.name).has_value() +
                      file->number(key.name).has_value();
    if (types > 1) std::abort();
    if (file->integer(key.name) && !file->number(key.name)) std::abort();
  }
  const std::byte* end = bytes.data();
  unsigned sum = 0;
  for (const packstone::TensorView& tensor : file->tensors) {
    if (packstone::tensor_bytes(*tensor.type, tensor.shape) != tensor.bytes.size()) std::abort();
    if (tensor.bytes.data() < end) std::abort();
    end = tensor.bytes.data() + tensor.bytes.size();
    for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
  }
  return static_cast<int>(sum & 0u);
}
