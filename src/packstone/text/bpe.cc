#include "packstone/text/bpe.h"

#include <algorithm>
#include <bit>

#include "packstone/text/unicode.h"

namespace packstone::text {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581
constexpr std::size_t kShortWord = 24;              // symbols; below this a scan beats a heap

struct Candidate {
  std::uint32_t rank;
  std::int32_t position;
  std::int32_t result;
};

// Lowest rank first, then leftmost; as an order for max-heaps.
bool later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

bool has_inner_mark(std::string_view text) {
  for (std::size_t at = text.find(kMark); at != std::string_view::npos;
       at = text.find(kMark, at + kMark.size())) {
    if (at != 0 && !text.substr(0, at).ends_with(kMark)) return true;
  }
  return false;
}

}  // namespace

void MergeTable::build(const std::vector<MergeRule>& merges) {
  entries_.assign(std::bit_ceil(merges.size() * 2 + 2), Entry{});
  const std::size_t mask = entries_.size() - 1;
  std::uint32_t rank = 0;
  for (const MergeRule& merge : merges) {
    const std::uint64_t pair =
        static_cast<std::uint64_t>(merge.left) << 32 | static_cast<std::uint32_t>(merge.right);
    std::size_t slot = hash(pair) & mask;
    while (entries_[slot].pair != kEmpty && entries_[slot].pair != pair) slot = (slot + 1) & mask;
    entries_[slot] = {pair, rank++, merge.result};  // of equal pairs the last counts
  }
}

const MergeTable::Entry* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair =
      static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  const std::size_t mask = entries_.size() - 1;
  std::size_t slot = hash(pair) & mask;
  while (entries_[slot].pair != kEmpty) {
    if (entries_[slot].pair == pair) return &entries_[slot];
    slot = (slot + 1) & mask;
  }
  return nullptr;
}

Result<BpeModel> BpeModel::create(const BpeRules& rules, std::size_t size) {
  BpeModel model;
  std::size_t bytes = 0;
  for (const auto& [text, id] : rules.vocabulary) bytes += text.size();
  model.table_.reserve(size, rules.vocabulary.size(), bytes);
  model.basic_.assign(65'536, -1);
  for (const auto& [text, id] : rules.vocabulary) {
    model.table_.add(text, id);
    if (text.empty() || text.size() > 3) continue;
    const DecodedPoint decoded = decode_utf8(text, 0);
    if (decoded.bytes == static_cast<int>(text.size())) model.basic_[decoded.point] = id;
  }
  model.merges_.build(rules.merges);
  for (int byte = 0; byte < 256; ++byte) {
    model.byte_ids_[byte] = model.table_.find(fmt::format("<0x{:02X}>", byte));
  }
  model.prefix_ = rules.continuing_prefix;
  model.suffix_ = rules.word_suffix;
  model.fuse_unknown_ = rules.fuse_unknown;
  model.byte_fallback_ = rules.byte_fallback;
  model.ignore_merges_ = rules.ignore_merges;
  if (!rules.unknown_token.empty()) {
    model.unknown_ = model.table_.find(rules.unknown_token);
    if (model.unknown_ < 0) {
      return fail(ErrorCode::kCorruptData, "text.bpe", "unk_token",
                  fmt::format("'{}'", rules.unknown_token), "a token of the vocabulary");
    }
  }
  model.find_word_border(rules);
  return model;
}

// Words are independent where no merge can cross: cutting there keeps long texts linear.
void BpeModel::find_word_border(const BpeRules& rules) {
  const bool all_bytes = byte_fallback_ && std::all_of(byte_ids_.begin(), byte_ids_.end(),
                                                       [](std::int32_t id) { return id >= 0; });
  cuts_at_mark_ =
      all_bytes && !ignore_merges_ && prefix_.empty() && suffix_.empty() &&
      std::none_of(rules.merges.begin(), rules.merges.end(), [&](const MergeRule& merge) {
        return has_inner_mark(table_.text(merge.result));
      });
}

std::int32_t BpeModel::lookup(std::string_view text, const std::vector<bool>* barred) const {
  const std::int32_t id = table_.find(text);
  return id >= 0 && barred != nullptr && (*barred)[id] ? -1 : id;
}

const MergeTable::Entry* BpeModel::merge(std::int32_t left, std::int32_t right,
                                         const std::vector<bool>* barred) const {
  const MergeTable::Entry* entry = merges_.find(left, right);
  return entry != nullptr && barred != nullptr && (*barred)[entry->result] ? nullptr : entry;
}

void BpeModel::first_symbols(std::string_view word, const std::vector<bool>* barred,
                             std::vector<std::int32_t>& symbols) const {
  bool pending = false;  // an unknown character is waiting to be fused with the next
  std::string decorated;
  for (std::size_t i = 0; i < word.size();) {
    const DecodedPoint decoded = decode_utf8(word, i);
    std::string_view text = word.substr(i, decoded.bytes);
    const bool first = i == 0;
    i += decoded.bytes;
    const bool last = i == word.size();
    const bool bare = (first || prefix_.empty()) && (!last || suffix_.empty());
    std::int32_t id = -1;
    if (bare && decoded.point < 0x10000) {
      id = basic_[decoded.point];
      if (id >= 0 && barred != nullptr && (*barred)[id]) id = -1;
    } else {
      if (!bare) {
        decorated = first ? std::string() : prefix_;
        decorated += text;
        if (last) decorated += suffix_;
        text = decorated;
      }
      id = lookup(text, barred);
    }
    if (id >= 0) {
      if (pending) symbols.push_back(unknown_);
      pending = false;
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) {
          return byte_ids_[static_cast<unsigned char>(c)] >= 0;
        })) {
      for (const char c : text) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      continue;  // a waiting unknown goes on waiting, as in the library
    }
    if (unknown_ < 0) continue;
    if (pending && !fuse_unknown_) symbols.push_back(unknown_);
    pending = true;
  }
  if (pending) symbols.push_back(unknown_);
}

