#!/usr/bin/env python3
"""Writes the oracle vectors of MXFP4 from its definition in float64 (OCP MX v1.0).

    pip install numpy
    python tests/vectors/make_mx_vectors.py

Where ggml differs (code 8, scale byte 255) these follow the definition, as the formats do.
"""
import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6], np.float64)


def write(name, planes, values, rows, cols):
    case = {"rows": rows, "cols": cols, "group": 0, "metadata": "float16",
            "planes": [plane.tobytes().hex() for plane in planes],
            "values": values.astype("<f4").tobytes().hex()}
    text = json.dumps({"name": name, "producer": "OCP MX v1.0, by definition in float64",
                       "command": "python tests/vectors/make_mx_vectors.py", "cases": [case]},
                      indent=1) + "\n"
    assert len(text) < 65536
    (HERE / "format" / f"{name.replace('.', '_')}.json").write_text(text)


def main():
    rng = np.random.default_rng(20261201)
    rows, blocks = 4, 32
    codes = rng.integers(0, 16, (rows, blocks, 32), dtype=np.uint8)
    codes[:, :, :16] = np.arange(16)
    scales = rng.integers(0, 256, (rows, blocks), dtype=np.uint8)
    scales.reshape(-1)[:8] = [0, 1, 2, 127, 252, 253, 254, 255]
    with np.errstate(over="ignore", invalid="ignore"):
        factor = np.where(scales == 255, np.nan, np.ldexp(1.0, scales.astype(int) - 127))
        values = (E2M1[codes] * factor[:, :, None]).astype(np.float32)
    values = values.reshape(rows, -1)
    cols = values.shape[1]
    halves = codes[:, :, :16] | codes[:, :, 16:] << 4
    write("gguf.mxfp4", [np.concatenate([scales[:, :, None], halves], axis=2)], values, rows, cols)
    flat = codes.reshape(rows, -1)
    write("mx.mxfp4", [flat[:, 0::2] | flat[:, 1::2] << 4, scales], values, rows, cols)


if __name__ == "__main__":
    main()
