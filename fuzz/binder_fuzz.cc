// Any bytes as a GGUF file or a folder, or edits of a sound one: an error, or a checkpoint whose
// weights lie in the bytes and whose metadata can be written.
#include <cstdlib>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/checkpoint/metadata.h"
#include "tests/support/tiny_checkpoint.h"

namespace {

using packstone::ByteSpan;
using Bytes = std::vector<std::byte>;

struct Sound {
  Bytes gguf[2];
  Bytes safetensors;
  std::string config;
};

Bytes bytes_of(const std::filesystem::path& path) {
  const auto map = packstone::FileMap::open(path);
  if (!map) std::abort();
  return {(*map)->bytes().begin(), (*map)->bytes().end()};
}

const Sound& sound() {
  static const Sound made = [] {
    Sound files;
    const packstone::tiny::TemporaryFolder folder;
    const packstone::tiny::Folder mlx = packstone::tiny::mlx_folder("llama", 4, 64, 1);
    if (!write(folder / "a.gguf", packstone::tiny::gguf("llama", 1)) ||
        !write(folder / "b.gguf", packstone::tiny::gguf("gemma3_text", 1)) ||
        !write(folder / "c", mlx))
      std::abort();
    files.gguf[0] = bytes_of(folder / "a.gguf");
    files.gguf[1] = bytes_of(folder / "b.gguf");
    files.safetensors = bytes_of(folder / "c/model.safetensors");
    files.config = mlx.config.dump();
    return files;
  }();
  return made;
}

// Reads inputs as edits: three bytes of place, one of value. Places beyond the end do nothing.
template <class Target>
void edit(Target& target, ByteSpan input) {
  for (std::size_t i = 0; i + 4 <= input.size(); i += 4) {
    const std::size_t place = packstone::load_le<std::uint32_t>(input.data() + i) & 0xFFFFFFu;
    if (place < target.size())
      target[place] = static_cast<typename Target::value_type>(input[i + 3]);
  }
}

void check(const packstone::Result<packstone::Checkpoint>& checkpoint) {
  if (!checkpoint) {
    if (checkpoint.error().message.empty()) std::abort();
    return;
  }
  std::vector<packstone::OutputTensor> outputs;
  unsigned sum = 0;
  for (const packstone::CheckpointTensor& tensor : checkpoint->tensors) {
    for (int i = 0; i < tensor.weight.plane_count(); ++i)
      for (const std::byte byte : tensor.weight.plane(i)) sum += static_cast<unsigned>(byte);
    for (const std::int32_t row : tensor.stored_rows())
      if (row < 0 || row >= tensor.weight.shape().rows) std::abort();
    outputs.push_back({tensor.name, tensor.shape, tensor.weight.id(), tensor.weight.params()});
  }
  packstone::MetadataReport report;
  const auto config = packstone::folder_config(*checkpoint, {.tensors = &outputs}, report);
  if (!config && config.error().message.empty()) std::abort();
  asm volatile("" : : "r"(sum));  // the reads must stay, so that the sanitizer sees them
}

void bind_folder_bytes(std::string_view config, ByteSpan safetensors) {
  auto json = packstone::parse_json(config, "fuzz", "config.json");
  auto set = packstone::parse_safetensors(safetensors, nullptr, "fuzz");
  if (json && set) check(packstone::bind_folder(*std::move(set), *std::move(json), {}, "fuzz"));
}

void bind_gguf_bytes(ByteSpan bytes) {
  auto gguf = packstone::parse_gguf(bytes, nullptr, "fuzz");
  if (gguf) check(packstone::bind_gguf(*std::move(gguf), "fuzz"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const ByteSpan input(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  switch (data[0] % 6) {
    case 0:
      bind_gguf_bytes(input);
      break;
    case 1:
      bind_folder_bytes(sound().config, input);
      break;
    case 2:
      bind_folder_bytes(text, sound().safetensors);
      break;
    case 3:
    case 4: {
      Bytes bytes = sound().gguf[data[0] % 6 - 3];
      edit(bytes, input);
      bind_gguf_bytes(bytes);
      break;
    }
    default: {
      std::string config = sound().config;
      edit(config, input);
      bind_folder_bytes(config, sound().safetensors);
    }
  }
  return 0;
}
