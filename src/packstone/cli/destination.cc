#include <filesystem>

#include "packstone/checkpoint/certificate.h"
#include "packstone/cli/conversion.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

// Whether `inner` is `outer` or lies below it; both canonical.
bool lies_in(const fs::path& inner, const fs::path& outer) {
  auto i = inner.begin();
  for (auto o = outer.begin(); o != outer.end(); ++o, ++i) {
    if (o->empty()) break;  // a trailing separator
    if (i == inner.end() || *i != *o) return false;
  }
  return true;
}

// Only a folder that is empty or looks like a checkpoint may be replaced as a whole.
bool looks_replaceable(const fs::path& folder) {
  std::error_code error;
  if (fs::is_empty(folder, error) && !error) return true;
  return fs::is_regular_file(folder / "config.json", error);
}

// The certificate of what stands at DST goes with it.
Status check_certificate_place(std::string_view where, const fs::path& path, bool force) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status)) return {};
  if (!force)
    return fail(ErrorCode::kInvalidInput, where, "DST",
                fmt::format("`{}`, which exists", path.string()), "no certificate of another file",
                "--force replaces it");
  if (fs::is_regular_file(status)) return {};
  return fail(ErrorCode::kInvalidInput, where, "DST",
              fmt::format("`{}`, no plain file", path.string()), "a certificate to replace");
}

}  // namespace

Status check_destination(std::string_view command, const Checkpoint& source,
                         const std::string& destination, ContainerKind container, bool force) {
  const std::string where = fmt::format("cli.{}", command);
  std::error_code error;
  if (destination.empty())
    return fail(ErrorCode::kInvalidInput, where, "DST", "an empty name", "a path");
  const fs::path target = fs::weakly_canonical(fs::absolute(destination), error);
  if (error)
    return fail(ErrorCode::kInvalidInput, where, "DST", destination, "a path", error.message());
  std::vector<fs::path> sources{source.path};
  sources.insert(sources.end(), source.gguf.files.begin(), source.gguf.files.end());
  for (const fs::path& path : sources) {
    const fs::path real = fs::weakly_canonical(fs::absolute(path), error);
    if (!error &&
        (lies_in(real, target) || (lies_in(target, real) && fs::is_directory(real, error))))
      return fail(ErrorCode::kInvalidInput, where, "DST",
                  fmt::format("`{}`, which is or holds SRC, or lies in it", destination),
                  "another place than SRC");
  }
  if (!fs::is_directory(target.parent_path(), error))
    return fail(ErrorCode::kInvalidInput, where, "DST",
                fmt::format("`{}`, whose folder does not exist", destination),
                "a name in an existing folder");
  if (container == ContainerKind::kGguf)
    PACKSTONE_CHECK_OK(check_certificate_place(where, certificate_path(target, container), force));
  const fs::file_status status = fs::symlink_status(target, error);
  if (!fs::exists(status)) return {};
  if (!force)
    return fail(ErrorCode::kInvalidInput, where, "DST",
                fmt::format("`{}`, which exists", destination), "a new name",
                "--force replaces it");
  const bool folder = fs::is_directory(status);
  if (container == ContainerKind::kGguf ? !fs::is_regular_file(status) : !folder)
    return fail(ErrorCode::kInvalidInput, where, "DST",
                fmt::format("`{}`, a {}", destination, folder ? "folder" : "file"),
                container == ContainerKind::kGguf ? "a file to replace" : "a folder to replace");
  if (folder && !looks_replaceable(target))
    return fail(ErrorCode::kInvalidInput, where, "DST",
                fmt::format("`{}`, a folder without config.json", destination),
                "an empty folder or a checkpoint", "--force replaces no other folder");
  return {};
}

}  // namespace packstone::cli
