#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "packstone/format/bnb_dynamic_map.h"
#include "packstone/format/bnb_int8.h"
#include "packstone/quantize/folder/encoder.h"
#include "packstone/quantize/folder/scale_fit.h"
#include "packstone/quantize/folder_encode.h"
#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

constexpr float kLeastAbsmax = 1e-38f;       // of the divisor, in bitsandbytes
constexpr std::int64_t kNestedBlocks = 256;  // blocks with one nested maximum

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// Weights [first, first + out.size()) of the row-major run.
void copy_run(const MatrixView& weight, std::int64_t first, std::span<float> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::int64_t at = first + static_cast<std::int64_t>(done);
    const std::int64_t col = at % weight.cols;
    const std::size_t part =
        std::min(out.size() - done, static_cast<std::size_t>(weight.cols - col));
    std::copy_n(weight.row(at / weight.cols) + col, part, out.data() + done);
    done += part;
  }
}

// What bitsandbytes stores for a block: the last one of a weight, if it is short, has a floor.
float stored_absmax(float largest, bool is_short) {
  return is_short ? std::max(largest, kLeastAbsmax) : largest;
}

}  // namespace

float nested_offset(const MatrixView& weight, std::int32_t block) {
  const std::int64_t total = weight.rows * weight.cols;
  double sum = 0;
  std::vector<float> x;
  for (std::int64_t first = 0; first < total; first += block) {
    x.resize(static_cast<std::size_t>(std::min<std::int64_t>(block, total - first)));
    copy_run(weight, first, x);
    sum += stored_absmax(largest_of(x), total - first < block);
  }
  const std::int64_t blocks = ceil_div(total, block);
  return blocks > 0 ? static_cast<float>(sum / static_cast<double>(blocks)) : 0.0f;
}

namespace folder {
namespace {

// The sixteen levels by value, and the middles between neighbours in binary32.
struct Table {
  float level[16], middle[15];
  std::uint8_t code[16];
  TableRules rules;

  explicit Table(FormatId id) {
    std::iota(std::begin(code), std::end(code), std::uint8_t{0});
    const auto value = [&](std::uint8_t c) { return format_ops(id).value({}, c); };
    std::ranges::stable_sort(code, std::less{}, value);
    for (int i = 0; i < 16; ++i) level[i] = value(code[i]);
    for (int i = 0; i < 15; ++i) middle[i] = (level[i] + level[i + 1]) / 2;
    rules.count = 16;
    std::ranges::copy(level, rules.level);
    rules.scale = FitRounding::kF32;
  }
  // How many middles lie below t.
  int below(float t) const {
    int count = 0;
    for (const float m : middle) count += m < t;
    return count;
  }
  // The index whose level times scale is nearest to x.
  int nearest(float x, float scale, float inverse) const {
    int at = below(x * inverse);
    const auto distance = [&](int i) { return std::abs(x - scale * level[i]); };
    if (at > 0 && distance(at - 1) <= distance(at)) --at;
    if (at < 15 && distance(at + 1) < distance(at)) ++at;
    // Of two zeros the one that producers write for zero.
    return level[at] == 0 && at > 0 && level[at - 1] == 0 ? at - 1 : at;
  }
};

// 256 blocks, and what is chosen for them.
struct Chunk {
  std::vector<float> x;
  std::vector<float> parity_absmax, absmax;  // stored by parity; decoded, of the choice
  std::vector<float> wanted;                 // the best of each block alone
  std::vector<std::uint32_t> statistic;      // nested: code of the dynamic map
  std::vector<std::uint32_t> kept;           // parity's
  std::uint32_t nested = 0;                  // bits of the nested maximum
  std::vector<std::uint8_t> index, tried;    // into the table, of each value
  PaddedGroup padded;
};

class FourBit {
 public:
  explicit FourBit(const Work& work)
      : work_(work),
        table_(work.id),
        nested_(format_info(work.id).layout.ends_with("-nested")),
        block_(work.params.group_cols * std::int64_t{work.params.group_rows}),
        total_(work.weight.rows * work.weight.cols),
        offset_(std::bit_cast<float>(work.params.constant)) {
    for (std::size_t i = 0; i < 255; ++i)
      map_middle_[i] = (kBnbDynamicMap[i] + kBnbDynamicMap[i + 1]) / 2;
  }

