#!/usr/bin/env python3
"""Write Core ML models with the results that they should have: `write_coreml.py FOLDER [PART...]`.

Runs where coremltools, PyTorch and scikit-learn are installed.  PyTorch modules are converted to ML
programs of f32 and f16 and to neural networks; their results are PyTorch's.  Single operators are
programs of their own; their results are those of coremltools' value inference, or of a formula.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import Function, types
from torch import nn

RANDOM = np.random.default_rng(34)
HALF = 4e-3
"""Tolerance of programs that compute in f16."""


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def write(
    folder: Path,
    name: str,
    model: Any,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    tolerance: float | None = None,
    ending: str = "mlpackage",
) -> None:
    case = folder / name
    case.mkdir(parents=True, exist_ok=True)
    model.save(str(case / f"model.{ending}"))
    arrays = {f"input:{k}": v for k, v in inputs.items()}
    arrays |= {f"output:{k}": v for k, v in outputs.items()}
    if tolerance is not None:
        arrays["tolerance"] = np.array(tolerance)
    np.savez(case / "io.npz", **arrays)


# Modules


class Net(nn.Module):
    """A module of a function with parameters."""

    def __init__(self, call: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.call(self, *inputs)


class Sequence(nn.Module):
    """A recurrent layer, followed by a linear layer."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layer(x)[0])


def modules() -> dict[str, tuple[nn.Module, list[np.ndarray]]]:
    """Modules with inputs."""
    from torch.nn import functional as F

    if not hasattr(torch.ops.torchvision, "nms"):  # the classifiers need no operator of torchvision
        library = torch.library.Library("torchvision", "FRAGMENT")
        names = ("nms", "qnms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
        for name in (n for op in (*names, "deform_conv2d") for n in (op, f"_{op}_backward")):
            library.define(f"{name}(Tensor x) -> Tensor")
    import torchvision.models as zoo

    image = f(1, 3, 64, 64)
    return {
        "mlp": (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), [f(3, 8)]),
        "conv_bn": (
            nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6()), [image]),
        "depthwise": (
            nn.Sequential(nn.Conv2d(8, 8, 3, 1, 2, 2, groups=8), nn.SiLU()), [f(1, 8, 9, 9)]),
        "deconv": (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), [f(1, 4, 7, 7)]),
        "conv1d": (nn.Sequential(nn.Conv1d(4, 6, 3), nn.Tanh()), [f(2, 4, 20)]),
        "conv3d": (nn.Sequential(nn.Conv3d(2, 3, 3, padding=1), nn.ELU()), [f(1, 2, 5, 6, 7)]),
        "pools": (nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)), [image]),
        "ceil_pool": (nn.MaxPool2d(3, 2, ceil_mode=True), [f(1, 2, 8, 8)]),
        "adaptive": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), [image]),
        "layer_norm": (nn.Sequential(nn.LayerNorm(16), nn.Softmax(-1)), [f(2, 5, 16)]),
        "group_norm": (nn.GroupNorm(2, 8), [f(2, 8, 5, 5)]),
        "instance_norm": (nn.InstanceNorm2d(4, affine=True), [f(2, 4, 6, 6)]),
        "attention": (
            Net(lambda m, x: m.a(x, x, x, need_weights=False)[0],
                a=nn.MultiheadAttention(16, 4, batch_first=True)), [f(2, 6, 16)]),
        "encoder": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), [f(2, 6, 16)]),
        "lstm": (Sequence(nn.LSTM(5, 7), 7), [f(6, 2, 5)]),
        "lstm_two": (Sequence(nn.LSTM(5, 7, 2, bidirectional=True), 14), [f(6, 2, 5)]),
        "gru": (Sequence(nn.GRU(5, 7), 7), [f(6, 2, 5)]),
        "rnn": (Sequence(nn.RNN(5, 7), 7), [f(6, 2, 5)]),
        "embedding": (
            nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 2)),
            [RANDOM.integers(0, 20, (2, 7)).astype(np.int32)]),
        "upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), [f(1, 2, 5, 6)]),
        "upsample_nearest": (nn.Upsample(scale_factor=3), [f(1, 2, 5, 6)]),
        "shuffle": (nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(3)), [f(1, 8, 6, 6)]),
        "shapes": (
            Net(lambda m, x: torch.cat([x.flip(1), x.roll(1, 1)], 1).permute(1, 0)[2:9:2]),
            [f(3, 6)]),
        "padding": (Net(lambda m, x: F.pad(x, (1, 2, 0, 1), "reflect")), [f(1, 2, 5, 6)]),
        "where": (
            Net(lambda m, x: torch.where(x > 0, x.sqrt(), (x * x).exp()).clamp(-1, 3)), [f(4, 5)]),
        "topk": (Net(lambda m, x: x.topk(3, 1)[0] + x.argmax(1, keepdim=True)), [f(4, 9)]),
        "einsum": (
            Net(lambda m, x, y: torch.einsum("bij,bjk->bik", x, y)), [f(2, 3, 4), f(2, 4, 5)]),
        "grid": (
            Net(lambda m, x, g: F.grid_sample(x, g, align_corners=True)),
            [f(1, 2, 6, 7), f(1, 4, 5, 2, low=-1, high=1)]),
        "resnet18": (zoo.resnet18(), [image]),
        "mobilenet_v2": (zoo.mobilenet_v2(), [image]),
        "mobilenet_v3": (zoo.mobilenet_v3_small(), [image]),
        "efficientnet": (zoo.efficientnet_b0(), [image]),
        "squeezenet": (zoo.squeezenet1_1(), [image]),
        "shufflenet": (zoo.shufflenet_v2_x0_5(), [image]),
        "densenet": (zoo.densenet121(), [image]),
        "vit": (zoo.VisionTransformer(64, 16, 2, 4, 32, 64), [image]),
    }  # fmt: skip


