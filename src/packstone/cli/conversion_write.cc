#include "packstone/checkpoint/value_rule.h"
#include "packstone/cli/calibrated.h"
#include "packstone/cli/certificate.h"
#include "packstone/cli/progress.h"
#include "packstone/cli/vectors.h"
#include "packstone/quantize/folder_encode.h"
#include "packstone/quantize/gguf/gguf_encode.h"
#include "packstone/transcode/unpack.h"

namespace packstone::cli {
namespace {

std::vector<ByteSpan> plane_spans(const PackedWeight& weight) {
  std::vector<ByteSpan> planes;
  for (int i = 0; i < weight.plane_count(); ++i) planes.push_back(weight.plane(i));
  return planes;
}

// A vector may be bound as one row; its order, if any, is over its values.
bool vector_order(const CheckpointTensor& tensor, std::span<const std::int32_t> order) {
  return tensor.weight.shape().rows == 1 && order.size() > 1;
}

// Values through float32: only float tensors of a few thousand values come here.
Status write_vector(CheckpointWriter& writer, std::size_t index, const TensorPlan& tensor,
                    std::span<const std::int32_t> order) {
  const bool changed = !tensor.values.empty();
  std::vector<float> values =
      changed ? tensor.values : in_order(decode_all(tensor.source->weight), order);
  const ValueRule rule = changed ? ValueRule::kSame : tensor.source->value_rule;
  PACKSTONE_CHECK_OK(
      apply_value_rule(rule, writer.value_rule(index), values, tensor.source->name));
  PACKSTONE_TRY(
      OwnedWeight target,
      OwnedWeight::allocate(tensor.target.id, tensor.source->weight.shape(), tensor.plan.params));
  if (tensor.target.id == kFloat32) {
    std::memcpy(target.planes[0].data(), values.data(), values.size() * sizeof(float));
  } else {
    const FloatType type = tensor.target.id == kFloat16 ? FloatType::kF16 : FloatType::kBF16;
    for (std::size_t i = 0; i < values.size(); ++i)
      store_le(target.planes[0].data() + 2 * i,
               static_cast<std::uint16_t>(encode_float(type, values[i])));
  }
  return writer.write(index, {ByteSpan(target.planes[0])});
}

// A weight that stands in Hugging Face order.
Status write_made(CheckpointWriter& writer, std::size_t index, TensorPlan& tensor,
                  Context& context) {
  const std::vector<std::int32_t> order = writer.stored_order(index);
  if (order.empty()) return writer.write(index, plane_spans(*tensor.made));
  PACKSTONE_TRY(const PackedWeight target, permute_rows(*tensor.made, order, context.pool()));
  return writer.write(index, plane_spans(target));
}

// A tensor rounded without calibration: the target's own encoder, or the search on its grid.
Result<Quantized> round_tensor(const TensorPlan& tensor, ThreadPool& pool) {
  const PackedWeight& source = tensor.source->weight;
  const Shape shape = source.shape();
  const FormatId id = tensor.target.id;
  const std::string& name = tensor.source->name;
  const std::vector<std::int32_t> stored = tensor.source->stored_rows();
  const RowSource rows = [&](std::int64_t row, std::span<float> out) {
    decode_row(source, stored.empty() ? row : stored[static_cast<std::size_t>(row)], out);
  };
  if (gguf_encode_supports(id)) {
    const GgufEncodeOptions options{.mode = tensor.parity ? GgufMode::kParity : GgufMode::kBest};
    PACKSTONE_TRY(GgufEncoded encoded, gguf_encode(rows, shape, id, options, pool, name));
    return Quantized{std::move(encoded.weight), encoded.report};
  }
  const bool own = folder_encode_supports(id);
  if (tensor.parity && !own) return rtn(rows, shape, id, tensor.plan.params, pool, name);
  PACKSTONE_TRY(const std::vector<float> values, decode_matrix(*tensor.source, pool));
  const MatrixView weight{values.data(), shape.rows, shape.cols, shape.cols};
  if (own)
    return folder_encode(weight, id, tensor.plan.params,
                         tensor.parity ? EncodeMode::kParity : EncodeMode::kBest, pool, name);
  return round_to_grid(weight, {}, id, tensor.plan.params, pool, name);
}

Status write_tensor(CheckpointWriter& writer, std::size_t index, TensorPlan& tensor,
                    Context& context) {
  const PackedWeight& source = tensor.source->weight;
  const std::vector<std::int32_t> order =
      compose_rows(tensor.source->stored_rows(),
                   compose_rows(tensor.channels.rows(), writer.stored_order(index)));
  const bool rule_changes = writer.value_rule(index) != tensor.source->value_rule;
  if (tensor.action == Action::kVector || rule_changes || vector_order(*tensor.source, order))
    return write_vector(writer, index, tensor, order);
  if (tensor.made) return write_made(writer, index, tensor, context);
  if (tensor.action == Action::kQuantize) {
    PACKSTONE_TRY(Quantized rounded, round_tensor(tensor, context.pool()));
    tensor.report = rounded.report;
    tensor.made = std::move(rounded.weight);
    return write_made(writer, index, tensor, context);
  }
  if (tensor.action == Action::kTranscode) {
    PACKSTONE_TRY(const PackedWeight sorted, with_columns(source, tensor.channels, context.pool()));
    PACKSTONE_TRY(const PackedWeight target,
                  transcode(sorted, tensor.plan, tensor.target, order, context.pool()));
    return writer.write(index, plane_spans(target));
  }
  if (order.empty()) return writer.write(index, plane_spans(source));
  PACKSTONE_TRY(const PackedWeight target, permute_rows(source, order, context.pool()));
  return writer.write(index, plane_spans(target));
}

// Reads the output back, as verify does, and leaves its certificate with the writer.
Status certify(CheckpointWriter& writer, const Checkpoint& source, const ConversionPlan& plan,
               Context& context, std::string_view command) {
  PACKSTONE_CHECK_OK(writer.finish());
  PACKSTONE_TRY(const Checkpoint target, open_checkpoint(writer.path()));
  PACKSTONE_TRY(Certificate certificate, sum_checkpoints(source, target, context, command));
  PACKSTONE_CHECK_OK(complete_certificate(certificate, plan.tensors));
  return writer.add_certificate(certificate_text(certificate_json(certificate)));
}

}  // namespace

std::vector<OutputTensor> planned_outputs(const ConversionPlan& plan) {
  std::vector<OutputTensor> outputs;
  for (const TensorPlan& tensor : plan.tensors)
    outputs.push_back(
        {tensor.source->name, tensor.source->shape, tensor.target.id, tensor.plan.params});
  return outputs;
}

Status write_conversion(const Checkpoint& source, ConversionPlan& plan,
                        const std::string& destination, bool force, Context& context,
                        std::string_view command) {
  PACKSTONE_TRY(const std::unique_ptr<CheckpointWriter> writer,
                CheckpointWriter::create(
                    destination, plan.container, source, planned_outputs(plan),
                    WriteOptions{.force = force, .carry_described = !plan.described.empty()}));
  Progress progress(context, "writing", plan.bytes);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    PACKSTONE_CHECK_OK(context.check_cancel(command));
    PACKSTONE_CHECK_OK(write_tensor(*writer, i, plan.tensors[i], context));
    plan.tensors[i].made.reset();
    progress.add(plan.tensors[i].bytes);
  }
  progress.finish();
  if (plan.certify) PACKSTONE_CHECK_OK(certify(*writer, source, plan, context, command));
  PACKSTONE_CHECK_OK(context.check_cancel(command));
  PACKSTONE_CHECK_OK(writer->commit());
  if (plan.certify) plan.certificate = certificate_path(destination, plan.container);
  return {};
}

}  // namespace packstone::cli
