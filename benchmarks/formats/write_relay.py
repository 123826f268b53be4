#!/usr/bin/env python3
# ruff: noqa: E501
"""Write programs in Relay's text, with results of PyTorch and NumPy for `check.py`:
`python benchmarks/formats/write_relay.py FOLDER`.

TVM no longer has Relay, and its older wheels are gone, so the texts are written by hand as TVM's
printer writes them.
"""

from __future__ import annotations

# fmt: off
import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

NAMES = {np.dtype("bool"): "bool"}
RANDOM = np.random.default_rng(0)
Cases = dict[str, tuple[str, dict[str, np.ndarray], Callable[..., Any]]]
CASES: Cases = {}


def f(*shape: int) -> np.ndarray:
    """Random floats."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def i(low: int, high: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    """Random integers from `low` to `high` - 1."""
    return RANDOM.integers(low, high, shape).astype(dtype)


def case(name: str, text: str, expected: Callable[..., Any], *inputs: np.ndarray) -> None:
    """Enter a case: an expression, or bindings and an expression, of %a, %b, ..."""
    CASES[name] = text, dict(zip("abcdefgh", inputs, strict=False)), expected


def on_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of tensors, for arrays."""

    def run(*arrays: np.ndarray) -> Any:
        return function(*(torch.from_numpy(np.array(a)) for a in arrays))

    return run


def nhwc(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1)


def nchw(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


def elements() -> None:
    x, y, small = f(3, 4), f(4), RANDOM.uniform(-0.9, 0.9, (3, 4)).astype(np.float32)
    for name in (
        "abs", "ceil", "floor", "trunc", "exp", "sin", "cos", "tan", "tanh", "sinh", "cosh",
        "negative", "sign", "isnan", "isinf", "isfinite",
    ):
        case(name, f"{name}(%a)", getattr(np, name), x)
    for name in ("log", "sqrt", "log2", "log10"):
        case(name, f"{name}(%a)", getattr(np, name), np.abs(x) + 0.1)
    for name in ("asin", "acos", "atan", "atanh"):
        case(name, f"{name}(%a)", getattr(np, name.replace("a", "arc", 1)), small)
    case("asinh", "asinh(%a)", np.arcsinh, x)
    case("acosh", "acosh(%a)", np.arccosh, np.abs(x) + 1.1)
    case("rsqrt", "rsqrt(%a)", lambda a: 1 / np.sqrt(a), np.abs(x) + 0.1)
    case("erf", "erf(%a)", on_torch(torch.erf), x)
    case("sigmoid", "sigmoid(%a)", on_torch(torch.sigmoid), x)
    case("relu", "nn.relu(%a)", lambda a: np.maximum(a, 0), x)
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.4, 0.49999997], np.float32)
    away = np.array([-3, -2, -1, 1, 2, 2, 0], np.float32)
    case("round", "round(%a)", lambda a: away, halves)
    for name in (
        "add", "subtract", "multiply", "divide", "maximum", "minimum", "equal", "not_equal",
        "less", "less_equal", "greater", "greater_equal",
    ):
        case(name, f"{name}(%a, %b)", getattr(np, name), x, y)
    case("power", "power(%a, %b)", np.power, np.abs(x) + 0.1, y)
    case("infix", "%a * %b + 2f - %a / %b", lambda a, b: a * b + 2 - a / b, x, y + 3)
    case("comparison", "%a + %b < %a * %b", lambda a, b: a + b < a * b, x, y)
    flags = i(0, 2, 3, 4, dtype="bool")
    for name in ("logical_and", "logical_or", "logical_xor"):
        case(name, f"{name}(%a, %b)", getattr(np, name), flags, ~flags[:1])
    case("logical_not", "logical_not(%a)", np.logical_not, flags)
    p, q = i(-20, 20, 3, 4), i(1, 7, 4)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        case(name, f"{name}(%a, %b)", getattr(np, name), p, q)
    case("bitwise_not", "bitwise_not(%a)", np.bitwise_not, p)
    case("left_shift", "left_shift(%a, %b)", np.left_shift, p, q[:1])
    case("right_shift", "right_shift(%a, %b)", np.right_shift, p, q[:1])
    case("int_divide", "divide(%a, %b)", lambda a, b: np.trunc(a / b).astype(np.int32), p, q)
    case("floor_divide", "floor_divide(%a, %b)", np.floor_divide, p, q)
    case("floor_divide_f", "floor_divide(%a, %b)", np.floor_divide, x, y)
    case("trunc_divide", "trunc_divide(%a, %b)", lambda a, b: np.trunc(a / b), x, y)
    case("mod", "mod(%a, %b)", np.fmod, p, q)
    case("floor_mod", "floor_mod(%a, %b)", np.mod, p, q)
    case("where", "where(%a, %b, %c)", np.where, flags, x, y)
    case("cast", 'cast(%a, dtype="int64")', lambda a: a.astype(np.int64), x * 5)
    case("cast_like", "cast_like(%a, %b)", lambda a, b: a.astype(np.int32), x * 5, p)
    case("clip", "clip(%a, a_min=-0.5f, a_max=6f)", lambda a: np.clip(a, -0.5, 6), x)
    case("clip_int", "clip(%a, a_min=-3f, a_max=5f)", lambda a: np.clip(a, -3, 5), p)
    case("clip_uint8", "clip(%a, a_min=0f, a_max=255f)", lambda a: a, i(0, 255, 9, dtype="uint8"))
    case("leaky_relu", "nn.leaky_relu(%a, alpha=0.2f)", on_torch(lambda a: F.leaky_relu(a, 0.2)), x)
    slope = np.abs(f(3))
    case("prelu", "nn.prelu(%a, %b, axis=0)", lambda a, b: np.where(a > 0, a, a * b[:, None]), x, slope)
    case("dropout", "%0 = nn.dropout(%a, rate=0.5f);\n  %0.0", lambda a: a, x)
    case("softmax", "nn.softmax(%a, axis=1)", on_torch(lambda a: F.softmax(a, 1)), x)
    case("log_softmax", "nn.log_softmax(%a)", on_torch(lambda a: F.log_softmax(a, -1)), x)
    case("bias_add", "nn.bias_add(%a, %b, axis=-1)", lambda a, b: a + b, x, y)
    case("bias_add_1", "nn.bias_add(%a, %b)", lambda a, b: a + b[:, None, None], f(2, 4, 3, 3), y)


