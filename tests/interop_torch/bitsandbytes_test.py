"""What bitsandbytes quantizes and transformers saves decodes here to the bits of bitsandbytes'
own dequantization, and transformers loads what is written here with the same numbers."""

import json
import os
import unittest

import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from bitsandbytes.functional import (
    QuantState,
    dequantize_4bit,
    dequantize_blockwise,
    int8_vectorwise_dequant,
    int8_vectorwise_quant,
    quantize_4bit,
)
from bitsandbytes.nn import Linear4bit, Linear8bitLt
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from torch_support import check, packstone, packstone_values, tensors, tiny_llama, work_folder

PROGRAM = "bitsandbytes"
BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)


def layout_of(kind, nested):
    return f"bnb-{kind}-nested" if nested else f"bnb-{kind}"


def dequantized(codes, state):
    """By bitsandbytes. The compiled CPU kernel of 0.50.2 takes scales of other blocks where a row
    is no whole number of blocks (error 0.9 of what it quantized itself): its torch formula there.
    """
    if state.shape[-1] % state.blocksize == 0:
        return dequantize_4bit(codes, state)
    absmax = state.absmax
    if state.nested:
        absmax = dequantize_blockwise(absmax, state.state2) + state.offset
    return _dequantize_4bit_compute(codes.reshape(-1), absmax, state.code, state.blocksize,
                                    state.shape, state.dtype)  # fmt: skip


def loaded(path):
    """Name of a linear layer to the values of it that transformers loads."""
    model = AutoModelForCausalLM.from_pretrained(path, device_map="cpu")
    values = {}
    for name, module in model.named_modules():
        if isinstance(module, Linear4bit):
            values[name] = dequantized(module.weight.data, module.weight.quant_state)
        elif isinstance(module, Linear8bitLt):
            values[name] = int8_vectorwise_dequant(module.weight.data, module.weight.SCB)
    return values


def stored_values(path):
    """The same without transformers: bitsandbytes on the tensors of the file."""
    stored, values = tensors(path), {}
    for name in [n for n in stored if n.endswith("_proj.weight")]:
        if name.removesuffix("weight") + "SCB" in stored:
            scb = stored[name.removesuffix("weight") + "SCB"]
            values[name.removesuffix(".weight")] = int8_vectorwise_dequant(stored[name], scb)
            continue
        state = {k: v for k, v in stored.items() if k.startswith(name + ".")}
        state = {k.removeprefix(name + "."): v for k, v in state.items()}
        state = QuantState.from_dict(state, device=torch.device("cpu"))
        values[name.removesuffix(".weight")] = dequantized(stored[name], state)
    return values


class Bitsandbytes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = work_folder("bitsandbytes")
        cls.tiny = {}
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            folder = os.path.join(cls.folder, str(dtype).removeprefix("torch."))
            os.makedirs(folder)
            cls.tiny[dtype] = tiny_llama(folder, dtype)
        with open(os.path.join(cls.tiny[torch.float32], "config.json"), encoding="utf-8") as f:
            cls.config = json.load(f)

    def path(self, name):
        return os.path.join(self.folder, name.replace(" ", "-").replace(",", ""))

    def convert(self, path, layout):
        to = f"{path}-to-{layout}"
        packstone("convert", path, to, "--to", layout, "--force")
        return to

    def by_transformers(self, name, dtype, **settings):
        path = self.path(name)
        model = AutoModelForCausalLM.from_pretrained(
            self.tiny[dtype], device_map="cpu", dtype=dtype,
            quantization_config=BitsAndBytesConfig(**settings))  # fmt: skip
        model.save_pretrained(path)
        return path

    def by_tensors(self, name, settings, make):
        """A folder of the float32 tensors whose linear layers are those that `make` gives."""
        path, stored = self.path(name), {}
        for key, value in tensors(self.tiny[torch.float32]).items():
            stored.update(make(key, value) if key.endswith("_proj.weight") else {key: value})
        os.makedirs(path)
        save_file(stored, os.path.join(path, "model.safetensors"), {"format": "pt"})
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            json.dump({**self.config, "quantization_config": settings}, f)
        return path

    def test_4_bits_by_transformers(self):
        for kind in ("nf4", "fp4"):
            for nested in (False, True):
                for dtype in (torch.float16, torch.bfloat16, torch.float32):
                    name = f"{kind} {'nested ' if nested else ''}{str(dtype)[6:]}"
                    with self.subTest(name=name):
                        path = self.by_transformers(
                            name, dtype, load_in_4bit=True, bnb_4bit_quant_type=kind,
                            bnb_4bit_use_double_quant=nested)  # fmt: skip
                        ours = packstone_values(path)
                        check(self, PROGRAM, f"{name}, as transformers saves it", loaded(path),
                              ours)  # fmt: skip
                        copy = self.convert(path, layout_of(kind, nested))
                        check(self, PROGRAM, f"{name}, our copy", loaded(copy), ours)

    def test_8_bits_by_transformers(self):
        path = self.by_transformers("int8", torch.float16, load_in_8bit=True)
        ours = packstone_values(path)
        check(self, PROGRAM, "int8, as transformers saves it", loaded(path), ours)
        copy = self.convert(path, "bnb-int8")
        check(self, PROGRAM, "int8, our copy", loaded(copy), ours)

    def test_8_bits_of_float32(self):
        def make(name, value):
            codes, scb, _ = int8_vectorwise_quant(value)
            return {name: codes, name.removesuffix("weight") + "SCB": scb}

        path = self.by_tensors("int8 of float32", BitsAndBytesConfig(load_in_8bit=True).to_dict(),
                               make)  # fmt: skip
        check(self, PROGRAM, "int8 of float32", stored_values(path), packstone_values(path))

    def test_every_block_size(self):
        for kind in ("nf4", "fp4"):
            for nested in (False, True):
                for block in BLOCKS:
                    name = f"{kind} {'nested ' if nested else ''}blocks of {block}"

                    def make(key, value, kind=kind, nested=nested, block=block):
                        codes, state = quantize_4bit(value, blocksize=block, quant_type=kind,
                                                     compress_statistics=nested)  # fmt: skip
                        parts = {key: codes}
                        for part, tensor in state.as_dict(packed=True).items():
                            parts[f"{key}.{part}"] = tensor
                        return parts

                    with self.subTest(name=name):
                        settings = BitsAndBytesConfig(
                            load_in_4bit=True, bnb_4bit_quant_type=kind,
                            bnb_4bit_use_double_quant=nested)  # fmt: skip
                        path = self.by_tensors(name, settings.to_dict(), make)
                        ours = packstone_values(path)
                        check(self, PROGRAM, name, stored_values(path), ours)
                        copy = self.convert(path, layout_of(kind, nested))
                        check(self, PROGRAM, f"{name}, our copy", stored_values(copy), ours)
                        if block == 64:
                            check(self, PROGRAM, f"{name}, our copy by transformers",
                                  loaded(copy), ours)  # fmt: skip

    def test_nested_scales_unfolded(self):
        path = self.by_transformers("nf4 to unfold", torch.float16, load_in_4bit=True,
                                    bnb_4bit_quant_type="nf4",
                                    bnb_4bit_use_double_quant=True)  # fmt: skip
        ours = packstone_values(path)
        moved = self.convert(path, "bnb-nf4")
        check(self, PROGRAM, "nf4 nested, moved to bnb-nf4", loaded(moved), ours)


if __name__ == "__main__":
    unittest.main()
