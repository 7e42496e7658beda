#include "packstone/text/added_tokens.h"

#include <algorithm>

#include "packstone/text/unicode.h"

namespace packstone::text {
namespace {

std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

std::size_t spaces_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t begin = character_before(text, end);
    if (!is_whitespace(decode_utf8(text, begin).point)) break;
    end = begin;
  }
  return end;
}

std::size_t spaces_after(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const DecodedPoint decoded = decode_utf8(text, begin);
    if (!is_whitespace(decoded.point)) break;
    begin += decoded.bytes;
  }
  return begin;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  const bool word_before =
      begin > 0 && is_word(decode_utf8(text, character_before(text, begin)).point);
  const bool word_after = end < text.size() && is_word(decode_utf8(text, end).point);
  return !word_before && !word_after;
}

void cut_piece(const TokenTrie& trie, const std::vector<AddedToken>& tokens,
               const std::vector<bool>* barred, const Piece& piece, std::string_view text,
               std::vector<Piece>& list) {
  std::size_t covered = 0;
  const auto add_text = [&](std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    list.push_back({piece.begin + begin, piece.begin + end, -1, piece.at_start && begin == 0});
  };
  for (std::size_t at = 0; at < text.size();) {
    const TokenTrie::Hit hit = trie.longest(text, at);
    if (hit.index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens[hit.index];
    std::size_t begin = at;
    std::size_t end = hit.end;
    at = hit.end;  // matches do not overlap, taken or not
    if (barred != nullptr && (*barred)[token.id]) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(spaces_before(text, begin), covered);
    if (token.rstrip) end = spaces_after(text, end);
    add_text(covered, begin);
    list.push_back({0, 0, token.id, false});
    covered = end;
  }
  add_text(covered, text.size());
}

}  // namespace

void TokenTrie::add(std::string_view text, std::int32_t index) {
  std::int32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].next.emplace_back(byte, next);
      if (node == 0) first_[byte] = next;
    }
    node = next;
  }
  nodes_[node].index = index;
}

std::int32_t TokenTrie::child(std::int32_t node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  for (const auto& [key, next] : nodes_[node].next) {
    if (key == byte) return next;
  }
  return 0;
}

TokenTrie::Hit TokenTrie::longest(std::string_view text, std::size_t at) const {
  Hit hit;
  std::int32_t node = 0;
  while (at < text.size()) {
    node = child(node, static_cast<unsigned char>(text[at]));
    if (node == 0) break;
    ++at;
    if (nodes_[node].index >= 0) hit = {nodes_[node].index, at};
  }
  return hit;
}

void cut_added_tokens(const TokenTrie& trie, const std::vector<AddedToken>& tokens,
                      const std::vector<bool>* barred, Pieces& pieces) {
  if (trie.empty()) return;
  std::vector<Piece> list;
  for (const Piece& piece : pieces.list) {
    if (piece.token >= 0) {
      list.push_back(piece);
    } else {
      cut_piece(trie, tokens, barred, piece, pieces.text(piece), list);
    }
  }
  pieces.list = std::move(list);
}

}  // namespace packstone::text
