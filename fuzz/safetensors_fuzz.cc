// Any bytes as a safetensors file: an error or a set whose views lie in the file, cover its data
// once and have the bytes of their shapes.
#include <cstdlib>

#include "packstone/container/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const packstone::ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto set = packstone::parse_safetensors(bytes, nullptr, "fuzz");
  if (!set) {
    if (set.error().message.empty()) std::abort();
    return 0;
  }
  std::uint64_t covered = 0;
  unsigned sum = 0;
  for (const packstone::TensorView& tensor : set->tensors) {
    if (set->find(tensor.name) != &tensor) std::abort();
    if (packstone::tensor_bytes(*tensor.type, tensor.shape) != tensor.bytes.size()) std::abort();
    covered += tensor.bytes.size();
    for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
  }
  const auto header = packstone::load_le<std::uint64_t>(data);
  if (8 + header + covered != size) std::abort();
  return static_cast<int>(sum & 0u);
}
