"""Blocks of float8 that transformers quantizes decode here to the bits of its own dequantization,
and transformers loads what is written here with the same numbers."""

import json
import os
import unittest
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import Fp8Quantize

from torch_support import check, packstone, packstone_values, tensors, tiny_llama, work_folder

PROGRAM = "transformers"


def loaded(path):
    """Name of a linear layer to its values; without a GPU transformers dequantizes them."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return {name: module.weight.data for name, module in model.named_modules()
            if name.endswith("_proj")}  # fmt: skip


class TransformersFp8(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = work_folder("transformers_fp8")
        cls.tiny = tiny_llama(cls.folder, torch.float32)
        with open(os.path.join(cls.tiny, "config.json"), encoding="utf-8") as f:
            cls.config = json.load(f)

    def source(self, name, settings):
        """The folder as transformers would save it from a GPU, which its save asks for."""
        path, stored = os.path.join(self.folder, name), {}
        quantizer = Fp8Quantize(SimpleNamespace(quantization_config=settings))
        for key, value in tensors(self.tiny).items():
            linear = key.endswith("_proj.weight")
            stored.update(quantizer.convert({key: value}) if linear else {key: value})
        os.makedirs(path)
        save_file(stored, os.path.join(path, "model.safetensors"), {"format": "pt"})
        says = {**settings.to_dict(), "modules_to_not_convert": ["lm_head"]}
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            json.dump({**self.config, "quantization_config": says}, f)
        return path

    def check_blocks(self, name, layout, **settings):
        path = self.source(name, FineGrainedFP8Config(**settings))
        ours = packstone_values(path)
        check(self, PROGRAM, f"{name}, as it saves it", loaded(path), ours)
        packstone("convert", path, f"{path}-copy", "--to", layout)
        check(self, PROGRAM, f"{name}, our copy", loaded(f"{path}-copy"), ours)

    def test_float32_scales(self):
        for block in ((128, 128), (64, 32)):
            with self.subTest(block=block):
                self.check_blocks(f"fp8-{block[0]}x{block[1]}", "fp8", weight_block_size=block)

    def test_power_of_two_scales(self):
        self.check_blocks("fp8-ue8m0", "fp8-e8m0", weight_block_size=(128, 128), scale_fmt="ue8m0")


if __name__ == "__main__":
    unittest.main()
