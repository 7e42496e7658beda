// packstone verify: a certificate made anew from the two checkpoints, and compared bit by bit.
#include <chrono>

#include "packstone/base/limits.h"
#include "packstone/cli/arguments.h"
#include "packstone/cli/certificate.h"
#include "packstone/cli/compare.h"
#include "packstone/cli/described.h"
#include "packstone/cli/output.h"
#include "packstone/cli/process.h"
#include "packstone/cli/progress.h"
#include "packstone/cli/verify_source.h"
#include "packstone/container/file_map.h"
#include "packstone/container/folder_files.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

// The certificate of 100,000 tensors has about 100 MB.
constexpr std::uint64_t kCertificateBytesMax = 500'000'000;
constexpr std::size_t kProblemsMax = 100;

struct Problem {
  std::string at;  // member of the certificate, or a tensor
  std::string recorded, found;
};

struct Verification {
  Json document;  // the certificate as read
  std::string text;
  fs::path certificate, source;
  std::vector<Problem> problems;
  std::size_t problem_count = 0;
  bool values_compared = false;

  void add(std::string at, std::string recorded, std::string found) {
    if (problem_count++ < kProblemsMax)
      problems.push_back({std::move(at), std::move(recorded), std::move(found)});
  }
};

std::string excerpt(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  return json_line(value);
}

// Names the members in which two documents differ. Depth is bounded: one side is ours.
void compare_documents(const Json& recorded, const Json& found, const std::string& path,
                       Verification& verification) {
  if (recorded == found && recorded.type() == found.type()) return;
  if (recorded.is_object() && found.is_object()) {
    for (const auto& [name, value] : found.items()) {
      const std::string at = path.empty() ? name : path + "." + name;
      const auto other = recorded.find(name);
      if (other == recorded.end())
        verification.add(at, "nothing", excerpt(value));
      else
        compare_documents(*other, value, at, verification);
    }
    for (const auto& [name, value] : recorded.items())
      if (!found.contains(name))
        verification.add(path.empty() ? name : path + "." + name, excerpt(value), "nothing");
    return;
  }
  if (recorded.is_array() && found.is_array()) {
    if (recorded.size() != found.size()) verification.add(path, excerpt(recorded), excerpt(found));
    for (std::size_t i = 0; i < std::min(recorded.size(), found.size()); ++i)
      compare_documents(recorded[i], found[i], fmt::format("{}[{}]", path, i), verification);
    return;
  }
  verification.add(path, excerpt(recorded), excerpt(found));
}

// Every value of every pair, decoded from both sides, of a joint move in its order; and the way
// back where it is claimed. Shapes: plans[i] is that of pairs[i].
Status compare_pairs(const std::vector<CertificatePair>& pairs,
                     const std::vector<TensorPlan>& plans, Verification& verification,
                     Context& context) {
  std::uint64_t bytes = 0;
  for (const CertificatePair& pair : pairs) bytes += pair.source->weight.bytes();
  Progress progress(context, "comparing", bytes);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const CertificatePair& pair = pairs[i];
    PACKSTONE_CHECK_OK(context.check_cancel("verify"));
    PACKSTONE_TRY(const ValueComparison values,
                  compare_tensors(*pair.source, plans[i].channels, *pair.target, context.pool()));
    if (!values.same_values)
      verification.add(pair.source->name, "equal values",
                       fmt::format("a difference of {:.9g} at row {}, column {}", values.max_abs,
                                   values.row, values.col));
    if (pair.verdict == verdict_name(Verdict::kSameBytes)) {
      const std::string fault = way_back_fault(*pair.source, *pair.target, context.pool());
      if (!fault.empty())
        verification.add(pair.source->name, "the source's bytes on the way back", fault);
    }
    progress.add(pair.source->weight.bytes());
  }
  progress.finish();
  verification.values_compared = true;
  return {};
}

// Our own document as a reader of its text gets it: kinds of numbers and bytes of names alike.
Json as_read(const std::string& text) {
  return Json::parse(text, nullptr, false);
}

