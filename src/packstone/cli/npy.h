// A float32 matrix in NumPy's .npy format, version 1.0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "packstone/base/result.h"

namespace packstone::cli {

// The header of a C-ordered little-endian float32 array [rows, cols], a multiple of 64 bytes long.
// Source: NumPy's format description (numpy/lib/format.py), version 1.0.
std::string npy_header(std::int64_t rows, std::int64_t cols);

}  // namespace packstone::cli
