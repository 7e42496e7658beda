#include "packstone/container/folder_files.h"

#include "packstone/container/file_map.h"
#include "packstone/container/names.h"

namespace packstone::internal {
namespace {

namespace fs = std::filesystem;

bool is_allowed_link(const fs::path& folder, const fs::path& file) {
  if (file.parent_path() == folder) return true;
  return folder.parent_path().filename() == "snapshots" &&
         file.parent_path() == folder.parent_path().parent_path() / "blobs";
}

}  // namespace

Result<fs::path> sibling_file(std::string_view where, std::string_view source,
                              const fs::path& folder, std::string_view name) {
  if (!is_plain_file_name(name))
    return fail(ErrorCode::kCorruptData, where, source, "the file name " + shown(name),
                "a plain file name inside the folder");
  const fs::path path = folder / name;
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  const fs::path real_folder = fs::canonical(folder.empty() ? "." : folder, error);
  const fs::path real_file = error ? fs::path() : fs::weakly_canonical(path, error);
  if (error || !is_allowed_link(real_folder, real_file))
    return fail(ErrorCode::kCorruptData, where, source,
                fmt::format("{}, a link out of the folder", shown(name)),
                "a file inside the folder");
  return path;
}

Result<std::string> read_folder_text(std::string_view where, const fs::path& folder,
                                     std::string_view name, std::uint64_t bytes_max) {
  Result<fs::path> path = sibling_file(where, shown_path(folder), folder, name);
  if (!path) return std::unexpected(std::move(path).error());
  return read_text(*path, bytes_max);
}

}  // namespace packstone::internal
