// Products of a weight: y = x w^T, read from the packed bytes where they lie, of every layout.
#pragma once

#include "packstone/weight/placed.h"
#include "packstone/weight/weight.h"

namespace packstone {

// apply(w, x, pool): x times w as a linear map of k inputs to n outputs, summed at float64 for a
// float64 x and at float32 otherwise, rounded once to x's type; whole, wherever w lies.
// Shapes: x [..., m, k] gives [..., m, n], x [k] gives [..., n]; leading axes broadcast.
// Exact: bounded: gamma_k * sum |x||w| with gamma_k = k u / (1 - k u), u = 2^-24 or 2^-53, and one
// rounding to x's type. The order of every sum depends on k and the cut along k alone: same bits
// for any thread count, instruction set, m, and cut along n or a leading axis.
// Errors: kInvalidInput for a 0-d x, a last axis that is not k, or leading axes that do not
// broadcast; kUnsupported where the kernel asked for cannot run here; kExhausted.
// Cost: no decoded copy of w: at most 128 K values of it at a time per thread. Threads: the pool.
Result<Array> apply(const Weight& w, const ArrayView& x, ThreadPool& pool);

// apply_experts(w, ids, x, pool): row p of the result is apply of matrix ids[p] to row p of x, or
// zeros where ids[p] is not in [0, e), whatever the row of x holds.
// Shapes: w [e, n, k], ids [s...], x [s'..., k] with s' broadcasting to s; gives [s..., n].
// Exact, cost, threads: as apply; a row's bits depend on its own row and expert alone.
// Errors: as apply; kInvalidInput for a w that is not 3-d, a rank of x that is not ids' + 1, and
// leading axes that do not broadcast to ids'.
Result<Array> apply_experts(const Weight& w, const IdsView& ids, const ArrayView& x,
                            ThreadPool& pool);

struct ProductOptions {
  // Keep the terms of a cut sum where they lie; PlacedArray::whole adds them later, in the order of
  // the devices, to the same bits.
  bool sum = false;
};

// The same with the result where the computation left it: cut along n or a leading axis as w is,
// else whole; with options.sum, terms of a sum for a w cut along k, and for apply_experts along
// experts.
Result<PlacedArray> apply_placed(const Weight& w, const ArrayView& x, ThreadPool& pool,
                                 ProductOptions options = {});

// apply_experts with ids and x where they lie. Cut along the first axis together, in equal windows,
// beside a whole w: each device computes its own positions and the result is cut as ids are.
// Otherwise both are read whole.
Result<PlacedArray> apply_experts_placed(const Weight& w, const PlacedIds& ids,
                                         const PlacedArray& x, ThreadPool& pool,
                                         ProductOptions options = {});

}  // namespace packstone