def reductions() -> None:
    x = f(2, 3, 4)
    for name in ("sum", "mean", "max", "min", "prod"):
        function = getattr(np, name)
        case(name, f"{name}(%a, axis=[1])", lambda a, g=function: g(a, 1), x)
        case(f"{name}_all", f"{name}(%a)", lambda a, g=function: g(a), x)
        text = f"{name}(%a, axis=[0, -1], keepdims=True)"
        case(f"{name}_kept", text, lambda a, g=function: g(a, (0, 2), keepdims=True), x)
        text = f"{name}(%a, axis=[1], exclude=True)"
        case(f"{name}_others", text, lambda a, g=function: g(a, (0, 2)), x)
    for name in ("all", "any"):
        case(name, f"{name}(%a, axis=[1])", lambda a, g=name: getattr(np, g)(a, 1), x > 0)
    for name in ("argmax", "argmin"):
        g = getattr(np, name)
        case(name, f"{name}(%a, axis=[1])", lambda a, g=g: g(a, 1).astype(np.int32), x)
        text = f"{name}(%a, axis=[-1], keepdims=True)"
        case(f"{name}_kept", text, lambda a, g=g: g(a, -1, keepdims=True).astype(np.int32), x)
        case(f"{name}_all", f"{name}(%a)", lambda a, g=g: g(a).astype(np.int32), x)
    text = "%0 = mean(%a, axis=[1], keepdims=True);\n  variance(%a, %0, axis=[1])"
    case("variance", text, lambda a: a.var(1), x)
    text = "%0 = mean(%a, axis=[1], keepdims=True);\n  variance(%a, %0, axis=[1], unbiased=True)"
    case("variance_unbiased", text, lambda a: a.var(1, ddof=1), x)
    case("logsumexp", "logsumexp(%a, axis=[2])", on_torch(lambda a: torch.logsumexp(a, 2)), x)
    case("cumsum", "cumsum(%a, axis=1)", lambda a: np.cumsum(a, 1), x)
    case("cumsum_flat", "cumsum(%a)", lambda a: np.cumsum(a), x)
    case("cumprod", "cumprod(%a, axis=2)", lambda a: np.cumprod(a, 2), x)


def normalizations() -> None:
    x, c = f(2, 6, 5, 4), [np.abs(f(6)) + 0.5 for _ in range(4)]

    def batch(a: Any, g: Any, b: Any, m: Any, v: Any) -> Any:
        return F.batch_norm(a, m, v, g, b, eps=1e-3)

    text = "%0 = nn.batch_norm(%a, %b, %c, %d, %e, epsilon=0.001f);\n  %0.0"
    case("batch_norm", text, on_torch(batch), x, *c)
    text = "%0 = nn.batch_norm(%a, %b, %c, %d, %e, axis=3, epsilon=0.001f);\n  %0.0"
    last = on_torch(lambda a, *r: nhwc(batch(nchw(a), *r)))
    case("batch_norm_nhwc", text, last, x.transpose(0, 2, 3, 1).copy(), *c)
    text = "%0 = nn.batch_norm(%a, %b, %c, %d, %e, scale=False);\n  %0.0"
    plain = on_torch(lambda a, g, b, m, v: F.batch_norm(a, m, v, None, b))
    case("batch_norm_plain", text, plain, x, *c)
    y = f(2, 3, 6)
    case("layer_norm", "nn.layer_norm(%a, %b, %c, epsilon=1e-06f)",
         on_torch(lambda a, g, b: F.layer_norm(a, (6,), g, b, 1e-6)), y, *c[:2])
    case("layer_norm_1", "nn.layer_norm(%a, %b, %c, axis=1)",
         on_torch(lambda a, g, b: F.layer_norm(a.mT, (6,), g, b).mT), f(2, 6, 3), *c[:2])
    case("instance_norm", "nn.instance_norm(%a, %b, %c)",
         on_torch(lambda a, g, b: F.instance_norm(a, None, None, g, b)), x, *c[:2])
    case("group_norm", "nn.group_norm(%a, %b, %c, num_groups=3)",
         on_torch(lambda a, g, b: F.group_norm(a, 3, g, b)), x, *c[:2])
    case("lrn", "nn.lrn(%a, size=3, bias=1f, alpha=0.001f, beta=0.75f)",
         on_torch(lambda a: F.local_response_norm(a, 3, 0.001, 0.75, 1.0)), x)
    case("l2_normalize", "nn.l2_normalize(%a, eps=1e-10f, axis=[1])",
         on_torch(lambda a: F.normalize(a, dim=1, eps=1e-5)), x)


