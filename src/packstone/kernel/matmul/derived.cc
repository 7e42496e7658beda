#include "packstone/kernel/matmul/derived.h"

namespace packstone {

void derived_decode_row(const PackedWeight& weight, std::int64_t row, std::span<float> out) {
  const auto planes = weight.plane_pointers();
  visit(weight.id(), [&]<class F>() {
    const Shape shape = weight.shape();
    const FormatParams& params = weight.params();
    const std::int64_t group_size = F::group_cols(params);
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      const GroupValues group =
          F::values(read_params<F>(planes.data(), shape, params, row, col / group_size), params);
      const std::uint32_t code = read_place(planes.data(), F::code(shape, params, row, col));
      out[static_cast<std::size_t>(col)] = decode_value<typename F::Scheme>(group, code);
    }
  });
}

}  // namespace packstone
