#include "packstone/cli/verify_source.h"

#include <algorithm>
#include <vector>

#include "packstone/checkpoint/content_hash.h"
#include "packstone/container/folder_files.h"
#include "packstone/container/names.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

// Entries of a folder beyond these are not looked at.
constexpr std::size_t kEntriesMax = 10'000;

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error))
    if (paths.size() < kEntriesMax) paths.push_back(it->path());
  std::ranges::sort(paths);
  return paths;
}

bool has_size(const fs::path& path, const Json& file) {
  std::error_code error;
  return fs::is_regular_file(path, error) &&
         fs::file_size(path, error) == file["bytes"].get<std::uint64_t>() && !error;
}

// The files at `path` that stand for the recorded ones; none when a size differs. Of a split set
// the first part alone: the others are found by their names and compared afterwards.
std::vector<FileRange> candidate(const fs::path& path, const Json& recorded) {
  std::vector<FileRange> ranges;
  const Json& files = recorded["files"];
  if (recorded["container"] == "gguf") {
    if (!files.empty() && has_size(path, files[0]))
      ranges.push_back({path, 0, files[0]["bytes"].get<std::uint64_t>(), true});
    return ranges;
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) return ranges;
  for (const Json& file : files) {
    const Result<fs::path> place = internal::sibling_file(
        "cli.verify", shown_path(path), path, file["name"].get_ref<const std::string&>());
    if (!place || !has_size(*place, file)) return {};
    ranges.push_back({*place, 0, file["bytes"].get<std::uint64_t>(), true});
  }
  return ranges;
}

bool sums_match(const std::vector<std::string>& sums, const Json& recorded) {
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (recorded["files"][i]["sha256"] != sums[i]) return false;
  return true;
}

}  // namespace

Result<fs::path> find_source(const Json& recorded, const fs::path& target, Context& context) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(target), error);
  for (const fs::path& path : entries(whole.parent_path())) {
    PACKSTONE_CHECK_OK(context.check_cancel("verify"));
    const std::vector<FileRange> ranges = candidate(path, recorded);
    if (ranges.empty() || path == whole) continue;
    const Result<std::vector<std::string>> sums =
        sha256_ranges(ranges, context.pool(), {&context.cancel, {}});
    if (sums && sums_match(*sums, recorded)) return path;
  }
  PACKSTONE_CHECK_OK(context.check_cancel("verify"));
  return fail(ErrorCode::kInvalidInput, "cli.verify", "--against",
              "none, and no checkpoint beside DST has the bytes of the certificate's source",
              "SRC, the checkpoint that was converted");
}

Result<std::vector<std::string>> changed_files(const Json& recorded, const fs::path& path,
                                               Context& context) {
  std::vector<std::string> changed;
  const bool gguf = recorded["container"] == "gguf";
  for (const Json& file : recorded["files"]) {
    PACKSTONE_CHECK_OK(context.check_cancel("verify"));
    const auto& name = file["name"].get_ref<const std::string&>();
    const Result<fs::path> place =
        gguf ? Result<fs::path>(path)
             : internal::sibling_file("cli.verify", shown_path(path), path, name);
    if (!place || !has_size(*place, file)) {
      changed.push_back(name);
    } else {
      PACKSTONE_TRY(const std::vector<std::string> sums,
                    sha256_ranges({{{*place, 0, file["bytes"].get<std::uint64_t>(), true}}},
                                  context.pool(), {&context.cancel, {}}));
      if (file["sha256"] != sums[0]) changed.push_back(name);
    }
    if (gguf) break;
  }
  return changed;
}

}  // namespace packstone::cli
