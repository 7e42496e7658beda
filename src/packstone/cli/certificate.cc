#include "packstone/cli/certificate.h"

#include "packstone/cli/described.h"
#include "packstone/cli/progress.h"

namespace packstone::cli {
namespace {

Result<CertificateSide> sum_side(const Checkpoint& checkpoint, std::string_view leave_out,
                                 Progress& progress, Context& context, std::string_view command) {
  const HashWatch watch{&context.cancel, [&](std::uint64_t bytes) { progress.add(bytes); }};
  Result<CertificateSide> side = certificate_side(checkpoint, leave_out, context.pool(), watch);
  // The command's own words of an interrupt.
  if (!side && side.error().code == ErrorCode::kCancelled)
    PACKSTONE_CHECK_OK(context.check_cancel(command));
  return side;
}

// The certificate is no part of the target that it speaks of.
std::string_view left_out(const Checkpoint& target) {
  return target.container == ContainerKind::kFolder ? kCertificateName : std::string_view();
}

// Whether the weight has the plan's format and what of its parameters the format takes notice of: a
// format of one group may have it spelled out or not, and one without a choice has any metadata.
bool same_params(const PackedWeight& weight, const TensorPlan& plan) {
  const FormatInfo& format = weight.format();
  const FormatParams &have = weight.params(), &want = plan.plan.params;
  const bool typed = std::ranges::any_of(
      format.params, [](const ParamSpec& spec) { return spec.coding == ParamCoding::kMetadata; });
  return weight.id() == plan.target.id &&
         group_cols(weight.id(), have) == group_cols(weight.id(), want) &&
         have.act_order == want.act_order && have.constant == want.constant &&
         (!typed || have.metadata == want.metadata) &&
         (!format.shares_rows || have.group_rows == want.group_rows);
}

}  // namespace

Result<Certificate> sum_checkpoints(const Checkpoint& source, const Checkpoint& target,
                                    Context& context, std::string_view command) {
  Certificate certificate;
  certificate.source_checkpoint = &source;
  certificate.target_checkpoint = &target;
  PACKSTONE_TRY(const std::uint64_t source_bytes, certificate_side_bytes(source, {}));
  PACKSTONE_TRY(const std::uint64_t target_bytes, certificate_side_bytes(target, left_out(target)));
  Progress progress(context, "hashing", source_bytes + target_bytes);
  PACKSTONE_TRY(certificate.source, sum_side(source, {}, progress, context, command));
  PACKSTONE_TRY(certificate.target, sum_side(target, left_out(target), progress, context, command));
  progress.finish();
  return certificate;
}

Result<std::vector<TensorPlan>> plan_pairs(const Checkpoint& source, const Checkpoint& target,
                                           Context& context, std::string_view command) {
  std::vector<TensorPlan> plans;
  const ChannelMoves moves(source, [&](const CheckpointTensor& tensor) {
    const CheckpointTensor* other = target.find(tensor.name);
    return other != nullptr && needs_sorting(tensor.weight, other->weight.id());
  });
  Progress progress(context, "proving", source.bytes());
  for (const CheckpointTensor& tensor : source.tensors) {
    PACKSTONE_CHECK_OK(context.check_cancel(command));
    const CheckpointTensor* other = target.find(tensor.name);
    const auto refuse = [&](std::string_view got, std::string_view need,
                            std::string_view hint = {}) {
      return fail(ErrorCode::kNotRepresentable, fmt::format("cli.{}", command),
                  fmt::format("'{}'", tensor.name), got, need, hint);
    };
    if (other == nullptr) return refuse("no such tensor in the target", "every tensor");
    if (other->shape != tensor.shape) return refuse("another shape in the target", "the same");
    plans.push_back(plan_pair(tensor, other->weight.id(), target.container, moves, context));
    const TensorPlan& plan = plans.back();
    if (plan.plan.verdict == Verdict::kRefused)
      return refuse("values that change", "an exact move", plan.plan.reason);
    if (!same_params(other->weight, plan))
      return refuse(
          fmt::format("{} in the target", layout_text(other->weight.id(), other->weight.params())),
          fmt::format("{}, as convert makes it", layout_text(plan.target.id, plan.plan.params)));
    progress.add(tensor.weight.bytes());
  }
  for (const CheckpointTensor& tensor : target.tensors)
    if (source.find(tensor.name) == nullptr)
      return fail(ErrorCode::kNotRepresentable, fmt::format("cli.{}", command),
                  fmt::format("'{}'", tensor.name), "no such tensor in the source",
                  "the source's tensors alone");
  progress.finish();
  return plans;
}

Status complete_certificate(Certificate& certificate, const std::vector<TensorPlan>& plans) {
  std::vector<OutputTensor> outputs;
  for (const TensorPlan& plan : plans) {
    const CheckpointTensor* target = certificate.target_checkpoint->find(plan.source->name);
    if (target == nullptr)
      return fail(ErrorCode::kIo, "cli.certificate", fmt::format("'{}'", plan.source->name),
                  "no such tensor in the output", "the tensors that were written");
    certificate.tensors.push_back(
        {plan.source, target, verdict_name(plan.plan.verdict), plan.plan.conditions});
    outputs.push_back(
        {plan.source->name, plan.source->shape, target->weight.id(), target->weight.params()});
  }
  certificate.worst_verdict = verdict_name(worst_verdict(plans));
  const Checkpoint& source = *certificate.source_checkpoint;
  PACKSTONE_TRY(certificate.described,
                described_pairs(source, *certificate.target_checkpoint, "certificate"));
  PACKSTONE_TRY(MetadataReport report,
                CheckpointWriter::report(certificate.target.container, source, std::move(outputs),
                                         {.carry_described = !certificate.described.empty()}));
  certificate.not_carried = std::move(report.not_carried);
  return {};
}

}  // namespace packstone::cli
