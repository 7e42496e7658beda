// Parsing of a command's options, in the house's error form. CLI11 stays inside.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include <string_view>

#include "packstone/cli/command.h"

namespace packstone::cli {

enum class Parsed { kRun, kHelpShown };

// The options of one command. Names are given with their dashes ("--to", "-p,--prompt"); variables
// must outlive parse and keep their value when the option is not given.
class Options {
 public:
  // `command` as in the table of commands: "eval ppl".
  Options(std::string_view command, std::string_view description);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  void positional(const char* name, std::string& value, const char* help);  // required
  void required(const char* name, std::string& value, const char* help);
  void text(const char* name, std::string& value, const char* help);
  // May be given several times; each takes one text.
  void texts(const char* name, std::vector<std::string>& values, const char* help);
  void flag(const char* name, bool& value, const char* help);
  // Numbers in [low, high].
  void number(const char* name, int& value, int low, int high, const char* help);
  void number(const char* name, std::int64_t& value, std::int64_t low, std::int64_t high,
              const char* help);
  void number(const char* name, std::uint64_t& value, const char* help);
  void number(const char* name, float& value, float low, float high, const char* help);
  // Leaves an option out of --help.
  void hide(const char* name);

  // Whether the call has the option; after parse.
  bool given(const char* name) const;

  // parse(arguments, context) adds the options that every command has (--json, --threads, --device,
  // --help), parses, and fills the variables and the context.
  // Errors: kInvalidInput, for an unknown option with the nearest valid name; kUnsupported for a
  //         device that this build lacks.
  Result<Parsed> parse(Arguments arguments, Context& context);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The choice with the smallest edit distance to `name`; the first of equals. Choices not empty.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> choices);

// The error of an option that would have no effect. `command` as in "cli.eval_ppl".
std::unexpected<Error> no_effect(std::string_view command, std::string_view option,
                                 std::string_view because, std::string_view hint = {});

// The error of a value that is none of the choices.
std::unexpected<Error> no_choice(std::string_view command, std::string_view option,
                                 std::string_view got, std::span<const std::string_view> choices);

}  // namespace packstone::cli
