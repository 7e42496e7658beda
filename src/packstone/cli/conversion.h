// The plan of a convert or quantize: for every tensor what it becomes and why. Shared by the
// commands plan, convert and quantize.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "packstone/checkpoint/module_pattern.h"
#include "packstone/checkpoint/writer.h"
#include "packstone/cli/channel_moves.h"
#include "packstone/cli/command.h"
#include "packstone/cli/layouts.h"
#include "packstone/cli/output.h"
#include "packstone/quantize/quantizer.h"
#include "packstone/transcode/transcode.h"

namespace packstone::cli {

enum class Action {
  kCopy,       // the same format and bits; rows in the target's order
  kTranscode,  // another format, the same values
  kQuantize,   // other values
  kVector,     // a float tensor whose container demands float32, or Gemma's stored 1 + w
  kNone,       // refused
};

struct TensorPlan {
  const CheckpointTensor* source = nullptr;
  Action action = Action::kCopy;
  TranscodeTarget target;
  TranscodePlan plan;     // verdict, parameters of the target, conditions, reason
  ChannelOrder channels;  // of a joint move
  std::uint64_t bytes = 0;
  std::optional<QuantizeReport> report;  // after quantizing
  std::optional<PackedWeight> made;      // by a calibrated method, rows in Hugging Face order
  bool parity = false;                   // of rtn: the reference's bytes
  std::optional<double> proxy_error;     // of a method with feedback
  std::optional<double> loss;            // likewise
  std::vector<float> values;             // of a vector that changes, as Hugging Face has it
};

// How far a plan looks: at headers only, or at every parameter and code.
enum class Proof { kHeaders, kFull };

struct ConversionPlan {
  LayoutTarget layout;
  ContainerKind container{};
  std::vector<TensorPlan> tensors;                  // order of the source
  std::vector<const UnsupportedTensor*> described;  // modules that are copied as they are
  std::vector<std::string> not_carried;
  Json calibration;                   // what a report says of it; null: none
  bool certify = false;               // write a certificate with the output
  std::filesystem::path certificate;  // where it stands, once written
  std::uint64_t bytes = 0;            // of all target tensors and copied modules
  std::uint64_t peak_memory_predicted = 0;
  bool refused() const;
  Verdict worst() const;
};

// worst_verdict(tensors): the one that keeps least; same_bytes of none. Errors: none.
Verdict worst_verdict(std::span<const TensorPlan> tensors);

// plan_pair(tensor, id, container, moves, context): the plan of a convert that makes `tensor` a
// weight of format `id` in `container`, in the order of its joint move if it has one; float tensors
// take the format that convert gives them there. Reads every value that decides.
// Errors: none beyond the verdict.
TensorPlan plan_pair(const CheckpointTensor& tensor, FormatId id, ContainerKind container,
                     const ChannelMoves& moves, Context& context);

// What quantize is asked for in the modules that a pattern names: another format, or none.
struct QuantizeOverride {
  std::string text;  // where it comes from: the option of the call, or a recipe
  ModulePattern pattern;
  bool keep = false;
  FormatId format{};
  FormatParams params;
};

// What quantize is asked for. In `params`, kWholeRow columns or rows are those of each tensor; for
// the 4-bit layouts of bitsandbytes, columns are the weights of a block.
struct QuantizeRequest {
  FormatId format{};
  FormatParams params;
  bool parity = false;  // the bytes of the reference program, rtn only
  std::vector<QuantizeOverride> overrides = {};  // the first that matches a module counts
};

// request_params(request, shape): the parameters of a tensor of that shape. Errors: none.
FormatParams request_params(const QuantizeRequest& request, Shape shape);

// plan_conversion(source, layout, container, quantize, proof, context, command): with `quantize`,
// 2-D weights whose columns divide by the group change values; all other tensors, and all without
// it, move exactly or are refused. Without `quantize`, act-order that the target has no place for
// moves jointly (channel_moves.h): if one tensor of a joint move is refused, all of them are.
// Errors: kInvalidInput for an override that names no matrix; kExhausted for one that takes too
// long; kCancelled; those of CheckpointWriter::report, so that what has no place in the container
// is refused before the work.
Result<ConversionPlan> plan_conversion(const Checkpoint& source, const LayoutTarget& layout,
                                       ContainerKind container,
                                       const std::optional<QuantizeRequest>& quantize, Proof proof,
                                       Context& context, std::string_view command);

// write_conversion(source, plan, destination, force, context, command) streams the tensors one by
// one; on any failure nothing is left at destination.
// Errors: of the writer, of rtn; kCancelled. Cost: one tensor in memory.
Status write_conversion(const Checkpoint& source, ConversionPlan& plan,
                        const std::string& destination, bool force, Context& context,
                        std::string_view command);

// finish_conversion(...) writes the plan and prints the report, or prints the refusal; returns the
// exit code. `start` is when the command began.
// Errors: those of write_conversion.
Result<int> finish_conversion(const Checkpoint& source, ConversionPlan& plan,
                              const std::string& destination, bool force,
                              std::chrono::steady_clock::time_point start, Context& context,
                              std::string_view command);

// planned_outputs(plan): what the writer is asked for. Errors: none.
std::vector<OutputTensor> planned_outputs(const ConversionPlan& plan);

// The JSON keys of plan, convert and quantize, memory and time aside.
Json conversion_json(const ConversionPlan& plan);

// Lines for people: one a tensor with `all`, else one for each kind of move; refusals always one by
// one.
void print_conversion(std::ostream& out, const ConversionPlan& plan, bool all);

// The error that ends a refused convert: all refused tensors by name.
Error refusal(std::string_view command, const ConversionPlan& plan);

// check_destination(command, source, destination, container, force): SRC and DST must differ, and
// what stands at DST may be replaced only with --force and only by its like.
// Errors: kInvalidInput.
Status check_destination(std::string_view command, const Checkpoint& source,
                         const std::string& destination, ContainerKind container, bool force);

}  // namespace packstone::cli
