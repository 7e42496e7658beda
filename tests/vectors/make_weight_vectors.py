#!/usr/bin/env python3
"""Writes weight/ggml_digests.json: what ggml makes of streams that the tests make again.

    pip install libggml-python==0.20.2.post1 numpy
    python tests/vectors/make_weight_vectors.py

The stream of a seed is splitmix64, each word as 8 little-endian bytes. A digest of 32-bit patterns
(NaN as 0x7FC00000) or of bytes v[i] is the sum of v[i] * (2 i + 1), modulo 2^64.

decode: blocks of the stream with the binary16 scale of block i set to i, for all 65536 scales;
        digests of dequantize_row_* for each 4096 blocks. mxfp4: scale byte i modulo 256, and where
        the definition differs from ggml (code 8, scale byte 255) the pattern counts as 0
quantize: floats of the stream with exponents near one of each block's own; a digest of
        quantize_row_q8_0_ref
"""
import ctypes
import json
import pathlib

import libggml
import numpy as np

HERE = pathlib.Path(__file__).parent
BLOCKS = 65536
# block bytes, columns, offset of the binary16 scale
DECODE = {"q8_0": (34, 32, 0), "q4_K": (144, 256, 0), "q6_K": (210, 256, 208)}
MXFP4_BLOCKS = 4096
QUANTIZE_BLOCKS = 16384


def stream(seed, words):
    with np.errstate(over="ignore"):
        state = np.uint64(seed) + np.arange(1, words + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).view(np.uint8)


def digest(values):
    with np.errstate(over="ignore"):
        weights = np.arange(values.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        return int((values.astype(np.uint64) * weights).sum(dtype=np.uint64))


def patterns(values):
    bits = values.view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    return bits


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def decoded(ggml, name, blocks, cols):
    values = np.empty(len(blocks) * cols, dtype=np.float32)
    call = getattr(ggml, f"dequantize_row_{name}")
    call(pointer(blocks), pointer(values), ctypes.c_int64(values.size))
    return values


def decode_digests(ggml, name):
    size, cols, at = DECODE[name]
    blocks = stream(1, BLOCKS * size // 8 + 1)[: BLOCKS * size].reshape(BLOCKS, size).copy()
    blocks[:, at] = np.arange(BLOCKS) & 255
    blocks[:, at + 1] = np.arange(BLOCKS) >> 8
    bits = patterns(decoded(ggml, name, blocks, cols))
    return [f"{digest(part):016x}" for part in np.split(bits, BLOCKS // 4096)]


def mxfp4_digest(ggml):
    blocks = stream(2, MXFP4_BLOCKS * 17 // 8 + 1)[: MXFP4_BLOCKS * 17].reshape(-1, 17).copy()
    blocks[:, 0] = np.arange(MXFP4_BLOCKS) & 255
    bits = patterns(decoded(ggml, "mxfp4", blocks, 32)).reshape(MXFP4_BLOCKS, 32)
    codes = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], axis=1)
    bits[(codes == 8) | (blocks[:, :1] == 255)] = 0
    return f"{digest(bits.reshape(-1)):016x}"


def quantize_digest(ggml):
    words = stream(3, QUANTIZE_BLOCKS * 16).view(np.uint32).reshape(QUANTIZE_BLOCKS, 32).copy()
    exponent = (np.arange(QUANTIZE_BLOCKS, dtype=np.uint32) % 240)[:, None] + (words >> 23 & 7)
    x = ((words & np.uint32(0x807FFFFF)) | exponent << np.uint32(23)).view(np.float32).copy()
    out = np.zeros(QUANTIZE_BLOCKS * 34, dtype=np.uint8)
    ggml.quantize_row_q8_0_ref(pointer(x), pointer(out), ctypes.c_int64(x.size))
    return f"{digest(out):016x}"


def main():
    folder = pathlib.Path(libggml.__file__).parent / "lib64"
    ggml = ctypes.CDLL(str(folder / "libggml-base.so"))
    content = {
        "producer": "ggml, libggml-python 0.20.2.post1",
        "command": "python tests/vectors/make_weight_vectors.py",
        "decode": {name: decode_digests(ggml, name) for name in DECODE},
        "mxfp4": mxfp4_digest(ggml),
        "quantize_q8_0": quantize_digest(ggml),
    }
    path = HERE / "weight" / "ggml_digests.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
