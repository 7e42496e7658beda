#!/usr/bin/env python3
"""Writes the oracle vectors of the packed formats.

    pip install libggml-python==0.20.2.post1 mlx==0.32.4 mlx-cpu==0.32.4 numpy
    python tests/vectors/make_format_vectors.py

format/<name>.json    random and adversarial planes with every value their producer decodes
quantize/<name>.json  values and the planes that their round-to-nearest reference makes of them

Planes and values (float32) are hex of their little-endian bytes. GGUF: dequantize_row_* and
quantize_row_*_ref of ggml through ctypes. MLX: mx.quantize and mx.dequantize in float32 on the CPU;
16-bit scales are widened first, which is exact.
"""
import ctypes
import json
import pathlib
from importlib.metadata import version

import libggml
import mlx.core as mx
import numpy as np

HERE = pathlib.Path(__file__).parent
COMMAND = "python tests/vectors/make_format_vectors.py"
HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00,
          0x7C01, 0x3C01, 0x2E66, 0xAE66, 0x1000]
# binary32 patterns of the first scales and offsets of an MLX case
SCALES = [0, 1 << 31, 1, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x00400000, 0x3F804000]
OFFSETS = [1 << 31, 0, 0x80000001, 0x41200000, 0x3F800000, 0x3F800000, 0x00000007, 0xBF804000]
# name: block columns, block bytes, byte offsets of its binary16 fields, blocks in the vector
GGUF = {
    "q4_0": (32, 18, [0], 64), "q4_1": (32, 20, [0, 2], 64), "q5_0": (32, 22, [0], 64),
    "q5_1": (32, 24, [0, 2], 64), "q8_0": (32, 34, [0], 64), "q2_K": (256, 84, [80, 82], 20),
    "q3_K": (256, 110, [108], 20), "q4_K": (256, 144, [0, 2], 20), "q5_K": (256, 176, [0, 2], 20),
    "q6_K": (256, 210, [208], 20),
}


def ggml():
    folder = pathlib.Path(libggml.__file__).parent / "lib64"
    return ctypes.CDLL(str(folder / "libggml-base.so"))


def write(folder, name, content):
    path = HERE / folder / f"{name.replace('.', '_')}.json"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({"name": name, **content}, indent=1) + "\n"
    assert len(text) < 65536, (name, len(text))
    path.write_text(text)


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def gguf_blocks(rng, cols, size, fields, count):
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for i, half in enumerate(HALVES):
        for k, field in enumerate(fields):
            value = half if k == 0 else HALVES[(i * 7 + 3) % len(HALVES)]
            blocks[i, field:field + 2] = [value & 255, value >> 8]
    if len(fields) == 2:  # sums that cancel and zeros of either sign
        for i in range(16, 20):
            blocks[i, fields[1] + 1] = blocks[i, fields[0] + 1] ^ 0x80
    return blocks


def make_gguf(library, rng):
    producer = f"ggml, libggml-python {version('libggml-python')}"
    for name, (cols, size, fields, count) in GGUF.items():
        blocks = gguf_blocks(rng, cols, size, fields, count)
        values = np.zeros(count * cols, np.float32)
        function = f"dequantize_row_{name}"
        library[function](pointer(blocks), pointer(values), ctypes.c_int64(values.size))
        write("format", f"gguf.{name.lower()}", {
            "producer": f"{producer}, {function}", "command": COMMAND,
            "cases": [{"rows": 2, "cols": values.size // 2, "group": 0, "metadata": "float16",
                       "planes": [blocks.tobytes().hex()], "values": values.tobytes().hex()}]})


def widen(patterns, metadata):
    if metadata == "float16":
        return patterns.astype(np.uint16).view(np.float16).astype(np.float32)
    if metadata == "bfloat16":
        return (patterns.astype(np.uint32) << 16).view(np.float32)
    return patterns.astype(np.uint32).view(np.float32)


