// The certificate of a conversion, made from the two checkpoints; shared by convert and verify.
#pragma once

#include "packstone/checkpoint/certificate.h"
#include "packstone/cli/conversion.h"

namespace packstone::cli {

// Certificate of `source` and `target` with nothing in it but the sums of their bytes.
// Errors: those of certificate_side; kCancelled.
Result<Certificate> sum_checkpoints(const Checkpoint& source, const Checkpoint& target,
                                    Context& context, std::string_view command);

// The source's tensors in the form that the target has, as convert plans them: `tensors[i]` is for
// source.tensors[i]. Reads every parameter, and codes where the verdict depends on them.
// Errors: kNotRepresentable when a tensor's pair is missing or is none that convert makes;
// kCancelled.
Result<std::vector<TensorPlan>> plan_pairs(const Checkpoint& source, const Checkpoint& target,
                                           Context& context, std::string_view command);

// complete_certificate(certificate, plans): the pairs, their verdicts, and what was not carried.
// Errors: those of plan_pairs for a missing tensor; those of described_pairs and of
// CheckpointWriter::report.
Status complete_certificate(Certificate& certificate, const std::vector<TensorPlan>& plans);

}  // namespace packstone::cli