def write_modules(folder: Path) -> None:
    for name, (module, arrays) in modules().items():
        module = module.eval()
        inputs = [torch.from_numpy(a) for a in arrays]
        with torch.no_grad():
            wanted = module(*inputs).numpy()
            traced = torch.jit.trace(module, inputs, check_trace=False)
        given = {f"in{i}": a for i, a in enumerate(arrays)}
        declared = [ct.TensorType(name=k, shape=a.shape, dtype=a.dtype) for k, a in given.items()]
        forms = {
            "f32": {"compute_precision": ct.precision.FLOAT32,
                    "minimum_deployment_target": ct.target.iOS15},
            "f16": {"compute_precision": ct.precision.FLOAT16,
                    "minimum_deployment_target": ct.target.iOS18},
            "nn": {"convert_to": "neuralnetwork"},
        }  # fmt: skip
        for form, settings in forms.items():
            try:
                model = ct.convert(traced, inputs=declared, **settings)
            except Exception as e:
                print(f"{name} as {form}: coremltools can't convert it ({type(e).__name__})")
                continue
            tolerance = HALF * (8 if "net" in name else 1) if form == "f16" else None
            ending = "mlmodel" if form == "nn" else "mlpackage"
            # networks take floats; PyTorch's integers are indices
            shown = {k: a.astype(np.float32) if form == "nn" else a for k, a in given.items()}
            write(folder, f"module_{name}_{form}", model, shown, {"0": wanted}, tolerance, ending)


# Single operators


def case(
    folder: Path,
    name: str,
    operator: str,
    inputs: Mapping[str, np.ndarray],
    formula: Callable[..., Any] | None = None,
    target: Any = ct.target.iOS18,
    **parameters: Any,
) -> None:
    """A program of one operator.  `formula` gives its results; by default value inference does."""
    op = getattr(mb, operator)
    arrays = {k: np.asarray(v) for k, v in inputs.items()}
    if formula is not None:
        made = formula(*arrays.values())
    else:
        with Function({}, opset_version=target):
            result = op(**arrays, **parameters)
            made = [r.val for r in result] if isinstance(result, (tuple, list)) else result.val
        if made is None or (isinstance(made, list) and any(m is None for m in made)):
            print(f"{name}: no value inference")
            return
    results = made if isinstance(made, (list, tuple)) else [made]
    kinds = {"f": types.fp32, "i": types.int32, "b": types.bool}
    specs = [mb.TensorSpec(a.shape, kinds[a.dtype.kind]) for a in arrays.values()]

    def body(*values: Any) -> Any:
        bound = dict(zip(arrays, values, strict=True))
        y = op(**bound, **parameters)
        ys = y if isinstance(y, (tuple, list)) else [y]
        shown = [mb.cast(x=v, dtype="int32") if v.dtype == types.bool else v for v in ys]
        return tuple(mb.identity(x=v) for v in shown)

    names = [f"a{i}" for i in range(len(arrays))]
    source = f"lambda {', '.join(names)}: body({', '.join(names)})"
    program = mb.program(input_specs=specs, opset_version=target)(eval(source, {"body": body}))
    model = ct.convert(
        program, convert_to="mlprogram", minimum_deployment_target=target,
        compute_precision=ct.precision.FLOAT32, pass_pipeline=ct.PassPipeline.EMPTY,
    )  # fmt: skip
    outputs = {
        str(i): np.asarray(r, np.int32 if np.asarray(r).dtype.kind in "biu" else np.float32)
        for i, r in enumerate(results)
    }
    # Core ML has no bools as inputs
    given = {
        k: a.astype(np.float32) if a.dtype == bool else a
        for k, a in zip(names, arrays.values(), strict=True)
    }
    write(folder, f"op_{name}", model, given, outputs)