def convolutions() -> None:
    x, w = f(2, 4, 9, 8), f(6, 4, 3, 3)
    conv = "nn.conv2d(%a, %b, {})"
    case("conv2d", conv.format("padding=[1, 1, 1, 1], channels=6, kernel_size=[3, 3]"),
         on_torch(lambda a, b: F.conv2d(a, b, padding=1)), x, w)
    case("conv2d_strided", conv.format("strides=[2, 2], padding=[0, 0, 1, 1], dilation=[1, 2]"),
         on_torch(lambda a, b: F.conv2d(F.pad(a, (0, 1, 0, 1)), b, None, 2, 0, (1, 2))), x, w)
    case("conv2d_bare", "nn.conv2d(%a, %b, padding=[0, 0, 0, 0])", on_torch(F.conv2d), x, w)
    case("conv2d_grouped", conv.format("groups=2"), on_torch(lambda a, b: F.conv2d(a, b, groups=2)), x, f(6, 2, 3, 3))
    case("conv2d_depthwise", conv.format("groups=4, channels=4"),
         on_torch(lambda a, b: F.conv2d(a, b, groups=4)), x, f(4, 1, 3, 3))
    case("conv2d_multiplied", conv.format("groups=4, channels=8"),
         on_torch(lambda a, b: F.conv2d(a, b.reshape(8, 1, 3, 3), groups=4)), x, f(4, 2, 3, 3))
    images = x.transpose(0, 2, 3, 1).copy()
    case("conv2d_nhwc", conv.format('padding=[1, 1], data_layout="NHWC", kernel_layout="HWIO"'),
         on_torch(lambda a, b: nhwc(F.conv2d(nchw(a), b.permute(3, 2, 0, 1), padding=1))),
         images, w.transpose(2, 3, 1, 0).copy())
    case("depthwise_nhwc", conv.format('groups=4, data_layout="NHWC", kernel_layout="HWOI"'),
         on_torch(lambda a, b: nhwc(F.conv2d(nchw(a), b.permute(2, 3, 0, 1).reshape(8, 1, 3, 3), groups=4))),
         images, f(3, 3, 4, 2))
    case("conv1d", "nn.conv1d(%a, %b, strides=[2], padding=[1, 1])",
         on_torch(lambda a, b: F.conv1d(a, b, None, 2, 1)), f(2, 3, 9), f(4, 3, 3))
    case("conv3d", "nn.conv3d(%a, %b, padding=[1, 1, 1, 1, 1, 1])",
         on_torch(lambda a, b: F.conv3d(a, b, None, 1, 1)), f(1, 2, 5, 5, 5), f(3, 2, 3, 3, 3))
    case("conv2d_transpose", "nn.conv2d_transpose(%a, %b, strides=[2, 2], padding=[1, 1, 1, 1], output_padding=[1, 1])",
         on_torch(lambda a, b: F.conv_transpose2d(a, b, None, 2, 1, 1)), x, f(4, 5, 3, 3))
    case("conv1d_transpose", "nn.conv1d_transpose(%a, %b, strides=[2])",
         on_torch(lambda a, b: F.conv_transpose1d(a, b, None, 2)), f(2, 3, 5), f(3, 4, 3))
    case("conv3d_transpose", "nn.conv3d_transpose(%a, %b)",
         on_torch(F.conv_transpose3d), f(1, 2, 4, 4, 4), f(2, 3, 3, 3, 3))
    case("dense", "nn.dense(%a, %b, units=5)", lambda a, b: a @ b.T, f(3, 4), f(5, 4))
    case("dense_int", 'nn.dense(%a, %b, units=5, out_dtype="int32")', lambda a, b: a.astype(np.int32) @ b.T.astype(np.int32),
         i(-128, 128, 3, 4, dtype="int8"), i(-128, 128, 5, 4, dtype="int8"))
    case("matmul", "nn.matmul(%a, %b, transpose_a=True)", lambda a, b: a.T @ b, f(4, 3), f(4, 5))
    case("batch_matmul", "nn.batch_matmul(%a, %b, transpose_b=True)", lambda a, b: a @ b.swapaxes(1, 2), f(2, 3, 4), f(2, 5, 4))
    case("batch_matmul_plain", 'nn.batch_matmul(%a, %b, out_dtype="float32", transpose_b=False)', np.matmul, f(2, 3, 4), f(2, 4, 5))
    case("einsum", 'einsum((%a, %b), equation="ij,jk->ik")', np.matmul, f(3, 4), f(4, 5))


