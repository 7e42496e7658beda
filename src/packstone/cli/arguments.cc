#include "packstone/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

namespace packstone::cli {
namespace {

constexpr int kThreadsMax = 1024;
// Names and options are short; longer words only cost time.
constexpr std::size_t kWordMax = 64;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kWordMax);
  b = b.substr(0, kWordMax);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string where(const CLI::App& app) {
  std::string name = app.get_name();
  constexpr std::string_view kProgram = "packstone ";
  if (name.starts_with(kProgram)) name.erase(0, kProgram.size());
  std::ranges::replace(name, ' ', '_');
  return "cli." + name;
}

std::unexpected<Error> unknown_argument(const CLI::App& app,
                                        const std::vector<std::string>& extras) {
  const auto option =
      std::ranges::find_if(extras, [](const std::string& e) { return e.starts_with('-'); });
  if (option == extras.end())
    return fail(ErrorCode::kInvalidInput, where(app), "argument", "`" + extras.front() + "`",
                "no more arguments", app.get_name() + " --help tells them");
  const std::string word = option->substr(0, option->find('='));
  const std::vector<std::string> names = option_names(app);
  const std::vector<std::string_view> views(names.begin(), names.end());
  return fail(ErrorCode::kInvalidInput, where(app), "unknown option", "`" + word + "`",
              "an option of this command",
              fmt::format("the nearest is `{}`", nearest_name(word, views)));
}

// The parser's own check would let hexadecimal numbers, blanks and wrapped values pass.
template <class T>
CLI::Validator number_in(T low, T high) {
  const auto check = [low, high](const std::string& word) {
    T number{};
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, number);
    if (error == std::errc() && stop == end && number >= low && number <= high)
      return std::string();
    return fmt::format("`{}`, need a{} number from {} to {}", word,
                       std::is_integral_v<T> ? " whole" : "", low, high);
  };
  return {check, fmt::format("{} to {}", low, high), "number"};
}

// An option without its value, or with several or a wrong one; a missing positional.
std::unexpected<Error> bad_argument(const CLI::App& app, const CLI::ParseError& error) {
  const std::string hint = app.get_name() + " --help tells the options";
  const std::string text = error.what();
  if (error.get_name() == "RequiredError")
    return fail(ErrorCode::kInvalidInput, where(app), "arguments", "too few", text, hint);
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos)
    return fail(ErrorCode::kInvalidInput, where(app), "arguments", text, "a valid call", hint);
  const std::string_view got = std::string_view(text).substr(colon + 2);
  const bool says_need = error.get_name() == "ValidationError";
  return fail(ErrorCode::kInvalidInput, where(app), text.substr(0, colon), got,
              says_need ? "" : "the option once, with one value", hint);
}

Status check_device(const CLI::App& app, const std::string& device) {
  if (device == "cpu" || device == "auto") return {};
  if (device == "cuda" || device.starts_with("cuda:"))
    return fail(ErrorCode::kUnsupported, where(app), "--device", "`" + device + "`", "cpu or auto",
                "this build has no CUDA kernels");
  constexpr std::string_view kDevices[] = {"cpu", "auto", "cuda"};
  return fail(ErrorCode::kInvalidInput, where(app), "--device", "`" + device + "`", "cpu or auto",
              fmt::format("the nearest is `{}`", nearest_name(device, kDevices)));
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> choices) {
  return *std::ranges::min_element(choices, {},
                                   [&](std::string_view c) { return edit_distance(name, c); });
}

std::unexpected<Error> no_effect(std::string_view command, std::string_view option,
                                 std::string_view because, std::string_view hint) {
  return fail(ErrorCode::kInvalidInput, command, option,
              fmt::format("an option without effect ({})", because), "the call without it", hint);
}

std::unexpected<Error> no_choice(std::string_view command, std::string_view option,
                                 std::string_view got, std::span<const std::string_view> choices) {
  std::string need;
  for (std::string_view choice : choices)
    need += fmt::format("{}{}", need.empty() ? "" : "|", choice);
  return fail(ErrorCode::kInvalidInput, command, option, fmt::format("`{}`", got), need,
              fmt::format("the nearest is `{}`", nearest_name(got, choices)));
}

struct Options::State {
  explicit State(std::string_view command, std::string_view description)
      : app(std::string(description), fmt::format("packstone {}", command)) {}
  CLI::App app;
};

Options::Options(std::string_view command, std::string_view description)
    : state_(std::make_unique<State>(command, description)) {}
Options::~Options() = default;

void Options::positional(const char* name, std::string& value, const char* help) {
  state_->app.add_option(name, value, help)->required();
}
void Options::required(const char* name, std::string& value, const char* help) {
  state_->app.add_option(name, value, help)->required();
}
void Options::text(const char* name, std::string& value, const char* help) {
  state_->app.add_option(name, value, help);
}
void Options::texts(const char* name, std::vector<std::string>& values, const char* help) {
  state_->app.add_option(name, values, help)->expected(1)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);
}
void Options::flag(const char* name, bool& value, const char* help) {
  state_->app.add_flag(name, value, help)->disable_flag_override();
}
void Options::number(const char* name, int& value, int low, int high, const char* help) {
  state_->app.add_option(name, value, help)->check(number_in<std::int64_t>(low, high));
}
void Options::number(const char* name, std::int64_t& value, std::int64_t low, std::int64_t high,
                     const char* help) {
  state_->app.add_option(name, value, help)->check(number_in(low, high));
}
void Options::number(const char* name, std::uint64_t& value, const char* help) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  state_->app.add_option(name, value, help)->check(number_in(std::uint64_t{0}, kMax));
}
void Options::number(const char* name, float& value, float low, float high, const char* help) {
  state_->app.add_option(name, value, help)->check(number_in(low, high));
}
void Options::hide(const char* name) {
  state_->app.get_option(name)->group("");
}
bool Options::given(const char* name) const {
  return state_->app.count(name) > 0;
}

Result<Parsed> Options::parse(Arguments arguments, Context& context) {
  CLI::App& app = state_->app;
  std::string device = "auto";
  app.add_flag("--json", context.json, "one JSON document on standard output")
      ->disable_flag_override();
  app.add_option("--threads", context.threads, "threads to compute with")
      ->check(number_in<std::int64_t>(1, kThreadsMax));
  app.add_option("--device", device, "cpu or auto");
  app.allow_extras();
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11's order
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    context.out << app.help();
    return Parsed::kHelpShown;
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> extras = app.remaining();
    if (std::ranges::any_of(extras, [](const std::string& e) { return e.starts_with('-'); }))
      return unknown_argument(app, extras);
    return bad_argument(app, error);
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty())
    return unknown_argument(app, extras);
  PACKSTONE_CHECK_OK(check_device(app, device));
  return Parsed::kRun;
}

}  // namespace packstone::cli
