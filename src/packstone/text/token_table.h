// Token texts by id and ids by text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace packstone::text {

// A hash of short byte strings, 8 bytes at a time.
inline std::uint64_t hash_bytes(std::string_view text) {
  std::uint64_t hash = 0x9E3779B97F4A7C15ull ^ text.size();
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
  };
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, text.data() + i, 8);
    mix(word);
  }
  std::uint64_t word = 0;
  if (i < text.size()) __builtin_memcpy(&word, text.data() + i, text.size() - i);
  mix(word);
  return hash;
}

// Texts in one arena; ids dense with holes. Built once, then read by any thread.
class TokenTable {
 public:
  // Room for ids below `size` and about `count` texts of `bytes` in all.
  void reserve(std::size_t size, std::size_t count, std::size_t bytes);
  // Adds a text under an id below the reserved size. False when the id or the text is taken.
  bool add(std::string_view text, std::int32_t id);
  // The id of a text, or -1.
  std::int32_t find(std::string_view text) const;
  // The text of an id; empty when there is none.
  std::string_view text(std::int32_t id) const;
  bool has(std::int32_t id) const;
  std::int32_t size() const { return static_cast<std::int32_t>(spans_.size()); }

 private:
  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
    bool used = false;
  };
  std::string arena_;
  std::vector<Span> spans_;
  // Open addressing, linear probing. Most looks end in the slot, without the arena.
  struct Slot {
    std::uint64_t head = 0;  // the first 8 bytes, zeros after the end
    std::uint32_t tag = 0;   // upper half of the hash
    std::int32_t id = -1;
  };
  bool same(const Slot& slot, std::uint64_t head, std::uint32_t tag, std::string_view text) const;
  std::vector<Slot> slots_;
};

}  // namespace packstone::text
