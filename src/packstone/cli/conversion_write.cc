#include "packstone/checkpoint/value_rule.h"
#include "packstone/cli/certificate.h"
#include "packstone/cli/progress.h"
#include "packstone/cli/vectors.h"
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
  std::vector<float> values = in_order(decode_all(tensor.source->weight), order);
  PACKSTONE_CHECK_OK(apply_value_rule(tensor.source->value_rule, writer.value_rule(index), values,
                                      tensor.source->name));
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

Status write_quantized(CheckpointWriter& writer, std::size_t index, TensorPlan& tensor,
                       std::span<const std::int32_t> order, Context& context) {
  const PackedWeight& source = tensor.source->weight;
  const auto rows = [&](std::int64_t row, std::span<float> out) {
    decode_row(source, order.empty() ? row : order[static_cast<std::size_t>(row)], out);
  };
  PACKSTONE_TRY(const Quantized quantized,
                rtn(rows, source.shape(), tensor.target.id, tensor.plan.params, context.pool(),
                    tensor.source->name));
  tensor.report = quantized.report;
  return writer.write(index, plane_spans(quantized.weight));
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
  if (tensor.action == Action::kQuantize)
    return write_quantized(writer, index, tensor, order, context);
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

Status write_conversion(const Checkpoint& source, ConversionPlan& plan,
                        const std::string& destination, bool force, Context& context,
                        std::string_view command) {
  std::vector<OutputTensor> outputs;
  for (const TensorPlan& tensor : plan.tensors)
    outputs.push_back(
        {tensor.source->name, tensor.source->shape, tensor.target.id, tensor.plan.params});
  PACKSTONE_TRY(const std::unique_ptr<CheckpointWriter> writer,
                CheckpointWriter::create(destination, plan.container, source, std::move(outputs),
                                         WriteOptions{.force = force}));
  for (const std::string& key : writer->metadata().not_carried) plan.not_carried.push_back(key);
  Progress progress(context, "writing", plan.bytes);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    PACKSTONE_CHECK_OK(context.check_cancel(command));
    PACKSTONE_CHECK_OK(write_tensor(*writer, i, plan.tensors[i], context));
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