def pools() -> None:
    x = f(2, 3, 9, 8)
    images = x.transpose(0, 2, 3, 1).copy()
    case("max_pool2d", "nn.max_pool2d(%a, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])",
         on_torch(lambda a: F.max_pool2d(a, 3, 2, 1)), x)
    case("max_pool2d_ceil", "nn.max_pool2d(%a, pool_size=[3, 3], strides=[2, 2], padding=[0, 0], ceil_mode=True)",
         on_torch(lambda a: F.max_pool2d(a, 3, 2, ceil_mode=True)), x)
    case("max_pool2d_nhwc", 'nn.max_pool2d(%a, pool_size=[2, 2], strides=[2, 2], layout="NHWC")',
         on_torch(lambda a: nhwc(F.max_pool2d(nchw(a), 2))), images)
    case("avg_pool2d", "nn.avg_pool2d(%a, pool_size=[3, 3], padding=[1, 1, 1, 1])",
         on_torch(lambda a: F.avg_pool2d(a, 3, 1, 1, count_include_pad=False)), x)
    case("avg_pool2d_all", "nn.avg_pool2d(%a, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1], count_include_pad=True)",
         on_torch(lambda a: F.avg_pool2d(a, 3, 2, 1)), x)
    case("max_pool1d", "nn.max_pool1d(%a, pool_size=[2], strides=[2])", on_torch(lambda a: F.max_pool1d(a, 2)), x[0])
    case("avg_pool3d", "nn.avg_pool3d(%a, pool_size=[2, 2, 2], strides=[2, 2, 2])", on_torch(lambda a: F.avg_pool3d(a, 2)), f(1, 2, 4, 4, 4))
    case("global_avg_pool2d", "nn.global_avg_pool2d(%a)", lambda a: a.mean((2, 3), keepdims=True), x)
    case("global_max_pool2d", 'nn.global_max_pool2d(%a, layout="NHWC")', lambda a: a.max((1, 2), keepdims=True), images)
    case("adaptive_avg_pool2d", "nn.adaptive_avg_pool2d(%a, output_size=[3, 5])", on_torch(lambda a: F.adaptive_avg_pool2d(a, (3, 5))), x)
    case("adaptive_max_pool2d", "nn.adaptive_max_pool2d(%a, output_size=[4, 3])", on_torch(lambda a: F.adaptive_max_pool2d(a, (4, 3))), x)
    case("adaptive_avg_pool1", "nn.adaptive_avg_pool2d(%a, output_size=[1])", lambda a: a.mean((2, 3), keepdims=True), x)
    case("upsampling", 'nn.upsampling(%a, scale_h=2f, scale_w=2f)', on_torch(lambda a: F.interpolate(a, scale_factor=2)), x)
    case("upsampling_bilinear", 'nn.upsampling(%a, scale_h=2f, scale_w=2f, method="bilinear", align_corners=True)',
         on_torch(lambda a: F.interpolate(a, scale_factor=2, mode="bilinear", align_corners=True)), x)
    case("resize_half", 'image.resize2d(%a, size=[13, 5], roi=[0f, 0f, 0f, 0f], rounding_method="")',
         on_torch(lambda a: F.interpolate(a, (13, 5), mode="bilinear")), x)
    case("resize_corners", 'image.resize2d(%a, size=[13, 5], coordinate_transformation_mode="align_corners")',
         on_torch(lambda a: F.interpolate(a, (13, 5), mode="bilinear", align_corners=True)), x)
    case("resize_nearest", 'image.resize2d(%a, size=[13, 5], method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor")',
         on_torch(lambda a: F.interpolate(a, (13, 5))), x)
    case("resize_cubic", 'image.resize2d(%a, size=[13, 5], method="cubic", cubic_alpha=-0.75f)',
         on_torch(lambda a: F.interpolate(a, (13, 5), mode="bicubic")), x)
    case("resize_nhwc", 'image.resize2d(%a, size=[13, 5], layout="NHWC")',
         on_torch(lambda a: nhwc(F.interpolate(nchw(a), (13, 5), mode="bilinear"))), images)
    grid = RANDOM.uniform(-1, 1, (2, 2, 4, 5)).astype(np.float32)
    case("grid_sample", "image.grid_sample(%a, %b)",
         on_torch(lambda a, g: F.grid_sample(a, nhwc(g), align_corners=True)), x, grid)


