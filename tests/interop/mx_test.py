"""Checkpoints that stock mlx_lm makes with its float modes run here with the same greedy tokens,
and go to GGUF and back with the same bytes; what goes out loads in mlx_lm and the gguf package."""

import os
import unittest

import gguf
import mlx.core as mx
import numpy as np
from mlx_lm import convert, load
from safetensors import safe_open

from mlx_lm_test import mlx_greedy
from support import LICENSE_PROMPT, SMOLLM2, packstone, packstone_json, work_folder

TOKENS = 12
MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}


def tensors(folder):
    """Name to bytes of every tensor of a folder's one file."""
    with safe_open(os.path.join(folder, "model.safetensors"), framework="numpy") as f:
        return {name: f.get_tensor(name).tobytes() for name in f.keys()}


class MlxFloatModes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mx.set_default_device(mx.cpu)
        cls.folder = work_folder("mx")
        cls.floats = os.path.join(cls.folder, "floats")
        packstone("convert", SMOLLM2, cls.floats, "--to", "float32")
        for mode, (bits, group) in MODES.items():
            convert(cls.floats, os.path.join(cls.folder, mode), quantize=True, q_bits=bits,
                    q_group_size=group, q_mode=mode, dtype="float32")  # fmt: skip

    def same_tokens(self, path):
        model, _ = load(path)
        model.set_dtype(mx.float32)
        ours = packstone_json("generate", path, "-p", LICENSE_PROMPT, "--max-tokens", TOKENS)
        theirs = mlx_greedy(model, ours["prompt_tokens"], len(ours["tokens"]))
        self.assertEqual(len(ours["tokens"]), TOKENS)
        self.assertEqual(ours["tokens"], theirs)

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_mlx_makes_and_both_run(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                self.same_tokens(self.path(mode))

    def test_to_gguf_and_back(self):
        for mode, layout in (("mxfp4", "gguf:MXFP4"), ("nvfp4", "gguf:NVFP4")):
            with self.subTest(mode=mode):
                there, back = self.path(f"{mode}.gguf"), self.path(f"{mode}-back")
                report = packstone_json("convert", self.path(mode), there, "--to", layout)
                self.assertEqual(report["worst_verdict"], "same_bytes")
                packstone("convert", there, back, "--to", f"mlx-{mode}")
                self.assertEqual(tensors(self.path(mode)), tensors(back))
                self.same_tokens(back)

    def test_gguf_package_reads_the_values(self):
        there, floats = self.path("values.gguf"), self.path("values")
        packstone("convert", self.path("mxfp4"), there, "--to", "gguf:MXFP4")
        packstone("convert", self.path("mxfp4"), floats, "--to", "float32")
        name = "model.layers.3.mlp.down_proj.weight"
        with safe_open(os.path.join(floats, "model.safetensors"), framework="numpy") as f:
            want = f.get_tensor(name)
        reader = gguf.GGUFReader(there)
        tensor = next(t for t in reader.tensors if t.name == "blk.3.ffn_down.weight")
        got = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        self.assertTrue(np.array_equal(want, got))  # -0 equals +0


if __name__ == "__main__":
    unittest.main()