// The sums first: where they differ, verdicts about other bytes would say nothing.
Status compare_sums(const Certificate& certificate, Verification& verification) {
  const Json found = as_read(certificate_text(certificate_json(certificate)));
  for (const char* side : {"source", "target"})
    compare_documents(verification.document[side], found[side], side, verification);
  return {};
}

Status recompute(const Checkpoint& source, const Checkpoint& target, Verification& verification,
                 Context& context) {
  PACKSTONE_TRY(Certificate certificate, sum_checkpoints(source, target, context, "verify"));
  PACKSTONE_CHECK_OK(compare_sums(certificate, verification));
  if (verification.problem_count > 0) return {};
  Result<std::vector<TensorPlan>> plans = plan_pairs(source, target, context, "verify");
  if (!plans && plans.error().code == ErrorCode::kNotRepresentable) {
    verification.add("tensors", "an exact move of each", plans.error().message);
    return {};
  }
  if (!plans) return std::unexpected(std::move(plans).error());
  const Status completed = complete_certificate(certificate, *plans);
  if (!completed && completed.error().code == ErrorCode::kNotRepresentable) {
    verification.add("tensors", "the same modules", completed.error().message);
    return {};
  }
  PACKSTONE_CHECK_OK(completed);
  const std::string text = certificate_text(certificate_json(certificate));
  compare_documents(verification.document, as_read(text), {}, verification);
  if (verification.problem_count == 0 && text != verification.text)
    verification.add("text", "members in another order or form", "the text that convert writes");
  return compare_pairs(certificate.tensors, *plans, verification, context);
}

Json verification_json(const Verification& verification) {
  const Json& recorded = verification.document;
  Json json;
  json["holds"] = verification.problem_count == 0;
  json["certificate"] = verification.certificate.string();
  json["source"] = verification.source.string();
  json["source_sha256"] = recorded["source"]["sha256"];
  json["target_sha256"] = recorded["target"]["sha256"];
  json["worst_verdict"] = recorded["worst_verdict"];
  json["values_compared"] = verification.values_compared;
  Json tensors = Json::array();
  for (const Json& tensor : recorded["tensors"]) {
    Json one;
    one["name"] = tensor["name"];
    one["from"] = tensor["source"]["layout"];
    one["to"] = tensor["target"]["layout"];
    one["verdict"] = tensor["verdict"];
    one["conditions"] = tensor["conditions"];
    tensors.push_back(std::move(one));
  }
  json["tensors"] = std::move(tensors);
  Json problems = Json::array();
  for (const Problem& problem : verification.problems) {
    Json one;
    one["at"] = problem.at;
    one["recorded"] = problem.recorded;
    one["found"] = problem.found;
    problems.push_back(std::move(one));
  }
  json["problems"] = std::move(problems);
  json["problem_count"] = verification.problem_count;
  return json;
}

void print_verification(std::ostream& out, const Verification& verification) {
  for (const Problem& problem : verification.problems)
    out << fmt::format("{}: the certificate says {}, the files say {}\n", line_text(problem.at),
                       line_text(problem.recorded), line_text(problem.found));
  if (verification.problem_count > verification.problems.size())
    out << fmt::format("and {} more\n", verification.problem_count - verification.problems.size());
  if (verification.problem_count > 0) return;
  std::map<std::string, std::size_t> counts;
  const Json& tensors = verification.document["tensors"];
  for (const Json& tensor : tensors) ++counts[tensor["verdict"].get<std::string>()];
  for (const auto& [verdict, count] : counts)
    out << fmt::format("{:>5} tensors  {}\n", count, verdict);
  out << fmt::format("the certificate holds: every byte, value and verdict of {} tensors\n",
                     tensors.size());
}