def T(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def operators(folder: Path) -> None:
    """All single operators."""
    from torch.nn import functional as F

    def go(name: str, operator: str, inputs: Mapping[str, Any], *rest: Any, **more: Any) -> None:
        try:
            case(folder, name, operator, inputs, *rest, **more)
        except Exception:
            print(f"{name}: {traceback.format_exc(limit=-2)}")

    x, positive, unit = f(2, 3, 4), f(2, 3, 4, low=0.1), f(2, 3, 4, low=-0.9, high=0.9)
    near = {"acos": unit, "asin": unit, "atanh": unit, "log": positive, "sqrt": positive,
            "rsqrt": positive, "inverse": positive}  # fmt: skip
    for name in [
        "abs",
        "acos",
        "asin",
        "atan",
        "atanh",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "exp",
        "exp2",
        "floor",
        "inverse",
        "log",
        "round",
        "rsqrt",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "relu",
        "relu6",
        "sigmoid",
        "silu",
        "softplus",
        "softsign",
        "identity",
    ]:
        formulas = {"silu": lambda v: F.silu(T(v)).numpy(), "identity": lambda v: v}
        go(name, name, {"x": near.get(name, x)}, formulas.get(name))
    for name in ["add", "sub", "mul", "real_div", "maximum", "minimum", "pow", "mod", "floor_div"]:
        go(name, name, {"x": positive, "y": f(3, 1, low=0.5)})
        if name not in ("pow",):
            go(
                f"{name}_i",
                name,
                {"x": np.array([7, -7, 5, -5], np.int32), "y": np.array([2, 2, -3, -3], np.int32)},
            )
    for name in ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]:
        go(name, name, {"x": np.round(x), "y": np.round(f(3, 1))})
    go("threshold", "threshold", {"x": x}, alpha=0.5)
    go("clip", "clip", {"x": x}, alpha=-0.5, beta=1.0)
    go("clamped_relu", "clamped_relu", {"x": x}, alpha=0.3, beta=1.0)
    go("elu", "elu", {"x": x}, alpha=0.7)
    go("leaky_relu", "leaky_relu", {"x": x}, alpha=0.2)
    go("linear_activation", "linear_activation", {"x": x}, alpha=0.2, beta=1.5)
    go("scaled_tanh", "scaled_tanh", {"x": x}, alpha=0.7, beta=1.5)
    go("sigmoid_hard", "sigmoid_hard", {"x": x}, alpha=0.3, beta=0.4)
    go("thresholded_relu", "thresholded_relu", {"x": x}, alpha=0.6)
    go(
        "prelu",
        "prelu",
        {"x": f(1, 3, 2, 2)},
        lambda v: F.prelu(T(v), torch.tensor([0.1, 0.2, 0.3])).numpy(),
        alpha=np.array([0.1, 0.2, 0.3], np.float32),
    )
    go(
        "softplus_parametric",
        "softplus_parametric",
        {"x": f(1, 3, 2, 2)},
        alpha=np.array([0.1, 0.2, 0.3], np.float32),
        beta=np.array([1, 2, 0.5], np.float32),
    )
    for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"):
        go(f"gelu_{mode}", "gelu", {"x": x}, mode=mode)
    go("softmax", "softmax", {"x": x}, axis=1)
    go("log_epsilon", "log", {"x": positive}, epsilon=0.1)
    go("rsqrt_epsilon", "rsqrt", {"x": positive}, epsilon=0.1)
    go(
        "select",
        "select",
        {"cond": np.array([[True], [False], [True]]), "a": x, "b": -x},
        lambda c, a, b: np.where(c, a, b),
    )
    for dtype in ("int32", "fp16", "bool"):
        go(
            f"cast_{dtype}",
            "cast",
            {"x": x * 3},
            (lambda v, d=dtype: v.astype({"int32": np.int32, "fp16": np.float16, "bool": bool}[d])),
            dtype=dtype,
        )
    logic = {"x": np.array([1, 0, 1], bool), "y": np.array([1, 1, 0], bool)}
    for name in ("logical_and", "logical_or", "logical_xor"):
        go(name, name, logic)
    go("logical_not", "logical_not", {"x": logic["x"]})

    for name in [
        "sum",
        "mean",
        "max",
        "min",
        "prod",
        "l1_norm",
        "l2_norm",
        "sum_square",
        "log_sum",
        "log_sum_exp",
    ]:
        go(f"reduce_{name}", f"reduce_{name}", {"x": positive}, axes=[1], keep_dims=True)
        go(f"reduce_{name}_two", f"reduce_{name}", {"x": positive}, axes=[-1, 0], keep_dims=False)
    for name in ("argmax", "argmin"):
        go(f"reduce_{name}", f"reduce_{name}", {"x": x}, axis=1, keep_dims=False)
    for flags in ((False, False), (True, False), (False, True)):
        go(
            f"cumsum_{flags[0]}_{flags[1]}",
            "cumsum",
            {"x": x},
            lambda v, e=flags[0], r=flags[1]: running(v, e, r),
            axis=1,
            exclusive=flags[0],
            reverse=flags[1],
        )
    go("topk", "topk", {"x": x}, k=2, axis=-1)
    go("topk_ascending", "topk", {"x": x}, k=2, axis=1, ascending=True)
    go("argsort", "argsort", {"x": x}, axis=-1, ascending=True)

    go("linear", "linear", {"x": f(3, 5)}, weight=f(4, 5), bias=f(4))
    go("matmul", "matmul", {"x": f(2, 3, 4), "y": f(2, 5, 4)}, transpose_y=True)

    w = f(6, 2, 3, 3)
    for pad_type in ("valid", "same", "same_lower", "custom"):
        go(
            f"conv_{pad_type}",
            "conv",
            {"x": f(1, 4, 8, 9)},
            lambda v, p=pad_type: conv(v, w, (2, 1), p, (1, 2, 0, 1), (1, 2), 2),
            weight=w,
            strides=[2, 1],
            pad_type=pad_type,
            pad=[1, 2, 0, 1],
            dilations=[1, 2],
            groups=2,
        )
    bias = f(3)
    wt = f(4, 3, 3, 3)
    go(
        "conv_transpose",
        "conv_transpose",
        {"x": f(1, 4, 5, 5)},
        lambda v: F.conv_transpose2d(T(v), T(wt), T(bias), 2).numpy(),
        weight=wt,
        bias=bias,
        strides=[2, 2],
    )
    go(
        "conv_transpose_custom",
        "conv_transpose",
        {"x": f(1, 4, 5, 5)},
        lambda v: F.conv_transpose2d(T(v), T(wt), None, 2, 1).numpy(),
        weight=wt,
        strides=[2, 2],
        pad_type="custom",
        pad=[1, 1, 1, 1],
    )
    go(
        "conv_transpose_same",
        "conv_transpose",
        {"x": f(1, 4, 5, 5)},
        lambda v: F.conv_transpose2d(T(v), T(wt), None, 2).numpy()[:, :, :10, :10],
        weight=wt,
        strides=[2, 2],
        pad_type="same",
    )
    go(
        "max_pool",
        "max_pool",
        {"x": f(1, 2, 7, 8)},
        lambda v: F.max_pool2d(T(v), 3, 2, 1).numpy(),
        kernel_sizes=[3, 3],
        strides=[2, 2],
        pad_type="custom",
        pad=[1, 1, 1, 1],
    )
    go(
        "max_pool_1d",
        "max_pool",
        {"x": f(1, 2, 7)},
        lambda v: F.max_pool1d(T(v), 3, 2).numpy(),
        kernel_sizes=[3],
        strides=[2],
        pad_type="valid",
    )
    for exclude in (True, False):
        go(
            f"avg_pool_{exclude}",
            "avg_pool",
            {"x": f(1, 2, 7, 8)},
            lambda v, e=exclude: F.avg_pool2d(T(v), 3, 2, 1, count_include_pad=not e).numpy(),
            kernel_sizes=[3, 3],
            strides=[2, 2],
            pad_type="custom",
            pad=[1, 1, 1, 1],
            exclude_padding_from_average=exclude,
        )
    go(
        "l2_pool",
        "l2_pool",
        {"x": f(1, 2, 7, 8)},
        lambda v: F.lp_pool2d(T(v), 2, 2, 2).numpy(),
        kernel_sizes=[2, 2],
        strides=[2, 2],
        pad_type="valid",
    )

    mean, var, gamma, beta = f(3), f(3, low=0.5), f(3), f(3)
    go(
        "batch_norm",
        "batch_norm",
        {"x": f(2, 3, 4, 4)},
        lambda v: F.batch_norm(T(v), T(mean), T(var), T(gamma), T(beta), eps=1e-3).numpy(),
        mean=mean,
        variance=var,
        gamma=gamma,
        beta=beta,
        epsilon=1e-3,
    )
    go(
        "batch_norm_plain",
        "batch_norm",
        {"x": f(2, 3, 4)},
        lambda v: F.batch_norm(T(v), T(mean), T(var)).numpy(),
        mean=mean,
        variance=var,
    )
    go(
        "instance_norm",
        "instance_norm",
        {"x": f(2, 3, 4, 4)},
        lambda v: F.instance_norm(T(v), weight=T(gamma), bias=T(beta)).numpy(),
        gamma=gamma,
        beta=beta,
    )
    go("layer_norm", "layer_norm", {"x": f(2, 3, 4)}, axes=[1, 2], gamma=f(3, 4), beta=f(3, 4))
    go(
        "layer_norm_first",
        "layer_norm",
        {"x": f(2, 3, 4)},
        lambda v: (
            (T(v) - T(v).mean(1, True)) / (T(v).var(1, False, keepdim=True) + 1e-5).sqrt()
        ).numpy(),
        axes=[1],
    )
    go("l2_norm", "l2_norm", {"x": f(2, 3, 4, 5)}, epsilon=1e-4)
    go(
        "local_response_norm",
        "local_response_norm",
        {"x": f(1, 6, 4, 4)},
        lambda v: F.local_response_norm(T(v), 3, 0.1, 0.6, 1.5).numpy(),
        size=3,
        alpha=0.1,
        beta=0.6,
        k=1.5,
    )

    go("reshape", "reshape", {"x": x}, shape=[4, -1])
    go("transpose", "transpose", {"x": x}, perm=[2, 0, -2])
    go("expand_dims", "expand_dims", {"x": x}, axes=[0, -1])
    go("squeeze", "squeeze", {"x": f(1, 3, 1)}, axes=[0])
    go("squeeze_all", "squeeze", {"x": f(1, 3, 1)})
    go("flatten2d", "flatten2d", {"x": x}, axis=2)
    go("split", "split", {"x": x}, num_splits=2, axis=2)
    go("split_sizes", "split", {"x": x}, split_sizes=[1, 3], axis=-1)
    go(
        "slice_by_index",
        "slice_by_index",
        {"x": f(5, 6, 7)},
        begin=[1, 0, -2],
        end=[4, 6, 0],
        stride=[2, 1, -1],
        begin_mask=[False, True, False],
        end_mask=[False, False, True],
    )
    go(
        "slice_squeeze",
        "slice_by_index",
        {"x": f(5, 6, 7)},
        begin=[-1, 2, 0],
        end=[0, 5, 7],
        squeeze_mask=[True, False, False],
    )
    go("slice_by_size", "slice_by_size", {"x": f(5, 6)}, begin=[1, 2], size=[3, -1])
    update = f(2, 3)
    go(
        "slice_update",
        "slice_update",
        {"x": f(5, 6), "update": update},
        updated,
        begin=[1, 0],
        end=[4, 6],
        stride=[2, 2],
    )
    for mode in ("constant", "reflect", "replicate"):
        go(
            f"pad_{mode}",
            "pad",
            {"x": f(1, 2, 4, 5)},
            pad=[1, 2, 3, 0],
            mode=mode,
            constant_val=1.5,
        )
    go("tile", "tile", {"x": x}, reps=[1, 2, 3])
    go("reverse", "reverse", {"x": x}, axes=[0, 2])
    go(
        "reverse_sequence",
        "reverse_sequence",
        {"x": f(4, 3), "lengths": np.array([2, 4, 1], np.int32)},
        lambda v, n: np.stack([np.r_[c[:k][::-1], c[k:]] for c, k in zip(v.T, n, strict=True)], 1),
        seq_axis=0,
        batch_axis=1,
    )
    go(
        "sliding_windows",
        "sliding_windows",
        {"x": f(2, 9)},
        lambda v: np.lib.stride_tricks.sliding_window_view(v, 3, 1)[:, ::2],
        axis=1,
        size=3,
        stride=2,
    )
    go(
        "depth_to_space",
        "depth_to_space",
        {"x": f(1, 8, 2, 3)},
        lambda v: v.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6),
        block_size=2,
    )
    go(
        "space_to_depth",
        "space_to_depth",
        {"x": f(1, 2, 4, 6)},
        lambda v: v.reshape(1, 2, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3),
        block_size=2,
    )
    go(
        "pixel_shuffle",
        "pixel_shuffle",
        {"x": f(1, 8, 2, 3)},
        lambda v: F.pixel_shuffle(T(v), 2).numpy(),
        upscale_factor=2,
    )
    go(
        "pixel_unshuffle",
        "pixel_unshuffle",
        {"x": f(1, 2, 4, 6)},
        lambda v: F.pixel_unshuffle(T(v), 2).numpy(),
        downscale_factor=np.uint32(2),
    )
    go(
        "space_to_batch",
        "space_to_batch",
        {"x": f(1, 2, 4, 6)},
        lambda v: v.reshape(1, 2, 2, 2, 3, 2).transpose(3, 5, 0, 1, 2, 4).reshape(4, 2, 2, 3),
        block_shape=[2, 2],
        paddings=[[0, 0], [0, 0]],
    )
    go(
        "batch_to_space",
        "batch_to_space",
        {"x": f(4, 2, 2, 3)},
        lambda v: (
            v.reshape(2, 2, 1, 2, 2, 3).transpose(2, 3, 4, 0, 5, 1).reshape(1, 2, 4, 6)[:, :, :, 1:]
        ),
        block_shape=[2, 2],
        crops=[[0, 0], [1, 0]],
    )
    go(
        "crop",
        "crop",
        {"x": f(1, 2, 5, 6)},
        lambda v: v[:, :, 1:3, 0:5],
        crop_height=np.array([1, 2], np.int32),
        crop_width=np.array([0, 1], np.int32),
    )
    go("band_part", "band_part", {"x": f(2, 4, 5)}, lower=1, upper=0)
    go("shape", "shape", {"x": x}, lambda v: np.array(v.shape, np.int32))
    go(
        "fill_like",
        "fill_like",
        {"ref_tensor": x},
        lambda v: np.full(v.shape, 2.5, np.float32),
        value=2.5,
    )
    go(
        "one_hot",
        "one_hot",
        {"indices": np.array([1, 0, 3], np.int32)},
        lambda i: np.eye(4, dtype=np.float32)[i] * 1.5 + 0.5,
        one_hot_vector_size=4,
        on_value=2.0,
        off_value=0.5,
    )
    go("non_zero", "non_zero", {"x": np.round(x)})

    places = np.array([[2, 0], [-1, 1]], np.int32)
    go("gather", "gather", {"x": f(4, 3, 5), "indices": places}, axis=1)
    go(
        "gather_batch",
        "gather",
        {"x": f(2, 3, 5), "indices": np.array([[2, 0], [0, 1]], np.int32)},
        lambda v, i: np.stack([v[k][:, i[k]] for k in range(2)]),
        axis=2,
        batch_dims=1,
    )
    go(
        "gather_along_axis",
        "gather_along_axis",
        {"x": f(3, 4), "indices": RANDOM.integers(0, 3, (2, 4)).astype(np.int32)},
        axis=0,
    )
    go(
        "gather_nd",
        "gather_nd",
        {"x": f(3, 4, 2), "indices": np.array([[0, 1], [2, 3]], np.int32)},
        lambda v, i: v[i[:, 0], i[:, 1]],
    )
    for mode in ("update", "add", "sub", "mul", "div", "max", "min"):
        go(
            f"scatter_{mode}",
            "scatter",
            {"data": f(3, 4), "indices": np.array([2, 0], np.int32), "updates": f(3, 2, low=0.5)},
            lambda d, i, u, m=mode: scattered(d, i, u, m),
            axis=1,
            mode=mode,
        )
        go(
            f"scatter_along_axis_{mode}",
            "scatter_along_axis",
            {
                "data": f(3, 4),
                "indices": np.array([[2], [0], [3]], np.int32),
                "updates": f(3, 1, low=0.5),
            },
            lambda d, i, u, m=mode: np.stack(
                [scattered(r[None], j, v[None], m)[0] for r, j, v in zip(d, i, u, strict=True)]
            ),
            axis=1,
            mode=mode,
        )
        go(
            f"scatter_nd_{mode}",
            "scatter_nd",
            {
                "data": f(3, 4),
                "indices": np.array([[2], [0]], np.int32),
                "updates": f(2, 4, low=0.5),
            },
            lambda d, i, u, m=mode: scattered(d.T, i[:, 0], u.T, m).T,
            mode=mode,
        )

    picture = f(1, 2, 5, 6)
    for mode in (
        "STRICT_ALIGN_CORNERS",
        "ALIGN_CORNERS",
        "DEFAULT",
        "OFFSET_CORNERS",
        "UNALIGN_CORNERS",
    ):
        go(
            f"resize_bilinear_{mode}",
            "resize_bilinear",
            {"x": picture},
            lambda v, m=mode: interpolated(v, (8, 3), m),
            target_size_height=8,
            target_size_width=3,
            sampling_mode=mode,
        )
        go(
            f"crop_resize_{mode}",
            "crop_resize",
            {"x": picture, "boxes": np.array([[0.5, 1, 3, 4.5], [1, 0, 4, 3]], np.float32)},
            lambda v, b, m=mode: cropped(v, b, m),
            box_indices=np.array([0, 0], np.int32),
            target_height=3,
            target_width=4,
            sampling_mode=mode,
        )
    for aligned in (True, False):
        go(
            f"upsample_bilinear_{aligned}",
            "upsample_bilinear",
            {"x": picture},
            lambda v, a=aligned: F.interpolate(
                T(v), scale_factor=2, mode="bilinear", align_corners=a
            ).numpy(),
            scale_factor_height=2,
            scale_factor_width=2,
            align_corners=aligned,
        )
    go(
        "upsample_nearest",
        "upsample_nearest_neighbor",
        {"x": picture},
        lambda v: F.interpolate(T(v), scale_factor=(2, 3)).numpy(),
        scale_factor_height=2,
        scale_factor_width=3,
    )
    go(
        "resize_nearest",
        "resize_nearest_neighbor",
        {"x": picture},
        lambda v: F.interpolate(T(v), (7, 9)).numpy(),
        target_size_height=7,
        target_size_width=9,
    )
    go(
        "resize",
        "resize",
        {"x": picture},
        lambda v: F.interpolate(T(v), (10, 12), mode="bilinear").numpy(),
        shape=np.array([10, 12], np.int32),
        resized_dims=np.uint32(2),
        sampling_mode="UNALIGN_CORNERS",
    )
    grid = f(1, 3, 4, 2, low=-1, high=1)
    go(
        "resample",
        "resample",
        {"x": picture, "coordinates": grid},
        lambda v, g: F.grid_sample(T(v), T(g), align_corners=True).numpy(),
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=0.0,
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=True,
    )
    matrix = np.array([[0.8, 0.1, 0.2, -0.1, 0.9, 0.05]], np.float32)
    go(
        "affine",
        "affine",
        {"x": picture, "transform_matrix": matrix},
        lambda v, m: F.grid_sample(
            T(v), F.affine_grid(T(m).reshape(1, 2, 3), (1, 2, 4, 7), True), align_corners=True
        ).numpy(),
        output_height=4,
        output_width=7,
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=0.0,
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=True,
    )

    q, k, v = f(2, 2, 5, 4), f(2, 2, 6, 4), f(2, 2, 6, 3)
    go(
        "attention",
        "scaled_dot_product_attention",
        {"query": q, "key": k, "value": v},
        lambda a, b, c: F.scaled_dot_product_attention(T(a), T(b), T(c)).numpy(),
    )
    go(
        "attention_mask",
        "scaled_dot_product_attention",
        {"query": q, "key": k, "value": v, "attn_mask": f(5, 6)},
        lambda a, b, c, m: F.scaled_dot_product_attention(T(a), T(b), T(c), T(m)).numpy(),
    )
    go(
        "quantize",
        "quantize",
        {"input": x},
        scale=np.float32(0.05),
        zero_point=np.int8(3),
        output_dtype="int8",
    )
    boxes = np.concatenate([f(1, 2, 9, low=0, high=6), f(1, 2, 9, low=2, high=4)], 1)
    go(
        "nms",
        "non_maximum_suppression",
        {"boxes": boxes, "scores": f(1, 3, 9, low=0, high=1)},
        suppressed,
        iou_threshold=0.3,
        max_boxes=4,
    )