def shapes() -> None:
    x = f(2, 3, 4)
    for name, wanted, dims in (
        ("plain", "[6, 4]", (6, 4)), ("rest", "[0, -1]", (2, 12)), ("all", "[0, -2]", (2, 3, 4)),
        ("product", "[-3, 0]", (6, 4)), ("split", "[0, 0, -4, 2, -1]", (2, 3, 2, 2)),
        ("split_rest", "[-4, -1, 2, -2]", (1, 2, 3, 4)), ("flat", "[-1]", (24,)),
    ):
        text = f"reshape(%a, newshape={wanted})"
        case(f"reshape_{name}", text, lambda a, d=dims: a.reshape(d), x)
    case("dyn_reshape", "dyn.reshape(%a, %0)".replace("%0", "cast(shape_of(%b), dtype=\"int64\")"), lambda a, b: a.reshape(4, 6), x, f(4, 6))
    case("reshape_like", "reshape_like(%a, %b)", lambda a, b: a.reshape(4, 6), x, f(4, 6))
    case("broadcast_to", "broadcast_to(%a, shape=[5, 2, 3, 4])", lambda a: np.broadcast_to(a, (5, 2, 3, 4)), x)
    case("broadcast_to_like", "broadcast_to_like(%a, %b)", lambda a, b: np.broadcast_to(a, (3, 4)), f(4), f(3, 4))
    case("batch_flatten", "nn.batch_flatten(%a)", lambda a: a.reshape(2, 12), x)
    case("expand_dims", "expand_dims(%a, axis=1, num_newaxis=2)", lambda a: a[:, None, None], x)
    case("expand_dims_last", "expand_dims(%a, axis=-1)", lambda a: a[..., None], x)
    case("squeeze", "squeeze(%a, axis=[1])", lambda a: a[:, 0], f(2, 1, 3, 1))
    case("squeeze_all", "squeeze(%a)", lambda a: a[:, 0, :, 0], f(2, 1, 3, 1))
    case("transpose", "transpose(%a, axes=[2, 0, 1])", lambda a: a.transpose(2, 0, 1), x)
    case("transpose_reversed", "transpose(%a)", lambda a: a.T, x)
    case("layout_transform", 'layout_transform(%a, src_layout="NHWC", dst_layout="NCHW")',
         on_torch(nchw), f(2, 3, 4, 5))
    text = "%0 = (%a, %b);\n  concatenate(%0, axis=1)"
    case("concatenate", text, lambda a, b: np.concatenate([a, b], 1), x, f(2, 2, 4))
    case("stack", "stack((%a, %b), axis=1)", lambda a, b: np.stack([a, b], 1), x, f(2, 3, 4))
    text = "%0 = split(%a, indices_or_sections=2, axis=2);\n  %1 = %0.0;\n  %2 = %0.1;\n  subtract(%1, %2)"
    case("split", text, lambda a: a[..., :2] - a[..., 2:], x)
    text = "let %x = split(%a, indices_or_sections=[1, 3], axis=2);\n  (%x.1, %x.2, %x.0)"
    case("split_places", text, lambda a: (a[..., 1:3], a[..., 3:], a[..., :1]), x)
    case("tile", "tile(%a, reps=[2, 1, 3])", lambda a: np.tile(a, (2, 1, 3)), x)
    case("tile_more", "tile(%a, reps=[2, 1, 1, 3])", lambda a: np.tile(a, (2, 1, 1, 3)), x)
    case("repeat", "repeat(%a, repeats=2, axis=1)", lambda a: np.repeat(a, 2, 1), x)
    case("repeat_flat", "repeat(%a, repeats=2)", lambda a: np.repeat(a, 2), x)
    case("reverse", "reverse(%a, axis=1)", lambda a: a[:, ::-1], x)
    case("reverse_sequence", "reverse_sequence(%a, %b, seq_axis=1, batch_axis=0)",
         lambda a, b: np.stack([np.concatenate([r[:k][::-1], r[k:]]) for r, k in zip(a, b)]), x, np.array([2, 3], np.int64))
    text = "strided_slice(%a, begin=[0, 1, 0], end=[2, 3, 4], strides=[1, 1, 2], axes=None)"
    case("strided_slice", text, lambda a: a[0:2, 1:3, 0:4:2], x)
    case("strided_slice_axes", "strided_slice(%a, begin=[1], end=[3], strides=[1], axes=[2])", lambda a: a[..., 1:3], x)
    case("strided_slice_back", "strided_slice(%a, begin=[0, 0, -1], end=[2, 3, -5], strides=[1, 1, -1])", lambda a: a[:, :, ::-1], x)
    case("strided_slice_size", 'strided_slice(%a, begin=[0, 1, 1], end=[1, -1, 2], strides=[1], slice_mode="size")', lambda a: a[0:1, 1:, 1:3], x)
    case("dyn_strided_slice", "dyn.strided_slice(%a, %b, %c, %d)", lambda a, *b: a[0:2, 1:3, 0:4:2],
         x, *(np.array(v, np.int64) for v in ([0, 1, 0], [2, 3, 4], [1, 1, 2])))
    case("slice_like", "slice_like(%a, %b, axes=[2])", lambda a, b: a[..., :3], x, f(1, 1, 3))
    case("pad", "nn.pad(%a, 1.5f, pad_width=[[0, 0], [1, 2], [0, 1]])",
         lambda a: np.pad(a, ((0, 0), (1, 2), (0, 1)), constant_values=1.5), x)
    case("pad_reflect", 'nn.pad(%a, 0f, pad_width=[[0, 0], [1, 1], [2, 1]], pad_mode="reflect")',
         lambda a: np.pad(a, ((0, 0), (1, 1), (2, 1)), "reflect"), x)
    case("mirror_pad", 'nn.mirror_pad(%a, mode="REFLECT", pad_width=[[0, 0], [1, 1], [2, 1]])',
         lambda a: np.pad(a, ((0, 0), (1, 1), (2, 1)), "reflect"), x)
    case("mirror_pad_symmetric", "nn.mirror_pad(%a, pad_width=[[0, 0], [1, 1], [2, 1]])",
         lambda a: np.pad(a, ((0, 0), (1, 1), (2, 1)), "symmetric"), x)
    case("depth_to_space", 'nn.depth_to_space(%a, block_size=2, mode="CRD")', on_torch(lambda a: F.pixel_shuffle(a, 2)), f(1, 8, 3, 3))
    blocks = on_torch(lambda a: a.reshape(1, 2, 2, 2, 3, 3).permute(0, 3, 4, 1, 5, 2).reshape(1, 2, 6, 6))
    case("depth_to_space_dcr", "nn.depth_to_space(%a, block_size=2)", blocks, f(1, 8, 3, 3))
    case("space_to_depth", "nn.space_to_depth(%a, block_size=2)",
         on_torch(lambda a: a.reshape(1, 2, 3, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 3, 3)), f(1, 2, 6, 6))
    case("zeros_like", "add(%a, ones_like(%a))", lambda a: a + 1, x)
    case("zeros", 'add(%a, zeros(shape=[2, 3, 4], dtype="float32"))', lambda a: a, x)
    case("full", 'multiply(%a, full(2f, shape=[3, 4], dtype="float32"))', lambda a: a * 2, x)
    case("full_like", "full_like(%a, 3f)", lambda a: np.full_like(a, 3), x)
    case("shape_of", 'shape_of(%a, dtype="int64")', lambda a: np.array(a.shape), x)
    case("arange", 'add(%a, arange(0f, 4f, 1f, start=meta, dtype="float32"))'.replace("start=meta, ", ""), lambda a: a + np.arange(4, dtype=np.float32), x)
    case("arange_int", 'add(%a, arange(1, 10, 3, dtype="int32"))', lambda a: a + np.array([1, 4, 7], np.int32), i(0, 9, 3))


