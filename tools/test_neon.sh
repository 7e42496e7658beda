#!/bin/sh
# Builds the NEON kernels for AArch64 and runs their check under qemu. Needs the Debian packages
# g++-aarch64-linux-gnu and qemu-user. Usage: tools/test_neon.sh [build folder]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/neon}
compiler=${CXX_AARCH64:-aarch64-linux-gnu-g++}
mkdir -p "$build"
cd "$build"

# The headers of fmt and nlohmann-json hold no machine code: the host's serve.
cat >compile.sh <<END
#!/bin/sh
object=\$(echo "\${1#"$root"/}" | tr / _).o
exec $compiler -std=c++23 -O1 -I"$root/src" -idirafter /usr/include -DFMT_HEADER_ONLY -Wall \\
  -Wextra -ffp-contract=off -fno-math-errno -c "\$1" -o "\$object"
END
chmod +x compile.sh

rooms="$root/src/packstone/base $root/src/packstone/format $root/src/packstone/transcode
  $root/src/packstone/kernel"
sources="$root/tools/neon_check.cc $(find $rooms -name '*.cc' ! -name '*_test.cc' \
  ! -name '*_bench.cc' ! -name pch.cc | sort)"
newest=$(find "$root/src" "$root/tools" \( -name '*.h' -o -name '*.inc' \) -printf '%T@ %p\n' |
  sort -rn | sed -n '1s/^[^ ]* //p')
stale=
objects=
for source in $sources; do
  object=$(echo "${source#"$root"/}" | tr / _).o
  objects="$objects $object"
  if [ ! "$object" -nt "$source" ] || [ ! "$object" -nt "$newest" ]; then
    rm -f "$object"
    stale="$stale $source"
  fi
done
if [ -n "$stale" ]; then printf '%s\n' $stale | xargs -P "$(nproc)" -n 1 ./compile.sh; fi
$compiler $objects -static -pthread -o neon_check
qemu-aarch64 ./neon_check