  void run() const {
    std::vector<Chunk> chunks(static_cast<std::size_t>(work_.pool->size()));
    const auto size = static_cast<std::size_t>(std::min(block_ * kNestedBlocks, total_));
    for (Chunk& chunk : chunks) {
      chunk.x.reserve(size);
      chunk.index.reserve(size);
      chunk.tried.reserve(size);
      for (auto* numbers : {&chunk.parity_absmax, &chunk.absmax, &chunk.wanted})
        numbers->reserve(kNestedBlocks);
      chunk.statistic.reserve(kNestedBlocks);
      chunk.kept.reserve(kNestedBlocks);
      chunk.padded.reserve(static_cast<std::size_t>(block_));
    }
    auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i)
        encode_chunk(i, chunks[static_cast<std::size_t>(worker)]);
    };
    work_.pool->parallel(ceil_div(total_, block_ * kNestedBlocks), 1, work);
  }

 private:
  std::span<const float> block(const Chunk& chunk, std::size_t i) const {
    const std::size_t first = i * static_cast<std::size_t>(block_);
    return std::span(chunk.x).subspan(
        first, std::min(static_cast<std::size_t>(block_), chunk.x.size() - first));
  }

  std::uint32_t map_code(float value) const {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(map_middle_, value) -
                                      map_middle_.begin());
  }

  // bitsandbytes looks codes up at 65,536 places from -1 to 1.
  std::uint32_t map_code_by_place(float value) const {
    const float v = std::clamp(value, -1.0f, 1.0f);
    const int place = std::min(static_cast<int>(std::fma(v + 1.0f, 32767.5f, 0.5f)), 65535);
    return map_code(-1.0f + 2.0f * static_cast<float>(place) / 65535.0f);
  }

  float decoded(std::uint32_t code, std::uint32_t nested) const {
    return kBnbDynamicMap[code] * std::bit_cast<float>(nested) + offset_;
  }

  // Nested statistics of these maxima.
  void nest(std::span<const float> absmax, Chunk& chunk) const {
    float most = 0;
    for (const float value : absmax) most = std::max(most, std::abs(value - offset_));
    chunk.nested = std::bit_cast<std::uint32_t>(most);
    const float inverse = 1.0f / most;
    for (std::size_t i = 0; i < absmax.size(); ++i)
      chunk.statistic[i] = most == 0 ? 0 : map_code_by_place((absmax[i] - offset_) * inverse);
  }

  // Parity's codes: of the maxima as they are, whatever statistics keep of them.
  void parity_codes(Chunk& chunk, bool last) const {
    for (std::size_t i = 0; i < chunk.absmax.size(); ++i) {
      const std::span<const float> x = block(chunk, i);
      const bool is_short = last && x.size() < static_cast<std::size_t>(block_);
      const float most = chunk.parity_absmax[i] = stored_absmax(largest_of(x), is_short);
      const float inverse = 1.0f / std::max(most, kLeastAbsmax);
      for (std::size_t k = 0; k < x.size(); ++k) {
        const float t = std::clamp(is_short ? x[k] / most : x[k] * inverse, -1.0f, 1.0f);
        chunk.index[i * static_cast<std::size_t>(block_) + k] =
            static_cast<std::uint8_t>(table_.below(t));
      }
    }
  }

  double error(std::span<const float> x, std::span<const std::uint8_t> index, float scale) const {
    double sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const double difference = static_cast<double>(x[k]) - scale * table_.level[index[k]];
      sum += difference * difference;
    }
    return sum;
  }

  void nearest_codes(std::span<const float> x, float scale, std::span<std::uint8_t> index) const {
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    const float finite = std::isfinite(inverse) ? inverse : std::numeric_limits<float>::max();
    for (std::size_t k = 0; k < x.size(); ++k)
      index[k] = static_cast<std::uint8_t>(table_.nearest(x[k], scale, finite));
  }

  // Of a block whose scale the search may choose freely: what is better of it and parity.
  void search_plain(std::size_t i, Chunk& chunk) const {
    const std::span<const float> x = block(chunk, i);
    const auto index =
        std::span(chunk.index).subspan(i * static_cast<std::size_t>(block_), x.size());
    const auto tried =
        std::span(chunk.tried).subspan(i * static_cast<std::size_t>(block_), x.size());
    double least = error(x, index, chunk.absmax[i]);
    for (const float scale : {chunk.wanted[i], chunk.absmax[i]}) {
      if (!(scale > 0)) continue;
      nearest_codes(x, scale, tried);
      const double found = error(x, tried, scale);
      if (!(found < least)) continue;
      least = found;
      chunk.absmax[i] = scale;
      std::ranges::copy(tried, index.begin());
    }
  }

  // Nested: statistics for the wanted scales, of every block the code around with the least error;
  // kept if the 256 blocks together are better.
  void search_nested(Chunk& chunk) const {
    const std::size_t blocks = chunk.absmax.size();
    double before = 0, after = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::span<const float> x = block(chunk, i);
      const std::size_t first = i * static_cast<std::size_t>(block_);
      before += error(x, std::span(chunk.index).subspan(first, x.size()), chunk.absmax[i]);
    }
    chunk.kept = chunk.statistic;
    const std::uint32_t kept_nested = chunk.nested;
    nest(chunk.wanted, chunk);
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::span<const float> x = block(chunk, i);
      const FitData data = chunk.padded.view(x);
      const std::uint32_t at = chunk.statistic[i];
      float least = std::numeric_limits<float>::infinity();
      for (std::uint32_t code = at < 3 ? 0 : at - 3; code <= std::min(at + 3, 255u); ++code) {
        const float scale = decoded(code, chunk.nested);
        if (!(scale > 0) && code != at) continue;
        const float found = table_error(data, table_.rules, scale);
        if (!(found < least)) continue;
        least = found;
        chunk.statistic[i] = code;
      }
      const std::size_t first = i * static_cast<std::size_t>(block_);
      const auto tried = std::span(chunk.tried).subspan(first, x.size());
      const float scale = decoded(chunk.statistic[i], chunk.nested);
      nearest_codes(x, scale, tried);
      after += error(x, tried, scale);
    }
    if (after < before) {
      chunk.index = chunk.tried;
    } else {
      chunk.statistic = chunk.kept;
      chunk.nested = kept_nested;
    }
  }

  void encode_chunk(std::int64_t number, Chunk& chunk) const {
    const std::int64_t first = number * block_ * kNestedBlocks;
    const std::int64_t count = std::min(block_ * kNestedBlocks, total_ - first);
    const auto size = static_cast<std::size_t>(count);
    chunk.x.resize(size);
    chunk.index.resize(size);
    chunk.tried.resize(size);
    const auto blocks = static_cast<std::size_t>(ceil_div(count, block_));
    for (auto* numbers : {&chunk.parity_absmax, &chunk.absmax, &chunk.wanted})
      numbers->resize(blocks);
    chunk.statistic.resize(blocks);
    copy_run(work_.weight, first, chunk.x);
    parity_codes(chunk, first + count == total_);
    if (nested_) nest(chunk.parity_absmax, chunk);
    for (std::size_t i = 0; i < blocks; ++i)
      chunk.absmax[i] =
          nested_ ? decoded(chunk.statistic[i], chunk.nested) : chunk.parity_absmax[i];
    if (work_.best) search(chunk);
    store(first, chunk);
  }

  void search(Chunk& chunk) const {
    for (std::size_t i = 0; i < chunk.absmax.size(); ++i) {
      chunk.wanted[i] = fit_table(chunk.padded.view(block(chunk, i)), table_.rules).scale;
      if (!(chunk.wanted[i] > 0)) chunk.wanted[i] = chunk.parity_absmax[i];
      if (!nested_) search_plain(i, chunk);
    }
    if (nested_) search_nested(chunk);
  }

  void store(std::int64_t first, const Chunk& chunk) const {
    for (std::size_t k = 0; k < chunk.index.size(); ++k)
      work_.codes[first + static_cast<std::int64_t>(k)] = table_.code[chunk.index[k]];
    const std::int64_t group = work_.group;
    const std::int64_t last = first + static_cast<std::int64_t>(chunk.index.size());
    for (std::int64_t at = first; at < last; at += group) {
      const auto i = static_cast<std::size_t>((at - first) / block_);
      RawParams& raw = work_.raw[at / group];
      raw.pattern[0] = nested_ ? chunk.statistic[i] : std::bit_cast<std::uint32_t>(chunk.absmax[i]);
      raw.pattern[1] = chunk.nested;
    }
  }

  const Work& work_;
  Table table_;
  bool nested_;
  std::int64_t block_, total_;
  float offset_;
  std::array<float, 255> map_middle_{};
};

