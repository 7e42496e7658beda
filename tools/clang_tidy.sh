#!/bin/sh
# Runs clang-tidy 19 with .clang-tidy on source files; slow, so not a part of test.sh.
#   tools/clang_tidy.sh            the .cc files that differ from the main branch
#   tools/clang_tidy.sh --all      every .cc file
#   tools/clang_tidy.sh FILE...    these
set -eu
cd "$(dirname "$0")/.."
if ! command -v clang-tidy-19 >/dev/null; then
  echo "clang_tidy: install the Debian package clang-tidy-19" >&2
  exit 1
fi
if [ ! -f build/dev/compile_commands.json ]; then cmake --preset dev >/dev/null; fi

# GCC's precompiled headers mean nothing to clang: the compile commands go without them.
mkdir -p build/tidy
sed -E 's/-Winvalid-pch|-include [^ ]*cmake_pch\.hxx//g' build/dev/compile_commands.json \
  >build/tidy/compile_commands.json

case "${1:-}" in
  "") files=$(git diff --name-only --diff-filter=d main -- 'src/*.cc') ;;
  --all) files=$(git ls-files 'src/*.cc') ;;
  *) files="$*" ;;
esac
files=$(printf '%s\n' $files | grep -v '/pch\.cc$' || true)
if [ -z "$files" ]; then echo "clang_tidy: no files"; exit 0; fi
printf '%s\n' $files | xargs -P "$(nproc)" -n 1 clang-tidy-19 --quiet -p build/tidy
