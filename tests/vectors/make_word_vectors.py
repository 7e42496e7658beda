#!/usr/bin/env python3
"""Writes the oracle vectors of the layouts of packed words: GPTQ, AWQ, Marlin, BitBLAS, QQQ.

    pip install gptqmodel==7.7.0 autoawq==0.2.9 numpy   # on a CPU: --no-deps and a few imports
    GPTQMODEL_CPU_WORKERS=2 python tests/vectors/make_word_vectors.py

format/<name>.json has random planes, adversarial scales, and every value. The producers read or
make the planes: GPTQModel's packing for MLX (utils/mlx_packing.py) reads the codes and zero points
of GPTQ, AWQ and BitBLAS tensors, its v1 to v2 conversion the zero points of format "gptq"; its QQQ
layer and AutoAWQ's Marlin layer pack codes. 8-bit Marlin codes have no packer on the CPU: their
order is made from the kernel's permutation. Values are float32(scale * (code - zero)), exact before
the one rounding, or the formula that the format's header states.
"""
import json
import pathlib

import numpy as np
import torch
from awq.modules.linear.marlin import WQLinear_Marlin
from gptqmodel.nn_modules.qlinear import GPTQQuantLinear
from gptqmodel.nn_modules.qlinear.qqq import QQQLinear
from gptqmodel.utils import marlin, mlx_packing
from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module

HERE = pathlib.Path(__file__).parent
COMMAND = "python tests/vectors/make_word_vectors.py"
HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00,
          0x7C01, 0x3C01, 0x2E66, 0xAE66, 0x1000]
FLOATS = [0, 1 << 31, 1, 0x00400000, 0x7F800000, 0x7FC00000, 0x7D7FFFFF, 0x3F804001, 0xBDCCCCCD]
PACKING = "gptqmodel 7.7.0, utils/mlx_packing.py "


def write(name, producer, cases):
    text = json.dumps({"name": name, "producer": producer, "command": COMMAND, "cases": cases},
                      indent=1) + "\n"
    assert len(text) < 65536, (name, len(text))
    (HERE / "format" / f"{name.replace('.', '_')}.json").write_text(text)


def case(planes, values, group, metadata="float16", **more):
    rows, cols = values.shape
    some = range(0, rows, more.pop("every", 1))
    if len(some) < rows:
        more["value_rows"] = list(some)
    return {"rows": rows, "cols": cols, "group": group, "metadata": metadata, **more,
            "planes": [np.ascontiguousarray(plane).tobytes().hex() for plane in planes],
            "values": values[list(some)].astype("<f4").tobytes().hex()}


def words(rng, *shape):
    return rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.int32)


def halves(rng, *shape):
    patterns = rng.integers(0, 2**16, shape, dtype=np.uint16)
    flat = patterns.reshape(-1)
    flat[:min(len(HALVES), flat.size)] = HALVES[:flat.size]
    return patterns.view(np.float16)


def stream(weight, bits, cols):
    """The codes of MLX's rows: one stream of bits a row, low bit first."""
    raw = np.unpackbits(np.ascontiguousarray(weight).view(np.uint8), axis=1, bitorder="little")
    raw = raw[:, :cols * bits].reshape(weight.shape[0], cols, bits)
    return (raw << np.arange(bits)).sum(axis=2).astype(np.int64)


def decode(codes, zeros, scales, group_of):
    """codes [N, K]; zeros and scales [N, G]."""
    level = codes - zeros[:, group_of]
    with np.errstate(invalid="ignore", over="ignore"):
        return (scales.astype(np.float64)[:, group_of] * level).astype(np.float32)


def v2_zeros(qzeros, bits):
    module = GPTQQuantLinear.__new__(GPTQQuantLinear)
    torch.nn.Module.__init__(module)
    module.register_buffer("qzeros", torch.from_numpy(qzeros.copy()))
    module.planar = False
    convert_gptq_v1_to_v2_format_module(module, bits, torch.int32)
    return module.qzeros.numpy()


