#!/usr/bin/env python3
"""Writes the oracle vectors of the encoders of bitsandbytes: what quantize_4bit, with plain and
nested statistics, and int8_vectorwise_quant make of values of every kind, on the CPU in float32.

    pip install torch==2.15.0 bitsandbytes==0.50.2 numpy
    python tests/vectors/make_bnb_encode_vectors.py

folder_encode/<name>.json    planes and values (float32), hex of their little-endian bytes; constant
                             is the pattern of the offset of nested statistics
"""
import json
import math
import pathlib
from importlib.metadata import version

import bitsandbytes.functional as bnb
import numpy as np
import torch

HERE = pathlib.Path(__file__).parent / "folder_encode"
COMMAND = "python tests/vectors/make_bnb_encode_vectors.py"


def hex_of(tensor):
    return np.ascontiguousarray(tensor.numpy()).tobytes().hex()


def values_of(rng, rows, cols, block, huge=True):
    """Normal values of many sizes; zeros of either sign, subnormals, huge values, thresholds of the
    codes and their neighbours."""
    x = rng.standard_normal(rows * cols).astype(np.float32)
    blocks = [x[at:at + block] for at in range(0, x.size, block)]
    for part in blocks:
        part *= np.float32(2.0 ** int(rng.integers(-20, 6)))
    specials = [0.0, -0.0, 1e-39, 1e-42, 1e-38] + [2e37, 3.4e38] * huge
    for part, special in zip(blocks[1:], specials):
        part[:] = np.float32(special) * np.where(np.arange(part.size) % 3, 1, -0.5)
    if len(blocks) > 10:
        code = np.sort(bnb.get_4bit_type("nf4", "cpu").numpy())
        middle = (code[:-1] + code[1:]) / np.float32(2)
        near = np.concatenate([middle, np.nextafter(middle, np.float32(2)),
                               np.nextafter(middle, np.float32(-2))])[:block - 1]
        blocks[9][0] = 1
        blocks[9][1:1 + near.size] = near
    return torch.from_numpy(x.reshape(rows, cols))


def four_bit(rng, kind, rows, cols, block, nested):
    x = values_of(rng, rows, cols, block, not nested)  # the mean of huge maxima is infinite
    codes, state = bnb.quantize_4bit(x, blocksize=block, quant_type=kind,
                                     compress_statistics=nested)
    group = math.gcd(cols, block)
    case = {"rows": rows, "cols": cols, "group": group, "group_rows": block // group,
            "metadata": "float16", "planes": [hex_of(codes), hex_of(state.absmax)]}
    if nested:
        case["planes"].append(hex_of(state.state2.absmax))
        case["constant"] = int(np.float32(state.offset.item()).view(np.uint32))
    return {**case, "values": hex_of(x)}


def eight_bit(rng, rows, cols):
    x = values_of(rng, rows, cols, cols, False)  # a code times the maximum must be finite
    x[x.abs().amax(dim=1) < 1e-36] = 0.25  # 127 / max overflows: bitsandbytes casts no number
    x[3] *= 1e8
    codes, maxima, _ = bnb.int8_vectorwise_quant(x)
    return {"rows": rows, "cols": cols, "group": cols, "metadata": "float16",
            "planes": [hex_of(codes), hex_of(maxima)], "values": hex_of(x)}


def write(name, cases):
    producer = f"bitsandbytes {version('bitsandbytes')} (cpu), torch {version('torch')}"
    text = json.dumps({"name": name, "producer": producer, "command": COMMAND, "cases": cases},
                      indent=1) + "\n"
    assert len(text) < 1 << 17, (name, len(text))
    (HERE / f"{name.replace('.', '_')}.json").write_text(text)


def main():
    HERE.mkdir(exist_ok=True)
    rng = np.random.default_rng(20260801)
    for kind in ("nf4", "fp4"):
        write(f"bnb.{kind}", [four_bit(rng, kind, *shape, False) for shape in (
            (13, 64, 64), (12, 48, 32), (3, 62, 128), (2, 160, 256), (1, 512, 512), (1, 1100, 1024),
            (1, 2048, 2048), (1, 4096, 4096), (11, 64, 64))])
        write(f"bnb.{kind}.nested", [four_bit(rng, kind, *shape, True) for shape in (
            (30, 64, 64), (300, 32, 32), (2, 62, 64))])
    write("bnb.int8", [eight_bit(rng, 12, 64), eight_bit(rng, 9, 37)])


if __name__ == "__main__":
    main()
