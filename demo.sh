#!/bin/sh
# Shows the whole of Packstone on a real model: installs what is missing, builds, gets
# SmolLM2-135M-Instruct, converts it exactly, quantizes it, generates, measures, and prints a table.
# The second run reuses the build and the model. Outputs: .cache/demo.
set -eu
cd "$(dirname "$0")"

models=.cache/models
out=.cache/demo
model=$models/SmolLM2-135M-Instruct.Q4_1.gguf
packstone=build/release/packstone
text_bytes=20480  # of the GPL-3: 8 windows of 512 tokens
jobs=$(nproc)
tokens=48
prompt='<|im_start|>user
What is the capital of France, and what is it known for?<|im_end|>
<|im_start|>assistant
'

say() { printf '\n== %s\n' "$*"; }
run() {  # progress goes to a file, which is shown when the command fails
  status=0
  "$@" 2>"$out/last.err" || status=$?
  if [ $status != 0 ]; then
    cat "$out/last.err" >&2
    echo "demo: exit code $status from: $*" >&2
    exit 1
  fi
}
show() {  # prints the command, then runs it; its output is shown, shortened
  printf '$ %s\n' "$*"
  run "$@" >"$out/last.txt"
  sed -n '1,14p' "$out/last.txt"
  lines=$(wc -l <"$out/last.txt")
  if [ "$lines" -gt 14 ]; then echo "... ($((lines - 14)) more lines)"; fi
}

say "Setting up"
tools/install_dependencies.sh --demo
mkdir -p .cache
build() { cmake --preset release && ninja -C build/release -j"$jobs" packstone; }
if ! build >.cache/build.log 2>&1; then
  tail -30 .cache/build.log >&2
  echo "demo: the build failed; the whole log is .cache/build.log" >&2
  exit 1
fi
tools/get_models.sh "$models" smollm2
rm -rf "$out"
mkdir -p "$out"
head -c "$text_bytes" /usr/share/common-licenses/GPL-3 >"$out/text.txt"
echo "built $packstone; the model is $model"

say "What is in the model"
show "$packstone" inspect "$model"

say "An exact move to an MLX checkpoint: every value stays, and diff proves it"
show "$packstone" convert "$model" "$out/mlx" --to mlx-affine
show "$packstone" diff "$model" "$out/mlx"
show "$packstone" verify "$out/mlx" --against "$model"

say "And back to GGUF"
show "$packstone" convert "$out/mlx" "$out/back.gguf" --to gguf:Q4_1
show "$packstone" diff "$model" "$out/back.gguf"

say "Quantizing to 8 and 4 bits in groups of 64: values change, and the report says by how much"
for bits in 8 4; do
  show "$packstone" quantize "$model" "$out/w$bits" --method rtn --to mlx-affine \
    --bits $bits --group-size 64
done

say "An answer from each packed checkpoint, and perplexity and KL divergence against the original"
names="original mlx back.gguf w8 w4"
for name in $names; do
  if [ $name = original ]; then path=$model; else path=$out/$name; fi
  run "$packstone" inspect "$path" --json >"$out/inspect-$name.json"
  run "$packstone" generate "$path" -p "$prompt" --max-tokens $tokens --json \
    >"$out/generate-$name.json"
  python3 tools/demo_table.py answer "$name" "$out/generate-$name.json"
  case $name in
    original)
      run "$packstone" eval ppl "$path" --text "$out/text.txt" --json >"$out/eval-$name.json"
      ;;
    back.gguf) ;;
    *)
      run "$packstone" eval kld "$path" --against "$model" --text "$out/text.txt" --json \
        >"$out/eval-$name.json"
      ;;
  esac
done

say "Result"
python3 tools/demo_table.py table "$out" $names
