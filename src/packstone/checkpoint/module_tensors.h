// The tensors that make up a packed module in a checkpoint folder, layout by layout, under the
// names that stock programs give them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/quantization_spec.h"
#include "packstone/container/container.h"

namespace packstone {

// One tensor of a layout: a suffix of the module's name, and what it is for.
struct StockTensor {
  std::string_view suffix;  // ".qweight"; a trailing '*' stands for any rest of the name
  std::string_view plane;   // the suffix of the format's plane; empty: a companion
  bool required = true;
  std::string_view types;  // allowed storage types, space-separated; empty: any
};

// The tensors of one module that are there.
struct ModuleTensor {
  std::string suffix;
  const TensorView* view = nullptr;
};

// The tensors of a layout family, or nothing for a layout without a table. Tensors with the same
// plane are spellings of one.
struct StockLayout {
  std::string_view layout;
  std::span<const StockTensor> tensors;
};
const StockLayout* stock_layout(std::string_view layout);

// Whether the suffix belongs to some layout: such a tensor is part of a packed module.
bool is_packed_suffix(std::string_view suffix);

// is_code_tensor(name, type): whether the tensor holds the codes of some packed layout, as its name
// and stored type say: "x.qweight", a weight of words or bytes, blocks of ggml.
bool is_code_tensor(std::string_view name, const StorageType& type);

// What a layout calls the suffix, or nullptr.
const StockTensor* stock_tensor(const StockLayout& layout, std::string_view suffix);

}  // namespace packstone
