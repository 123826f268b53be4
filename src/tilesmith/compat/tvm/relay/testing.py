"""The networks of TVM's tutorials, with random weights: `resnet`, `mlp`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilesmith.support.errors import UsageError

from ..nd import NDArray, array
from . import RelayModule
from .expressions import Call, Expr, Function, Var, analysis, nn, var

Workload = tuple[RelayModule, dict[str, NDArray]]
"""A module and its parameters by name."""


def create_workload(net: Function, initializer: Any = None, seed: int = 0) -> Workload:
    """The module of a function, and random values for all its inputs but the first.

    Weights are uniform, scaled by the square root of the number of inputs and outputs of an element
    (Xavier), batch normalisations are those of a new network.
    """
    random = np.random.default_rng(seed)
    params = {p.name_hint: array(_initial(p, random)) for p in net.params[1:]}
    return RelayModule.from_expr(net), params


def _initial(p: Var, random: np.random.Generator) -> np.ndarray:
    shape = tuple(int(n) for n in p.shape or ())
    if p.name_hint.endswith(("gamma", "var")):
        return np.ones(shape, np.float32)
    if p.name_hint.endswith(("beta", "mean", "bias")):
        return np.zeros(shape, np.float32)
    window = int(np.prod(shape[2:]))
    scale = np.sqrt(6 / ((shape[0] + shape[1]) * window))
    return random.uniform(-scale, scale, shape).astype(np.float32)


def _workload(data: Var, out: Expr) -> Workload:
    free = [v for v in analysis.free_vars(out) if v is not data]
    return create_workload(Function([data, *free], out))


def _batch_norm(data: Expr, channels: int, name: str, **attrs: Any) -> Expr:
    names = ("gamma", "beta", "moving_mean", "moving_var")
    parts = (var(f"{name}_{p}", shape=(channels,)) for p in names)
    return nn.batch_norm(data, *parts, epsilon=2e-5, **attrs)[0]


def _conv(data: Expr, inputs: int, outputs: int, size: int, stride: int, name: str) -> Call:
    w = var(f"{name}_weight", shape=(outputs, inputs, size, size))
    pad = size // 2
    return nn.conv2d(data, w, strides=(stride, stride), padding=(pad, pad), channels=outputs,
                     kernel_size=(size, size))  # fmt: skip


def _unit(data: Expr, inputs: int, outputs: int, stride: int, name: str, is_deep: bool) -> Expr:
    """A residual block with normalisation first (He et al., Identity Mappings, 2016)."""
    act = nn.relu(_batch_norm(data, inputs, f"{name}_bn1"))
    widths = (outputs // 4, outputs // 4, outputs) if is_deep else (outputs, outputs)
    sizes, strides = ((1, 3, 1), (1, stride, 1)) if is_deep else ((3, 3), (stride, 1))
    out, width = act, inputs
    for i, (each, size, step) in enumerate(zip(widths, sizes, strides, strict=True), 1):
        if i > 1:
            out = nn.relu(_batch_norm(out, width, f"{name}_bn{i}"))
        out, width = _conv(out, width, each, size, step, f"{name}_conv{i}"), each
    is_same = stride == 1 and inputs == outputs
    return out + (data if is_same else _conv(act, inputs, outputs, 1, stride, f"{name}_sc"))


_UNITS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def _resnet(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
) -> Workload:
    """ResNet of 18, 34, 50 or 101 layers.  The input is `data`; the output has probabilities.

    Raises UsageError for another number of layers.
    """
    if num_layers not in _UNITS:
        raise UsageError(
            f"resnet: expected num_layers of {', '.join(map(str, _UNITS))}, found {num_layers!r}"
        )
    data, is_deep = var("data", shape=(batch_size, *image_shape), dtype=dtype), num_layers >= 50
    widths = (256, 512, 1024, 2048) if is_deep else (64, 128, 256, 512)
    out: Expr = _batch_norm(data, image_shape[0], "bn_data", scale=False)
    out = _conv(out, image_shape[0], 64, 7, 2, "conv0")
    out = nn.relu(_batch_norm(out, 64, "bn0"))
    out = nn.max_pool2d(out, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    before = 64
    for stage, (count, width) in enumerate(zip(_UNITS[num_layers], widths, strict=True), 1):
        for unit in range(1, count + 1):
            stride = 2 if stage > 1 and unit == 1 else 1
            out = _unit(out, before, width, stride, f"stage{stage}_unit{unit}", is_deep)
            before = width
    out = nn.relu(_batch_norm(out, before, "bn1"))
    out = nn.batch_flatten(nn.global_avg_pool2d(out))
    out = nn.dense(out, var("fc1_weight", shape=(num_classes, before)), units=num_classes)
    out = nn.bias_add(out, var("fc1_bias", shape=(num_classes,)), axis=-1)
    return _workload(data, nn.softmax(out))


def _mlp(
    batch_size: int, num_classes: int = 10, image_shape: Sequence[int] = (1, 28, 28),
    dtype: str = "float32",
) -> Workload:  # fmt: skip
    """Three products with ReLU between them.  The input is `data`; the output has probabilities."""
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    out, before = nn.batch_flatten(data), int(np.prod(image_shape))
    for i, width in enumerate((128, 64, num_classes), 1):
        out = nn.relu(out) if i > 1 else out
        out = nn.dense(out, var(f"fc{i}_weight", shape=(width, before)), units=width)
        out = nn.bias_add(out, var(f"fc{i}_bias", shape=(width,)), axis=-1)
        before = width
    return _workload(data, nn.softmax(out))


resnet, mlp = SimpleNamespace(get_workload=_resnet), SimpleNamespace(get_workload=_mlp)
