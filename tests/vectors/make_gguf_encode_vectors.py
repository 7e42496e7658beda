#!/usr/bin/env python3
"""Writes the oracle vectors of the GGUF encoders.

    pip install libggml-python==0.20.2.post1 mlx==0.32.4 mlx-cpu==0.32.4 numpy
    python tests/vectors/make_gguf_encode_vectors.py

gguf_encode/values.json   values [rows, cols] and an importance [cols], float32 in hex
gguf_encode/<name>.json   the blocks that ggml_quantize_chunk makes of them, without and with the
                          importance
gguf_encode/corners.json  a row of scales about the ends of binary16 and halfway between two of its
                          numbers, with the blocks of every type and that importance; and a hash of
                          the MXFP4 blocks of every power of two and floats near it
gguf_encode/hashes.json   hashes of the blocks of many rows that a linear congruence makes, with an
                          importance that is mostly zero
"""
import ctypes
from importlib.metadata import version

import numpy as np

from make_format_vectors import ggml, pointer, write

COMMAND = "python tests/vectors/make_gguf_encode_vectors.py"
ROWS, COLS = 6, 1024
SEEDS = [1, 2, 3, 4]
POWER_STEPS = (0, 1, 2, 5, 11, 22, 44, 45, 64)
# name: number of the type in ggml, block columns, block bytes
TYPES = {
    "q1_0": (41, 128, 18), "q2_0": (42, 64, 18), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34), "q2_k": (10, 256, 84),
    "q3_k": (11, 256, 110), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210), "tq1_0": (34, 256, 54), "tq2_0": (35, 256, 66),
    "iq4_nl": (20, 32, 18), "iq4_xs": (23, 256, 136), "mxfp4": (39, 32, 17),
    "nvfp4": (40, 64, 36),
}


def special_blocks():
    """Runs of 32 columns each: what ordinary weights are not."""
    ramp = np.arange(32, dtype=np.float32)
    spike = np.zeros(32, np.float32)
    spike[17] = -3.5
    nearly = np.full(32, 0.75, np.float32)
    nearly[5] = np.nextafter(np.float32(0.75), np.float32(1))
    signs = np.where(ramp % 2 == 0, 1, -1).astype(np.float32)
    return [
        np.zeros(32), np.full(32, 0.5), np.full(32, -0.5), spike, ramp - 16, ramp / 8 + 1,
        -ramp / 8 - 1, signs, signs * 0.1 + 2, nearly, ramp * 2e-6 - 3e-5, ramp * 1e-8,
        np.where(ramp == 3, 60000, ramp), ramp * 1e-17 + 1e-16, -np.zeros(32),
        (ramp - 8) ** 3 * 1e-3,
    ]


def near_powers():
    """Powers of two and the floats about them, where log2 rounds and codes tie."""
    values = []
    for exponent in range(-10, 6):
        power = np.float32(2.0) ** exponent
        for steps in (0, 1, 2, 5, 11, 22, 44, -1, -2, -5, -11, -22, -44, 45, 64, -64):
            bits = np.array([power], np.float32).view(np.int32) + steps
            values.append(float(bits.view(np.float32)[0]))
    values = np.array(values, np.float32)
    signs = np.where(np.arange(values.size) % 3 == 1, -1, 1)
    return np.concatenate([values * signs, values[::-1], values * 0.75, -values * 1.25])


def make_values(rng):
    rows = [
        rng.normal(0, 0.02, COLS),
        rng.standard_t(2.5, COLS) * 0.01,
        np.concatenate(special_blocks() + [rng.laplace(0, 0.05, 512)]),
        near_powers(),
        rng.integers(-1, 2, COLS) * 0.0375,
        rng.normal(0, 10, COLS) * np.where(rng.random(COLS) < 0.01, 20, 1),
    ]
    return np.array(rows, np.float64).astype(np.float32)


def make_importance(rng):
    importance = np.exp(rng.normal(0, 1.5, COLS)).astype(np.float32)
    importance[rng.random(COLS) < 0.05] = 0
    importance[512:544] = 0
    return importance


