#!/usr/bin/env python3
"""Writes the oracle vectors of the float-coded and Hugging Face formats.

    pip install mlx==0.32.4 mlx-cpu==0.32.4 bitsandbytes==0.50.2 compressed-tensors==0.20.1 \
        ml_dtypes==0.6.0 torch numpy
    python tests/vectors/make_float_vectors.py

format/<name>.json: random and adversarial planes with every value their producer decodes, in
float32 on the CPU. As make_format_vectors.py, with
    group_rows   rows (FP8) or successive groups (bitsandbytes) that share parameters, if not 1
    constant     bits of the float32 offset of nested statistics, if not 0
Producers: MLX mx.dequantize (mxfp8, nvfp4), compressed-tensors dequantize (packed integers, nvfp4),
bitsandbytes' portable 4-bit decoder with the stored table (its AVX-512 kernel
gives other values where blocks cross the ends of rows) and int8_vectorwise_dequant. FP8 and
ModelOpt's NVFP4 are float32 arithmetic on the tables of ml_dtypes, by their definition.
"""
import json
import pathlib
from importlib.metadata import version

import bitsandbytes.functional as bnb
import ml_dtypes
import mlx.core as mx
import numpy as np
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize

HERE = pathlib.Path(__file__).parent
COMMAND = "python tests/vectors/make_float_vectors.py"
FP8 = {"e4m3fn": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
       "e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "e5m2fnuz": ml_dtypes.float8_e5m2fnuz}
# binary32 patterns of the first scales of a case: 1, 448, zeros, subnormals, largest, non-finite
SCALES = [0x3F800000, 0x43E00000, 0, 1 << 31, 1, 0x00400000, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
          0x7FC00000, 0xBF804000, 0x3DCCCCCD, 0x3E2AAAAB, 0x00800000]
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def data(array):
    return np.ascontiguousarray(array).tobytes().hex()


def case(planes, values, group, metadata="float16", group_rows=1, constant=0):
    values = np.asarray(values)
    assert values.dtype == np.float32, values.dtype
    one = {"rows": values.shape[0], "cols": values.shape[1], "group": group, "metadata": metadata,
           "planes": [data(plane) for plane in planes], "values": data(values)}
    if group_rows != 1:
        one["group_rows"] = group_rows
    if constant:
        one["constant"] = constant
    return one


def write(name, producer, cases):
    path = HERE / "format" / f"{name.replace('.', '_')}.json"
    text = json.dumps({"name": name, "producer": producer, "command": COMMAND, "cases": cases},
                      indent=1) + "\n"
    assert len(text) < 65536, (name, len(text))
    path.write_text(text)


def scales_of(rng, shape, metadata, special=True):
    x = np.exp(rng.uniform(-8, 4, shape)).astype(np.float32)
    flat = x.reshape(-1)
    if special:
        n = min(len(SCALES), flat.size)
        flat[:n] = np.array(SCALES[:n], np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        return x.astype(DTYPES[metadata])


def codes_of(rng, rows, cols, top=256):
    codes = rng.integers(0, top, rows * cols, dtype=np.uint8)
    n = min(top, codes.size)
    codes[:n] = np.arange(n)
    return codes.reshape(rows, cols)


def spread(grid, rows, cols, high, wide):
    return np.repeat(np.repeat(grid, high, 0), wide, 1)[:rows, :cols]


def make_fp8(rng):
    definition = f"float32 arithmetic on the tables of ml_dtypes {version('ml_dtypes')}"
    # rows, cols, block rows, block cols, metadata
    shapes = [(14, 64, 1, 64, "float32"), (4, 66, 4, 66, "float32"), (6, 12, 3, 4, "bfloat16"),
              (3, 32, 1, 32, "float16")]
    partial = [(5, 13, 2, 4, "float32"), (3, 130, 128, 128, "bfloat16")]
    for kind, dtype in FP8.items():
        for divides in False, True:
            cases = []
            for rows, cols, high, wide, metadata in shapes + ([] if divides else partial):
                codes = codes_of(rng, rows, cols)
                grid = scales_of(rng, (-(-rows // high), -(-cols // wide)), metadata)
                level = codes.view(dtype).astype(np.float32)
                scale = spread(grid.astype(np.float32), rows, cols, high, wide)
                with np.errstate(all="ignore"):
                    values = level / scale if divides else level * scale
                cases.append(case([codes, grid], values, wide, metadata, high))
            write(f"fp8.{kind}" + (".divisor" if divides else ""), definition, cases)
    cases = []
    for rows, cols, high, wide in (16, 64, 1, 4), (5, 13, 2, 4):
        codes = codes_of(rng, rows, cols)
        grid = codes_of(rng, -(-rows // high), -(-cols // wide))
        powers = grid.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
        scale = spread(powers, rows, cols, high, wide)
        with np.errstate(all="ignore"):
            values = codes.view(FP8["e4m3fn"]).astype(np.float32) * scale
        cases.append(case([codes, grid], values, wide, group_rows=high))
    write("fp8.e4m3fn.e8m0", definition, cases)


def make_mlx(rng):
    producer = f"mlx {version('mlx')} (cpu), mx.dequantize in float32"
    # Scale byte 255 is infinite in MLX and NaN in OCP MX: not in the vectors.
    for name, mode, bits, group, tops in (("mx.mxfp8", "mxfp8", 8, 32, 255),
                                          ("mlx.nvfp4", "nvfp4", 4, 16, 256)):
        rows, cols = (8, 256) if bits == 8 else (8, 512)
        codes = codes_of(rng, rows, cols * bits // 8)
        scales = codes_of(rng, rows, cols // group, tops)
        scales[0, :4] = [0, 1, 254, 127] if tops == 255 else [0x7F, 0x80, 0xB8, 0xFF]
        values = mx.dequantize(mx.array(codes.view(np.uint32)), mx.array(scales), group_size=group,
                               bits=bits, mode=mode, dtype=mx.float32)
        write(name, producer, [case([codes, scales], np.array(values), 0)])


def make_nvfp4(rng):
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16,
                            symmetric=True)
    producer = f"compressed-tensors {version('compressed-tensors')}, dequantize in float32"
    divided, multiplied = [], []
    for pattern in 0x3F800000, 0x44E91234, 0x3A83126F:
        rows, cols = 4, 256
        codes = codes_of(rng, rows, cols // 2)
        scales = codes_of(rng, rows, cols // 16)
        scales[0, :8] = [0x7F, 0x80, 0xB8, 0xFF, 0, 1, 0x7E, 0xFE]
        number = np.array([pattern], np.uint32).view(np.float32)
        level = unpack_fp4_from_uint8(torch.tensor(codes), rows, cols, dtype=torch.float32)
        e4m3 = torch.tensor(scales).view(torch.float8_e4m3fn).to(torch.float32)
        values = dequantize(x_q=level, scale=e4m3, args=args, dtype=torch.float32,
                            global_scale=torch.tensor(number)).numpy()
        divided.append(case([codes, scales, number], values, 0))
        step = np.repeat(e4m3.numpy() * number, 16, 1)
        multiplied.append(case([codes, scales, number], level.numpy() * step, 0))
    write("ct.nvfp4", producer, divided)
    write("modelopt.nvfp4", "float32 arithmetic by the definition: (scale * scale_2) * level",
          multiplied)


def make_packed(rng):
    producer = f"compressed-tensors {version('compressed-tensors')}, pack_to_int32 and dequantize"
    for bits in 4, 8:
        for symmetric in True, False:
            cases = []
            for rows, cols, group, metadata in ((5, 64, 16, "float32"), (9, 128, 32, "bfloat16"),
                                                (3, 72, 72, "float16")):
                low = -(1 << (bits - 1))
                q = rng.integers(low, -low, (rows, cols)).astype(np.int8)
                q[0, :2] = low, -low - 1
                zero = rng.integers(low, -low, (rows, cols // group)).astype(np.int8)
                scale = scales_of(rng, (rows, cols // group), metadata)
                channel = group == cols
                args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric,
                                        strategy="channel" if channel else "group",
                                        group_size=None if channel else group)
                values = dequantize(
                    x_q=torch.tensor(q), scale=torch.tensor(scale.astype(np.float32)), args=args,
                    zero_point=None if symmetric else torch.tensor(zero), dtype=torch.float32)
                planes = [pack_to_int32(torch.tensor(q), bits).numpy(), scale]
                if not symmetric:
                    planes.append(pack_to_int32(torch.tensor(zero), bits, packed_dim=0).numpy())
                cases.append(case(planes, values.numpy(), group, metadata))
            write(f"ct.pack{'' if symmetric else '_asym'}.w{bits}", producer, cases)


def block_params(cols, block):
    group = int(np.gcd(cols, block))
    return group, block // group


def make_bnb(rng):
    producer = f"bitsandbytes {version('bitsandbytes')} (cpu), backends.default dequantize_4bit"
    dynamic = bnb.create_dynamic_map()
    for kind in "nf4", "fp4":
        code = bnb.get_4bit_type(kind, device="cpu")
        plain, nested = [], []
        for rows, cols, block in ((3, 64, 32), (4, 96, 64), (5, 6, 32), (7, 130, 256),
                                  (2, 1024, 4096), (2, 512, 128)):
            packed = rng.integers(0, 256, (rows * cols // 2, 1), dtype=np.uint8)
            blocks = -(-rows * cols // block)
            group, groups = block_params(cols, block)

            def decode(absmax):
                return _dequantize_4bit_compute(
                    torch.tensor(packed).reshape(-1), torch.tensor(absmax), code, block,
                    (rows, cols), torch.float32).numpy()

            absmax = scales_of(rng, (blocks,), "float32")
            absmax = absmax[::-1].copy()  # the non-finite ones where blocks are many
            if blocks > 6:
                absmax[:2] = np.inf, np.nan
            plain.append(case([packed, absmax], decode(absmax), group, group_rows=groups))
        for rows, cols, block in ((3, 64, 32), (4, 96, 64), (17, 320, 32 if kind == "nf4" else 64)):
            packed = rng.integers(0, 256, (rows * cols // 2, 1), dtype=np.uint8)
            blocks = -(-rows * cols // block)
            group, groups = block_params(cols, block)
            statistics = rng.integers(0, 256, blocks, dtype=np.uint8)
            maxima = np.array([0.37 + i for i in range(-(-blocks // 256))], np.float32)
            if (rows, cols) == (3, 64):
                maxima[0] = np.inf
            offset = np.float32(1.0625 if block == 64 else 0.1)
            absmax = bnb.dequantize_blockwise(torch.tensor(statistics), absmax=torch.tensor(maxima),
                                              code=dynamic, blocksize=256)
            absmax = (absmax + torch.tensor(offset)).numpy()
            nested.append(case([packed, statistics, maxima], decode(absmax), group,
                               group_rows=groups, constant=int(offset.view(np.uint32))))
        write(f"bnb.{kind}", producer, plain)
        write(f"bnb.{kind}.nested", producer + " and dequantize_blockwise", nested)
    q = codes_of(rng, 14, 128)
    scb = scales_of(rng, (14,), "float32")
    values = bnb.int8_vectorwise_dequant(torch.tensor(q.view(np.int8)), torch.tensor(scb))
    q2, scb2 = codes_of(rng, 5, 7), np.array([127, 12.7, 1, 0.5, 3], np.float32)
    values2 = bnb.int8_vectorwise_dequant(torch.tensor(q2.view(np.int8)), torch.tensor(scb2))
    write("bnb.int8", f"bitsandbytes {version('bitsandbytes')} (cpu), int8_vectorwise_dequant",
          [case([q, scb], values.numpy(), 128), case([q2, scb2], values2.numpy(), 7)])


def main():
    mx.set_default_device(mx.cpu)
    rng = np.random.default_rng(20261130)
    make_fp8(rng)
    make_mlx(rng)
    make_nvfp4(rng)
    rng.integers(0, 256, 64 * 36, dtype=np.uint8)  # where make_packed begins
    make_packed(rng)
    make_bnb(rng)


if __name__ == "__main__":
    main()
