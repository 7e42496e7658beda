// The same source compiled for several instruction sets, chosen when the program starts. Nothing is
// fused or reordered, so the bits are the same.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#  define PACKSTONE_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#  define PACKSTONE_CLONES
#endif
#define PACKSTONE_ALWAYS_INLINE [[gnu::always_inline]] inline
