// Finding added tokens in text: leftmost, then longest, with their flags.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/text/pieces.h"
#include "packstone/text/rules.h"

namespace packstone::text {

// A byte trie over the contents of added tokens. Immutable after the last add.
class TokenTrie {
 public:
  TokenTrie() : nodes_(1) {}
  void add(std::string_view text, std::int32_t index);
  bool empty() const { return nodes_.size() == 1; }
  // The longest entry that starts at `at`: its index and end, or index -1.
  struct Hit {
    std::int32_t index = -1;
    std::size_t end = 0;
  };
  Hit longest(std::string_view text, std::size_t at) const;

 private:
  struct Node {
    std::int32_t index = -1;
    std::vector<std::pair<unsigned char, std::int32_t>> next;
  };
  std::int32_t child(std::int32_t node, unsigned char byte) const;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> first_{};  // children of the root; 0 is none
};

// Cuts pieces at the tokens of a trie.
// `barred`, if given, marks ids that are passed over (the library's encode_special_tokens).
void cut_added_tokens(const TokenTrie& trie, const std::vector<AddedToken>& tokens,
                      const std::vector<bool>* barred, Pieces& pieces);

}  // namespace packstone::text
