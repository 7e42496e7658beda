#!/usr/bin/env python3
"""Prints what demo.sh measured.

usage: demo_table.py answer NAME GENERATE.json      one answer, on a few lines
       demo_table.py table FOLDER NAME...           the table of all checkpoints
"""

import json
import os
import sys
import textwrap

TITLES = {
    "original": "GGUF Q4_1, the original",
    "mlx": "mlx-affine, exact move",
    "back.gguf": "GGUF again, exact move",
    "w8": "mlx-affine 8 bit, groups of 64",
    "w4": "mlx-affine 4 bit, groups of 64",
}


def load(path):
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def answer(name, path):
    text = " ".join(load(path)["text"].split())
    lines = textwrap.wrap(text, 88, max_lines=4, placeholder=" ...")
    print(f"{TITLES[name]}:\n" + "".join(f"    {line}\n" for line in lines), end="")


def number(value, form):
    return "-" if value is None else format(value, form)


def table(folder, names):
    head = ["checkpoint", "MB", "bits per weight", "peak memory MiB", "prefill tokens/s",
            "decode tokens/s", "perplexity", "KL divergence", "same top token %"]  # fmt: skip
    rows = []
    for name in names:
        size, speed, quality = (
            load(os.path.join(folder, f"{kind}-{name}.json"))
            for kind in ("inspect", "generate", "eval")
        )
        agreement = quality.get("top1_agreement")
        columns = [
            (size["bytes"] / 1e6, ".1f"),
            (size["bits_per_weight"], ".2f"),
            (speed["peak_rss_bytes"] / 2**20, ".0f"),
            (speed["prefill_tokens_per_s"], ".0f"),
            (speed["decode_tokens_per_s"], ".1f"),
            (quality.get("ppl"), ".4f"),
            (quality.get("kld_mean"), ".6f"),
            (None if agreement is None else 100 * agreement, ".2f"),
        ]
        rows.append([TITLES[name]] + [number(value, form) for value, form in columns])
    # Headings take two lines: the last word below the others.
    top = [" ".join(h.split()[:-1]) for h in head]
    bottom = [h.split()[-1] for h in head]
    lines = [top, bottom, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for index, line in enumerate(lines):
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        print("  ".join(cells).rstrip())
        if index == 1:
            print("  ".join("-" * width for width in widths))
    tokens = [load(os.path.join(folder, f"eval-{n}.json")).get("tokens") for n in names]
    count = next((t for t in tokens if t), None)
    print(f"\nPerplexity and KL divergence: {count} scored tokens of the GPL-3, windows of 512, "
          "float32 arithmetic.")  # fmt: skip
    print("Memory: peak of the process that generates, the mapped file included.")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "answer":
        answer(sys.argv[2], sys.argv[3])
    elif len(sys.argv) > 3 and sys.argv[1] == "table":
        table(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
