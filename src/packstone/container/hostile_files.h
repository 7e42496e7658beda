// Attacks on the two parsers: each is a whole file and one line on what it tries.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "packstone/container/test_files.h"

namespace packstone::testing_files {

struct HostileFile {
  std::string name;   // known-fault id and variant
  std::string tries;  // what the file tries
  std::string named;  // key, tensor or number that the refusal must name
  FileBytes bytes;
};

// How GoogleTest shows one.
inline void PrintTo(const HostileFile& file, std::ostream* out) {
  *out << file.tries;
}

inline constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;

// One tensor, aligned, and data_bytes of data.
inline FileBytes one_tensor(const std::vector<std::uint64_t>& dims, std::uint32_t type,
                            std::uint64_t offset, std::size_t data_bytes) {
  FileBytes file;
  return file.gguf(1, 0).tensor("weight", dims, type, offset).align(32).zeros(data_bytes);
}

// No tensor, one key whose value bytes follow.
inline FileBytes one_key(std::string_view name, std::uint32_t type, const FileBytes& value) {
  FileBytes file;
  return file.gguf(0, 1).key(name, type).raw(value.bytes());
}

// An array value with `depth` levels of arrays, each of one element.
inline FileBytes nested_arrays(int depth) {
  FileBytes value;
  for (int i = 1; i < depth; ++i) value.put<std::uint32_t>(9).put<std::uint64_t>(1);
  return value.put<std::uint32_t>(4).put<std::uint64_t>(1).put<std::uint32_t>(7);
}

// A list of attacks under construction.
class HostileList {
 public:
  void add(std::string name, std::string tries, std::string named, FileBytes bytes) {
    files.push_back({std::move(name), std::move(tries), std::move(named), std::move(bytes)});
  }
  // A safetensors file with these members in its header.
  void add_members(std::string name, std::string tries, std::string named,
                   const std::string& members, std::size_t data_bytes) {
    add(std::move(name), std::move(tries), std::move(named),
        safetensors_file("{" + members + "}", data_bytes));
  }

