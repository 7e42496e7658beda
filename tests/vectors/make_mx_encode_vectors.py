#!/usr/bin/env python3
"""Writes the oracle vectors of the encoders of MXFP4, MXFP8 and NVFP4: what mx.quantize makes of
values of every kind.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 numpy
    python tests/vectors/make_mx_encode_vectors.py

folder_encode/<name>.json    planes and values (float32), hex of their little-endian bytes
"""
import json
import pathlib
from importlib.metadata import version

import mlx.core as mx
import numpy as np

HERE = pathlib.Path(__file__).parent / "folder_encode"
COMMAND = "python tests/vectors/make_mx_encode_vectors.py"
MODES = {"mx.mxfp4": ("mxfp4", 32, 4), "mx.mxfp8": ("mxfp8", 32, 8), "mlx.nvfp4": ("nvfp4", 16, 4)}


def values_of(rng, group, least, most):
    """Normal values of many sizes, zeros, ties, and values just above the power of two at which a
    scale takes the next one."""
    x = rng.standard_normal((6, 512)).astype(np.float32)
    blocks = x.reshape(-1, group)
    blocks *= np.exp2(rng.integers(least, most, (len(blocks), 1))).astype(np.float32)
    blocks[0] = 0
    blocks[1] = -0.0
    blocks[2] = np.arange(group) * 0.25 - 4
    blocks[3, 1:] = 0
    blocks[4] = np.tile([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6], group // 8)
    blocks[5] = -blocks[4]
    blocks[6] = np.where(np.arange(group) % 2, 448, -3.25)
    blocks[7] = 6
    blocks[8] *= np.float32(1e-3)
    return x


def near_powers(group, largest):
    """Largest values a few units above 2^e times the largest level."""
    rows = []
    for exponent in (-100, -65, -64, -33, -31, -8, -2, -1, 0, 1, 2, 3, 7, 31, 32, 63, 64, 100):
        for unit in (0, 1, 2, 3, 5, 6, 11, 12, 22, 23, 45):
            ratio = np.ldexp(np.float64(1) + unit * 2.0**-23, exponent)
            row = np.zeros(group, np.float32)
            row[0] = np.float32(ratio * largest)
            row[1] = row[0] / np.float32(3)
            rows.append(row)
    return np.stack(rows)


def main():
    rng = np.random.default_rng(20260801)
    HERE.mkdir(exist_ok=True)
    for name, (mode, group, bits) in MODES.items():
        cases = []
        ranges = [values_of(rng, group, -20, 8 if group == 16 else 20)]
        if group == 32:
            ranges.append(near_powers(group, 6 if bits == 4 else 448))
        for x in ranges:
            packed, scales = mx.quantize(mx.array(x), group_size=group, bits=bits, mode=mode)
            cases.append({"rows": x.shape[0], "cols": x.shape[1], "group": 0,
                          "metadata": "float16",
                          "planes": [np.array(packed).tobytes().hex(),
                                     np.array(scales).tobytes().hex()],
                          "values": x.tobytes().hex()})
        text = json.dumps({"name": name, "producer": f"mlx {version('mlx')} (cpu), mx.quantize",
                           "command": COMMAND, "cases": cases}, indent=1) + "\n"
        assert len(text) < 1 << 17, (name, len(text))
        (HERE / f"{name.replace('.', '_')}.json").write_text(text)


if __name__ == "__main__":
    main()
