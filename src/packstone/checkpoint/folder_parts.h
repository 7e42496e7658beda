// How a weight is spelled in a checkpoint folder: the tensors of a packed module under the names
// that the stock consumers of its layout read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/bytes.h"
#include "packstone/container/container.h"
#include "packstone/format/packed_weight.h"

namespace packstone {

// Whose folders hold a layout.
enum class FolderFamily {
  kMlx,
  kGptq,
  kMarlin,  // tiles, as vLLM's "marlin" reads them
  kAwq,
  kQqq,
  kFp8Divisor,  // GPTQModel
  kFp8Blocks,   // Hugging Face, DeepSeek
  kBitsandbytes,
  kCompressedTensors,
  kModelOpt,
};

// folder_family(format, shape, params): the family that holds the weight, or nothing for a format
// without a place in folders.
std::optional<FolderFamily> folder_family(FormatId format, Shape shape, const FormatParams& params);

// missing_family(format): why folder_family may say nothing for a format. Errors: none.
std::string_view missing_family(FormatId format);

// One tensor of a packed module: a plane, or bytes beside the planes.
struct FolderPart {
  std::string suffix;  // after the module's name: ".qweight"
  const StorageType* type = nullptr;
  std::vector<std::int64_t> shape;
  int plane = -1;                // of the weight; -1: `bytes`
  std::vector<std::byte> bytes;  // with plane -1
};

// folder_parts(format, shape, params): the tensors of a weight of a family, planes in order and
// then what consumers want beside them (weight_shape, quant_map, quant_state). The shape must be
// legal. Source: formats.md 2 to 8; each format's header for types and shapes.
std::vector<FolderPart> folder_parts(FormatId format, Shape shape, const FormatParams& params);

// zeros_in_middle(format, shape, params, planes): whether every stored zero point is the middle of
// the code range; true for a format that stores none. Cost: one read a zero point.
bool zeros_in_middle(FormatId format, Shape shape, const FormatParams& params,
                     const std::vector<ByteSpan>& planes);

}  // namespace packstone
