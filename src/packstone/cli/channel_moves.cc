#include "packstone/cli/channel_moves.h"

#include <algorithm>

#include "packstone/checkpoint/names.h"
#include "packstone/cli/layouts.h"
#include "packstone/transcode/permute.h"

namespace packstone::cli {
namespace {

// "gptq, gptq_v2 or gptq_p".
std::string layouts_with_groups() {
  std::vector<std::string_view> names;
  for (const FormatId id : all_formats()) {
    const FormatInfo& info = format_info(id);
    if (info.index_plane >= 0 && std::ranges::find(names, info.layout) == names.end())
      names.push_back(info.layout);
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return text;
}

std::string name_list(std::span<const CheckpointTensor* const> tensors) {
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    text += fmt::format("{}{}",
                        i == 0                    ? ""
                        : i + 1 == tensors.size() ? " and "
                                                  : ", ",
                        tensors[i]->name);
  return text;
}

ChannelMove make_move(const CheckpointTensor& consumer, const ChannelRelation& relation,
                      const Checkpoint& source) {
  ChannelMove move;
  move.consumer = &consumer;
  for (const std::string& name : relation.producers) {
    const CheckpointTensor* producer = source.find(name);
    if (producer != nullptr)
      move.producers.push_back(producer);
    else if (name.ends_with(".weight"))
      move.fault = fmt::format("there is no {}, whose rows would follow", name);
  }
  if (!move.fault.empty()) return move;
  Result<std::vector<std::int32_t>> order = sorted_columns(consumer.weight, consumer.name);
  if (order)
    move.order = std::make_shared<const std::vector<std::int32_t>>(*std::move(order));
  else
    move.fault = fmt::format("{} ({})", order.error().message, layouts_with_groups());
  return move;
}

}  // namespace

std::vector<const CheckpointTensor*> ChannelMove::tensors() const {
  std::vector<const CheckpointTensor*> list = producers;
  list.push_back(consumer);
  return list;
}

ChannelOrder ChannelMove::of(const CheckpointTensor& tensor) const {
  if (!order) return {};
  if (&tensor == consumer)
    return {order, true,
            fmt::format("columns sorted by group, those of one group as they stood; the rows of {} "
                        "follow",
                        name_list(producers))};
  if (std::ranges::find(producers, &tensor) == producers.end()) return {};
  return {order, false,
          fmt::format("rows in the order of the columns of {}, sorted by group", consumer->name)};
}

ChannelMoves::ChannelMoves(const Checkpoint& source, const MustSort& must_sort) {
  for (const ChannelRelation& relation : channel_relations(source.config)) {
    const CheckpointTensor* consumer = source.find(relation.consumer);
    if (consumer == nullptr || !consumer->weight.params().act_order || !must_sort(*consumer))
      continue;
    moves_.push_back(make_move(*consumer, relation, source));
    index_[consumer] = moves_.size() - 1;
    for (const CheckpointTensor* producer : moves_.back().producers)
      index_[producer] = moves_.size() - 1;
  }
}

const ChannelMove* ChannelMoves::find(const CheckpointTensor& tensor) const {
  const auto it = index_.find(&tensor);
  return it == index_.end() ? nullptr : &moves_[it->second];
}

std::uint64_t ChannelMoves::bytes() const {
  std::uint64_t total = 0;
  for (const ChannelMove& move : moves_)
    if (move.order) total += move.order->size() * sizeof(std::int32_t);
  return total;
}

Result<PackedWeight> with_columns(const PackedWeight& weight, const ChannelOrder& channels,
                                  ThreadPool& pool) {
  if (channels.columns().empty()) return weight;
  return permute_columns(weight, channels.columns(), pool);
}

bool needs_sorting(const PackedWeight& weight, FormatId target) {
  return weight.params().act_order && !is_float_format(target) &&
         format_info(target).index_plane < 0;
}

std::string unsorted_reason(const CheckpointTensor& tensor, FormatId target) {
  const PackedWeight& weight = tensor.weight;
  const unsigned char* numbers =
      weight.plane_pointers()[static_cast<std::size_t>(weight.format().index_plane)];
  const std::int64_t width = group_cols(weight.id(), weight.params());
  const auto group_of = [&](std::int64_t col) {
    return static_cast<std::int64_t>(read_bits(numbers, 32 * static_cast<std::uint64_t>(col), 32));
  };
  std::int64_t col = 0;
  while (col + 1 < weight.shape().cols && group_of(col) == col / width) ++col;
  const std::string_view fixed = fixed_columns_reason(tensor.name);
  return fmt::format(
      "{} has act-order (g_idx): column {} is of group {}, not {}, and {} has no place for group "
      "numbers; {}; use {}",
      weight.format().name, col, group_of(col), col / width, format_info(target).name,
      fixed.empty() ? "convert sorts its columns together with the rows that make them" : fixed,
      layouts_with_groups());
}

}  // namespace packstone::cli
