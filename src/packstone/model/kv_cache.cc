#include "packstone/model/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "packstone/base/bytes.h"
#include "packstone/base/check.h"

namespace packstone {
namespace {
constexpr std::align_val_t kAlignment{64};
}

void SequenceCache::Free::operator()(std::byte* memory) const {
  ::operator delete[](memory, kAlignment);
}

SequenceCache::Buffer SequenceCache::allocate(std::uint64_t bytes) {
  return Buffer(static_cast<std::byte*>(::operator new[](bytes, kAlignment, std::nothrow)));
}

SequenceCache::SequenceCache(std::int64_t layers, std::int64_t row_values, KvType type,
                             std::int64_t context, const void* model)
    : keys_(static_cast<std::size_t>(layers)),
      values_(static_cast<std::size_t>(layers)),
      row_bytes_(static_cast<std::uint64_t>(row_values * kv_type_bytes(type))),
      type_(type),
      context_(context),
      model_(model) {}

std::uint64_t SequenceCache::bytes() const {
  return 2 * keys_.size() * row_bytes_ * static_cast<std::uint64_t>(capacity_);
}

void SequenceCache::truncate(std::int64_t length) {
  length_ = std::clamp<std::int64_t>(length, 0, length_);
}

Status SequenceCache::reserve(std::int64_t length) {
  if (length <= capacity_) return {};
  const std::int64_t target = std::min(context_, std::max({length, 2 * capacity_, kStepMin}));
  const auto bytes = checked_mul(row_bytes_, static_cast<std::uint64_t>(target));
  const std::uint64_t used = row_bytes_ * static_cast<std::uint64_t>(length_);
  const auto grow = [&](Buffer& buffer) {
    Buffer larger = bytes ? allocate(*bytes) : nullptr;
    if (!larger) return false;
    if (used > 0) std::memcpy(larger.get(), buffer.get(), used);
    buffer = std::move(larger);
    return true;
  };
  for (std::size_t layer = 0; layer < keys_.size(); ++layer)
    if (!grow(keys_[layer]) || !grow(values_[layer]))
      return fail(ErrorCode::kExhausted, "model.forward", "keys and values",
                  fmt::format("no memory for {} positions", target), "",
                  "use a shorter context or a 16-bit KV type");
  capacity_ = target;
  return {};
}

KvView SequenceCache::view(std::int64_t layer) const {
  const auto index = static_cast<std::size_t>(layer);
  return {keys_[index].get(), values_[index].get(), type_};
}

std::byte* SequenceCache::key(std::int64_t layer, std::int64_t position) {
  PACKSTONE_ASSERT(position < capacity_);
  return keys_[static_cast<std::size_t>(layer)].get() +
         row_bytes_ * static_cast<std::uint64_t>(position);
}

std::byte* SequenceCache::value(std::int64_t layer, std::int64_t position) {
  PACKSTONE_ASSERT(position < capacity_);
  return values_[static_cast<std::size_t>(layer)].get() +
         row_bytes_ * static_cast<std::uint64_t>(position);
}

}  // namespace packstone
