#!/usr/bin/env python3
"""Measures what quantizing costs, ours beside other programs', and writes docs/quality.md.

usage: run.py --packstone BIN --python VENV_PYTHON --llama-bin FOLDER --model FOLDER
              --calibration TEXT --heldout TEXT --cache JSON [--work FOLDER] [--threads N]
              [--only NAME,...] [--write PAGE] [--page-only]

Every row quantizes the model with one method of one program, counts the bytes of the tensors in
what was written, and scores it with `packstone eval kld` against the original. All programs get the
same calibration text and are scored by the same evaluator on a text that is not in it. A finished
row is kept in --cache under the sums of the model and of both texts, so that a run that was stopped
goes on; what was written stays in --work. Rows run in the order of ROWS, the ones that a goal needs
first. --python needs mlx-lm, --llama-bin a folder with llama-quantize and llama-imatrix; a row
whose program is missing or fails is written as not measured, with the reason. Without
llama-quantize its quantizer is called through peer_ggml.py, which needs gguf and libggml-python.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys

SAMPLES = 64  # pieces of the calibration text, for every method that takes a number of pieces
GGML_SAMPLES = 16  # pieces for peer_ggml.py: column means settle sooner than full Hessians
LENGTH = 512  # tokens of a piece, of both ours and the peers'

# name, program, method, layout, bits, peer row that it is held against (ours only)
ROWS = [
    ("mlx4-gptq", "packstone", "gptq", "mlx-affine", 4, "mlx4-peer-gptq"),
    ("mlx4-peer-gptq", "mlx_lm", "gptq", "mlx-affine", 4, ""),
    ("mlx4-awq", "packstone", "awq", "mlx-affine", 4, "mlx4-peer-awq"),
    ("mlx4-peer-awq", "mlx_lm", "awq", "mlx-affine", 4, ""),
    ("q4k-gptq", "packstone", "gptq", "gguf:Q4_K", 4, "q4k-peer"),
    ("q4k-peer", "llama.cpp", "imatrix", "gguf:Q4_K", 4, ""),
    ("q3k-gptq", "packstone", "gptq", "gguf:Q3_K", 3, "q3k-peer"),
    ("q3k-peer", "llama.cpp", "imatrix", "gguf:Q3_K", 3, ""),
    ("q2k-gptq", "packstone", "gptq", "gguf:Q2_K", 2, "q2k-peer"),
    ("q2k-peer", "llama.cpp", "imatrix", "gguf:Q2_K", 2, ""),
    ("mlx3-gptq", "packstone", "gptq", "mlx-affine", 3, "mlx3-peer-awq"),
    ("mlx3-peer-awq", "mlx_lm", "awq", "mlx-affine", 3, ""),
    ("mlx3-awq", "packstone", "awq", "mlx-affine", 3, "mlx3-peer-awq"),
    ("mlx4-rtn", "packstone", "rtn", "mlx-affine", 4, "mlx4-peer-rtn"),
    ("mlx4-peer-rtn", "mlx_lm", "rtn", "mlx-affine", 4, ""),
    ("mlx3-rtn", "packstone", "rtn", "mlx-affine", 3, "mlx3-peer-rtn"),
    ("mlx3-peer-rtn", "mlx_lm", "rtn", "mlx-affine", 3, ""),
    ("q4k-rtn", "packstone", "rtn", "gguf:Q4_K", 4, "q4k-peer"),
    ("q3k-rtn", "packstone", "rtn", "gguf:Q3_K", 3, "q3k-peer"),
    ("q2k-rtn", "packstone", "rtn", "gguf:Q2_K", 2, "q2k-peer"),
]

MODULES = {"gptq": "mlx_lm.quant.gptq", "awq": "mlx_lm.quant.awq"}

# Bytes and elements of a block of the GGUF types that a file here can hold (ggml's type numbers).
BLOCKS = {0: (4, 1), 1: (2, 1), 30: (2, 1), 8: (34, 32), 10: (84, 256), 11: (110, 256),
          12: (144, 256), 13: (176, 256), 14: (210, 256)}


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def safetensors_headers(folder):
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with open(os.path.join(folder, name), "rb") as f:
                size = struct.unpack("<Q", f.read(8))[0]
                header = json.loads(f.read(size))
            header.pop("__metadata__", None)
            yield header


def parameters(folder):
    total = 0
    for header in safetensors_headers(folder):
        for tensor in header.values():
            count = 1
            for n in tensor["shape"]:
                count *= n
            total += count
    return total


def folder_bytes(folder):
    total = 0
    for header in safetensors_headers(folder):
        for tensor in header.values():
            total += tensor["data_offsets"][1] - tensor["data_offsets"][0]
    return total


class Reader:
    """Reads the metadata of a GGUF file of version 2 or 3, to get past it to its tensors."""

    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, file):
        self.file = file

    def number(self, form):
        return struct.unpack("<" + form, self.file.read(struct.calcsize("<" + form)))[0]

    def text(self):
        return self.file.read(self.number("Q")).decode("utf-8", "replace")

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip(inner)
        else:
            self.file.read(self.SIZES[kind])


def gguf_bytes(path):
    total = 0
    with open(path, "rb") as f:
        r = Reader(f)
        f.read(8)
        tensors, pairs = r.number("Q"), r.number("Q")
        for _ in range(pairs):
            r.text()
            r.skip(r.number("I"))
        for _ in range(tensors):
            r.text()
            count = 1
            for _ in range(r.number("I")):
                count *= r.number("Q")
            size, elements = BLOCKS[r.number("I")]
            r.number("Q")
            total += count // elements * size
    return total


class Bench:
    """One model, one pair of texts, the programs, and the rows that are done."""

    def __init__(self, args):
        self.args = args
        self.sums = {"model": sha256(os.path.join(args.model, "model.safetensors")),
                     "calibration": sha256(args.calibration), "heldout": sha256(args.heldout)}
        self.key = "-".join(value[:12] for value in self.sums.values())
        self.parameters = parameters(args.model)
        os.makedirs(args.work, exist_ok=True)

    def rows(self):
        if not os.path.exists(self.args.cache):
            return {}
        with open(self.args.cache, encoding="utf-8") as f:
            return json.load(f).get(self.key, {})

    def keep(self, name, row):
        # Two runs may share a cache, each with its own --only: what the other wrote stays.
        with open(self.args.cache + ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            everything = {}
            if os.path.exists(self.args.cache):
                with open(self.args.cache, encoding="utf-8") as f:
                    everything = json.load(f)
            everything.setdefault(self.key, {})[name] = row
            with open(self.args.cache + ".new", "w", encoding="utf-8") as f:
                json.dump(everything, f, indent=1, sort_keys=True)
                f.write("\n")
            os.replace(self.args.cache + ".new", self.args.cache)

    def call(self, command, env=None):
        done = subprocess.run(command, capture_output=True, check=False, env=env)
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
            program = os.path.basename(command[0])
            raise RuntimeError(f"{program} ended with {done.returncode}: {lines[-1]}")
        return done.stdout

    def ours(self, method, layout, bits, target):
        command = [self.args.packstone, "quantize", self.args.model, target, "--method", method,
                   "--to", layout, "--force", "--json", "--threads", str(self.args.threads)]
        if layout == "mlx-affine":
            command += ["--bits", str(bits), "--group-size", "64"]
        if method != "rtn":
            command += ["--calibration", self.args.calibration, "--samples", str(SAMPLES),
                        "--sequence-length", str(LENGTH)]
        self.call(command)

    def mlx(self, method, bits, target):
        shutil.rmtree(target, ignore_errors=True)
        if method == "rtn":
            self.call([self.args.python, "-m", "mlx_lm", "convert", "--hf-path", self.args.model,
                       "--mlx-path", target, "-q", "--q-bits", str(bits), "--q-group-size", "64"])
            return
        # mlx-lm reads its calibration text from a fixed place below the home folder.
        home = os.path.join(self.args.work, "home")
        cache = os.path.join(home, ".cache", "mlx-lm")
        os.makedirs(cache, exist_ok=True)
        shutil.copyfile(self.args.calibration, os.path.join(cache, "calibration_v5.txt"))
        same = "--fallback" if method == "gptq" else "--embed"
        command = [self.args.python, "-m", MODULES[method], "--model", self.args.model,
                   "--mlx-path", target, "--bits", str(bits), "--group-size", "64", same + "-bits",
                   str(bits), same + "-group-size", "64", "--num-samples", str(SAMPLES),
                   "--sequence-length", str(LENGTH)]
        self.call(command, {**os.environ, "HOME": home})

    def ggml(self, layout, source, target):
        """The same quantizer from a wheel, where llama.cpp's programs are not at hand."""
        template = os.path.join(self.args.work, "template.gguf")
        self.call([self.args.packstone, "quantize", self.args.model, template, "--method", "rtn",
                   "--to", layout, "--force"])
        helper = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_ggml.py")
        self.call([self.args.python, helper, self.args.model, self.args.calibration, template,
                   source, target, str(GGML_SAMPLES), str(LENGTH)])

    def llama(self, layout, target):
        source = os.path.join(self.args.work, "source.gguf")
        matrix = os.path.join(self.args.work, "imatrix.gguf")
        if not os.path.exists(source):
            self.call([self.args.packstone, "convert", self.args.model, source, "--to", "float32"])
        tool = os.path.join(self.args.llama_bin, "llama-")
        if not os.path.exists(tool + "quantize"):
            self.ggml(layout, source, target)
            return
        if not os.path.exists(matrix):
            self.call([tool + "imatrix", "-m", source, "-f", self.args.calibration, "-o", matrix,
                       "-c", str(LENGTH), "-t", str(self.args.threads)])
        # --pure gives the embeddings the same type as the rest; a plain name would mix in others.
        name = {"gguf:Q4_K": "Q4_K_S", "gguf:Q3_K": "Q3_K_S", "gguf:Q2_K": "Q2_K"}[layout]
        self.call([tool + "quantize", "--pure", "--imatrix", matrix, source, target, name,
                   str(self.args.threads)])

    def measure(self, row):
        name, program, method, layout, bits, _ = row
        is_gguf = layout.startswith("gguf:")
        target = os.path.join(self.args.work, name + (".gguf" if is_gguf else ""))
        # What an earlier run wrote to its end is scored without being made again.
        mark = f"{target}.{self.key}.written"
        if os.path.exists(mark):
            pass
        elif program == "packstone":
            self.ours(method, layout, bits, target)
        elif program == "mlx_lm":
            self.mlx(method, bits, target)
        else:
            self.llama(layout, target)
        with open(mark, "w", encoding="utf-8"):
            pass
        stored = gguf_bytes(target) if is_gguf else folder_bytes(target)
        score = json.loads(self.call([
            self.args.packstone, "eval", "kld", target, "--against", self.args.model, "--text",
            self.args.heldout, "--json", "--threads", str(self.args.threads)]))
        wanted = ("kld_mean", "kld_stderr", "kld_p99", "top1_agreement", "ppl", "ppl_against",
                  "tokens")
        return {"bits_per_weight": stored * 8 / self.parameters,
                **{key: score[key] for key in wanted if key in score}}


