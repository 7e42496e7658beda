#include "packstone/text/token_table.h"

#include <bit>

namespace packstone::text {

void TokenTable::reserve(std::size_t size, std::size_t count, std::size_t bytes) {
  spans_.resize(size);
  arena_.reserve(bytes);
  slots_.assign(std::bit_ceil(count * 2 + 2), -1);
}

bool TokenTable::add(std::string_view text, std::int32_t id) {
  if (spans_[id].used) return false;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_bytes(text) & mask;
  while (slots_[slot] >= 0) {
    if (this->text(slots_[slot]) == text) return false;
    slot = (slot + 1) & mask;
  }
  slots_[slot] = id;
  spans_[id] = {static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(text.size()),
                true};
  arena_ += text;
  return true;
}

std::int32_t TokenTable::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_bytes(text) & mask;
  while (slots_[slot] >= 0) {
    if (this->text(slots_[slot]) == text) return slots_[slot];
    slot = (slot + 1) & mask;
  }
  return -1;
}

std::string_view TokenTable::text(std::int32_t id) const {
  if (!has(id)) return {};
  return std::string_view(arena_).substr(spans_[id].begin, spans_[id].size);
}

bool TokenTable::has(std::int32_t id) const {
  return id >= 0 && id < size() && spans_[id].used;
}

}  // namespace packstone::text
