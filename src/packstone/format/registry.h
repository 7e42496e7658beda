// The one list of formats. To add one: write format/<name>.h, include it here, add it to the list
// of its family.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "packstone/format/awq_gemm.h"
#include "packstone/format/awq_gemv.h"
#include "packstone/format/bitblas.h"
#include "packstone/format/bnb_int8.h"
#include "packstone/format/bnb_nf4.h"
#include "packstone/format/ct_pack.h"
#include "packstone/format/dense.h"
#include "packstone/format/format_id.h"
#include "packstone/format/fp8.h"
#include "packstone/format/gguf_iq1_m.h"
#include "packstone/format/gguf_iq1_s.h"
#include "packstone/format/gguf_iq2_s.h"
#include "packstone/format/gguf_iq2_xs.h"
#include "packstone/format/gguf_iq2_xxs.h"
#include "packstone/format/gguf_iq3_s.h"
#include "packstone/format/gguf_iq3_xxs.h"
#include "packstone/format/gguf_iq4_nl.h"
#include "packstone/format/gguf_iq4_xs.h"
#include "packstone/format/gguf_mxfp4.h"
#include "packstone/format/gguf_nvfp4.h"
#include "packstone/format/gguf_q1_0.h"
#include "packstone/format/gguf_q2_0.h"
#include "packstone/format/gguf_q2_k.h"
#include "packstone/format/gguf_q3_k.h"
#include "packstone/format/gguf_q4_0.h"
#include "packstone/format/gguf_q4_1.h"
#include "packstone/format/gguf_q4_k.h"
#include "packstone/format/gguf_q5_0.h"
#include "packstone/format/gguf_q5_1.h"
#include "packstone/format/gguf_q5_k.h"
#include "packstone/format/gguf_q6_k.h"
#include "packstone/format/gguf_q8_0.h"
#include "packstone/format/gguf_tq1_0.h"
#include "packstone/format/gguf_tq2_0.h"
#include "packstone/format/gptq.h"
#include "packstone/format/gptqmodel_q1_0_32.h"
#include "packstone/format/marlin.h"
#include "packstone/format/mlx_affine.h"
#include "packstone/format/mlx_nvfp4.h"
#include "packstone/format/mx_mxfp4.h"
#include "packstone/format/mx_mxfp8.h"
#include "packstone/format/qqq.h"

