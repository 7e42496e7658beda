// What headers decide about a transcode: the map, the target's parameters, and what is ruled out
// whatever the values are.
#pragma once

#include <string>
#include <vector>

#include "packstone/transcode/row_map.h"
#include "packstone/transcode/transcode.h"

namespace packstone {

struct HeaderDecision {
  bool refused = false;
  std::string reason;  // of a refusal
  bool copy = false;   // same format, same parameters: the bytes as they are
  SchemeMap map = SchemeMap::kNone;
  std::vector<FormatParams> candidates;  // of the target, in order of preference
  bool way_back_possible = false;
  // The source has bits that codes and parameters do not carry, so that only making it again tells
  // whether the way back gives its bytes.
  bool way_back_in_full = false;
  // Only making the target tells whether it can have these codes and shared parameters.
  bool needs_trial = false;
};

// decide_from_headers(id, shape, params, target): everything but what depends on the values.
// Errors: none beyond a refusal in words. Cost: no byte of a weight is read.
HeaderDecision decide_from_headers(FormatId id, Shape shape, const FormatParams& params,
                                   const TranscodeTarget& target);

// table_layouts(format): " or a layout with its table (mxfp4, mlx-nvfp4)", the other layouts that
// keep the codes of a table format; empty when there are none. Errors: none.
std::string table_layouts(const FormatInfo& format);

// Whether the format stores scales and offsets in a type that FormatParams::metadata names.
bool has_metadata_type(FormatId id);

// The float type of a float format.
FloatType float_type(FormatId id);

}  // namespace packstone
