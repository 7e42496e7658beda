// Modules of layouts without a format (EXL3, ParoQuant) in the commands: they are copied, compared
// and certified byte for byte, and no more.
#pragma once

#include <string>
#include <vector>

#include "packstone/checkpoint/certificate.h"
#include "packstone/cli/layouts.h"

namespace packstone::cli {

// check_described_move(source, layout, command): a source with such modules goes only to their own
// layout, and that layout takes no other source.
// Errors: kUnsupported naming a module and what would work, or tensors without any form.
Status check_described_move(const Checkpoint& source, const LayoutTarget& layout,
                            std::string_view command);

// require_comparable(checkpoint, where): kUnsupported for tensors that are neither formats nor such
// modules.
Status require_comparable(const Checkpoint& checkpoint, std::string_view where);

// described_pairs(source, target, command): the modules of both sides by name.
// Errors: kNotRepresentable naming a module that one side lacks or that differs in a byte.
Result<std::vector<DescribedPair>> described_pairs(const Checkpoint& source,
                                                   const Checkpoint& target,
                                                   std::string_view command);

}  // namespace packstone::cli
