#include "packstone/cli/app.h"
#include "packstone/cli/conversion.h"
#include "packstone/cli/process.h"

namespace packstone::cli {
namespace {

void print_document(Context& context, const ConversionPlan& plan, Json document, double seconds,
                    const std::optional<Error>& error) {
  document["peak_memory_measured"] = peak_rss_bytes();
  document["seconds"] = seconds;
  if (error) document["error"] = error_json(*error);
  if (context.json)
    print_json(context.out, document);
  else if (!error)
    print_conversion(context.out, plan, false);
}

}  // namespace

Result<int> finish_conversion(const Checkpoint& source, ConversionPlan& plan,
                              const std::string& destination, bool force,
                              std::chrono::steady_clock::time_point start, Context& context,
                              std::string_view command) {
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  if (plan.refused()) {
    const Error error = refusal(command, plan);
    context.err << message_text(error.message) << '\n';
    print_document(context, plan, conversion_json(plan), seconds(), error);
    return exit_code(error.code);
  }
  context.err << fmt::format("predicted peak memory {}\n", bytes_text(plan.peak_memory_predicted));
  PACKSTONE_CHECK_OK(write_conversion(source, plan, destination, force, context, command));
  context.committed = true;
  print_document(context, plan, conversion_json(plan), seconds(), std::nullopt);
  context.err << fmt::format("measured peak memory {}, {:.1f} s\n", bytes_text(peak_rss_bytes()),
                             seconds());
  return 0;
}

}  // namespace packstone::cli
