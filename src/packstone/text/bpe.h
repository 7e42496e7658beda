// The byte-pair encoding model: words to ids by ranked merges.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "packstone/text/rules.h"
#include "packstone/text/token_table.h"

namespace packstone::text {

// Pairs of ids to (rank, result). Open addressing; built once.
class MergeTable {
 public:
  struct Entry {
    std::uint64_t pair = kEmpty;
    std::uint32_t rank = 0;
    std::int32_t result = 0;
  };
  void build(const std::vector<MergeRule>& merges);
  // The entry of a pair, or none.
  const Entry* find(std::int32_t left, std::int32_t right) const;

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t hash(std::uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15ull;
    return pair ^ (pair >> 29);
  }
  std::vector<Entry> entries_;
};

// Immutable; safe to share between threads. Source of the rules: models/bpe of `tokenizers` 0.23.
class BpeModel {
 public:
  // Errors: kCorruptData when the unknown token is not in the vocabulary.
  static Result<BpeModel> create(const BpeRules& rules, std::size_t size);

  // Appends the ids of a word (valid UTF-8, not empty). `barred`, if given, marks ids that neither
  // a lookup nor a merge may give. Cost: n log n in the word's length.
  void encode(std::string_view word, const std::vector<bool>* barred,
              std::vector<std::int32_t>& ids) const;
  const TokenTable& table() const { return table_; }

 private:
  struct Symbol {
    std::int32_t id;
    std::int32_t previous;
    std::int32_t next;
  };
  std::int32_t lookup(std::string_view text, const std::vector<bool>* barred) const;
  const MergeTable::Entry* merge(std::int32_t left, std::int32_t right,
                                 const std::vector<bool>* barred) const;
  void first_symbols(std::string_view word, const std::vector<bool>* barred,
                     std::vector<std::int32_t>& symbols) const;
  void encode_part(std::string_view word, const std::vector<bool>* barred,
                   std::vector<std::int32_t>& ids) const;
  void merge_short(std::vector<std::int32_t>& symbols, std::size_t begin,
                   const std::vector<bool>* barred) const;
  void merge_long(std::vector<std::int32_t>& symbols, std::size_t begin,
                  const std::vector<bool>* barred) const;
  void find_word_border(const BpeRules& rules);

  TokenTable table_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_;
  std::vector<std::int32_t> basic_;  // ids of the one-character tokens of the first plane
  std::string prefix_;
  std::string suffix_;
  std::int32_t unknown_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool cuts_at_mark_ = false;  // no merge crosses from another character to U+2581
};

}  // namespace packstone::text
