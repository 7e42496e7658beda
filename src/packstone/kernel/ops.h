// The small operations of a decoder layer, one table per instruction set, all bit-equal to the
// reference: written once over 16 lanes of binary32 (vec.h) with a fixed order of every reduction.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace packstone {

struct AttentionProblem {
  std::int64_t heads, kv_heads, head_dim;
  float scale;    // multiplies q.k
  float softcap;  // 0: none; else scores become softcap * tanh(score / softcap)
};

// KV rows of one sequence and layer: key of position p, kv head h at
// k + (p * kv_heads + h) * head_dim; float32, float16 or bfloat16 by `type`.
enum class KvType : std::uint8_t { kF32, kF16, kBF16 };
struct KvView {
  const void* k;
  const void* v;
  KvType type;
};

// Function table of one instruction set. All functions: no allocation, no failure; same bits from
// every table (payloads of NaN aside). Errors of the functions against the real value, measured by
// the tests in units in the last place: exp 1.02, tanh 3, silu 3, all in the normal range.
struct Ops {
  std::string_view name;  // "scalar", "avx2", "avx512", "neon"

  // out = x / sqrt(mean(x^2) + eps) * weight. Shapes: x, weight, out [n]; out may be x. Sum order
  // as Linear's dot; then x is multiplied by the rounded reciprocal root, then by weight.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t n, float* out);
  // x += y.
  void (*add)(float* x, const float* y, std::int64_t n);
  void (*scale)(float* x, float factor, std::int64_t n);
  // x = e^x; 0 below -103.98, infinity above 88.73.
  void (*exp)(float* x, std::int64_t n);
  // gate = silu(gate) * up; silu(x) = x / (1 + exp(-x)).
  void (*silu_mul)(float* gate, const float* up, std::int64_t n);
  // gate = gelu_tanh(gate) * up.
  void (*gelu_mul)(float* gate, const float* up, std::int64_t n);
  // Rotates pairs (i, i + d/2) of one head by angles whose cos and sin are given, [d/2] each.
  void (*rope)(float* head, const float* cos, const float* sin, std::int64_t head_dim);
  // x = cap * tanh(x / cap).
  void (*softcap)(float* x, float cap, std::int64_t n);
  // Attention of one query head at one position over keys [first, last) of its sequence.
  // Shapes: q [head_dim], out [head_dim], scores: scratch [last - first]. The order of every sum
  // depends on positions only, so prefill, decode and any batch give the same bits. No keys: zeros.
  void (*attend)(const float* q, const KvView& kv, const AttentionProblem& problem,
                 std::int64_t kv_head, std::int64_t first, std::int64_t last, float* scores,
                 float* out);
  // Converts and stores a row of n values in the KV type.
  void (*store_kv)(const float* row, std::int64_t n, KvType type, void* target);
  float (*dot)(const float* a, const float* b, std::int64_t n);
  // max and log(sum(exp(x - max))) of a row of logits, summed in float64 in index order by lanes.
  double (*log_sum_exp)(const float* x, std::int64_t n);
};

// The fastest table that this CPU runs; PACKSTONE_FORCE_KERNEL=scalar|avx2|avx512|neon picks one. A
// name that this CPU cannot run is refused by Linear::prepare; here it gives the scalar reference.
// Cost: an environment look-up; callers keep the reference.
const Ops& ops();
// All tables that this CPU can run, the scalar reference first.
std::span<const Ops* const> all_ops();

}  // namespace packstone