def corners():
    """Blocks of 32 whose scale, for one of four types, is a binary16 corner."""
    scales = [1 + 2.0 ** -11, 1 + 3 * 2.0 ** -11, 2.0 ** -25, 2.0 ** -25 * (1 + 2.0 ** -23),
              3 * 2.0 ** -25, 2.0 ** -14 * (1 - 2.0 ** -12), 500.125, -0.333]
    blocks = [np.linspace(-1, 1, 32) * scale * factor
              for factor in (8, 16, 127, 1) for scale in scales]
    for i, block in enumerate(blocks):
        block[i % 32] = -np.sign(block[0]) * np.abs(block).max() * (1 if i % 2 else -1)
    blocks[-1][3] = 65519
    return np.concatenate(blocks).astype(np.float32).reshape(1, COLS)


def power_blocks():
    """MXFP4 blocks of 32: an edge near a power of two, and values about the halfway points."""
    rows = []
    for exponent in range(-149, 128):
        power = np.array([np.ldexp(np.float32(1), exponent)], np.float32).view(np.int32)[0]
        for steps in POWER_STEPS:
            for sign in (1, -1):
                bits = power + sign * steps
                if not 0 < bits < 0x7F800000:
                    continue
                edge = np.array([bits], np.int32).view(np.float32)[0]
                rows.append(edge * (np.arange(32, dtype=np.float32) / np.float32(32)))
                rows[-1][0] = -edge if sign < 0 else edge
    return np.array(rows, np.float32)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def congruence(seed, count):
    """The top 31 bits of each state of the generator."""
    numbers = np.empty(count, np.int64)
    for i in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        numbers[i] = seed >> 33
    return numbers


def congruent_rows(seed):
    """256 rows of 256: four kinds of values, and an importance of which one in 20 is not 0."""
    v = (congruence(seed, 65536) % 2001 - 1000).astype(np.float32).reshape(64, 4, 256)
    kinds = [v[:, 0] * np.float32(2.0 ** -12), v[:, 1] * v[:, 1] * v[:, 1] * np.float32(2.0 ** -32),
             np.abs(v[:, 2]) * np.float32(2.0 ** -10), v[:, 3] * np.float32(0.5) + np.float32(700)]
    values = np.stack(kinds, 1).reshape(256, 256)
    return values, (congruence(seed + 1, 256) % 20 == 0).astype(np.float32)


def quantize(library, name, values, importance):
    number, block, size = TYPES[name]
    blocks = np.zeros(values.size // block * size, np.uint8)
    library.ggml_quantize_chunk(
        ctypes.c_int(number), pointer(values), pointer(blocks), ctypes.c_int64(0),
        ctypes.c_int64(values.shape[0]), ctypes.c_int64(values.shape[1]),
        None if importance is None else pointer(importance))
    return blocks.tobytes().hex()


def main():
    library, rng = ggml(), np.random.default_rng(20260806)
    values, importance = make_values(rng), make_importance(rng)
    assert values.shape == (ROWS, COLS)
    write("gguf_encode", "values", {
        "command": COMMAND, "rows": ROWS, "cols": COLS, "values": values.tobytes().hex(),
        "importance": importance.tobytes().hex()})
    for name in TYPES:
        write("gguf_encode", f"gguf.{name}", {
            "producer": f"ggml, libggml-python {version('libggml-python')}, ggml_quantize_chunk",
            "command": COMMAND, "plain": quantize(library, name, values, None),
            "weighted": quantize(library, name, values, importance)})
    row, powers = corners(), power_blocks()
    blocks = bytes.fromhex(quantize(library, "mxfp4", powers, None))
    write("gguf_encode", "corners", {
        "producer": f"ggml, libggml-python {version('libggml-python')}, ggml_quantize_chunk",
        "command": COMMAND, "cols": COLS, "values": row.tobytes().hex(),
        "plain": {name: quantize(library, name, row, None) for name in TYPES},
        "weighted": {name: quantize(library, name, row, importance) for name in TYPES},
        "mxfp4_blocks": len(powers), "mxfp4_fnv1a": fnv1a(blocks)})
    hashes = {name: [] for name in TYPES}
    for seed in SEEDS:
        many, sparse = congruent_rows(seed)
        for name in TYPES:
            hashes[name].append(fnv1a(bytes.fromhex(quantize(library, name, many, sparse))))
    write("gguf_encode", "hashes", {
        "producer": f"ggml, libggml-python {version('libggml-python')}, ggml_quantize_chunk",
        "command": COMMAND, "seeds": SEEDS, "weighted": hashes})


if __name__ == "__main__":
    main()
