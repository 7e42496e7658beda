#include "packstone/cli/load.h"

#include "packstone/base/limits.h"
#include "packstone/container/file_map.h"
#include "packstone/container/folder_files.h"

namespace packstone::cli {
namespace {

// A text to tokenize or score; larger ones are cut by the user, not by us.
constexpr std::uint64_t kTextBytesMax = 4ull << 30;

namespace fs = std::filesystem;

bool has_weights(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return true;
  }
  return false;
}

}  // namespace

Result<std::string> read_user_text(const fs::path& path) {
  return read_text(path, kTextBytesMax);
}

Result<Tokenizer> checkpoint_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.container == ContainerKind::kFolder) {
    if (checkpoint.tokenizer_json_text.empty())
      return fail(ErrorCode::kNotFound, "cli.load_tokenizer", checkpoint.path.string(),
                  "no tokenizer.json", "a folder with a tokenizer.json");
    return Tokenizer::from_json(checkpoint.tokenizer_json_text, checkpoint.tokenizer_config_text);
  }
  PACKSTONE_TRY(const Vocabulary vocabulary, checkpoint_vocabulary(checkpoint));
  return Tokenizer::from_vocabulary(vocabulary);
}

Result<Tokenizer> load_tokenizer(const fs::path& path) {
  std::error_code error;
  const fs::path json = path / "tokenizer.json";
  if (fs::is_directory(path, error) && fs::exists(json, error) && !has_weights(path)) {
    constexpr std::string_view kWhere = "cli.load_tokenizer";
    PACKSTONE_TRY(const std::string text, internal::read_folder_text(kWhere, path, "tokenizer.json",
                                                                     limits::kJsonBytesMax));
    Result<std::string> config =
        internal::read_folder_text(kWhere, path, "tokenizer_config.json", limits::kJsonBytesMax);
    if (!config && config.error().code != ErrorCode::kNotFound)
      return std::unexpected(std::move(config).error());
    return Tokenizer::from_json(text, config.value_or(std::string()));
  }
  PACKSTONE_TRY(const Checkpoint checkpoint, open_checkpoint(path));
  return checkpoint_tokenizer(checkpoint);
}

}  // namespace packstone::cli
