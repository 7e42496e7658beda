#!/bin/sh
# Installs what is missing, builds, and runs every test. The last line is `N passed, N failed`.
#   ./test.sh                   everything
#   ./test.sh --only NAME...    only suites whose name contains one of the words (see --list)
#   ./test.sh --with-torch      also the programs of PyTorch (gigabytes of wheels)
set -eu
cd "$(dirname "$0")"
if ! tools/install_dependencies.sh; then
  echo "0 passed, 1 failed"
  exit 1
fi
exec python3 tools/run_tests.py "$@"