def cells(values):
    return "| " + " | ".join(values) + " |"


def line(row, done):
    _, program, method, layout, bits, peer = row
    start = [program, method, layout, str(bits)]
    got = done.get(row[0], {"failed": "not measured"})
    if "failed" in got:
        return cells(start + [got["failed"]] + [""] * 5)
    kld = f"{got['kld_mean']:.5f}"
    if "kld_stderr" in got:
        kld += f" +- {got['kld_stderr']:.5f}"
    ratio = ""
    if peer and "kld_mean" in done.get(peer, {}):
        ratio = f"{got['kld_mean'] / done[peer]['kld_mean']:.3f}"
    return cells(start + [f"{got['bits_per_weight']:.3f}", kld, f"{got['kld_p99']:.3f}",
                          f"{100 * got['top1_agreement']:.2f} %", f"{got['ppl']:.4f}", ratio])


def best(done, program, layout, bits):
    """The lowest mean divergence of a program in a layout, as text and value; None if none."""
    found = [(done[row[0]]["kld_mean"], row[2]) for row in ROWS
             if (row[1], row[3], row[4]) == (program, layout, bits)
             and "kld_mean" in done.get(row[0], {})]
    if not found:
        return "not measured", None
    value, method = min(found)
    return f"{method} {value:.5f}", value


