#include "packstone/cli/journal.h"

#include "packstone/base/limits.h"
#include "packstone/checkpoint/content_hash.h"
#include "packstone/cli/jsonl.h"
#include "packstone/cli/load.h"
#include "packstone/container/file_map.h"
#include "packstone/container/output_file.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "cli.journal";
constexpr std::size_t kSumDigits = 64;
constexpr std::string_view kCallFile = "call.json";

std::string_view text_of(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Json header_of(const TensorPlan& tensor) {
  Json header;
  header["name"] = tensor.source->name;
  header["format"] = format_info(tensor.made->id()).name;
  header["relative_rms"] = tensor.report->relative_rms;
  header["max_abs"] = tensor.report->max_abs;
  header["row"] = tensor.report->row;
  header["col"] = tensor.report->col;
  header["lost_groups"] = tensor.report->lost_groups;
  if (tensor.proxy_error) header["proxy_error"] = *tensor.proxy_error;
  if (tensor.loss) header["loss"] = *tensor.loss;
  return header;
}

std::optional<double> real_of(const Json& header, const char* key) {
  const auto found = header.find(key);
  if (found == header.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}
std::optional<std::int64_t> count_of(const Json& header, const char* key) {
  const auto found = header.find(key);
  if (found == header.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}
bool says(const Json& header, const char* key, std::string_view text) {
  const auto found = header.find(key);
  return found != header.end() && found->is_string() &&
         found->get_ref<const std::string&>() == text;
}

// The parts of a whole file: header and planes. Nothing for a damaged one.
struct Parts {
  Json header;
  ByteSpan planes;
};
std::optional<Parts> parts_of(ByteSpan bytes) {
  if (bytes.size() < kSumDigits) return std::nullopt;
  const std::string_view text = text_of(bytes);
  const std::string_view body = text.substr(0, text.size() - kSumDigits);
  if (sha256_text(body) != text.substr(body.size())) return std::nullopt;
  const std::size_t line = body.find('\n');
  if (line == std::string_view::npos) return std::nullopt;
  std::optional<Json> header = parse_user_json(body.substr(0, line));
  if (!header || !header->is_object()) return std::nullopt;
  return Parts{*std::move(header), bytes.subspan(line + 1, body.size() - line - 1)};
}

std::optional<QuantizeReport> read_report(const Json& header) {
  const auto rms = real_of(header, "relative_rms"), max = real_of(header, "max_abs");
  const auto row = count_of(header, "row"), col = count_of(header, "col");
  const auto lost = count_of(header, "lost_groups");
  if (!rms || !max || !row || !col || !lost) return std::nullopt;
  QuantizeReport report;
  report.relative_rms = *rms;
  report.max_abs = *max;
  report.row = *row;
  report.col = *col;
  report.lost_groups = *lost;
  return report;
}

// Whether all that the folder holds is a journal's: also one that a kill left without its call.
bool is_journal(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name != kCallFile && !name.ends_with(".weight") && !name.starts_with('.')) return false;
  }
  return !error;
}

Status write_call(const fs::path& folder, const Json& call) {
  PACKSTONE_TRY(OutputFile file, OutputFile::create(folder / kCallFile));
  const std::string text = call.dump(2) + "\n";
  PACKSTONE_CHECK_OK(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

// Whether the folder's call is this one.
Status check_call(const fs::path& folder, const Json& call) {
  PACKSTONE_TRY(const std::string text, read_user_text(folder / kCallFile));
  const std::optional<Json> found = parse_user_json(text);
  if (found && *found == call) return {};
  std::string different = "call.json is damaged";
  if (found && found->is_object()) {
    different.clear();
    for (const auto& [key, value] : call.items())
      if (!found->contains(key) || (*found)[key] != value)
        different += fmt::format("{}{}", different.empty() ? "other " : ", ", key);
  }
  return fail(ErrorCode::kInvalidInput, kWhere, folder.string(), different,
              "the options and the source that the journal was begun with",
              "--force instead of --resume starts from the beginning");
}

}  // namespace

Result<Journal> Journal::open(const fs::path& destination, const Json& call, bool resume,
                              bool force, Context& context) {
  fs::path folder = destination;
  if (folder.filename().empty()) folder = folder.parent_path();
  folder += ".journal";
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder, error);
  const bool there = fs::exists(status);
  if (there && (!fs::is_directory(status) || !is_journal(folder)))
    return fail(ErrorCode::kInvalidInput, kWhere, folder.string(), "something else there",
                "a journal or nothing", "move it away");
  const bool begun = there && fs::exists(folder / kCallFile, error);
  if (resume && begun) {
    PACKSTONE_CHECK_OK(check_call(folder, call));
    return Journal(std::move(folder));
  }
  if (begun && !force)
    return fail(ErrorCode::kInvalidInput, kWhere, folder.string(), "the work of a run that stopped",
                "no journal, or --resume to go on with it", "--force starts from the beginning");
  if (resume)
    context.err << fmt::format("no journal at {}: starting from the beginning\n",
                               line_text(folder.string()));
  error.clear();
  if (there) fs::remove_all(folder, error);
  if (!error) fs::create_directory(folder, error);
  if (error)
    return fail(ErrorCode::kIo, kWhere, folder.string(), error.message(), "a folder to write to");
  PACKSTONE_CHECK_OK(write_call(folder, call));
  return Journal(std::move(folder));
}

fs::path Journal::file(std::size_t index) const {
  return folder_ / fmt::format("{}.weight", index);
}

std::optional<PackedWeight> Journal::find(std::size_t index, TensorPlan& tensor) const {
  std::error_code error;
  if (!fs::exists(file(index), error)) return std::nullopt;
  const auto map = FileMap::open(file(index));
  if (!map) return std::nullopt;
  const std::optional<Parts> parts = parts_of((*map)->bytes());
  const FormatId id = tensor.target.id;
  const Shape shape = tensor.source->weight.shape();
  if (!parts || !says(parts->header, "name", tensor.source->name) ||
      !says(parts->header, "format", format_info(id).name) ||
      parts->planes.size() != weight_bytes(id, shape, tensor.plan.params))
    return std::nullopt;
  const std::optional<QuantizeReport> report = read_report(parts->header);
  if (!report) return std::nullopt;
  std::vector<ByteSpan> planes;
  std::size_t at = 0;
  for (int plane = 0; plane < format_info(id).plane_count; ++plane) {
    const auto size = static_cast<std::size_t>(plane_bytes(id, plane, shape, tensor.plan.params));
    planes.push_back(parts->planes.subspan(at, size));
    at += size;
  }
  auto bound = PackedWeight::bind(id, shape, tensor.plan.params, std::move(planes), *map,
                                  tensor.source->name);
  if (!bound) return std::nullopt;
  tensor.report = report;
  tensor.proxy_error = real_of(parts->header, "proxy_error");
  tensor.loss = real_of(parts->header, "loss");
  return *std::move(bound);
}

Status Journal::add(std::size_t index, TensorPlan& tensor) const {
  PACKSTONE_TRY(OutputFile out, OutputFile::create(file(index)));
  try {
    std::string body = header_of(tensor).dump() + "\n";
    body.reserve(body.size() + tensor.made->bytes() + kSumDigits);
    for (int plane = 0; plane < tensor.made->plane_count(); ++plane)
      body += text_of(tensor.made->plane(plane));
    body += sha256_text(body);
    PACKSTONE_CHECK_OK(out.write(std::as_bytes(std::span(body))));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, file(index).string(), "too little memory",
                "one more copy of the weight");
  }
  PACKSTONE_CHECK_OK(out.commit());
  std::optional<PackedWeight> bound = find(index, tensor);
  if (!bound)
    return fail(ErrorCode::kIo, kWhere, file(index).string(), "other bytes than were written",
                "a disk that keeps them");
  tensor.made = *std::move(bound);
  return {};
}

void Journal::remove() const {
  std::error_code error;
  fs::remove_all(folder_, error);
}

}  // namespace packstone::cli