void BpeModel::merge_short(std::vector<std::int32_t>& symbols, std::size_t begin,
                           const std::vector<bool>* barred) const {
  std::size_t count = symbols.size() - begin;
  std::int32_t* list = symbols.data() + begin;
  std::array<const MergeTable::Entry*, kShortWord> pairs;
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = merge(list[i], list[i + 1], barred);
  while (count > 1) {
    std::size_t best = count;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] != nullptr && (best == count || pairs[i]->rank < pairs[best]->rank)) best = i;
    }
    if (best == count) break;
    list[best] = pairs[best]->result;
    std::copy(list + best + 2, list + count, list + best + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + count - 1, pairs.begin() + best);
    --count;
    if (best + 1 < count) pairs[best] = merge(list[best], list[best + 1], barred);
    if (best > 0) pairs[best - 1] = merge(list[best - 1], list[best], barred);
  }
  symbols.resize(begin + count);
}

void BpeModel::merge_long(std::vector<std::int32_t>& symbols, std::size_t begin,
                          const std::vector<bool>* barred) const {
  const auto count = static_cast<std::int32_t>(symbols.size() - begin);
  std::vector<Symbol> list(count);
  std::vector<Candidate> heap;
  heap.reserve(count);
  for (std::int32_t i = 0; i < count; ++i) {
    list[i] = {symbols[begin + i], i - 1, i + 1 < count ? i + 1 : -1};
  }
  const auto candidate = [&](std::int32_t at) -> const MergeTable::Entry* {
    if (at < 0 || list[at].next < 0) return nullptr;
    return merge(list[at].id, list[list[at].next].id, barred);
  };
  for (std::int32_t i = 0; i < count; ++i) {
    if (const auto* entry = candidate(i)) heap.push_back({entry->rank, i, entry->result});
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](std::int32_t at) {
    const auto* entry = candidate(at);
    if (entry == nullptr) return;
    heap.push_back({entry->rank, at, entry->result});
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = list[top.position];
    if (left.id < 0 || left.next < 0) continue;
    const auto* entry = candidate(top.position);
    if (entry == nullptr || entry->result != top.result) continue;  // the pair has changed
    Symbol& right = list[left.next];
    left.id = top.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) list[left.next].previous = top.position;
    push(left.previous);
    push(top.position);
  }
  std::size_t end = begin;
  for (const Symbol& symbol : list) {
    if (symbol.id >= 0) symbols[end++] = symbol.id;
  }
  symbols.resize(end);
}

void BpeModel::encode_part(std::string_view word, const std::vector<bool>* barred,
                           std::vector<std::int32_t>& ids) const {
  const std::size_t begin = ids.size();
  first_symbols(word, barred, ids);
  if (ids.size() - begin <= kShortWord) {
    merge_short(ids, begin, barred);
  } else {
    merge_long(ids, begin, barred);
  }
}

void BpeModel::encode(std::string_view word, const std::vector<bool>* barred,
                      std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    const std::int32_t id = lookup(word, barred);
    if (id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  if (!cuts_at_mark_) {
    encode_part(word, barred, ids);
    return;
  }
  while (!word.empty()) {
    std::size_t cut = 0;
    while (word.substr(cut).starts_with(kMark)) cut += kMark.size();
    cut = word.find(kMark, cut);
    if (cut == std::string_view::npos) cut = word.size();
    encode_part(word.substr(0, cut), barred, ids);
    word.remove_prefix(cut);
  }
}

}  // namespace packstone::text
