// AWQ in a model: the scales of a layer's channels, multiplied into the matrices that read them and
// divided out of what makes them, a norm or the rows of another matrix.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "packstone/cli/conversion.h"
#include "packstone/model/layer_walk.h"

namespace packstone::cli {

// plan_scales(source, plan): marks the norms that AWQ will change, and says where it changes none.
// Errors: none.
void plan_scales(const Checkpoint& source, ConversionPlan& plan);

// The scales of the layer at which a walk stands.
class LayerScales {
 public:
  // For a plan that plan_scales has marked; all must outlive it.
  LayerScales(const Checkpoint& source, ConversionPlan& plan, const MatrixProduct& product,
              Context& context);

  // search(walk): looks at the layer's inputs, chooses the scales of every group, hands the norms
  // divided by them to the walk and to the plan. A norm is rounded to the type that it will be
  // stored in, and its scale is the quotient of both, so that no rounding is left over.
  // Errors: those of LayerWalk::probe and search_awq_scales.
  Status search(LayerWalk& walk);

  // apply(name, shape, values): W[r, c] * in[c] / out[r] for a matrix of the layer.
  void apply(std::string_view name, Shape shape, std::span<float> values) const;

 private:
  struct Group;
  struct Inputs;
  struct Scales {
    std::vector<float> in, out;  // empty: all one
  };
  std::vector<Group> groups(std::int64_t layer) const;
  Result<std::vector<float>> find_scales(const Group& group, const Inputs& inputs);
  void fold_into_norm(const Group& group, std::vector<float>& scales, LayerWalk& walk);
  TensorPlan* find(std::string_view name) const;

  const Checkpoint& source_;
  const MatrixProduct& product_;
  Context& context_;
  std::map<std::string, TensorPlan*, std::less<>> plans_;
  std::map<std::string, Scales, std::less<>> scales_;
};

}  // namespace packstone::cli