def mlx_case(rng, bits, group, metadata, rows, cols):
    wide = metadata == "float32"
    words = rng.integers(0, 2**32, (rows, cols * bits // 32), dtype=np.uint32)
    shape = (rows, cols // group)
    planes, floats = [words.tobytes().hex()], []
    for special in SCALES, OFFSETS:
        if metadata == "float16":
            special = HALVES[::2] if not floats else HALVES[1::2]
        elif metadata == "bfloat16":
            special = [value >> 16 for value in special]
        patterns = rng.integers(0, 2**32 if wide else 2**16, shape, dtype=np.uint64)
        flat = patterns.reshape(-1)
        flat[:min(8, flat.size)] = special[:min(8, flat.size)]
        planes.append(patterns.astype(np.uint32 if wide else np.uint16).tobytes().hex())
        floats.append(widen(patterns, metadata))
    values = mx.dequantize(mx.array(words), mx.array(floats[0]), mx.array(floats[1]),
                           group_size=group, bits=bits)
    assert values.dtype == mx.float32
    return {"rows": rows, "cols": cols, "group": group, "metadata": metadata, "planes": planes,
            "values": np.array(values).tobytes().hex()}


def make_mlx(rng):
    producer = f"mlx {version('mlx')} (cpu), mx.dequantize in float32"
    for bits in (2, 3, 4, 5, 6, 8):
        cases = [mlx_case(rng, bits, 32, "float32", 3, 256),
                 mlx_case(rng, bits, 64, "float16", 3, 512),
                 mlx_case(rng, bits, 128, "bfloat16", 2, 640)]
        write("format", f"mlx.affine.w{bits}",
              {"producer": producer, "command": COMMAND, "cases": cases})


def values_to_quantize(rng, rows, cols, group):
    x = rng.standard_normal((rows, cols)).astype(np.float32)
    flat = x.reshape(-1, group)
    flat[0] = 0
    flat[1] = -0.0
    flat[2] = 0.25
    flat[3] = -3
    flat[4] = np.abs(flat[4])
    flat[5] = -np.abs(flat[5])
    flat[6] *= np.float32(1e-6)
    flat[7] *= np.float32(1e4)
    flat[8] = (np.arange(group) % 32 - 16)
    flat[9] = np.where(np.arange(group) % 2, 2, -2)
    flat[10] = np.arange(group) * 0.5 - 3.5  # ties of the rounding
    flat[11, 1:] = 0
    flat[12] *= np.float32(1e-9)
    return x


def make_quantize(library, rng):
    for name in ("q4_0", "q4_1", "q8_0"):
        x = values_to_quantize(rng, 2, 1024, 32)
        blocks = np.zeros((x.size // 32, GGUF[name][1]), np.uint8)
        function = f"quantize_row_{name}_ref"
        library[function](pointer(x), pointer(blocks), ctypes.c_int64(x.size))
        write("quantize", f"gguf.{name}", {
            "producer": f"ggml, libggml-python {version('libggml-python')}, {function}",
            "command": COMMAND,
            "cases": [{"rows": 2, "cols": 1024, "group": 0, "metadata": "float16",
                       "planes": [blocks.tobytes().hex()], "values": x.tobytes().hex()}]})
    for bits in (2, 3, 4, 5, 6, 8):
        cases = []
        for group in (32, 64, 128):
            x = values_to_quantize(rng, 2, group * 8, group)
            packed = mx.quantize(mx.array(x), group_size=group, bits=bits)
            cases.append({"rows": 2, "cols": group * 8, "group": group, "metadata": "float32",
                          "planes": [np.array(part).tobytes().hex() for part in packed],
                          "values": x.tobytes().hex()})
        write("quantize", f"mlx.affine.w{bits}", {
            "producer": f"mlx {version('mlx')} (cpu), mx.quantize in float32", "command": COMMAND,
            "cases": cases})


def main():
    mx.set_default_device(mx.cpu)
    rng = np.random.default_rng(20260730)
    library = ggml()
    make_gguf(library, rng)
    make_mlx(rng)
    make_quantize(library, rng)


if __name__ == "__main__":
    main()
