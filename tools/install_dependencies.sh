#!/bin/sh
# Installs the Debian packages that are missing; does nothing, fast, when all are there.
#   tools/install_dependencies.sh          what building and testing need
#   tools/install_dependencies.sh --demo   what demo.sh needs
set -eu

demo="build-essential cmake ninja-build ccache pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev
  libpcre2-dev libicu-dev libssl-dev python3 python3-pip unzip ca-certificates"
tests="libgtest-dev python3-venv g++-aarch64-linux-gnu qemu-user
  clang-19 libclang-rt-19-dev libopenblas0-pthread git"

packages="$demo $tests"
if [ "${1:-}" = --demo ]; then packages="$demo"; fi

if ! command -v dpkg-query >/dev/null; then
  echo "install_dependencies: this is not a Debian system; install by hand: $(echo $packages)" >&2
  exit 1
fi

missing=""
installed=" $(dpkg-query -W -f '${db:Status-Abbrev}${Package} ' $packages 2>/dev/null || true) "
for package in $packages; do
  case "$installed" in
    *"ii $package "*) ;;
    *) missing="$missing $package" ;;
  esac
done
if [ -z "$missing" ]; then exit 0; fi

root=""
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_dependencies: these packages are missing:$missing" >&2
    echo "install_dependencies: run as root, or install sudo, or have them installed" >&2
    exit 1
  fi
  root="sudo"
fi

echo "installing:$missing" >&2
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
apt() {
  $root env DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends \
    -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1
}
# The package lists are fetched only when the ones at hand do not lead to the packages.
if ! apt install $missing; then
  if ! apt update || ! apt install $missing; then
    cat "$log" >&2
    echo "install_dependencies: apt-get failed; is there a network, and a Debian 12 source?" >&2
    exit 1
  fi
fi
