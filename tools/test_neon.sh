#!/bin/sh
# Builds the NEON kernels for AArch64 and runs their check under qemu. Needs g++-12-aarch64-linux-gnu
# and qemu-user. Usage: tools/test_neon.sh [build folder]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/neon}
compiler=${CXX_AARCH64:-aarch64-linux-gnu-g++-12}
mkdir -p "$build"
cd "$build"
objects=
for source in "$root"/tools/neon_check.cc $(find "$root"/src/packstone/base "$root"/src/packstone/format \
    "$root"/src/packstone/transcode "$root"/src/packstone/kernel -name '*.cc' \
    ! -name '*_test.cc' ! -name '*_bench.cc' ! -name pch.cc | sort); do
  object=$(echo "${source#"$root"/}" | tr / _).o
  # Older than any header: build again.
  if [ ! -e "$object" ] || [ -n "$(find "$root/src" "$root/tools" -newer "$object" \( -name '*.h' -o -name '*.inc' \) -print -quit)" ] \
      || [ "$source" -nt "$object" ]; then
    $compiler -std=c++23 -O1 -I"$root/src" -idirafter /usr/include -DFMT_HEADER_ONLY -Wall -Wextra \
      -ffp-contract=off -fno-math-errno -c "$source" -o "$object"
  fi
  objects="$objects $object"
done
$compiler $objects -static -pthread -o neon_check
qemu-aarch64 ./neon_check
