#!/usr/bin/env python3
"""Writes the oracle vectors of the GGUF types beyond the legacy and K types.

    pip install libggml-python==0.20.2.post1 gguf==0.19.0 mlx==0.32.4 mlx-cpu==0.32.4 numpy
    python tests/vectors/make_gguf_vectors.py

format/<name>.json   random and adversarial blocks with every value that ggml decodes
iq_grids.json        FNV-1a hashes of the grids of the PyPI package gguf, expanded to signed bytes

Two producers differ from ggml: GPTQModel's block of 32 signs is decoded here by its definition, and
code 8 of NVFP4, which ggml decodes to +0, has the -0.0 of E2M1 (docs/FORMATS.md says so).
"""
import ctypes
import json
from importlib.metadata import version

import gguf.quants
import numpy as np

from make_format_vectors import HALVES, HERE, ggml, pointer, write

COMMAND = "python tests/vectors/make_gguf_vectors.py"
# name: block columns, block bytes, byte offset of the binary16 scale (None: other), blocks
GGUF = {
    "q1_0": (128, 18, 0, 32), "q2_0": (64, 18, 0, 40), "tq1_0": (256, 54, 52, 20),
    "tq2_0": (256, 66, 64, 20), "iq4_nl": (32, 18, 0, 64), "iq4_xs": (256, 136, 0, 20),
    "nvfp4": (64, 36, None, 40), "iq1_s": (256, 50, 0, 20), "iq1_m": (256, 56, None, 20),
    "iq2_xxs": (256, 66, 0, 20), "iq2_xs": (256, 74, 0, 20), "iq2_s": (256, 82, 0, 20),
    "iq3_xxs": (256, 98, 0, 20), "iq3_s": (256, 110, 0, 20),
}
# scale bytes of the first NVFP4 groups: zero, smallest, the two that ggml reads in its own way, ...
UE4M3 = [0x00, 0x01, 0x07, 0x08, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x38, 0xB8]
GRIDS = ["IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]


def random_blocks(rng, name):
    cols, size, field, count = GGUF[name]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if field is not None:
        halves = np.array(HALVES, np.uint16)
        blocks[:len(HALVES), field:field + 2] = halves.view(np.uint8).reshape(-1, 2)
    elif name == "nvfp4":
        blocks[:len(UE4M3) // 4, :4] = np.array(UE4M3, np.uint8).reshape(-1, 4)
    else:  # iq1_m: four bits of the scale at the top of each of four words
        words = blocks[:, 48:].copy().view("<u2")
        for i, half in enumerate(HALVES):
            for k in range(4):
                words[i, k] = (words[i, k] & 0x0FFF) | ((half >> (4 * k) & 15) << 12)
        blocks[:, 48:] = words.view(np.uint8)
    return blocks


def negative_zeros(blocks, values):
    """NVFP4: value i of a block is nibble (i % 16) // 8 of byte 4 + 8 (i // 16) + i % 8."""
    i = np.arange(64)
    bytes_of = blocks[:, 4 + 8 * (i // 16) + i % 8]
    codes = bytes_of >> (4 * (i % 16 // 8)) & 15
    flat = values.reshape(codes.shape)
    flat[codes == 8] = -0.0


def case(rows, cols, blocks, values):
    return {"rows": rows, "cols": cols, "group": 0, "metadata": "float16",
            "planes": [blocks.tobytes().hex()], "values": values.tobytes().hex()}


def make_blocks(library, rng):
    for name, (cols, _, _, count) in GGUF.items():
        blocks = random_blocks(rng, name)
        values = np.zeros(count * cols, np.float32)
        function = f"dequantize_row_{name}"
        library[function](pointer(blocks), pointer(values), ctypes.c_int64(values.size))
        note = ""
        if name == "nvfp4":
            negative_zeros(blocks, values)
            note = ", code 8 as -0.0"
        write("format", f"gguf.{name}", {
            "producer": f"ggml, libggml-python {version('libggml-python')}, {function}{note}",
            "command": COMMAND, "cases": [case(2, values.size // 2, blocks, values)]})


def make_signs(rng):
    blocks = rng.integers(0, 256, (64, 6), dtype=np.uint8)
    blocks[:len(HALVES), :2] = np.array(HALVES, np.uint16).view(np.uint8).reshape(-1, 2)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    values = np.where(bits == 1, scale, -scale)
    write("format", "gptqmodel.q1_0_32", {
        "producer": "definition of GPTQModel 7.3: a set bit is d, a clear one -d",
        "command": COMMAND, "cases": [case(2, values.size // 2, blocks, values)]})


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def make_grids():
    grids = {}
    for name in GRIDS:
        kind = getattr(gguf.quants, name)
        kind.init_grid()
        grids[name] = f"{fnv(kind.grid.astype(np.int8).tobytes()):016x}"
    content = {"producer": f"gguf {version('gguf')}", "command": COMMAND, "fnv1a": grids}
    (HERE / "iq_grids.json").write_text(json.dumps(content, indent=1) + "\n")


def main():
    rng = np.random.default_rng(20261201)
    make_blocks(ggml(), rng)
    make_signs(rng)
    make_grids()


if __name__ == "__main__":
    main()