int report(const Verification& verification, double seconds, Context& context) {
  const bool holds = verification.problem_count == 0;
  Error error;
  if (!holds) {
    error = fail(ErrorCode::kNotRepresentable, "cli.verify",
                 line_text(verification.certificate.string()),
                 fmt::format("{} differences from the files", verification.problem_count), "none")
                .error();
    context.err << error.message << '\n';
  }
  if (!context.json) {
    print_verification(context.out, verification);
    return holds ? 0 : 3;
  }
  Json document = verification_json(verification);
  document["peak_memory_measured"] = peak_rss_bytes();
  document["seconds"] = seconds;
  if (!holds) document["error"] = error_json(error);
  print_json(context.out, document);
  return holds ? 0 : 3;
}

// The checkpoint of a side. One that is there and lacks a file is damaged; one that is not there is
// a wrong call; one of a kind that no convert reads is not what was converted, and nothing is
// returned if a file of it has changed: the verification then names the files.
Result<std::optional<Checkpoint>> open_side(const char* side, const fs::path& path,
                                            Verification& verification, Context& context) {
  Result<Checkpoint> checkpoint = open_checkpoint(path);
  if (checkpoint) {
    const Status comparable = require_comparable(*checkpoint, "cli.verify");
    if (comparable) return std::optional<Checkpoint>(*std::move(checkpoint));
    checkpoint = std::unexpected(comparable.error());
  }
  std::error_code error;
  if (checkpoint.error().code == ErrorCode::kNotFound && fs::exists(path, error))
    checkpoint.error().code = ErrorCode::kCorruptData;
  if (checkpoint.error().code == ErrorCode::kUnsupported) {
    PACKSTONE_TRY(const std::vector<std::string> changed,
                  changed_files(verification.document[side], path, context));
    for (const std::string& name : changed)
      verification.add(fmt::format("{}.files: {}", side, name), "another sum",
                       "a file that has changed");
    if (!changed.empty()) return std::optional<Checkpoint>();
  }
  return std::unexpected(std::move(checkpoint).error());
}

Status read_certificate(const std::string& target, const std::string& asked,
                        Verification& verification) {
  std::error_code error;
  const ContainerKind kind =
      fs::is_directory(target, error) ? ContainerKind::kFolder : ContainerKind::kGguf;
  verification.certificate = asked.empty() ? certificate_path(target, kind) : fs::path(asked);
  const bool in_folder = asked.empty() && kind == ContainerKind::kFolder;
  PACKSTONE_TRY(verification.text,
                in_folder ? internal::read_folder_text("cli.verify", target, kCertificateName,
                                                       kCertificateBytesMax)
                          : read_text(verification.certificate, kCertificateBytesMax));
  PACKSTONE_TRY(verification.document,
                parse_certificate(verification.text, verification.certificate.string()));
  return {};
}

}  // namespace

Result<int> run_verify(Arguments arguments, Context& context) {
  Options app("verify",
              "Recomputes the certificate of a convert from the two checkpoints alone: the sum of "
              "every file and of every stored tensor, the layouts of each pair, every decoded "
              "value, and every verdict, making the way back where it says same_bytes and sorting "
              "act-order where it says so. Exit 0 only "
              "when all of it holds, 3 when anything differs, one bit or one file, 4 when the "
              "certificate or a checkpoint is damaged.");
  std::string destination, against, certificate;
  app.positional("DST", destination, "GGUF file or folder that convert wrote");
  app.text("--against", against,
           "SRC, what was converted; without it SRC is looked for beside DST, by its bytes");
  app.text("--certificate", certificate, "the certificate, when it is not where convert put it");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  const auto start = std::chrono::steady_clock::now();
  Verification verification;
  PACKSTONE_CHECK_OK(read_certificate(destination, certificate, verification));
  PACKSTONE_TRY(const std::optional<Checkpoint> target,
                open_side("target", destination, verification, context));
  if (against.empty()) {
    PACKSTONE_TRY(verification.source,
                  find_source(verification.document["source"], destination, context));
  } else {
    verification.source = against;
  }
  PACKSTONE_TRY(const std::optional<Checkpoint> source,
                open_side("source", verification.source, verification, context));
  if (source && target)
    PACKSTONE_CHECK_OK(recompute(*source, *target, verification, context));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return report(verification, seconds.count(), context);
}

}  // namespace packstone::cli
