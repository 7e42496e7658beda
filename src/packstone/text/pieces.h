// The text of an input while it is cut into words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace packstone::text {

// A word: a byte range of the buffer, or a token found already (then of the empty range).
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int32_t token = -1;
  bool at_start = false;  // its first character stands for the first of the input
};

struct Pieces {
  std::string buffer;
  std::vector<Piece> list;

  std::string_view text(const Piece& piece) const {
    return std::string_view(buffer).substr(piece.begin, piece.end - piece.begin);
  }
};

}  // namespace packstone::text