def goal(done, layout, bits, peer, limit):
    """One line of the table of goals."""
    mine, theirs = best(done, "packstone", layout, bits), best(done, peer, layout, bits)
    title = f"{layout} {bits} bits, groups of 64" if layout == "mlx-affine" else layout
    ratio, met = "", ""
    if mine[1] is not None and theirs[1] is not None:
        ratio, met = f"{mine[1] / theirs[1]:.3f}", "yes" if mine[1] <= limit * theirs[1] else "no"
        # No verdict while a method that could turn it has no number: the peer's a yes, ours a no.
        side = peer if met == "yes" else "packstone"
        missing = [row[2] for row in ROWS if (row[1], row[3], row[4]) == (side, layout, bits)
                   and "kld_mean" not in done.get(row[0], {})]
        if missing:
            met = f"open: {side}'s {' and '.join(missing)} not measured"
    return cells([title, mine[0], f"{peer} {theirs[0]}", ratio, f"{limit}", met])


HEAD = """# Quality of quantized weights

Written by `tools/quality/run.py`. The model is `{folder}` ({parameters:,} parameters, tied
embeddings, bfloat16). Every matrix is quantized, the embeddings too, in ours and in the peers'.

- **Divergence**: mean Kullback-Leibler divergence from the original in nats per scored token, and
  its 99th percentile, by `packstone eval kld` for every row, the peers' files too: windows of 512
  tokens, the second half of each scored. The evaluator gives no standard error. The ratio is our
  row divided by the peer's: of the same method where mlx_lm has it; its AWQ for 3-bit GPTQ, which
  mlx_lm lacks; llama.cpp with its importance matrix for every K-quant. Below 1 is better.
- **Bits per weight**: bytes of all stored tensors, scales and vectors too, times 8, divided by the
  parameters.
- **Calibration text**: {calibration_bytes:,} bytes: licences, READMEs and Python sources of Debian
  12 (sha256 `{calibration}`).
  {samples} pieces of {length} tokens for packstone and mlx_lm; each program picks its own pieces.
- **Held-out text**: {heldout_bytes:,} bytes, the beginning of the model's `heldout.txt`
  (sha256 `{heldout}`).
- **Peers**: mlx_lm is `mlx_lm convert -q` (rtn), `mlx_lm.quant.gptq` and `mlx_lm.quant.awq` on the
  CPU. llama.cpp is {llama}.
"""


