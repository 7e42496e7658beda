// Assertions for programmer errors only; data from outside never reaches one.
#pragma once

namespace packstone {

// Prints the condition and its place on stderr and ends the process. The only function of the
// library that prints or aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace packstone

#if defined(PACKSTONE_ASSERTS)
#define PACKSTONE_ASSERT(condition) \
  ((condition) ? void(0) : ::packstone::check_failed(#condition, __FILE__, __LINE__))
#else
#define PACKSTONE_ASSERT(condition) ((void)sizeof(condition))
#endif