namespace packstone {

template <class... Formats>
struct FormatList {
  static constexpr std::size_t kSize = sizeof...(Formats);
};

// Families: what is compiled together (transcode/ops_<family>.cc).
using DenseFormats = FormatList<DenseF32, DenseF16, DenseBF16>;
using MlxFormats =
    FormatList<MlxAffine<2>, MlxAffine<3>, MlxAffine<4>, MlxAffine<5>, MlxAffine<6>, MlxAffine<8>>;
using GgufFormats = FormatList<GgufQ4_0, GgufQ4_1, GgufQ5_0, GgufQ5_1, GgufQ8_0>;
using GgufKFormats = FormatList<GgufQ2_K, GgufQ3_K, GgufQ4_K, GgufQ5_K, GgufQ6_K>;
using GgufSmallFormats = FormatList<GgufQ1_0, GgufQ2_0, GgufTQ1_0, GgufTQ2_0, GgufIQ4_NL,
                                    GgufIQ4_XS, GgufNvfp4, GptqmodelQ1_0_32>;
using GgufIqFormats =
    FormatList<GgufIQ1_S, GgufIQ1_M, GgufIQ2_XXS, GgufIQ2_XS, GgufIQ2_S, GgufIQ3_XXS, GgufIQ3_S>;
using MxFormats = FormatList<GgufMxfp4, Mxfp4, Mxfp8, MlxNvfp4, CtNvfp4, ModeloptNvfp4>;
using Fp8Formats =
    FormatList<Fp8<Fp8Kind::kE4M3FN>, Fp8<Fp8Kind::kE5M2>, Fp8<Fp8Kind::kE4M3FNUZ>,
               Fp8<Fp8Kind::kE5M2FNUZ>, Fp8Divisor<Fp8Kind::kE4M3FN>, Fp8Divisor<Fp8Kind::kE5M2>,
               Fp8Divisor<Fp8Kind::kE4M3FNUZ>, Fp8Divisor<Fp8Kind::kE5M2FNUZ>, Fp8E8M0>;
using BnbFormats = FormatList<BnbNf4, BnbNf4Nested, BnbFp4, BnbFp4Nested, BnbInt8>;
using CtFormats = FormatList<CtPack<4, true>, CtPack<4, false>, CtPack<8, true>, CtPack<8, false>>;
using GptqFormats = FormatList<Gptq<2>, Gptq<3>, Gptq<4>, Gptq<8>,          //
                               GptqV2<2>, GptqV2<3>, GptqV2<4>, GptqV2<8>,  //
                               GptqP<3>, GptqP<5>, GptqP<6>, GptqP<7>>;
using AwqFormats = FormatList<AwqGemm<2>, AwqGemm<3>, AwqGemm<4>, AwqGemm<5>, AwqGemm<6>,
                              AwqGemm<7>, AwqGemm<8>, AwqGemv, AwqGemvFast, LlmAwq>;
using TileFormats = FormatList<Marlin<4>, Marlin<8>, MarlinAwq<4>, MarlinAwq<8>, Qqq, QqqG128>;
using BitblasFormats =
    FormatList<Bitblas<2>, Bitblas<4>, Bitblas<8>, BitblasAsym<2>, BitblasAsym<3>, BitblasAsym<4>,
               BitblasAsym<5>, BitblasAsym<6>, BitblasAsym<7>, BitblasAsym<8>>;

template <class... Families>
struct FamilyList {};
using AllFamilies = FamilyList<DenseFormats, MlxFormats, GgufFormats, GgufKFormats,
                               GgufSmallFormats, GgufIqFormats, MxFormats, Fp8Formats, BnbFormats,
                               CtFormats, GptqFormats, AwqFormats, TileFormats, BitblasFormats>;

namespace detail {
template <class... A, class... B>
FormatList<A..., B...> operator+(FormatList<A...>, FormatList<B...>);
template <class... Families>
auto join_families(FamilyList<Families...>) -> decltype((... + Families{}));
}  // namespace detail

using AllFormats = decltype(detail::join_families(AllFamilies{}));

inline constexpr std::size_t kFormatCount = AllFormats::kSize;

namespace detail {
template <class F, class... Formats>
constexpr FormatId id_in(FormatList<Formats...>) {
  std::uint16_t index = 0, found = 0xFFFF;
  ((std::is_same_v<F, Formats> ? void(found = index) : void(), ++index), ...);
  return FormatId{found};
}
template <class Function, class First, class... Rest>
constexpr decltype(auto) visit_in(std::uint16_t index, Function&& function,
                                  FormatList<First, Rest...>) {
  if constexpr (sizeof...(Rest) == 0) {
    return function.template operator()<First>();
  } else {
    if (index == 0) return function.template operator()<First>();
    return visit_in(static_cast<std::uint16_t>(index - 1), std::forward<Function>(function),
                    FormatList<Rest...>{});
  }
}
}  // namespace detail

// The id of a format known at compile time.
template <CodedFormat F>
inline constexpr FormatId kFormatId = detail::id_in<F>(AllFormats{});

static_assert(kFormatId<DenseF32> == kFloat32 && kFormatId<DenseF16> == kFloat16 &&
              kFormatId<DenseBF16> == kBFloat16);

// visit(id, f) calls f.operator()<F>() with the format of that id: the only switch over formats in
// the program. Instantiates f for every format: call it in few .cc files.
template <class Function>
constexpr decltype(auto) visit(FormatId id, Function&& function) {
  return detail::visit_in(static_cast<std::uint16_t>(id), std::forward<Function>(function),
                          AllFormats{});
}

}  // namespace packstone
