#include "packstone/text/token_table.h"

#include <bit>

namespace packstone::text {
namespace {

std::uint64_t head_of(std::string_view text) {
  std::uint64_t head = 0;
  __builtin_memcpy(&head, text.data(), text.size() < 8 ? text.size() : 8);
  return head;
}

}  // namespace

bool TokenTable::same(const Slot& slot, std::uint64_t head, std::uint32_t tag,
                      std::string_view text) const {
  // The hash covers the size; texts of up to 8 bytes without zeros are their heads.
  if (slot.tag != tag || slot.head != head) return false;
  if (text.size() <= 8 && spans_[slot.id].size == text.size()) return true;
  return this->text(slot.id) == text;
}

void TokenTable::reserve(std::size_t size, std::size_t count, std::size_t bytes) {
  spans_.resize(size);
  arena_.reserve(bytes);
  slots_.assign(std::bit_ceil(count * 2 + 2), Slot{});
}

bool TokenTable::add(std::string_view text, std::int32_t id) {
  if (spans_[id].used) return false;
  const std::uint64_t hash = hash_bytes(text);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::uint64_t head = head_of(text);
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  while (slots_[slot].id >= 0) {
    if (same(slots_[slot], head, tag, text)) return false;
    slot = (slot + 1) & mask;
  }
  slots_[slot] = {head, tag, id};
  spans_[id] = {static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(text.size()),
                true};
  arena_ += text;
  return true;
}

std::int32_t TokenTable::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const std::uint64_t hash = hash_bytes(text);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::uint64_t head = head_of(text);
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  while (slots_[slot].id >= 0) {
    if (same(slots_[slot], head, tag, text)) return slots_[slot].id;
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
