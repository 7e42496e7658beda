// Keys and values of one sequence: per layer two arrays that grow in steps.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "packstone/model/model.h"

namespace packstone {

class SequenceCache final : public KvCache {
 public:
  // Positions gained by the first step; every further step doubles, up to the context.
  static constexpr std::int64_t kStepMin = 256;

  SequenceCache(std::int64_t layers, std::int64_t row_values, KvType type, std::int64_t context,
                const void* model);

  std::int64_t length() const override { return length_; }
  std::int64_t context() const override { return context_; }
  std::uint64_t bytes() const override;
  void truncate(std::int64_t length) override;

  // The model that made this cache; compared, never followed.
  const void* model() const { return model_; }

  // Rows counted by the call in progress, kept here so that a check of a batch needs no allocation
  // and sees through the same cache given twice.
  std::int64_t pending = 0;

  // Makes room for positions [0, length). Errors: kExhausted; what is stored stays as it was.
  Status reserve(std::int64_t length);
  void set_length(std::int64_t length) { length_ = length; }

  KvView view(std::int64_t layer) const;
  std::byte* key(std::int64_t layer, std::int64_t position);
  std::byte* value(std::int64_t layer, std::int64_t position);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Buffer = std::unique_ptr<std::byte[], Free>;
  static Buffer allocate(std::uint64_t bytes);

  std::vector<Buffer> keys_, values_;  // one per layer
  std::uint64_t row_bytes_ = 0;
  KvType type_;
  std::int64_t capacity_ = 0;  // positions that every buffer holds
  std::int64_t length_ = 0;
  std::int64_t context_ = 0;
  const void* model_ = nullptr;
};

// Bytes of one value.
constexpr std::int64_t kv_type_bytes(KvType type) {
  return type == KvType::kF32 ? 4 : 2;
}

}  // namespace packstone
