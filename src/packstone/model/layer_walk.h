// A decoder run one layer at a time over calibration text, so that a quantizer sees the inputs of
// every matrix as they are once all matrices before it have been replaced.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "packstone/base/matrix_view.h"
#include "packstone/model/model.h"

namespace packstone {

// Matrices of a layer that share one input, in the order in which they run.
enum class LayerStage { kAttentionInput, kAttentionOutput, kFeedForwardInput, kFeedForwardOutput };
inline constexpr std::array kLayerStages = {
    LayerStage::kAttentionInput, LayerStage::kAttentionOutput, LayerStage::kFeedForwardInput,
    LayerStage::kFeedForwardOutput};

// Rows of inputs, one per token; valid during the call.
using InputSink = std::function<void(const MatrixView& inputs)>;

class LayerWalk {
 public:
  // make(checkpoint, sequences, pool): stands before the first layer. Sequences may differ in
  // length; each runs alone, from its first token.
  // Errors: those of Model::load; kInvalidInput for no sequence, an empty one, one longer than the
  //         model's context, or a token outside the vocabulary.
  // Cost: tokens * (hidden + heads * head_dim) floats between layers, and the buffers and the cache
  //       of the longest sequence.
  static Result<LayerWalk> make(const Checkpoint& checkpoint,
                                std::vector<std::vector<std::int32_t>> sequences, ThreadPool& pool);
  LayerWalk(LayerWalk&&) noexcept;
  LayerWalk& operator=(LayerWalk&&) noexcept;
  ~LayerWalk();

  std::int64_t layers() const;
  std::int64_t layer() const;   // where the walk stands
  std::int64_t tokens() const;  // of all sequences

  // The matrices of a stage of the current layer, by Hugging Face name with ".weight".
  std::vector<std::string> matrices(LayerStage stage) const;

  // inputs(stage, sink): runs the text to the inputs of the stage and hands them over, sequence by
  // sequence. Stages come in order, each once per layer.
  // Errors: kExhausted, kInvalidInput (order). Threads: the pool given to make.
  Status inputs(LayerStage stage, const InputSink& sink);

  // paired_inputs(wanted, walk, stage, sink): inputs() of two walks over the same sequences, one
  // sequence at a time: of a model as it is and of one with replaced matrices.
  // Errors: as inputs(); kInvalidInput where the walks do not stand at the same place.
  using PairSink = std::function<void(const MatrixView& wanted, const MatrixView& inputs)>;
  static Status paired_inputs(LayerWalk& wanted, LayerWalk& walk, LayerStage stage,
                              const PairSink& sink);
  static Status paired_head_inputs(LayerWalk& wanted, LayerWalk& walk, const PairSink& sink);

  // probe(count, sink): runs the first `count` sequences through the current layer with the
  // matrices that it has and hands over the inputs of every stage; the walk stays where it is.
  // Errors: kExhausted, kInvalidInput (only before the first stage of a layer).
  using ProbeSink = std::function<void(LayerStage stage, const MatrixView& inputs)>;
  Status probe(std::int64_t count, const ProbeSink& sink);

  // The factors that the norm before a stage of the current layer multiplies by; none before the
  // outputs' stages. set_norm: what it multiplies by from now on, hidden values.
  std::span<const float> norm(LayerStage stage) const;
  void set_norm(LayerStage stage, std::span<const float> factors);

  // replace(name, weight): what runs from now on instead of the checkpoint's matrix; rows in
  // Hugging Face order. Errors: kInvalidInput for a name outside of the current layer or another
  // shape; those of Linear::prepare.
  Status replace(std::string_view name, PackedWeight weight);

  // Runs the rest of the current layer and stands before the next one; the layer's matrices are let
  // go.
  Status next_layer();

  // After the last layer: the inputs of the head.
  Status head_inputs(const InputSink& sink);

 private:
  struct State;
  explicit LayerWalk(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace packstone
