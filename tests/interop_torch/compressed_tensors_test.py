"""What compressed-tensors compresses and transformers saves decodes here to the bits of its own
decompression, and transformers loads and decompresses what is written here to the same numbers."""

import json
import os
import unittest

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.compressors.base import decompress_module
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.quant_config import QuantizationStatus
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

from torch_support import (
    check,
    packstone,
    packstone_values,
    real_model,
    tiny_llama,
    work_folder,
)

PROGRAM = "compressed-tensors"


def integers(bits, group, symmetric):
    """A scheme of packed integers; group 0 is the whole row."""
    return QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(
            num_bits=bits, type="int", symmetric=symmetric, group_size=group or None,
            strategy="group" if group else "channel"))  # fmt: skip


# Name: the scheme, and our layout of it.
SCHEMES = {
    f"int{bits} {f'g{group}' if group else 'rows'}{'' if symmetric else ' asymmetric'}": (
        integers(bits, group, symmetric), "ct-pack" if symmetric else "ct-pack-asym")
    for bits in (4, 8) for group in (0, 32, 128) for symmetric in (True, False)
} | {
    preset: (preset_name_to_scheme(preset, ["Linear"]), layout)
    for preset, layout in (
        ("W4A16", "ct-pack"), ("W4A16_ASYM", "ct-pack-asym"), ("W8A16", "ct-pack"),
        ("FP8", "fp8"), ("FP8_DYNAMIC", "fp8"), ("FP8_BLOCK", "fp8"),
        ("NVFP4A16", "ct-nvfp4"), ("NVFP4", "ct-nvfp4"), ("MXFP4A16", "mxfp4"))
}  # fmt: skip


MOVES = {
    "int4 g32": ("ct-pack-asym",),
    "int4 g128 asymmetric": ("ct-pack",),
    "MXFP4A16": ("ct-nvfp4", "ct-pack"),
}


def observe(module):
    """Scales and zero points of the weight, by the package's own formulas."""
    args, weight = module.quantization_scheme.weights, module.weight.data
    extra = {}
    if args.strategy in ("group", "tensor_group"):
        blocks = weight.reshape(weight.shape[0], -1, args.group_size)
        low, high = blocks.amin(-1), blocks.amax(-1)
    elif args.strategy == "channel":
        low, high = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    elif args.strategy == "block":
        rows, cols = args.block_structure
        blocks = weight.reshape(weight.shape[0] // rows, rows, weight.shape[1] // cols, cols)
        low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    else:
        low, high = weight.amin().reshape(1), weight.amax().reshape(1)
    if args.strategy == "tensor_group":
        extra["global_scale"] = generate_gparam(weight.amin().reshape(1), weight.amax().reshape(1))
        module.weight_global_scale.data = extra["global_scale"]
    scale, zero = calculate_qparams(low, high, args, **extra)
    module.weight_scale.data = scale.to(module.weight_scale.dtype)
    if hasattr(module, "weight_zero_point"):
        module.weight_zero_point.data = zero.to(module.weight_zero_point.dtype)
    for name in ("input_scale", "input_global_scale"):  # of activations: any number does
        if hasattr(module, name):
            getattr(module, name).data.fill_(1.0)
    module.quantization_status = QuantizationStatus.FROZEN


def quantized_modules(model):
    return {name: module for name, module in model.named_modules()
            if getattr(module, "quantization_scheme", None) is not None}  # fmt: skip


def decompressed(path, dtype):
    """Name of a linear layer to the values of it that transformers loads."""
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        group = json.load(f)["quantization_config"]["config_groups"]["group_0"]
    if not group["weights"]["symmetric"]:
        # Packed zero points load only so: the empty model of 0.20.1 has room for unpacked ones.
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, quantization_config=CompressedTensorsConfig(dequantize=True))
        return {name: module.weight.data for name, module in model.named_modules()
                if name.endswith("_proj")}  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    values = {}
    for name, module in quantized_modules(model).items():
        decompress_module(module)
        values[name] = module.weight.data
    return values


class CompressedTensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = work_folder("compressed_tensors")
        cls.tiny = tiny_llama(cls.folder, torch.float32)

    def source(self, name, scheme, dtype):
        path = os.path.join(self.folder, f"{name}-{str(dtype)[6:]}".replace(" ", "-"))
        model = AutoModelForCausalLM.from_pretrained(self.tiny, dtype=dtype)
        config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"])
        apply_quantization_config(model, config)
        for module in quantized_modules(model).values():
            observe(module)
        compressor = ModelCompressor.from_pretrained_model(model)
        compressor.compress_model(model)
        model.save_pretrained(path)
        compressor.update_config(path)
        return path

    def convert(self, path, layout):
        to = f"{path}-to-{layout}"
        packstone("convert", path, to, "--to", layout, "--force")
        return to

    def check_source(self, name, dtype):
        scheme, layout = SCHEMES[name]
        path = self.source(name, scheme.model_copy(deep=True), dtype)
        ours = packstone_values(path)
        check(self, PROGRAM, f"{name}, as it saves it", decompressed(path, dtype), ours)
        copy = self.convert(path, layout)
        check(self, PROGRAM, f"{name}, our copy", decompressed(copy, dtype), ours)

    def test_float16(self):
        for name in SCHEMES:
            with self.subTest(name=name):
                self.check_source(name, torch.float16)

    def test_bfloat16(self):
        for name in SCHEMES:
            with self.subTest(name=name):
                self.check_source(name, torch.bfloat16)

    def test_float32(self):
        for name in SCHEMES:
            with self.subTest(name=name):
                self.check_source(name, torch.float32)

    def test_moves(self):
        """Moved to another layout, it decompresses to the values of the source."""
        for name, layouts in MOVES.items():
            path = self.source(name, SCHEMES[name][0].model_copy(deep=True), torch.float16)
            ours = packstone_values(path)
            for layout in layouts:
                with self.subTest(name=name, layout=layout):
                    moved = decompressed(self.convert(path, layout), torch.float16)
                    # Integers have no -0.
                    want = {n: v + 0.0 if layout == "ct-pack" else v for n, v in ours.items()}
                    check(self, PROGRAM, f"{name}, moved to {layout}", moved, want)

    def test_real_model(self):
        path, ours = real_model(self.folder)
        for layout in ("ct-pack", "ct-pack-asym"):
            with self.subTest(layout=layout):
                theirs = decompressed(self.convert(path, layout), torch.float16)
                check(self, PROGRAM, f"SmolLM2 Q4_0, moved to {layout}", theirs,
                      {name: ours[name] for name in theirs}, 210)  # fmt: skip


if __name__ == "__main__":
    unittest.main()