def running(v: np.ndarray, exclusive: bool, reverse: bool) -> np.ndarray:
    """A running sum along axis 1."""
    w = v[:, ::-1] if reverse else v
    total = np.cumsum(w, 1) - (w if exclusive else 0)
    return total[:, ::-1] if reverse else total


def updated(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    y = x.copy()
    y[1:4:2, 0:6:2] = u
    return y


def scattered(d: np.ndarray, i: np.ndarray, u: np.ndarray, mode: str) -> np.ndarray:
    """`d` with columns `i` combined with `u`."""
    y = d.copy()
    at = (slice(None), i)
    y[at] = {
        "update": u, "add": y[at] + u, "sub": y[at] - u, "mul": y[at] * u, "div": y[at] / u,
        "max": np.maximum(y[at], u), "min": np.minimum(y[at], u),
    }[mode]  # fmt: skip
    return y


def grid_points(extent: int, size: int, mode: str) -> np.ndarray:
    """The places of samples, by the formulas of the operators' documentation."""
    i = np.arange(size)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        points = i * (extent - 1) / (size - 1)
    elif mode == "DEFAULT":
        points = i * (extent - extent / size) / (size - 1)
    elif mode == "OFFSET_CORNERS":
        delta = max(1, extent - 1) / size
        points = 0.5 * delta + i * delta
    else:
        points = i * extent / size + 0.5 * extent / size - 0.5
    return np.clip(points, 0, extent - 1)


def along(v: np.ndarray, axis: int, points: np.ndarray) -> np.ndarray:
    low = np.floor(points).astype(int)
    high = np.minimum(low + 1, v.shape[axis] - 1)
    share = (points - low).reshape(-1, *[1] * (v.ndim - axis - 1))
    return np.take(v, low, axis) * (1 - share) + np.take(v, high, axis) * share


def interpolated(v: np.ndarray, sizes: tuple[int, int], mode: str) -> np.ndarray:
    rows = along(v, 2, grid_points(v.shape[2], sizes[0], mode))
    return along(rows, 3, grid_points(v.shape[3], sizes[1], mode))


def cropped(v: np.ndarray, boxes: np.ndarray, mode: str) -> np.ndarray:
    made = []
    for y0, x0, y1, x1 in boxes:
        part = v
        for axis, (a, b, size) in zip((2, 3), ((y0, y1, 3), (x0, x1, 4)), strict=True):
            i, span = np.arange(size), b - a
            if mode == "OFFSET_CORNERS":
                points = a + span / size * (0.5 + i)
            elif mode == "DEFAULT":
                points = a + i * (span + 1) / size
            elif mode == "UNALIGN_CORNERS":
                points = a + (i + 0.5) * (span + 1) / size - 0.5
            else:
                points = a + i * span / (size - 1)
            part = along(part, axis, np.clip(points, 0, v.shape[axis] - 1))
        made.append(part[0])
    return np.stack(made)


def suppressed(boxes: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
    """Boxes [1, 4, B] and scores [1, K, B] of at most 4 boxes that overlap no better one."""
    best, order, kept = scores[0].max(0), np.argsort(-scores[0].max(0)), []
    for i in order:
        if all(overlap(boxes[0, :, i], boxes[0, :, j]) <= 0.3 for j in kept) and len(kept) < 4:
            kept.append(i)
    del best
    shown = [boxes[:, :, kept], scores[:, :, kept]]
    pad = 4 - len(kept)
    shown = [np.pad(a, ((0, 0), (0, 0), (0, pad))) for a in shown]
    return [*shown, np.pad(np.array([kept], np.int32), ((0, 0), (0, pad)), constant_values=-1)]


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    low = np.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    high = np.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2)
    common = np.prod(np.maximum(high - low, 0))
    return float(common / (a[2] * a[3] + b[2] * b[3] - common))


# Convolution with every kind of padding


def conv(v: np.ndarray, w: np.ndarray, strides: tuple[int, int], pad_type: str,
         pad: tuple[int, ...], dilations: tuple[int, int], groups: int) -> np.ndarray:  # fmt: skip
    borders: list[tuple[int, int]] = []
    for a in (0, 1):
        reach = (w.shape[2 + a] - 1) * dilations[a] + 1
        count = -(-v.shape[2 + a] // strides[a])
        total = max((count - 1) * strides[a] + reach - v.shape[2 + a], 0)
        half = (total // 2, total - total // 2)
        borders.append({
            "valid": (0, 0), "custom": (pad[2 * a], pad[2 * a + 1]), "same": half,
            "same_lower": half[::-1],
        }[pad_type])  # fmt: skip
    padded = np.pad(v, ((0, 0), (0, 0), *borders))
    return nn.functional.conv2d(
        T(padded), T(w), stride=strides, dilation=dilations, groups=groups
    ).numpy()


# Compressed weights, open shapes, models of rows


def compressed(folder: Path) -> None:
    """A module whose weights are compressed in every form; PyTorch computes with what they mean."""
    import coremltools.optimize.coreml as cto

    linear, lut, table = cto.OpLinearQuantizerConfig, cto.OpPalettizerConfig, "palettize_weights"
    forms = {
        "int8_channel": ("linear_quantize_weights", linear(mode="linear_symmetric"), 16),
        "uint8_tensor": (
            "linear_quantize_weights",
            linear(mode="linear", dtype="uint8", granularity="per_tensor"), 16),
        "int8_channel_18": ("linear_quantize_weights", linear(mode="linear"), 18),
        "int4_block": (
            "linear_quantize_weights",
            linear(mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=16),
            18),
        "uint4_block": (
            "linear_quantize_weights",
            linear(mode="linear", dtype="uint4", granularity="per_block", block_size=8), 18),
        **{f"lut{b}": (table, lut(mode="uniform", nbits=b), 16) for b in (1, 2, 4, 6, 8)},
        **{f"lut{b}_18": (table, lut(mode="uniform", nbits=b), 18) for b in (2, 3, 4)},
        "lut4_group": (
            "palettize_weights",
            lut(mode="uniform", nbits=4, granularity="per_grouped_channel", group_size=8), 18),
        "sparse": ("prune_weights", cto.OpThresholdPrunerConfig(threshold=0.03), 16),
        "sparse_18": ("prune_weights", cto.OpThresholdPrunerConfig(threshold=0.03), 18),
    }  # fmt: skip
    targets = {16: ct.target.iOS16, 18: ct.target.iOS18}
    module = nn.Sequential(nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32)).eval()
    x = f(2, 8, 6, 6)
    traced = torch.jit.trace(module, T(x))
    for name, (function, settings, target) in forms.items():
        try:
            model = ct.convert(
                traced, inputs=[ct.TensorType(name="x", shape=x.shape)],
                minimum_deployment_target=targets[target],
                compute_precision=ct.precision.FLOAT32,
            )  # fmt: skip
            config = cto.OptimizationConfig(global_config=settings)
            model = getattr(cto, function)(model, config)
            plain = cto.decompress_weights(model)._mil_program.functions["main"]
            with torch.no_grad():
                for part, kind in ((module[0], "conv"), (module[3], "linear")):
                    (op,) = plain.find_ops(op_type=kind)
                    part.weight.copy_(T(op.weight.val.astype(np.float32)))
                wanted = module(T(x)).numpy()
            write(folder, f"weights_{name}", model, {"x": x}, {"0": wanted})
        except Exception:
            print(f"weights {name}: {traceback.format_exc(limit=-1)}")


def open_shapes(folder: Path) -> None:
    """Ranges and alternatives of shapes, each with an input of another size than the default."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval()
    traced = torch.jit.trace(module, torch.zeros(1, 3, 16, 16))
    forms = {
        "range": ct.Shape((1, 3, ct.RangeDim(8, 40, 16), ct.RangeDim(8, 100, 16))),
        "alternatives": ct.EnumeratedShapes([(1, 3, 16, 16), (1, 3, 20, 24)]),
    }
    x = f(1, 3, 20, 24)
    with torch.no_grad():
        wanted = module(T(x)).numpy()
    for name, shape in forms.items():
        for kind in ("mlprogram", "neuralnetwork"):
            precision = {"compute_precision": ct.precision.FLOAT32} if kind == "mlprogram" else {}
            model = ct.convert(
                traced, inputs=[ct.TensorType(name="x", shape=shape)], convert_to=kind, **precision
            )
            ending = "mlpackage" if kind == "mlprogram" else "mlmodel"
            write(folder, f"open_{name}_{kind}", model, {"x": x}, {"0": wanted}, None, ending)


def images(folder: Path) -> None:
    """Pictures with a scale and a bias; the results are PyTorch's for the prepared pixels."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Softmax(1)).eval()
    traced = torch.jit.trace(module, torch.zeros(1, 3, 16, 16))
    pixels = RANDOM.integers(0, 256, (1, 3, 16, 16)).astype(np.float32)
    bias = np.array([-0.5, 0.25, 1.0], np.float32)
    for layout in ("RGB", "BGR"):
        shown = pixels if layout == "RGB" else pixels[:, ::-1]
        with torch.no_grad():
            wanted = module(T(shown / 255 + bias.reshape(3, 1, 1))).numpy()
        for kind in ("mlprogram", "neuralnetwork"):
            precision = {"compute_precision": ct.precision.FLOAT32} if kind == "mlprogram" else {}
            image = ct.ImageType(name="x", shape=(1, 3, 16, 16), scale=1 / 255, bias=bias.tolist(),
                                 color_layout=getattr(ct.colorlayout, layout))  # fmt: skip
            model = ct.convert(traced, inputs=[image], convert_to=kind, **precision)
            ending = "mlpackage" if kind == "mlprogram" else "mlmodel"
            given, results = {"x": pixels}, {"0": wanted}
            write(folder, f"image_{layout}_{kind}", model, given, results, None, ending)


def states(folder: Path) -> None:
    """A module with a buffer that each run adds to."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2, 3, dtype=torch.float16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x.to(torch.float16))
            return self.total * 2

    x = (np.round(f(2, 3) * 8) / 8).astype(np.float16)
    model = ct.convert(
        torch.jit.trace(Sum().eval(), torch.zeros(2, 3)),
        inputs=[ct.TensorType(name="x", shape=x.shape)],
        states=[ct.StateType(ct.TensorType(shape=x.shape, dtype=np.float16), name="total")],
        minimum_deployment_target=ct.target.iOS18,
    )
    write(folder, "state_sum", model, {"x": x}, {"0": x * 2}, HALF)


def trees(folder: Path) -> None:
    """Trees of scikit-learn, written node by node, for a row of features."""
    from coremltools.models import MLModel, datatypes
    from coremltools.models.tree_ensemble import TreeEnsembleClassifier, TreeEnsembleRegressor
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

    rows, x = f(200, 5), f(5)
    features = [("x", datatypes.Array(5))]

    def add(builder: Any, number: int, tree: Any, weights: Callable[[int], Any]) -> None:
        for i in range(tree.node_count):
            if tree.children_left[i] < 0:
                builder.add_leaf_node(number, i, weights(i))
            else:
                builder.add_branch_node(
                    number, i, int(tree.feature[i]), float(tree.threshold[i]),
                    "BranchOnValueLessThanEqual", int(tree.children_left[i]),
                    int(tree.children_right[i]),
                )  # fmt: skip

    regressor = GradientBoostingRegressor(n_estimators=8).fit(rows, rows[:, 0] * rows[:, 1])
    builder = TreeEnsembleRegressor(features, "y")
    builder.set_default_prediction_value(float(regressor.init_.constant_.item()))
    for k, (estimator,) in enumerate(regressor.estimators_):
        tree = estimator.tree_
        add(builder, k, tree, lambda i, t=tree: float(t.value[i].item() * regressor.learning_rate))
    wanted = regressor.predict(x[None].astype(np.float64)).astype(np.float32)
    model = MLModel(builder.spec)
    write(folder, "trees_regressor", model, {"x": x}, {"y": wanted}, None, "mlmodel")

    labels = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0.5)
    forest = RandomForestClassifier(6, max_depth=5).fit(rows, labels)
    builder = TreeEnsembleClassifier(features, [0, 1, 2], output_features="label")
    builder.set_default_prediction_value([0.0, 0.0, 0.0])
    for k, estimator in enumerate(forest.estimators_):
        tree = estimator.tree_

        def leaf(i: int, t: Any = tree) -> dict[int, float]:
            counts = t.value[i, 0]
            return {c: float(v / counts.sum() / 6) for c, v in enumerate(counts)}

        add(builder, k, tree, leaf)
    shown = {"label": forest.predict(x[None]).astype(np.int64),
             "classProbability": forest.predict_proba(x[None])[0].astype(np.float32)}  # fmt: skip
    shown["label"] = shown["label"].reshape(())
    write(folder, "trees_classifier", MLModel(builder.spec), {"x": x}, shown, None, "mlmodel")


def main() -> None:
    folder = Path(sys.argv[1])
    parts = {
        "operators": operators, "modules": write_modules, "compressed": compressed,
        "open": open_shapes, "images": images, "states": states, "trees": trees,
    }  # fmt: skip
    torch.backends.mha.set_fastpath_enabled(False)
    for name in sys.argv[2:] or parts:
        parts[name](folder)


if __name__ == "__main__":
    main()