def places() -> None:
    x, p = f(4, 5), i(0, 4, 2, 3)
    case("take", "take(%a, %b, axis=0)", lambda a, b: np.take(a, b, 0), x, p)
    case("take_flat", "take(%a, %b)", lambda a, b: a.reshape(-1)[b], x, p)
    case("take_clip", "take(%a, %b, axis=1)", lambda a, b: np.take(a, b, 1, mode="clip"), x, p * 5 - 4)
    case("take_wrap", 'take(%a, %b, axis=1, mode="wrap")', lambda a, b: np.take(a, b, 1, mode="wrap"), x, p * 5 - 4)
    places = i(0, 4, 2, 5, dtype="int64")
    case("gather", "gather(%a, %b, axis=0)", lambda a, b: np.take_along_axis(a, b, 0), x, places)
    pairs = np.stack([i(0, 4, 3), i(0, 5, 3)])
    case("gather_nd", "gather_nd(%a, %b)", lambda a, b: a[b[0], b[1]], x, pairs)
    case("gather_nd_rows", "gather_nd(%a, %b)", lambda a, b: a[b[0]], x, pairs[:1])
    case("one_hot", 'one_hot(%a, 1f, 0f, depth=5, axis=-1, dtype="float32")', lambda a: np.eye(5, dtype=np.float32)[a], p)
    case("one_hot_axis", 'one_hot(%a, 3, 1, depth=5, axis=0, dtype="int32")',
         lambda a: np.moveaxis(1 + 2 * np.eye(5, dtype=np.int32)[a], -1, 0), p)
    updates = f(2, 5)
    distinct = np.stack([np.zeros(5, np.int64), np.full(5, 2)])
    for name, mode in (("scatter", None), ("scatter_add", "add"), ("scatter_elements", "mul")):
        def scattered(a: Any, b: Any, c: Any, mode: str | None = mode) -> Any:
            kind = {"add": "sum", "mul": "prod"}
            return a.scatter(0, b, c) if mode is None else a.scatter_reduce(0, b, c, kind[mode])

        more = ', reduction="mul"' if mode == "mul" else ""
        case(name, f"{name}(%a, %b, %c, axis=0{more})", on_torch(scattered), x, distinct, updates)

    def put(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        a = a.copy()
        np.add.at(a, (b[0], b[1]), c)
        return a

    case("scatter_nd", 'scatter_nd(%a, %b, %c, mode="add")', put, x, pairs, f(3))
    case("argwhere", "argwhere(%a)", lambda a: np.argwhere(a).astype(np.int32), x > 0)
    text = "%0 = topk(%a, k=3, axis=1);\n  (%0.0, %0.1)"
    order = lambda a: np.argsort(-a, 1, kind="stable")  # noqa: E731
    case("topk", text, lambda a: (-np.sort(-a, 1)[:, :3], order(a)[:, :3].astype(np.int32)), x)
    case("topk_values", 'topk(%a, k=2, ret_type="values", is_ascend=True)', lambda a: np.sort(a, 1)[:, :2], x)
    case("topk_indices", 'topk(%a, k=2, ret_type="indices", dtype="int64")', lambda a: order(a)[:, :2], x)
    case("sort", "sort(%a, axis=0, is_ascend=False)", lambda a: -np.sort(-a, 0), x)
    case("argsort", 'argsort(%a, dtype="int32")', lambda a: np.argsort(a).astype(np.int32), x)
    text = 'meshgrid((%a, %b), indexing="xy")'
    case("meshgrid", text, lambda a, b: tuple(np.meshgrid(a, b)), f(3), f(4))
    inside = lambda a, b: np.where(np.arange(4)[:, None] < b[None, :], a, -1).astype(np.float32)  # noqa: E731
    case("sequence_mask", "sequence_mask(%a, %b, mask_value=-1f)", inside, x, i(0, 5, 5))
    case("trilu", "trilu(%a, 1, upper=False)", lambda a: np.tril(a, 1), x)


def intersection(a: np.ndarray, b: np.ndarray) -> float:
    """The intersection of two boxes over their union."""
    both = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    return float(both / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - both))


