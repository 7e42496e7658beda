"""NVFP4 weights that torchao quantizes, stored as ModelOpt names them, decode here to the bits of
torchao's dequantization; what is written here does so there."""

import json
import os
import unittest

import torch
from safetensors.torch import save_file
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

from torch_support import check, packstone, packstone_values, tensors, tiny_llama, work_folder

PROGRAM = "torchao"
SETTINGS = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
            "ignore": ["lm_head"]}  # fmt: skip


def dequantized(path):
    """Name of a linear layer to its values, by torchao on the tensors of a ModelOpt folder."""
    stored = tensors(path)
    values = {}
    for name in [n for n in stored if n.endswith("_proj.weight")]:
        weight = NVFP4Tensor(stored[name], stored[f"{name}_scale"], 16, torch.float32,
                             stored[f"{name}_scale_2"].reshape(()))  # fmt: skip
        values[name.removesuffix(".weight")] = weight.dequantize(torch.float32)
    return values


class Torchao(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = work_folder("torchao")
        cls.tiny = tiny_llama(cls.folder, torch.float32)

    def path(self, name):
        return os.path.join(self.folder, name)

    def source(self):
        stored = {}
        for key, value in tensors(self.tiny).items():
            if not key.endswith("_proj.weight"):
                stored[key] = value
                continue
            scale = per_tensor_amax_to_scale(value.abs().amax())
            weight = NVFP4Tensor.to_nvfp4(value, per_tensor_scale=scale)
            stored[key] = weight.qdata.view(torch.uint8)
            stored[f"{key}_scale"] = weight.scale.view(torch.float8_e4m3fn)
            stored[f"{key}_scale_2"] = scale.reshape(())
        os.makedirs(self.path("made"))
        save_file(stored, os.path.join(self.path("made"), "model.safetensors"), {"format": "pt"})
        with open(os.path.join(self.tiny, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        with open(os.path.join(self.path("made"), "config.json"), "w", encoding="utf-8") as f:
            json.dump({**config, "quantization_config": SETTINGS}, f)
        return self.path("made")

    def test_nvfp4(self):
        path = self.source()
        ours = packstone_values(path)
        check(self, PROGRAM, "nvfp4 in ModelOpt's layout", dequantized(path), ours)
        packstone("convert", path, self.path("copy"), "--to", "modelopt-nvfp4")
        check(self, PROGRAM, "nvfp4, our copy", dequantized(self.path("copy")), ours)


if __name__ == "__main__":
    unittest.main()
