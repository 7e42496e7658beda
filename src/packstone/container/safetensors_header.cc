#include "packstone/container/safetensors_header.h"

#include <unordered_set>

#include "packstone/container/json_events.h"
#include "packstone/container/names.h"

namespace packstone::internal {
namespace {

constexpr std::string_view kMetadataName = "__metadata__";

// Where in the header an event falls. kOther is a member that is passed over, `other_depth_` deep.
enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kOther, kEnd };

class HeaderEvents : public JsonEvents {
 public:
  SafetensorsHeader header;

  bool null() {
    if (place_ == Place::kRoot && is_metadata_) return true;
    return plain("null");
  }
  bool boolean(bool) { return plain("a boolean"); }
  bool number_integer(number_integer_t) { return plain("a negative number"); }
  bool number_float(number_float_t, const string_t&) {
    return plain("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) { return plain("binary data"); }

  bool number_unsigned(number_unsigned_t value) {
    if (place_ == Place::kShape) return add_axis(value);
    if (place_ == Place::kOffsets) return add_offset(value);
    return plain("a number");
  }

  bool string(string_t& text) {
    if (place_ == Place::kMetadata) {
      header.metadata.emplace(std::move(member_), std::move(text));
      return true;
    }
    if (place_ != Place::kTensor || member_ != "dtype") return plain("a string");
    record().type = safetensors_type(text);
    if (record().type == nullptr)
      return refuse_tensor(fmt::format("dtype {}", shown(text)), "a dtype of safetensors");
    return true;
  }

  bool start_object(std::size_t) {
    if (!enter()) return false;
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot) {
      place_ = is_metadata_ ? Place::kMetadata : Place::kTensor;
      members_.clear();
    } else {
      return open_other("an object");
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (!enter()) return false;
    if (place_ == Place::kTensor && member_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && member_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      return open_other("an array");
    }
    return true;
  }

  bool end_array() {
    if (place_ == Place::kOther) return close_other();
    if (place_ == Place::kOffsets && offsets_ != 2)
      return refuse_tensor(fmt::format("data_offsets of {} numbers", offsets_), "two");
    place_ = Place::kTensor;
    return leave();
  }

  bool end_object() {
    if (place_ == Place::kOther) return close_other();
    if (place_ == Place::kTensor)
      for (const char* member : {"dtype", "shape", "data_offsets"})
        if (!members_.contains(member)) return refuse_tensor(fmt::format("no {}", member), "one");
    place_ = place_ == Place::kRoot ? Place::kEnd : Place::kRoot;
    return leave();
  }

  bool key(string_t& name) {
    if (place_ == Place::kOther) return true;
    if (place_ == Place::kRoot) return begin_member(name);
    if (!members_.insert(name).second)
      return refuse(fmt::format("the member {} twice", shown(name)), "it once", owner());
    member_ = std::move(name);
    return true;
  }

 private:
  SafetensorsRecord& record() { return header.records.back(); }

  std::string owner() const {
    if (is_metadata_) return std::string(kMetadataName);
    return header.records.empty() ? "header" : "tensor " + shown(header.records.back().name);
  }

  bool refuse_tensor(std::string got_text, std::string need_text) {
    return refuse(std::move(got_text), std::move(need_text), owner());
  }

  bool begin_member(string_t& name) {
    is_metadata_ = name == kMetadataName;
    if (!names_.insert(name).second) {
      return refuse(is_metadata_ ? "it twice" : "the same name twice", "it once",
                    is_metadata_ ? std::string(kMetadataName) : "tensor " + shown(name));
    }
    if (is_metadata_) return true;
    if (!is_legal_name(name, limits::kNameBytesMax))
      return refuse(name.empty() ? "an empty name" : "a name with NUL or too long",
                    fmt::format("1 to {} bytes without NUL", limits::kNameBytesMax),
                    "tensor " + shown(name));
    if (header.records.size() >= limits::kTensorsMax)
      return refuse("more tensors", fmt::format("at most {}", limits::kTensorsMax));
    header.records.emplace_back();
    record().name = std::move(name);
    offsets_ = 0;
    return true;
  }

  bool add_axis(std::uint64_t value) {
    auto& shape = record().shape;
    if (value > static_cast<std::uint64_t>(INT64_MAX))
      return refuse_tensor(fmt::format("an axis of {}", value), "a signed 64-bit number");
    if (shape.size() == static_cast<std::size_t>(limits::kRankMax))
      return refuse_tensor("more axes", fmt::format("at most {}", limits::kRankMax));
    shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool add_offset(std::uint64_t value) {
    if (offsets_ == 2) return refuse_tensor("data_offsets of more numbers", "two");
    (offsets_ == 0 ? record().begin : record().end) = value;
    ++offsets_;
    return true;
  }

  bool is_other_member() const {
    return place_ == Place::kTensor && member_ != "dtype" && member_ != "shape" &&
           member_ != "data_offsets";
  }

  // A value without parts where `place_` gives no meaning to one of its kind.
  bool plain(std::string_view kind) {
    if (place_ == Place::kOther || is_other_member()) return true;
    return misplaced(kind);
  }

  bool open_other(std::string_view kind) {
    if (place_ != Place::kOther && !is_other_member()) return misplaced(kind);
    place_ = Place::kOther;
    ++other_depth_;
    return true;
  }

  bool close_other() {
    if (--other_depth_ == 0) place_ = Place::kTensor;
    return leave();
  }

  bool misplaced(std::string_view kind) {
    switch (place_) {
      case Place::kStart:
        return refuse(std::string(kind), "an object", "header");
      case Place::kRoot:
        return refuse(std::string(kind), "an object", owner());
      case Place::kMetadata:
        return refuse(fmt::format("{} under {}", kind, shown(member_)), "a string", owner());
      case Place::kShape:
        return refuse_tensor(fmt::format("{} in shape", kind), "whole numbers");
      case Place::kOffsets:
        return refuse_tensor(fmt::format("{} in data_offsets", kind), "two whole numbers");
      default:
        return refuse_tensor(fmt::format("{} as {}", kind, shown(member_)),
                             member_ == "dtype" ? "a string" : "an array of whole numbers");
    }
  }

  Place place_ = Place::kStart;
  bool is_metadata_ = false;
  int other_depth_ = 0;
  int offsets_ = 0;
  std::string member_;
  std::unordered_set<std::string> members_;  // of the open tensor or __metadata__
  std::unordered_set<std::string> names_;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::string_view file) {
  HeaderEvents events;
  if (read_json(text, events)) return std::move(events.header);
  const std::string subject =
      fmt::format("{}: {}", file, events.subject.empty() ? "header" : events.subject);
  return fail(ErrorCode::kCorruptData, "container.open_safetensors", subject, events.got,
              events.need, "get a good copy of the file");
}

}  // namespace packstone::internal
