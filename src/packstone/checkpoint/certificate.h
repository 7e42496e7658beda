// The certificate of an exact conversion: what both checkpoints store, and what every tensor's move
// keeps. A function of the two checkpoints alone; docs/CERTIFICATE.md describes the document.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/content_hash.h"

namespace packstone {

// The certificate's name inside a folder.
inline constexpr std::string_view kCertificateName = "packstone.certificate.json";

// certificate_path(target, kind): packstone.certificate.json in a folder, NAME.certificate.json
// beside a GGUF file NAME. Errors: none.
std::filesystem::path certificate_path(const std::filesystem::path& target, ContainerKind kind);

// What one checkpoint stores: every file and every stored tensor with its sum.
struct CertificateSide {
  ContainerKind container{};
  Architecture architecture{};
  std::vector<CheckpointFile> files;
  std::vector<std::string> file_sums;
  std::span<const TensorView> tensors;    // of the checkpoint, which must live
  std::vector<std::size_t> tensor_files;  // for each the index in `files`
  std::vector<std::string> tensor_sums;
};

// certificate_side(checkpoint, leave_out, pool, watch) reads every byte once for the files and once
// for the tensors. Errors: those of checkpoint_files and sha256_ranges.
Result<CertificateSide> certificate_side(const Checkpoint& checkpoint, std::string_view leave_out,
                                         ThreadPool& pool, const HashWatch& watch);

// Bytes that certificate_side reads. Errors: those of checkpoint_files.
Result<std::uint64_t> certificate_side_bytes(const Checkpoint& checkpoint,
                                             std::string_view leave_out);

// The sum over the lines "SUM  NAME\n" of the files: what `sha256sum` prints for them, summed.
std::string content_sum(const CertificateSide& side);

// A module of a layout without a format on both sides: the same tensors, byte for byte.
struct DescribedPair {
  const UnsupportedTensor* source = nullptr;
  const UnsupportedTensor* target = nullptr;
};

// One tensor on both sides, and what its move keeps.
struct CertificatePair {
  const CheckpointTensor* source = nullptr;
  const CheckpointTensor* target = nullptr;
  std::string_view verdict;
  std::vector<std::string> conditions;
};

struct Certificate {
  const Checkpoint* source_checkpoint = nullptr;
  const Checkpoint* target_checkpoint = nullptr;
  CertificateSide source, target;
  std::string_view worst_verdict;
  std::vector<CertificatePair> tensors;  // order of the source
  std::vector<DescribedPair> described;  // after them in the document
  std::vector<std::string> not_carried;
};

// certificate_json(certificate): the document, members in the order of the schema.
nlohmann::ordered_json certificate_json(const Certificate& certificate);

// The one text of a document: indented by two blanks, one newline at the end.
std::string certificate_text(const nlohmann::ordered_json& document);

// parse_certificate(text, file): a document with every member that the schema asks for and no
// other, each of its type.
// Errors: kCorruptData naming file and member, for broken JSON, deep nesting, a member twice, and
// every breach of the schema; kUnsupported for another version.
Result<nlohmann::ordered_json> parse_certificate(std::string_view text, std::string_view file);

}  // namespace packstone
