#include "packstone/transcode/pattern_runs.h"

#include <cstring>

namespace packstone {
namespace {

// Whole aligned bytes.
template <class Pattern>
void read_whole(const unsigned char* plane, const PatternRun& run, std::uint32_t* patterns,
                std::int64_t distance) {
  const unsigned char* from = plane + run.bit / 8;
  const std::int64_t step = run.step / 8, count = run.count;
  for (std::int64_t i = 0; i < count; ++i) {
    Pattern pattern;
    std::memcpy(&pattern, from + i * step, sizeof pattern);
    patterns[i * distance] = pattern;
  }
}

template <class Pattern>
void write_whole(unsigned char* plane, const PatternRun& run, const std::uint32_t* patterns,
                 std::int64_t distance) {
  unsigned char* to = plane + run.bit / 8;
  const std::int64_t step = run.step / 8, count = run.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto pattern = static_cast<Pattern>(patterns[i * distance]);
    std::memcpy(to + i * step, &pattern, sizeof pattern);
  }
}

// Bits of words of type Word that stand at multiples of their size; of words less `bias`.
template <class Word>
void read_bits_of(const unsigned char* plane, const PatternRun& run, std::uint32_t* patterns,
                  std::int64_t distance) {
  constexpr std::int64_t kBits = 8 * sizeof(Word);
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << run.width) - 1);
  std::int64_t bit = run.bit;
  for (std::int64_t i = 0; i < run.count; ++i, bit += run.step) {
    Word word;
    std::memcpy(&word, plane + bit / kBits * static_cast<std::int64_t>(sizeof word), sizeof word);
    patterns[i * distance] = ((word + run.word_bias) >> (bit % kBits)) & mask;
  }
}

template <class Word>
void write_bits_of(unsigned char* plane, const PatternRun& run, const std::uint32_t* patterns,
                   std::int64_t distance) {
  constexpr std::int64_t kBits = 8 * sizeof(Word);
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << run.width) - 1);
  std::int64_t bit = run.bit;
  for (std::int64_t i = 0; i < run.count; ++i, bit += run.step) {
    unsigned char* to = plane + bit / kBits * static_cast<std::int64_t>(sizeof(Word));
    const int skip = static_cast<int>(bit % kBits);
    Word word;
    std::memcpy(&word, to, sizeof word);
    const std::uint32_t kept = (word + run.word_bias) & ~(mask << skip);
    word = static_cast<Word>((kept | (patterns[i * distance] & mask) << skip) - run.word_bias);
    std::memcpy(to, &word, sizeof word);
  }
}

bool is_whole(const PatternRun& run, int width) {
  return run.width == width && run.word_bias == 0 && run.bit % 8 == 0 && run.step % 8 == 0;
}

// Whether no pattern crosses the end of a byte.
bool in_bytes(const PatternRun& run) {
  return run.width > 0 && 8 % run.width == 0 && run.bit % run.width == 0 &&
         run.step % run.width == 0;
}

}  // namespace

bool read_run(const unsigned char* plane, const PatternRun& run, std::uint32_t* patterns,
              std::int64_t distance) {
  if (is_whole(run, 16))
    read_whole<std::uint16_t>(plane, run, patterns, distance);
  else if (is_whole(run, 32))
    read_whole<std::uint32_t>(plane, run, patterns, distance);
  else if (is_whole(run, 8))
    read_whole<std::uint8_t>(plane, run, patterns, distance);
  else if (!in_bytes(run))
    return false;
  else if (run.word_bias != 0)
    read_bits_of<std::uint32_t>(plane, run, patterns, distance);
  else
    read_bits_of<std::uint8_t>(plane, run, patterns, distance);
  return true;
}

bool write_run(unsigned char* plane, const PatternRun& run, const std::uint32_t* patterns,
               std::int64_t distance) {
  if (is_whole(run, 16))
    write_whole<std::uint16_t>(plane, run, patterns, distance);
  else if (is_whole(run, 32))
    write_whole<std::uint32_t>(plane, run, patterns, distance);
  else if (is_whole(run, 8))
    write_whole<std::uint8_t>(plane, run, patterns, distance);
  else if (!in_bytes(run))
    return false;
  else if (run.word_bias != 0)
    write_bits_of<std::uint32_t>(plane, run, patterns, distance);
  else
    write_bits_of<std::uint8_t>(plane, run, patterns, distance);
  return true;
}

}  // namespace packstone
