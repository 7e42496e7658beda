#!/usr/bin/env python3
"""Writes the oracle vectors of the GGUF encoders.

    pip install libggml-python==0.20.2.post1 mlx==0.32.4 mlx-cpu==0.32.4 numpy
    python tests/vectors/make_gguf_encode_vectors.py

gguf_encode/values.json   values [rows, cols] and an importance [cols], float32 in hex
gguf_encode/<name>.json   the blocks that ggml_quantize_chunk makes of them, without and with the
                          importance
"""
import ctypes
from importlib.metadata import version

import numpy as np

from make_format_vectors import ggml, pointer, write

COMMAND = "python tests/vectors/make_gguf_encode_vectors.py"
ROWS, COLS = 6, 1024
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


def quantize(library, name, values, importance):
    number, block, size = TYPES[name]
    blocks = np.zeros(values.size // block * size, np.uint8)
    library.ggml_quantize_chunk(
        ctypes.c_int(number), pointer(values), pointer(blocks), ctypes.c_int64(0),
        ctypes.c_int64(ROWS), ctypes.c_int64(COLS),
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


if __name__ == "__main__":
    main()
