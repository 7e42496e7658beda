#include "packstone/cli/pins.h"

#include <algorithm>

#include "packstone/checkpoint/content_hash.h"
#include "packstone/container/file_map.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

Result<std::string> file_sha256(const fs::path& path) {
  PACKSTONE_TRY(const std::shared_ptr<const FileMap> map, FileMap::open(path));
  return sha256_text({reinterpret_cast<const char*>(map->bytes().data()), map->bytes().size()});
}

bool counts(const std::string& name) {
  constexpr std::string_view kNames[] = {"config.json", "generation_config.json", "tokenizer.json",
                                         "tokenizer_config.json"};
  return name.ends_with(".safetensors") || std::ranges::find(kNames, name) != std::end(kNames);
}

}  // namespace

Result<std::string> model_sha256(const Checkpoint& checkpoint) {
  std::vector<fs::path> files;
  if (checkpoint.container == ContainerKind::kGguf) {
    files = checkpoint.gguf.files;
    if (files.size() == 1) return file_sha256(files[0]);
  } else {
    std::error_code error;
    for (fs::directory_iterator it(checkpoint.path, error), end; !error && it != end;
         it.increment(error))
      if (counts(it->path().filename().string())) files.push_back(it->path());
  }
  std::ranges::sort(files, {}, [](const fs::path& path) { return path.filename().string(); });
  std::string lines;
  for (const fs::path& path : files) {
    PACKSTONE_TRY(const std::string sum, file_sha256(path));
    lines += fmt::format("{} {}\n", path.filename().string(), sum);
  }
  return sha256_text(lines);
}

}  // namespace packstone::cli