def kept(boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Suppression by the definition, for one image."""
    rows = []
    for c, line in enumerate(scores[0]):
        chosen: list[int] = []
        for b in np.argsort(-line, kind="stable"):
            if line[b] > 0.2 and len(chosen) < 5 and all(intersection(boxes[0, b], boxes[0, o]) <= 0.4 for o in chosen):
                chosen.append(int(b))
        rows += [(0, c, b) for b in chosen]
    return np.array(rows, np.int64)


def images() -> None:
    corner = RANDOM.uniform(0, 5, (1, 20, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + RANDOM.uniform(1, 4, (1, 20, 2)).astype(np.float32)], 2)
    scores = RANDOM.uniform(0, 1, (1, 2, 20)).astype(np.float32)
    text = "%0 = vision.all_class_non_max_suppression(%a, %b, 5i64, 0.4f, 0.2f);\n  (%0.0, %0.1)"
    case("suppression", text, lambda a, b: (kept(a, b), np.array([len(kept(a, b))])), boxes, scores)


    rows = np.concatenate([scores[:, :1].transpose(0, 2, 1), boxes], 2)
    text = """%0 = vision.get_valid_counts(%a, 0.3f, id_index=-1, score_index=0);
  %1 = %0.1;
  %2 = %0.0;
  %3 = %0.2;
  %4 = vision.non_max_suppression(%1, %2, %3, -1, 0.4f, meta=None, force_suppress=True, top_k=-1, coord_start=1, score_index=0, id_index=-1, return_indices=True);
  (%0.0, %0.2, %4.0, %4.1)""".replace("meta=None, ", "")

    def chosen(a: np.ndarray) -> Any:
        good = np.flatnonzero(a[0, :, 0] > 0.3)
        line: list[int] = []
        for b in good[np.argsort(-a[0, good, 0], kind="stable")]:
            if all(intersection(a[0, b, 1:], a[0, o, 1:]) <= 0.4 for o in line):
                line.append(int(b))

        def padded(numbers: Any) -> np.ndarray:
            return np.array([[*numbers, *[-1] * (20 - len(numbers))]], np.int32)

        return np.array([len(good)], np.int32), padded(good), padded(line), np.array([[len(line)]], np.int32)

    case("non_max_suppression", text, chosen, rows)


def rounded(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def fixed(x: np.ndarray, ratio: float) -> np.ndarray:
    """x times a ratio, by TVM's arithmetic in fixed point, where ties round up."""
    fraction, shift = np.frexp(ratio)
    multiplier = int(np.floor(fraction * 2**31 + 0.5))
    total = x.astype(object) * multiplier + (1 << (30 - int(shift)))
    return np.array([int(v) >> (31 - int(shift)) for v in total.reshape(-1)]).reshape(x.shape)


def quantized() -> None:
    x, q = f(3, 4) * 4, i(-128, 128, 3, 4, dtype="int8")
    case("qnn_quantize", 'qnn.quantize(%a, 0.05f, 3, out_dtype="int8")',
         lambda a: np.clip(rounded(a / np.float32(0.05)) + 3, -128, 127).astype(np.int8), x)
    case("qnn_dequantize", "qnn.dequantize(%a, 0.05f, 3)",
         lambda a: (a.astype(np.float32) - 3) * np.float32(0.05), q)
    wide = i(-5000, 5000, 3, 4)
    r = float(np.float32(0.02)) / float(np.float32(0.7))
    case("qnn_requantize", 'qnn.requantize(%a, 0.02f, 0, 0.7f, 3, out_dtype="uint8")',
         lambda a: np.clip(fixed(a, r) + 3, 0, 255).astype(np.uint8), wide)
    up = float(np.float32(3.5)) / float(np.float32(0.7))
    case("qnn_requantize_up", 'qnn.requantize(%a, 3.5f, 1, 0.7f, 0, out_dtype="int8")',
         lambda a: np.clip(fixed(a.astype(np.int64) - 1, up), -128, 127).astype(np.int8), q)

    def convolved(a: Any, b: Any) -> Any:
        return F.conv2d(a.double() - 3, b.double() - 1, padding=1).to(torch.int32)

    text = 'qnn.conv2d(%a, %b, 3, 1, 0.1f, 0.2f, padding=[1, 1, 1, 1], channels=5, kernel_size=[3, 3], out_dtype="int32")'
    images = i(0, 256, 1, 4, 6, 6, dtype="uint8")
    case("qnn_conv2d", text, on_torch(convolved), images, i(-128, 128, 5, 4, 3, 3, dtype="int8"))
    case("qnn_conv2d_plain", text.replace("3, 1, 0.1f", "0, 0, 0.1f"),
         on_torch(lambda a, b: F.conv2d(a.double(), b.double(), padding=1).to(torch.int32)),
         images, i(-128, 128, 5, 4, 3, 3, dtype="int8"))
    case("qnn_dense", "qnn.dense(%a, %b, 2, 0, 0.1f, 0.2f, units=5)", lambda a, b: (a.astype(np.int32) - 2) @ b.T.astype(np.int32),
         q, i(-128, 128, 5, 4, dtype="int8"))
    s, t, o = (float(np.float32(v)) for v in (0.1, 0.3, 0.25))

    def added(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        left = fixed(a.astype(np.int64) - 1, s / o) + 2
        right = fixed(b.astype(np.int64) + 4, t / o) + 2
        return np.clip(left + right - 2, -128, 127).astype(np.int8)

    other = i(-128, 128, 3, 4, dtype="int8")
    case("qnn_add", "qnn.add(%a, %b, 0.1f, 1, 0.3f, -4, 0.25f, 2)", added, q, other)

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        both = (a.astype(np.int64) - 1) * (b.astype(np.int64) + 4)
        own = float(np.float32(0.1) * np.float32(0.3))
        return np.clip(fixed(both, own / float(np.float32(5.0))) + 2, -128, 127).astype(np.int8)

    case("qnn_mul", "qnn.mul(%a, %b, 0.1f, 1, 0.3f, -4, 5f, 2)", product, q, other)
    case("qnn_concatenate", "%0 = (%a, %b);\n  %1 = (0.1f, 0.25f);\n  %2 = (1, 2);\n  qnn.concatenate(%0, %1, %2, 0.25f, 2, axis=1)",
         lambda a, b: np.concatenate([np.clip(fixed(a.astype(np.int64) - 1, s / o) + 2, -128, 127).astype(np.int8), b], 1), q, other)


def control() -> None:
    x, n = f(3), np.array(4, np.int32)
    loop = """let %loop = fn (%i: int32, %x: Tensor[(3), float32]) {
    %0 = less(%i, %b);
    if (%0) {
      %1 = add(%i, 1 /* ty=int32 */);
      %2 = multiply(%x, 2f);
      %loop(%1, %2)
    } else {
      (%i, %x)
    }
  };
  %3 = %loop(0 /* ty=int32 */, %a);
  %3.1"""
    case("loop", loop, lambda a, b: a * 16, x, n)
    normal = """let %loop = fn (%i, %x) {
    let %c = less(%i, %b);
    let %r = if (%c) {
      let %j = add(%i, 1);
      let %y = multiply(%x, 2f);
      let %z = %loop(%j, %y);
      %z
    } else {
      let %t = (%i, %x);
      %t
    };
    %r
  };
  let %l = %loop(0, %a);
  let %y = %l.1;
  %y"""
    case("loop_normal", normal, lambda a, b: a * 16, x, n)
    branch = "if (less(%b, 7)) {\n  multiply(%a, 2f)\n  } else {\n  negative(%a)\n  }"
    case("if", branch, lambda a, b: a * 2, x, n)
    closure = "let %k = multiply(%a, 3f);\n  let %f = fn (%y) { add(%y, %k) };\n  let %g = fn (%h, %y) { %h(%h(%y)) };\n  %g(%f, %a)"
    case("closure", closure, lambda a: 7 * a, x)
    pair = "%0 = (%a, (%b, %a));\n  match (%0) { (%p, (%q, _)) => multiply(%p, cast(%q, dtype=\"float32\")), }"
    case("match", pair, lambda a, b: a * b, x, n)


def type_of(array: np.ndarray) -> str:
    name = NAMES.get(array.dtype, str(array.dtype))
    return f"Tensor[({', '.join(map(str, array.shape))}), {name}]"


def write(folder: Path, name: str) -> None:
    """Write a case."""
    text, inputs, expected = CASES[name]
    made = expected(*inputs.values())
    outputs = made if isinstance(made, tuple) else (made,)
    types = ", ".join(f"%{n}: {type_of(a)}" for n, a in inputs.items())
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    program = f'#[version = "0.0.5"]\ndef @main({types}) {{\n  {text}\n}}\n'
    (target / "model.relay").write_text(program)
    arrays = {f"input:{n}": a for n, a in inputs.items()}
    arrays |= {f"output:{i}": np.asarray(a) for i, a in enumerate(outputs)}
    np.savez(target / "io.npz", **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for family in (
        elements, reductions, normalizations, convolutions, pools, shapes, places, images,
        quantized, control,
    ):
        family()
    for name in CASES:
        write(folder, name)
    print(f"{len(CASES)} cases in {folder}")


if __name__ == "__main__":
    main()