def gptq_case(rng, kind, bits, rows, cols, group, act_order=False):
    count = -(-cols // group)
    qweight, qzeros = words(rng, cols * bits // 32, rows), words(rng, count, rows * bits // 32)
    scales = halves(rng, count, rows)
    raw = v2_zeros(qzeros, bits) if kind == "gptq" else qzeros
    weight, _, biases = mlx_packing.repack_gptq(
        qweight, raw, np.ones((count, rows), np.float16), cols, rows, bits, kind == "gptq_p")
    codes = stream(weight, 8 if bits == 7 else bits, cols)
    groups = np.arange(cols) // group
    if act_order:
        groups = rng.permutation(groups)
    values = decode(codes, np.round(-biases).astype(np.int64), scales.T, groups)
    more = {"act_order": True} if act_order else {}
    return case([qweight, qzeros, scales, groups.astype(np.int32)], values, group, **more)


def make_gptq(rng):
    for kind, widths in (("gptq", (2, 3, 4, 8)), ("gptq_v2", (2, 3, 4, 8)),
                         ("gptq_p", (3, 5, 6, 7))):
        for bits in widths:
            write(f"{kind}.w{bits}", PACKING + "repack_gptq" + (
                "; utils/model.py convert_gptq_v1_to_v2_format_module" if kind == "gptq" else ""),
                [gptq_case(rng, kind, bits, 32, 96, 64), gptq_case(rng, kind, bits, 32, 32, 32),
                 gptq_case(rng, kind, bits, 32, 32, 16, act_order=True)])


def awq_gemm_case(rng, bits, rows, cols, group, metadata):
    count, line = -(-cols // group), -(-rows * bits // 32)
    qweight, qzeros = words(rng, cols, line), words(rng, count, line)
    unused = 32 * line - rows * bits
    if unused:
        for plane in qweight, qzeros:
            plane[:, -1] &= (1 << (32 - unused)) - 1
    weight, _, biases = mlx_packing.repack_awq(
        qweight, qzeros, np.ones((count, rows), np.float16), cols, rows, bits)
    scales = halves(rng, count, rows)
    wide = scales.astype(np.float32)
    if metadata == "bfloat16":
        wide = (scales.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    codes = stream(weight, 8 if bits == 7 else bits, cols)
    values = decode(codes, np.round(-biases).astype(np.int64), wide.T, np.arange(cols) // group)
    return case([qweight, qzeros, scales], values, group, metadata)


def make_awq(rng):
    for bits in range(2, 9):
        write(f"awq_gemm.w{bits}", PACKING + "repack_awq",
              [awq_gemm_case(rng, bits, 24, 96, 64, "float16"),
               awq_gemm_case(rng, bits, 32, 64, 64, "bfloat16")])
    cases = []
    for rows, cols, group, line in ((8, 192, 64, 2), (8, 256, 256, 1)):
        count = cols // group
        qweight, qzeros = words(rng, rows, cols // 8), words(rng, rows, line)  # padding: anything
        scales = halves(rng, rows, 8 * line)
        weight, _, biases = mlx_packing.repack_awq_gemv(
            qweight, qzeros, np.ones_like(scales), cols, rows, group)
        cases.append(case([qweight, qzeros, scales], decode(
            stream(weight, 4, cols), np.round(-biases).astype(np.int64), scales[:, :count],
            np.arange(cols) // group), group))
    write("awq_gemv.w4", PACKING + "repack_awq_gemv", cases)
    cases = []
    for rows, cols, group, line in ((8, 128, 32, 4), (8, 192, 192, 1), (8, 64, 16, 8)):
        qweight = words(rng, rows // 4, cols // 2).view(np.int16)
        scales, offsets = halves(rng, 8 * line, rows), halves(rng, 8 * line, rows)
        offsets.reshape(-1)[:16] = np.roll(offsets.reshape(-1)[:16], 5)
        weight, s, o = mlx_packing.repack_awq_gemv_fast(qweight, offsets, scales, cols, rows, group)
        groups = np.arange(cols) // group
        with np.errstate(invalid="ignore", over="ignore"):
            product = s.astype(np.float32)[:, groups] * stream(weight, 4, cols).astype(np.float32)
            values = product + o.astype(np.float32)[:, groups]
        cases.append(case([qweight, scales, offsets], values, group))
    for name in "awq_gemv_fast.w4", "llm_awq.w4":
        write(name, PACKING + "repack_awq_gemv_fast", cases)


def make_bitblas(rng):
    for bits in range(2, 9):
        for symmetric in (True, False):
            if symmetric and bits not in (2, 4, 8):
                continue
            cases = []
            for rows, cols, group in ((32, 64, 32), (32, 32, 32)):
                count = cols // group
                qweight = rng.integers(0, 256, (rows, cols * bits // 8), dtype=np.uint8)
                qzeros = rng.integers(0, 256, (count, rows * bits // 8), dtype=np.uint8)
                scales, ones = halves(rng, rows, count), np.ones((rows, count), np.float16)
                if symmetric:
                    qzeros = qzeros[:0, 0]
                    weight, _, biases = mlx_packing.repack_gptq_bitblas(
                        qweight.view(np.int8), qzeros, ones, cols, rows, bits, True)
                else:
                    weight, _, biases = mlx_packing.repack_awq_bitblas(
                        qweight.view(np.int8), qzeros.view(np.int8), ones, cols, rows, bits)
                    if bits in (2, 4, 8):  # with zero points, the other method's bytes are the same
                        other = mlx_packing.repack_gptq_bitblas(
                            qweight.view(np.int8), qzeros.view(np.int8), ones, cols, rows, bits,
                            False)
                        assert np.array_equal(other[0], weight) and np.array_equal(other[2], biases)
                codes = stream(weight, 8 if bits == 7 else bits, cols)
                values = decode(codes, np.round(-biases).astype(np.int64), scales,
                                np.arange(cols) // group)
                cases.append(case([qweight, qzeros, scales], values, group))
            write(f"bitblas.w{bits}" if symmetric else f"bitblas_asym.w{bits}",
                  PACKING + ("repack_gptq_bitblas" if symmetric else "repack_awq_bitblas"), cases)


def marlin_words(codes, bits):
    """codes [K, N] in the order of the Marlin kernel."""
    cols, rows = codes.shape
    if bits == 4:
        linear = torch.nn.Linear(cols, rows, bias=False)
        linear.weight.data = torch.from_numpy(codes.T.astype(np.float32) - 8)
        layer = WQLinear_Marlin.from_linear(linear, 4, cols, scales=torch.ones(rows, 1))
        return layer.qweight.numpy()
    order = []
    for i in range(32):
        for j in range(4):
            order += [256 * j + 16 * (2 * (i % 4) + k) + i // 4 + 8 * block
                      for block in (0, 1) for k in (0, 1, 8, 9)]
    order = np.array(order).reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(-1)
    tiles = codes.reshape(cols // 16, 16, rows // 16, 16).transpose(0, 2, 1, 3)
    line = tiles.reshape(-1, 1024)[:, order].astype(np.uint8)
    return np.ascontiguousarray(line.reshape(cols // 16, -1)).view(np.int32)


def make_marlin(rng):
    for bits in (4, 8):
        plain, stored = [], []
        for rows, cols, group in ((64, 64, 32), (64, 32, 32)):
            count = cols // group
            codes = rng.integers(0, 2**bits, (cols, rows))
            zeros = rng.integers(0, 2**bits, (count, rows))
            scales = halves(rng, count, rows)
            groups, middle = np.arange(cols) // group, np.full_like(zeros, 2**(bits - 1))
            packed = marlin_words(codes, bits)
            moved = marlin.marlin_permute_scales(
                torch.from_numpy(scales.view(np.int16)), cols, rows, group).numpy()
            points = marlin.marlin_zero_points(
                torch.from_numpy(zeros), count, rows, bits).numpy().astype(np.int32)
            plain.append(case([packed, moved], decode(codes.T, middle.T, scales.T, groups), group))
            if cols > group or bits == 4:
                stored.append(case([packed, moved, points],
                                   decode(codes.T, zeros.T, scales.T, groups), group))
        source = "autoawq 0.2.9, modules/linear/marlin.py" if bits == 4 else "the permutation"
        source += "; gptqmodel 7.7.0, utils/marlin.py marlin_permute_scales"
        write(f"marlin.w{bits}", source, plain)
        write(f"marlin_awq.w{bits}", source + ", marlin_zero_points", stored)


def qqq_layer(codes, group):
    """The layer of gptqmodel with these codes [K, N] packed; its scales are ones."""
    cols, rows = codes.shape
    layer = QQQLinear.__new__(QQQLinear)
    torch.nn.Module.__init__(layer)
    layer.bits, layer.maxq, layer.tile = 4, 15, 16
    layer.group_size, layer.in_features, layer.out_features = group, cols, rows
    (layer._perm, layer._perm_i, layer._scale_perm, layer._scale_perm_i, layer._scale_perm_single,
     layer._scale_perm_single_i) = layer._get_perms()
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight.data = torch.from_numpy((codes.T - 8).astype(np.float16))
    layer.pack(linear, torch.ones(rows, cols // group), torch.ones(rows))
    return layer


def floats(rng, count):
    patterns = (rng.integers(0x38000000, 0x3C000000, count, dtype=np.uint32) |
                rng.integers(0, 2, count, dtype=np.uint32) << 31)
    patterns[:len(FLOATS)] = FLOATS
    return patterns.view(np.float32)


def make_qqq(rng):
    producer = "gptqmodel 7.7.0, nn_modules/qlinear/qqq.py pack"
    codes = rng.integers(0, 16, (64, 64))
    layer, channel = qqq_layer(codes, 64), floats(rng, 64)
    order = np.array(layer._scale_perm_single)
    with np.errstate(invalid="ignore", over="ignore"):
        values = (16 * (codes.T - 8)).astype(np.float32) * channel[:, None]
    planes = [layer.B.numpy(), channel.reshape(-1, 32)[:, order], np.zeros(0, np.float16)]
    write("qqq.w4", producer, [case(planes, values, 64)])

    codes = rng.integers(0, 16, (256, 64))
    layer, channel = qqq_layer(codes, 128), floats(rng, 64)
    inner = rng.uniform(-18, 18, (2, 64)).astype(np.float16)
    inner[:, 9:20] = [[5.5, 0, 1, 0.5, -0.5, 1e-7, 16, 127, np.inf, -np.inf, np.nan]]
    inner[1, ::3] = (rng.integers(-40, 40, inner[1, ::3].shape) / 2).astype(np.float16)  # ties
    with np.errstate(invalid="ignore", over="ignore"):
        product = (codes.T - 8) * inner.astype(np.float64).T[:, np.arange(256) // 128]
        whole = np.clip(np.rint(product), -128, 127) + 0.0
        values = whole.astype(np.float32) * channel[:, None]
    planes = [layer.B.numpy(), channel.reshape(-1, 32)[:, order],
              inner.reshape(-1, 64)[:, layer._scale_perm]]
    write("qqq_g128.w4", producer, [case(planes, values, 128, every=3)])


def main():
    rng = np.random.default_rng(20261201)
    make_gptq(rng)
    make_awq(rng)
    make_bitblas(rng)
    make_marlin(rng)
    make_qqq(rng)


if __name__ == "__main__":
    main()
