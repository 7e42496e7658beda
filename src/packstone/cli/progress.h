// How far a long command is: a bar with the time left on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "packstone/cli/command.h"

namespace packstone::cli {

// Written to err only. On a terminal the line is redrawn at most ten times a second; elsewhere a
// line is printed at each tenth of the work, at most one a second, and at the end.
class Progress {
 public:
  Progress(Context& context, std::string label, std::uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(std::uint64_t amount);
  // Draws the end; later calls do nothing. Called by the destructor as well: then the work did not
  // come to its end and the bar is only wiped.
  void finish();

 private:
  void draw(bool last);
  Context& context_;
  std::string label_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::uint64_t tenth_ = 0;
  bool finished_ = false;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace packstone::cli
