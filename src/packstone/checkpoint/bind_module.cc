#include "packstone/checkpoint/bind_module.h"

#include <algorithm>

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.bind_module";

// Whether a space-separated list holds the word.
bool lists(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t space = std::min(words.find(' '), words.size());
    if (words.substr(0, space) == word) return true;
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return false;
}

std::unexpected<Error> misfit(std::string_view subject, std::string_view got,
                              const ModuleQuantization& says, std::string_view need) {
  return fail(ErrorCode::kCorruptData, kWhere, subject, got,
              fmt::format("{} of layout {}, as {} says", need, says.layout, says.key));
}

}  // namespace

Status check_parts(std::span<const ModuleTensor> parts, const ModuleQuantization& says,
                   std::string_view file, std::string_view module) {
  const auto subject = [&](std::string_view suffix) {
    return fmt::format("{}: '{}{}'", file, module, suffix);
  };
  const StockLayout* layout = stock_layout(says.layout);
  if (layout == nullptr) return {};  // a layout without a reader: there is nothing to hold it to
  for (const ModuleTensor& part : parts) {
    const StockTensor* stock = stock_tensor(*layout, part.suffix);
    if (stock == nullptr)
      return misfit(subject(part.suffix), part.view->type->name, says, "no tensor but those");
    if (!stock->types.empty() && !lists(stock->types, part.view->type->name))
      return misfit(subject(part.suffix), part.view->type->name, says,
                    fmt::format("the type {}", stock->types));
  }
  for (const StockTensor& stock : layout->tensors) {
    if (!stock.required) continue;
    std::size_t spellings = 0;
    for (const ModuleTensor& part : parts) {
      const StockTensor* found = stock_tensor(*layout, part.suffix);
      spellings += found->plane == stock.plane && found->required;
    }
    if (spellings == 0) return misfit(subject(stock.suffix), "no such tensor", says, "all tensors");
    if (spellings > 1)
      return misfit(subject(stock.suffix), "the tensor in two spellings", says, "one");
  }
  return {};
}

std::uint64_t total_bytes(std::span<const ModuleTensor> parts) {
  std::uint64_t bytes = 0;
  for (const ModuleTensor& part : parts) bytes += part.view->bytes.size();
  return bytes;
}

std::string detail_text(std::span<const ModuleTensor> parts, const ModuleQuantization& says) {
  std::int64_t bits = says.bits;
  for (const ModuleTensor& part : parts)
    if (part.suffix == ".trellis" && part.view->shape.size() == 3) bits = part.view->shape[2] / 16;
  std::string text = says.layout;
  if (!says.code_type.empty()) text += fmt::format(" {}", says.code_type);
  if (bits > 0) text += fmt::format(" {} bit", bits);
  if (says.group_cols > 0) text += fmt::format(" g{}", says.group_cols);
  return text;
}

}  // namespace packstone
