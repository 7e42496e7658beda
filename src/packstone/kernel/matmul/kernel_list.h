// The one list of matrix kernels: every instruction set of this build and CPU with every format it
// has a reader for, and with the derived decode for the rest.
#pragma once

#include <span>
#include <string>

#include "packstone/kernel/isa/isa.h"

namespace packstone {

struct MatmulKernel {
  std::string name;  // "matmul_gguf_q4_0_f32_avx512", "matmul_derived_f32_avx2"
  const Isa* isa = nullptr;
  const FormatKernel* reader = nullptr;  // nothing: rows are decoded by transcode's decode_row
};

// All kernels of this build and CPU, best first; readers before derived within an instruction set.
std::span<const MatmulKernel> matmul_kernels();

// Whether the kernel can run a weight.
bool kernel_takes(const MatmulKernel& kernel, const PackedWeight& weight);

}  // namespace packstone
