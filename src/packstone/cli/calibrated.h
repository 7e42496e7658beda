// Quantizing a model layer by layer, each matrix with what the quantized layers before it make of
// the calibration text.
#pragma once

#include "packstone/cli/calibration.h"
#include "packstone/cli/conversion.h"
#include "packstone/cli/journal.h"
#include "packstone/quantize/feedback.h"

namespace packstone::cli {

struct CalibratedMethod {
  FeedbackOptions feedback;
  double damping = 0.01;
  bool against_original = false;  // GPTAQ: also the inputs that the unquantized model has
  bool scaled = false;            // AWQ: channels scaled first
  bool nearest = false;           // no feedback: values go to their nearest code
};

// quantize_calibrated(source, calibration, method, journal, plan, context, command): makes the
// weight of every tensor that the plan quantizes, or takes it from the journal; write_conversion
// then writes them. The embedding of a model
// without a head of its own is quantized as the head that it also is.
// Errors: those of LayerWalk and quantize_with_feedback; kNotRepresentable where a tenth of the
//         inputs of a matrix are not finite; kCancelled.
// Cost: one layer's statistics, and LayerWalk's rows; the quantized weights lie in the journal.
Status quantize_calibrated(const Checkpoint& source, const Calibration& calibration,
                           const CalibratedMethod& method, const Journal& journal,
                           ConversionPlan& plan, Context& context, std::string_view command);

// calibrated_memory(source, plan, method, samples, length): bytes that quantize_calibrated needs
// beside the weights of source and target: rows between layers and the buffers of a sample, once a
// walk, and the statistics and copies of the largest matrix. Errors: none.
std::uint64_t calibrated_memory(const Checkpoint& source, const ConversionPlan& plan,
                                const CalibratedMethod& method, std::int64_t samples,
                                std::int64_t length);

// decode_matrix(tensor, pool): its values, rows in Hugging Face order. Errors: kExhausted.
Result<std::vector<float>> decode_matrix(const CheckpointTensor& tensor, ThreadPool& pool);

}  // namespace packstone::cli