LLAMA_TOOLS = """`llama-quantize --pure --imatrix` with `llama-imatrix` of all of the
  calibration text"""

LLAMA_LIBRARY = """its quantizer, called without its programs (`ggml_quantize_chunk` of
  libggml-python), with an importance matrix of {samples} pieces of
  {length} tokens of the calibration text, made by `tools/quality/peer_ggml.py`; the embeddings
  have none there, as in llama.cpp"""


def page(bench, done):
    args = bench.args
    tools = os.path.exists(os.path.join(args.llama_bin, "llama-quantize"))
    text = HEAD.format(
        llama=LLAMA_TOOLS if tools else LLAMA_LIBRARY.format(samples=GGML_SAMPLES, length=LENGTH),
        folder="models/" + os.path.basename(os.path.normpath(args.model)),
        parameters=bench.parameters, calibration_bytes=os.path.getsize(args.calibration),
        heldout_bytes=os.path.getsize(args.heldout), samples=SAMPLES, length=LENGTH, **bench.sums)
    scored = [row for row in done.values() if "ppl_against" in row]
    if scored:
        text += f"\n{scored[0]['tokens']:,} tokens are scored; the original's perplexity is "
        text += f"{scored[0]['ppl_against']:.4f}.\n"
    text += "\n## Goals\n\n"
    text += "The best of our methods beside the best of the peer's, mean divergence.\n\n"
    text += cells(["layout", "ours", "peer", "ratio", "goal", "met"]) + "\n" + "|---" * 6 + "|\n"
    for bits in (4, 3):
        text += goal(done, "mlx-affine", bits, "mlx_lm", 0.8) + "\n"
    for bits in (4, 3, 2):
        text += goal(done, f"gguf:Q{bits}_K", bits, "llama.cpp", 0.75) + "\n"
    text += "\n## All rows\n\n"
    text += cells(["program", "method", "layout", "bits", "bits per weight", "mean divergence",
                   "99th percentile", "same top token", "perplexity", "ratio"])
    text += "\n" + "|---" * 10 + "|\n"
    for row in sorted(ROWS, key=lambda r: (r[3][:3] != "mlx", -r[4], r[1] != "packstone", r[2])):
        text += line(row, done) + "\n"
    return text


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("packstone", "python", "llama-bin", "model", "calibration", "heldout",
                 "cache"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--work", default="quality-work", help="folder for the outputs")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="names of rows, by commas; all else")
    parser.add_argument("--write", default="docs/quality.md", help="the page")
    parser.add_argument("--page-only", action="store_true", help="measure nothing")
    return parser.parse_args()


def main():
    args = arguments()
    bench = Bench(args)
    only = args.only.split(",") if args.only else [row[0] for row in ROWS]
    for row in ROWS:
        if args.page_only or row[0] not in only or "kld_mean" in bench.rows().get(row[0], {}):
            continue
        try:
            got = bench.measure(row)
        except (OSError, RuntimeError, KeyError, struct.error) as error:
            got = {"failed": f"not measured: {error}"}
        bench.keep(row[0], got)
        print(row[0], json.dumps(got), flush=True)
    with open(args.write, "w", encoding="utf-8") as f:
        f.write(page(bench, bench.rows()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