// One row of LLM.int8().
class Int8Row {
 public:
  explicit Int8Row(std::size_t cols) : level_(cols), tried_(cols) { padded_.reserve(cols); }

  void encode(std::span<const float> x, bool best) {
    absmax_ = largest_of(x);
    level(x, absmax_, level_);
    if (!best || absmax_ == 0) return;
    LinearRules rules;
    rules.code_max = 254;
    rules.center = 127;
    rules.scale = FitRounding::kF32;
    const float wanted = fit_linear(padded_.view(x), rules).scale * 127.0f;
    double least = error(x, level_, absmax_);
    for (float absmax : {wanted, absmax_}) {
      if (!(absmax > 0) || !std::isfinite(absmax * 127.0f)) continue;
      level(x, absmax, tried_);
      const double found = error(x, tried_, absmax);
      if (!(found < least)) continue;
      least = found;
      absmax_ = absmax;
      std::swap(level_, tried_);
    }
  }
  float absmax() const { return absmax_; }
  std::int32_t level(std::size_t col) const { return level_[col]; }

 private:
  static void level(std::span<const float> x, float absmax, std::vector<std::int32_t>& levels) {
    const float factor = 127.0f / absmax;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float t = std::isfinite(factor) ? x[i] * factor : absmax > 0 ? x[i] / absmax * 127 : 0;
      levels[i] = static_cast<std::int32_t>(std::rint(std::clamp(t, -127.0f, 127.0f)));
    }
  }
  static double error(std::span<const float> x, const std::vector<std::int32_t>& levels,
                      float absmax) {
    const GroupValues group{absmax * BnbInt8Scheme::kOver127, kNoOffset, 0, absmax};
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double difference =
          static_cast<double>(x[i]) -
          BnbInt8Scheme::value(group, static_cast<std::uint32_t>(levels[i] + 128));
      sum += difference * difference;
    }
    return sum;
  }

  std::vector<std::int32_t> level_, tried_;
  PaddedGroup padded_;
  float absmax_ = 0;
};

}  // namespace

void encode_bnb_4bit(const Work& work) {
  FourBit(work).run();
}

void encode_bnb_int8(const Work& work) {
  const auto cols = static_cast<std::size_t>(work.weight.cols);
  std::vector<Int8Row> rows;
  rows.reserve(static_cast<std::size_t>(work.pool->size()));
  for (int i = 0; i < work.pool->size(); ++i) rows.emplace_back(cols);
  auto encode_rows = [&](std::int64_t begin, std::int64_t end, int worker) {
    Int8Row& one = rows[static_cast<std::size_t>(worker)];
    for (std::int64_t row = begin; row < end; ++row) {
      one.encode({work.weight.row(row), cols}, work.best);
      work.raw[row].pattern[0] = std::bit_cast<std::uint32_t>(one.absmax());
      for (std::size_t col = 0; col < cols; ++col)
        work.codes[row * work.weight.cols + static_cast<std::int64_t>(col)] =
            static_cast<std::uint8_t>(one.level(col) + 128);
    }
  };
  work.pool->parallel(work.weight.rows, 4, encode_rows);
}

}  // namespace folder
}  // namespace packstone