  std::vector<HostileFile> files;
};

// Attacks through the metadata of GGUF.
inline void add_gguf_key_attacks(HostileList& list) {
  for (const std::uint32_t alignment : {0u, 48u, 1u << 31})
    list.add(fmt::format("SEC-04.{}", alignment),
             "an alignment that divides by zero or swallows all", "general.alignment",
             one_key("general.alignment", 4, FileBytes().put<std::uint32_t>(alignment)));
  list.add("SEC-04.i32", "an alignment of another type", "general.alignment",
           one_key("general.alignment", 5, FileBytes().put<std::int32_t>(32)));
  list.add("SEC-04.array", "an alignment that is an array", "general.alignment",
           one_key("general.alignment", 9,
                   FileBytes().put<std::uint32_t>(4).put<std::uint64_t>(1).put<std::uint32_t>(32)));
  for (const std::uint64_t count : {std::uint64_t{INT64_MAX}, std::uint64_t{INT64_MAX} / 64}) {
    list.add(fmt::format("SEC-05.tensors.{:x}", count), "a tensor count whose table wraps",
             "tensors", FileBytes().gguf(count, 0));
    list.add(fmt::format("SEC-05.keys.{:x}", count), "a key count whose table wraps", "keys",
             FileBytes().gguf(0, count));
  }
  list.add("SEC-05.both", "counts that fit alone but not together", "tensors",
           FileBytes().gguf(8, 14).zeros(200));
  list.add("SEC-07.element", "an array element type of no size", "'x'",
           one_key("x", 9, FileBytes().put<std::uint32_t>(200).put<std::uint64_t>(1).zeros(16)));
  list.add("SEC-07.value", "a value type that does not exist", "'x'",
           one_key("x", 13, FileBytes().zeros(16)));
  list.add("SEC-07.deep", "nesting that overflows the stack", "'x'",
           one_key("x", 9, nested_arrays(4000)));
  list.add("SEC-07.count", "an array longer than the file", "'x'",
           one_key("x", 9, FileBytes().put<std::uint32_t>(10).put<std::uint64_t>(kHuge)));
  for (std::uint32_t type = 0; type < 13; ++type)
    list.add(fmt::format("SEC-08.empty.{}", type), "a key without a name", "key 0",
             one_key("", type, FileBytes().zeros(type == 0 ? 1 : 16)));  // type 0: 37 bytes
  list.add("SEC-08.long", "a key longer than any buffer", "70000 bytes",
           one_key(std::string(70'000, 'k'), 0, FileBytes().zeros(1)));
  list.add("SEC-08.nul", "a key that C strings cut", "'a\\x00b'",
           one_key(std::string_view("a\0b", 3), 0, FileBytes().zeros(1)));
  list.add("SEC-08.twice", "a key that is there twice", "'k'",
           FileBytes().gguf(0, 2).key("k", 0).zeros(1).key("k", 0).zeros(15));
  list.add("SEC-11.string", "a string longer than the file", "'x'",
           one_key("x", 8, FileBytes().put(~std::uint64_t{0} - 7).zeros(8)));
  list.add("bool", "a bool that is neither", "'x'",
           one_key("x", 7, FileBytes().put<std::uint8_t>(2)));
}

// Attacks through the tensor table of GGUF.
inline void add_gguf_tensor_attacks(HostileList& list) {
  list.add("SEC-01.f32", "a product of dimensions that wraps to 4", "'weight'",
           one_tensor({kHuge + 1, 4}, 0, 0, 16));
  list.add("SEC-01.i8", "a product of dimensions that turns negative", "'weight'",
           one_tensor({INT64_MAX, 2}, 24, 0, 32));
  list.add("SEC-01.q8_0", "blocks times block bytes that wrap", "'weight'",
           one_tensor({1152, (std::uint64_t{1} << 42) + 1}, 8, 0, 64));
  list.add("SEC-01.negative", "a dimension that is negative as a signed number", "'weight'",
           one_tensor({~std::uint64_t{0}, 4}, 0, 0, 16));
  list.add("SEC-01.blocks", "a row that is not whole blocks", "'weight'",
           one_tensor({33}, 2, 0, 64));
  list.add("SEC-11.tail", "a range that leaves the file", "'weight'", one_tensor({16}, 0, 0, 16));
  list.add("SEC-11.wrap", "an offset and size whose sum wraps", "'weight'",
           one_tensor({16}, 0, ~std::uint64_t{0} - 31, 64));
  list.add(
      "SEC-16.gguf", "two tensors at one place", "'b'",
      FileBytes().gguf(2, 0).tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 0).align(32).zeros(64));
  list.add("SHD-01.one", "a tensor that is there twice", "tensors 0 and 1",
           FileBytes()
               .gguf(2, 0)
               .tensor("blk.0.attn_q.weight", {8}, 0, 0)
               .tensor("blk.0.attn_q.weight", {8}, 0, 32)
               .align(32)
               .zeros(64));
  list.add("rank", "more dimensions than the format has", "'weight'",
           one_tensor({1, 1, 1, 1, 1}, 0, 0, 32));
  list.add("trailing", "bytes that no tensor owns", "after the last tensor",
           one_tensor({8}, 0, 0, 32 + 1000));
  list.add("name.utf8", "a tensor name that no JSON can carry", "\\xFF",
           FileBytes().gguf(1, 0).tensor("\xFF", {8}, 0, 0).align(32).zeros(32));
}

// All attacks on the GGUF parser; each is kCorruptData.
inline std::vector<HostileFile> hostile_gguf_files() {
  HostileList list;
  add_gguf_key_attacks(list);
  add_gguf_tensor_attacks(list);
  return std::move(list.files);
}

// Attacks through dtype, shape and data_offsets.
inline void add_safetensors_range_attacks(HostileList& list) {
  list.add_members("SEC-13.small", "a shape far larger than its bytes", "'w'",
                   entry("w", "F32", "1000,1000", "0,4"), 4);
  list.add_members("SEC-13.wrap", "a product that wraps to zero", "'w'",
                   entry("w", "F32", "4294967296,4294967296", "1099511627776,2199023255552"), 4);
  list.add_members("SEC-13.one", "one offset", "'w'", entry("w", "U8", "4", "0"), 4);
  list.add_members("SEC-13.three", "three offsets", "'w'", entry("w", "U8", "4", "0,4,4"), 4);
  list.add_members("SEC-13.order", "begin after end", "'w'", entry("w", "U8", "4", "4,0"), 4);
  list.add_members("SEC-13.negative", "a negative offset", "'w'", entry("w", "U8", "4", "-4,0"), 4);
  list.add_members("SEC-13.fraction", "a fraction as offset", "'w'", entry("w", "U8", "4", "0,1.5"),
                   4);
  list.add_members("SEC-13.string", "a string as offset", "'w'", entry("w", "U8", "4", R"(0,"4")"),
                   4);
  list.add_members("SEC-13.exponent", "a float axis", "'w'", entry("w", "U8", "4e0", "0,4"), 4);
  list.add_members("SEC-13.large", "an axis beyond 64 bits", "'w'",
                   entry("w", "U8", "18446744073709551617", "0,1"), 1);
  list.add_members("SEC-13.infinite", "a number that overflows a double", "JSON",
                   entry("w", "U8", "1e999", "0,1"), 1);
  list.add_members("SEC-13.scalar", "a shape that is no array", "'w'",
                   R"("w":{"dtype":"U8","shape":4,"data_offsets":[0,4]})", 4);
  list.add_members("SEC-13.nested", "a shape with arrays in it", "'w'",
                   entry("w", "U8", "[4]", "0,4"), 4);
  list.add_members("SEC-14.unknown", "an unknown dtype to skip the checks", "'w'",
                   entry("w", "F8_XYZ", "4", "1125899906842624,16"), 4);
  list.add_members("SEC-14.case", "a dtype in lower case", "'f32'", entry("w", "f32", "1", "0,4"),
                   4);
  list.add_members("SEC-14.missing", "no dtype", "no dtype",
                   R"("w":{"shape":[4],"data_offsets":[0,4]})", 4);
  list.add_members("SEC-14.range", "a range far outside", "'w'",
                   entry("w", "U8", "16", "1125899906842624,1125899906842640"), 16);
}

// Attacks through how tensors lie to each other, names and JSON.
inline void add_safetensors_header_attacks(HostileList& list) {
  list.add_members("SEC-16.same", "one tensor as another's alias", "'v_proj'",
                   entry("k_proj", "U8", "8", "0,8") + "," + entry("v_proj", "U8", "8", "0,8"), 8);
  list.add_members("SEC-16.half", "half an overlap", "'v_proj'",
                   entry("k_proj", "U8", "8", "0,8") + "," + entry("v_proj", "U8", "8", "4,12"),
                   12);
  list.add_members("SEC-16.gap", "bytes between two tensors", "'v_proj'",
                   entry("k_proj", "U8", "8", "0,8") + "," + entry("v_proj", "U8", "8", "16,24"),
                   24);
  list.add_members("SEC-16.start", "bytes before the first tensor", "'k_proj'",
                   entry("k_proj", "U8", "8", "8,16"), 16);
  list.add_members("SEC-16.inside", "an empty tensor inside another", "'e'",
                   entry("k_proj", "U8", "8", "0,8") + "," + entry("e", "U8", "0", "4,4"), 8);
  list.add_members("CON-06", "bytes after the last tensor", "16 bytes after",
                   entry("w", "U8", "4", "0,4"), 20);
  list.add_members("twice", "a tensor name twice", "'w'",
                   entry("w", "U8", "4", "0,4") + "," + entry("w", "U8", "4", "4,8"), 8);
  list.add_members("twice.member", "a member twice", "'dtype'",
                   R"("w":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]})", 4);
  list.add_members("twice.metadata", "__metadata__ twice", "__metadata__",
                   R"("__metadata__":{},"__metadata__":{})", 0);
  list.add_members("metadata.number", "metadata that is no string", "__metadata__",
                   R"("__metadata__":{"format":1})", 0);
  list.add_members("metadata.deep", "metadata with objects in it", "__metadata__",
                   R"("__metadata__":{"format":{"a":"b"}})", 0);
  list.add_members("deep", "nesting that overflows the stack", "levels",
                   R"("w":{"x":)" + std::string(200'000, '['), 0);
  list.add_members(
      "deep.objects", "nesting of objects that overflows the stack", "levels",
      R"("w":{"x":)" +
          [] {
            std::string text;
            for (int i = 0; i < 100'000; ++i) text += R"({"a":)";
            return text;
          }(),
      0);
  list.add_members("rank", "more axes than any tensor has", "'w'",
                   entry("w", "U8", "1,1,1,1,1,1,1,1,1", "0,1"), 1);
  list.add_members("name.empty", "a tensor without a name", "empty name",
                   entry("", "U8", "1", "0,1"), 1);
  list.add_members("name.nul", "a name that C strings cut", "'a\\x00b'",
                   entry("a\\u0000b", "U8", "1", "0,1"), 1);
  list.add_members("name.utf8", "a name that is not UTF-8", "JSON", entry("\xFF", "U8", "1", "0,1"),
                   1);
  list.add_members("value", "a tensor that is a number", "'w'", R"("w":3)", 0);
  list.add_members("comment", "a comment in the header", "JSON", "/* x */", 0);
  list.add_members("comma", "a comma too many", "JSON", entry("w", "U8", "1", "0,1") + ",", 1);
}

// Attacks through the framing.
inline void add_safetensors_frame_attacks(HostileList& list) {
  list.add("empty", "no byte", "", FileBytes());
  list.add("length.cut", "half a length", "", FileBytes("\x10\x00\x00"));
  list.add("length.huge", "a length that wraps", "", FileBytes().put(~std::uint64_t{0}).raw("{}"));
  list.add("length.long", "a header longer than the file", "",
           FileBytes().put<std::uint64_t>(9).raw("{}"));
  list.add("length.zero", "no header", "", FileBytes().put<std::uint64_t>(0));
  list.add("array", "a header that is an array", "", safetensors_file("[]", 0));
  list.add("tail", "two objects", "", safetensors_file("{}{}", 0));
  list.add("bom", "a byte order mark", "", safetensors_file("\xEF\xBB\xBF{}", 0));
}

// All attacks on the safetensors parser; each is kCorruptData.
inline std::vector<HostileFile> hostile_safetensors_files() {
  HostileList list;
  add_safetensors_range_attacks(list);
  add_safetensors_header_attacks(list);
  add_safetensors_frame_attacks(list);
  return std::move(list.files);
}

}  // namespace packstone::testing_files
