#include <algorithm>
#include <unordered_map>

#include "packstone/base/limits.h"
#include "packstone/container/folder_files.h"
#include "packstone/container/gguf.h"
#include "packstone/container/names.h"

// Split sets as llama.cpp's gguf-split writes them: `<name>-00001-of-00003.gguf` counts from 1, the
// key split.no from 0; split.count and split.tensors.count stand in every part.

namespace packstone {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "container.open_gguf";
constexpr std::string_view kSplitPrefix = "split.";

struct SplitKeys {
  std::int64_t part = 0;  // from 0
  std::int64_t parts = 1;
  std::optional<std::int64_t> tensors;  // of the whole set
};

Result<GgufFile> open_one(const fs::path& path) {
  PACKSTONE_TRY(std::shared_ptr<const FileMap> map, FileMap::open(path));
  PACKSTONE_TRY(GgufFile file, parse_gguf(map->bytes(), map, shown_path(path.filename())));
  file.files = {path};
  return file;
}

std::unexpected<Error> fail_split(const fs::path& path, std::string_view got, std::string_view need,
                                  std::string_view hint = {}) {
  return fail(ErrorCode::kCorruptData, kWhere, shown_path(path.filename()), got, need, hint);
}

Result<SplitKeys> split_keys(const GgufFile& file) {
  SplitKeys split;
  PACKSTONE_TRY(const auto part, file.integer("split.no"));
  PACKSTONE_TRY(const auto parts, file.integer("split.count"));
  PACKSTONE_TRY(split.tensors, file.integer("split.tensors.count"));
  split.part = part.value_or(0);
  split.parts = parts.value_or(1);
  if (split.parts == 0) split.parts = 1;
  if (split.parts < 1 || split.parts > limits::kSplitPartsMax)
    return fail_split(file.files[0], fmt::format("split.count {}", split.parts),
                      fmt::format("1 to {}", limits::kSplitPartsMax));
  if (split.part < 0 || split.part >= split.parts)
    return fail_split(file.files[0], fmt::format("split.no {}", split.part),
                      fmt::format("0 to {} (it counts from 0)", split.parts - 1));
  return split;
}

std::string part_name(std::string_view prefix, std::int64_t part, std::int64_t parts) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, part + 1, parts);
}

// All parts' paths, made from the opened part's own name; missing ones are listed.
Result<std::vector<fs::path>> find_parts(const fs::path& path, const SplitKeys& split) {
  const std::string name = path.filename().string();
  const std::string tail = part_name("", split.part, split.parts);
  if (!name.ends_with(tail))
    return fail_split(path,
                      fmt::format("split.no {} and split.count {} in a file of this name",
                                  split.part, split.parts),
                      fmt::format("a name ending in {} (split.no counts from 0)", tail),
                      "give the parts their first names back");
  const std::string prefix = name.substr(0, name.size() - tail.size());
  std::vector<fs::path> paths;
  std::string missing;
  for (std::int64_t part = 0; part < split.parts; ++part) {
    const std::string part_file = part_name(prefix, part, split.parts);
    PACKSTONE_TRY(fs::path sibling,
                  part == split.part ? Result<fs::path>(path)
                                     : internal::sibling_file(kWhere, shown_path(path.filename()),
                                                              path.parent_path(), part_file));
    std::error_code error;
    if (!fs::exists(sibling, error)) missing += (missing.empty() ? "" : ", ") + shown(part_file);
    paths.push_back(std::move(sibling));
    constexpr std::size_t kListedBytesMax = 2000;
    if (missing.size() > kListedBytesMax) break;
  }
  if (!missing.empty())
    return fail(ErrorCode::kNotFound, kWhere, shown_path(path), "missing parts: " + missing,
                fmt::format("all {} parts", split.parts), "download them into the same folder");
  return paths;
}

// A part's keys against part 1's: later parts carry split.* alone, or the same values.
Status check_part(const GgufFile& first, const GgufFile& part, const SplitKeys& split,
                  const SplitKeys& own, std::int64_t number) {
  const fs::path& path = part.files[0];
  if (own.parts != split.parts)
    return fail_split(path, fmt::format("split.count {}", own.parts),
                      fmt::format("{} as in the part that was opened", split.parts));
  if (own.part != number)
    return fail_split(path, fmt::format("split.no {}", own.part),
                      fmt::format("{} by its name (it counts from 0)", number));
  if (own.tensors != split.tensors)
    return fail_split(path, fmt::format("split.tensors.count {}", own.tensors.value_or(-1)),
                      fmt::format("{} as in part 1", split.tensors.value_or(-1)));
  if (part.version != first.version)
    return fail_split(path, fmt::format("version {}", part.version),
                      fmt::format("{} as in part 1", first.version));
  std::unordered_map<std::string_view, const GgufValue*> values;
  for (const GgufKey& key : first.keys) values.emplace(key.name, &key.value);
  for (const GgufKey& key : part.keys) {
    if (key.name.starts_with(kSplitPrefix)) continue;
    const auto found = values.find(key.name);
    if (found == values.end() || !same_value(*found->second, key.value))
      return fail_split(path, fmt::format("key {} that part 1 has not alike", shown(key.name)),
                        "parts of one model");
  }
  return {};
}

Status check_tensors(const GgufFile& set, const SplitKeys& split) {
  std::unordered_map<std::string_view, std::string_view> places;
  for (const TensorView& tensor : set.tensors) {
    const auto [place, is_new] = places.emplace(tensor.name, tensor.file);
    if (!is_new)
      return fail(ErrorCode::kCorruptData, kWhere, "tensor " + shown(tensor.name),
                  fmt::format("it in {} and {}", place->second, tensor.file), "it once");
  }
  if (split.tensors && *split.tensors != static_cast<std::int64_t>(set.tensors.size()))
    return fail_split(set.files[0], fmt::format("{} tensors in all parts", set.tensors.size()),
                      fmt::format("{} by split.tensors.count", *split.tensors));
  return {};
}

}  // namespace

Result<GgufFile> open_gguf(const fs::path& path) {
  PACKSTONE_TRY(GgufFile opened, open_one(path));
  PACKSTONE_TRY(const SplitKeys opened_split, split_keys(opened));
  GgufFile set;
  if (opened_split.parts == 1) {
    set = std::move(opened);
    PACKSTONE_CHECK_OK(check_tensors(set, opened_split));
  } else {
    PACKSTONE_TRY(const std::vector<fs::path> paths, find_parts(path, opened_split));
    SplitKeys split = opened_split;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto number = static_cast<std::int64_t>(i);
      PACKSTONE_TRY(GgufFile part, number == opened_split.part ? Result<GgufFile>(std::move(opened))
                                                               : open_one(paths[i]));
      PACKSTONE_TRY(const SplitKeys own, split_keys(part));
      if (i == 0) split.tensors = own.tensors;
      PACKSTONE_CHECK_OK(check_part(i == 0 ? part : set, part, split, own, number));
      if (i == 0) {
        set = std::move(part);
        continue;
      }
      for (TensorView& tensor : part.tensors) tensor.file_index = i;
      std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(set.tensors));
      set.files.push_back(paths[i]);
    }
    PACKSTONE_CHECK_OK(check_tensors(set, split));
  }
  std::erase_if(set.keys, [](const GgufKey& key) { return key.name.starts_with(kSplitPrefix); });
  return set;
}

}  // namespace packstone
