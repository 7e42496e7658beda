#!/usr/bin/env python3
"""Quantizes a GGUF model as llama.cpp does, with an importance matrix, without its programs.

usage: peer_ggml.py MODEL_FOLDER CALIBRATION TEMPLATE.gguf SOURCE.gguf OUT.gguf SAMPLES LENGTH

For machines on which llama-quantize and llama-imatrix are not at hand. The quantizer is
ggml_quantize_chunk of the libggml-python wheel, the function that llama-quantize calls. The
importance of a column is the mean square of its inputs, as llama-imatrix sums it, from mlx_lm's
float32 forward pass over SAMPLES pieces of LENGTH tokens spread evenly over the text. As in
llama.cpp the embeddings have no importance. TEMPLATE is a GGUF file whose matrices have the wanted
types; OUT is a copy with other blocks. Needs gguf, libggml-python, mlx-lm and numpy.
"""

import ctypes
import os
import shutil
import sys

import gguf
import libggml
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.utils import load

NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
         "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}


class Recorder(nn.Linear):
    """A linear layer that sums the squares of what goes into it."""

    def __call__(self, x):
        squares = np.array(mx.sum(mx.square(x.reshape(-1, x.shape[-1])), axis=0))
        Recorder.sums[id(self)] = Recorder.sums.get(id(self), 0) + squares.astype(np.float64)
        return super().__call__(x)

    sums = {}


def importance(folder, text, samples, length):
    model, tokenizer = load(folder)
    model.set_dtype(mx.float32)
    layers = {}
    for name, module in model.named_modules():
        if type(module) is nn.Linear:
            module.__class__ = Recorder
            layers[name] = module
    with open(text, encoding="utf-8") as f:
        tokens = tokenizer.encode(f.read())
    pieces = len(tokens) // length
    step = max(1, pieces // samples)
    used = [i * step for i in range(min(samples, pieces))]
    for i in used:
        mx.eval(model(mx.array([tokens[i * length:(i + 1) * length]])))
    found = {}
    for name, module in layers.items():
        parts = name.split(".")
        if parts[-1] in NAMES:
            mean = Recorder.sums[id(module)] / (len(used) * length)
            found[f"blk.{parts[2]}.{NAMES[parts[-1]]}.weight"] = mean.astype(np.float32)
    return found


def library():
    root = os.path.dirname(libggml.__file__)
    for folder, _, names in os.walk(root):
        for name in names:
            if name.startswith("libggml-base") and ".so" in name:
                return ctypes.CDLL(os.path.join(folder, name))
    raise RuntimeError(f"no libggml-base below {root}")


def floats(tensor):
    return np.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                                .reshape(-1, int(tensor.shape[0])), dtype=np.float32)


def main():
    folder, text, template, source, out = sys.argv[1:6]
    weights = importance(folder, text, int(sys.argv[6]), int(sys.argv[7]))
    originals = {t.name: t for t in gguf.GGUFReader(source).tensors}
    ggml = library()
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [
        ctypes.c_int64] * 3 + [ctypes.c_void_p]
    shutil.copyfile(template, out + ".part")
    with open(out + ".part", "r+b") as f:
        for tensor in gguf.GGUFReader(template).tensors:
            if len(tensor.shape) < 2:
                continue
            x = floats(originals[tensor.name])
            blocks = np.zeros(int(tensor.n_bytes), np.uint8)
            scale = weights.get(tensor.name)
            if scale is None and tensor.name != "token_embd.weight":
                raise RuntimeError(f"no importance for {tensor.name}")
            size = ggml.ggml_quantize_chunk(int(tensor.tensor_type), x.ctypes.data,
                                            blocks.ctypes.data, 0, x.shape[0], x.shape[1],
                                            None if scale is None else scale.ctypes.data)
            if size != tensor.n_bytes:
                raise RuntimeError(f"{tensor.name}: {size} bytes, need {tensor.n_bytes}")
            f.seek(int(tensor.data_offset))
            f.write(blocks.tobytes())
    os.replace(out + ".part", out)


if __name__ == "__main__":
    main()
