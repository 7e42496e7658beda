#include <algorithm>
#include <new>
#include <set>

#include "packstone/base/limits.h"
#include "packstone/container/folder_files.h"
#include "packstone/container/json_events.h"
#include "packstone/container/names.h"
#include "packstone/container/safetensors.h"

namespace packstone {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "container.open_safetensors_folder";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::size_t kListedMax = 20;

using WeightMap = std::map<std::string, std::string, std::less<>>;

// Takes `weight_map` of the index; other members are passed over.
class IndexEvents : public internal::JsonEvents {
 public:
  WeightMap weight_map;
  bool found = false;

  bool null() { return plain(); }
  bool boolean(bool) { return plain(); }
  bool number_integer(number_integer_t) { return plain(); }
  bool number_unsigned(number_unsigned_t) { return plain(); }
  bool number_float(number_float_t, const string_t&) { return plain(); }
  bool binary(binary_t&) { return plain(); }

  bool string(string_t& file) {
    if (!in_map()) return plain();
    if (weight_map.emplace(tensor_, std::move(file)).second) return true;
    return refuse("the same name twice", "it once", "tensor " + shown(tensor_));
  }
  bool start_object(std::size_t) {
    if (depth_ == 1 && is_map_) {
      if (found) return refuse("weight_map twice", "it once");
      found = true;
    } else if (in_map() || (depth_ == 1 && is_map_)) {
      return plain();
    }
    return enter();
  }
  bool start_array(std::size_t) {
    if (depth_ == 0 || is_map_) return plain();
    return enter();
  }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(string_t& name) {
    if (depth_ == 1) is_map_ = name == "weight_map";
    if (in_map()) tensor_ = std::move(name);
    return true;
  }

 private:
  bool in_map() const { return depth_ == 2 && is_map_; }
  bool plain() {
    if (depth_ == 0) return refuse("no object", "a JSON object");
    if (!is_map_) return true;
    return refuse("another value", depth_ == 1 ? "an object of strings" : "a file name",
                  depth_ == 1 ? "weight_map" : "tensor " + shown(tensor_));
  }

  bool is_map_ = false;
  std::string tensor_;
};

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kListedMax); ++i)
    text += (i == 0 ? "" : ", ") + shown(names[i]);
  if (names.size() > kListedMax) text += fmt::format(" and {} more", names.size() - kListedMax);
  return text;
}

Result<WeightMap> read_index(const fs::path& path) {
  PACKSTONE_TRY(const std::string text, read_text(path, limits::kJsonBytesMax));
  IndexEvents events;
  if (!internal::read_json(text, events))
    return fail(
        ErrorCode::kCorruptData, kWhere,
        fmt::format("{}: {}", kIndexName, events.subject.empty() ? "index" : events.subject),
        events.got, events.need);
  if (!events.found)
    return fail(ErrorCode::kCorruptData, kWhere, kIndexName, "no weight_map", "one");
  return std::move(events.weight_map);
}

// The shards that the index names, sorted; all names are checked and all files found before one is
// opened.
Result<std::vector<fs::path>> find_shards(const fs::path& folder, const WeightMap& weight_map) {
  std::set<std::string_view> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  std::vector<fs::path> paths;
  std::vector<std::string> missing;
  for (const std::string_view name : names) {
    PACKSTONE_TRY(fs::path path, internal::sibling_file(kWhere, kIndexName, folder, name));
    std::error_code error;
    if (!fs::exists(path, error)) missing.emplace_back(name);
    paths.push_back(std::move(path));
  }
  if (!missing.empty())
    return fail(
        ErrorCode::kNotFound, kWhere, shown_path(folder),
        fmt::format("{} of {} shards missing: {}", missing.size(), names.size(), listed(missing)),
        fmt::format("all files that {} names", kIndexName),
        "download them; if model.safetensors is the whole model, the index is stale");
  return paths;
}

// Adds a shard's tensors to the set; each must be placed in this very file by the index.
Status add_shard(SafetensorsSet& set, const fs::path& path, const WeightMap& weight_map) {
  PACKSTONE_TRY(SafetensorsSet shard, open_safetensors(path));
  const std::string file = path.filename().string();
  std::vector<std::string> unlisted;
  for (TensorView& tensor : shard.tensors) {
    const auto place = weight_map.find(tensor.name);
    if (place != weight_map.end() && place->second != file)
      return fail(ErrorCode::kCorruptData, kWhere,
                  fmt::format("{}: tensor {}", tensor.file, shown(tensor.name)),
                  fmt::format("it here and in {} by the index", shown(place->second)),
                  "it in one file");
    if (place == weight_map.end()) unlisted.push_back(tensor.name);
    tensor.file_index = set.files.size();
    set.index.emplace(tensor.name, set.tensors.size());
    set.tensors.push_back(std::move(tensor));
  }
  if (!unlisted.empty())
    return fail(ErrorCode::kCorruptData, kWhere, shown_path(path.filename()),
                fmt::format("{} tensors in the file that are not in the index: {}", unlisted.size(),
                            listed(unlisted)),
                "each in the index", "the index belongs to another version of the files");
  set.metadata.merge(shard.metadata);
  set.files.push_back(path);
  return {};
}

Result<SafetensorsSet> open_sharded(const fs::path& folder, const fs::path& index) {
  PACKSTONE_TRY(const WeightMap weight_map, read_index(index));
  PACKSTONE_TRY(const std::vector<fs::path> shards, find_shards(folder, weight_map));
  SafetensorsSet set;
  for (const fs::path& path : shards) PACKSTONE_CHECK_OK(add_shard(set, path, weight_map));
  std::vector<std::string> absent;
  for (const auto& [tensor, file] : weight_map)
    if (!set.index.contains(tensor)) absent.push_back(tensor);
  if (!absent.empty())
    return fail(ErrorCode::kCorruptData, kWhere, kIndexName,
                fmt::format("{} tensors in the index that are not in the file it names: {}",
                            absent.size(), listed(absent)),
                "each in its file", "the index belongs to another version of the files");
  return set;
}

}  // namespace

Result<SafetensorsSet> open_safetensors_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return fail(ErrorCode::kNotFound, kWhere, shown_path(folder), "no such folder",
                "a folder with a checkpoint");
  PACKSTONE_TRY(const fs::path index,
                internal::sibling_file(kWhere, shown_path(folder), folder, kIndexName));
  PACKSTONE_TRY(const fs::path single,
                internal::sibling_file(kWhere, shown_path(folder), folder, kSingleName));
  try {
    if (fs::exists(index, error)) return open_sharded(folder, index);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, shown_path(folder), "no memory for the index",
                "memory");
  }
  if (!fs::exists(single, error))
    return fail(ErrorCode::kNotFound, kWhere, shown_path(folder),
                fmt::format("neither {} nor {}", kSingleName, kIndexName), "one of them");
  return open_safetensors(single);
}

std::string safetensors_index_text(const std::vector<TensorSpec>& specs,
                                   const std::vector<std::string>& file_of,
                                   std::uint64_t parameters) {
  nlohmann::json index;
  std::uint64_t bytes = 0;
  nlohmann::json& weight_map = index["weight_map"] = nlohmann::json::object();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    bytes += specs[i].bytes;
    weight_map[specs[i].name] = file_of[i];
  }
  index["metadata"] = {{"total_parameters", parameters}, {"total_size", bytes}};
  return index.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace packstone
