// One vocabulary for what a result promises; used by docs, tests and registry rows.
#pragma once

namespace packstone {

enum class Exactness {
  kBitwise,    // same bits as the oracle
  kSameValue,  // same real numbers, another representation
  kRounded,    // the correctly rounded result, ties rule stated
  kBounded,    // error at most a stated formula
  kMeasured,   // no bound; number, data and date given
};

}  // namespace packstone
