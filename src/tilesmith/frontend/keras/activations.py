"""Keras' activation functions: as names, as serialised objects, as layers and as operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tilesmith.frontend.keras.node import KerasNode
from tilesmith.frontend.keras.registry import layer, operation
from tilesmith.graph.nodes import Value
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import functions as fn
from tilesmith.ops import norm, slicing
from tilesmith.ops.base import Op

Function: TypeAlias = Callable[[KerasNode, Value, dict[str, Any]], Value]
"""A function that applies an activation to a value.  It gets the activation's options by name."""

_PLAIN: dict[str, Callable[[], Op]] = {
    "exponential": ew.Exp,
    "hard_sigmoid": lambda: act.HardSigmoid(1 / 6, 0.5),
    "hard_silu": act.HardSwish,
    "hard_swish": act.HardSwish,
    "hard_tanh": lambda: ew.Clip(-1, 1),
    "mish": act.Mish,
    "relu6": lambda: ew.Clip(0, 6),
    "selu": act.Selu,
    "sigmoid": act.Sigmoid,
    "silu": act.Silu,
    "softplus": act.Softplus,
    "softsign": act.Softsign,
    "swish": act.Silu,
    "tanh": ew.Tanh,
}


def _relu(n: KerasNode, x: Value, o: dict[str, Any]) -> Value:
    slope, most = o.get("negative_slope", 0.0) or 0.0, o.get("max_value")
    threshold = o.get("threshold", 0.0) or 0.0
    if not slope and not threshold:
        return fn.clip(x, 0, most) if most is not None else n.add(act.Relu(), x)
    y = fn.where(x < threshold, (x - threshold) * slope, x)
    return y if most is None else fn.minimum(y, most)


def _glu(n: KerasNode, x: Value, o: dict[str, Any]) -> Value:
    axis = n.axis(o.get("axis", -1), x.type.rank)
    half = n.extent(x, axis) // 2
    a, gate = n.add(slicing.Split(axis, (half, half)), x)
    return a * n.add(act.Sigmoid(), gate)


def _sparse_plus(n: KerasNode, x: Value, o: dict[str, Any]) -> Value:
    inside = (x + 1.0) * (x + 1.0) * 0.25
    return fn.where(x <= -1.0, 0.0, fn.where(x < 1.0, inside, x))


def _threshold(n: KerasNode, x: Value, o: dict[str, Any]) -> Value:
    return fn.where(x > o["threshold"], x, o["default_value"])


_FUNCTIONS: dict[str, Function] = {
    "celu": lambda n, x, o: n.add(act.Celu(o.get("alpha", 1.0)), x),
    "elu": lambda n, x, o: n.add(act.Elu(o.get("alpha", 1.0)), x),
    "gelu": lambda n, x, o: n.add(act.Gelu("tanh" if o.get("approximate") else "none"), x),
    "glu": _glu,
    "hard_shrink": lambda n, x, o: n.add(act.Shrink(0.0, o.get("threshold", 0.5)), x),
    "leaky_relu": lambda n, x, o: n.add(act.LeakyRelu(o.get("negative_slope", 0.2)), x),
    "linear": lambda n, x, o: x,
    "log_sigmoid": lambda n, x, o: -n.add(act.Softplus(), -x),
    "log_softmax": lambda n, x, o: n.add(norm.LogSoftmax(o.get("axis", -1)), x),
    "relu": _relu,
    "soft_shrink": lambda n, x, o: n.add(
        act.Shrink(o.get("threshold", 0.5), o.get("threshold", 0.5)), x
    ),
    "softmax": lambda n, x, o: n.add(norm.Softmax(o.get("axis", -1)), x),
    "sparse_plus": _sparse_plus,
    "sparse_sigmoid": lambda n, x, o: fn.clip((x + 1.0) * 0.5, 0, 1),
    "squareplus": lambda n, x, o: (x + fn.sqrt(x * x + float(o.get("b", 4)))) * 0.5,
    "tanh_shrink": lambda n, x, o: x - fn.tanh(x),
    "threshold": _threshold,
}


def activated(n: KerasNode, x: Value, identifier: Any) -> Value:
    """The activation of `x`.

    identifier: a name, a serialised function, layer or operation, or None for the identity.
    """
    options: dict[str, Any] = {}
    if isinstance(identifier, dict):
        options = identifier.get("config") or {}
        name = str(identifier.get("class_name"))
        if name in ("function", "builtin_function"):
            name, options = str(options), {}
        identifier = name
    if isinstance(options, str):
        identifier, options = options, {}
    name = "linear" if identifier is None else str(identifier).rsplit(">", 1)[-1]
    if name in _LAYERS:
        return _LAYERS[name](n, x, options)
    if name == "hard_sigmoid" and n.major < 3:
        return n.add(act.HardSigmoid(0.2, 0.5), x)
    if name in _PLAIN:
        return n.add(_PLAIN[name](), x)
    if name not in _FUNCTIONS:
        return n.unsupported(f"activation {name!r}")
    return _FUNCTIONS[name](n, x, options)


@layer("Activation", masked=True)
def activation(n: KerasNode) -> Value:
    return activated(n, n.input(), n.option("activation"))


def _softmax(n: KerasNode, x: Value, o: dict[str, Any]) -> Value:
    axis = o.get("axis", -1)
    if isinstance(axis, list):
        axes = n.axes(tuple(axis), x.type.rank)
        e = fn.exp(x - x.max(axes, keepdims=True))
        return e / e.sum(axes, keepdims=True)
    return n.add(norm.Softmax(axis), x)


def _leaky(n: KerasNode, x: Value, o: dict[str, Any]) -> Value:
    slope = o.get("negative_slope", o.get("alpha", 0.3))
    return n.add(act.LeakyRelu(float(slope)), x)


_LAYERS: dict[str, Function] = {
    "ELU": _FUNCTIONS["elu"],
    "LeakyReLU": _leaky,
    "ReLU": _relu,
    "Softmax": _softmax,
    "ThresholdedReLU": lambda n, x, o: fn.where(x > float(o.get("theta", 1.0)), x, 0.0),
}


def _layer(n: KerasNode) -> Value:
    x, mask = n.input(), n.mask()
    if n.kind == "Softmax" and (mask is not None or len(n.inputs) > 1):
        mask = n.inputs[1] if len(n.inputs) > 1 else mask
        assert mask is not None
        x = fn.where(mask, x, x + -3e38 if x.dtype.bits > 16 else x + -3e4)
    return _LAYERS[n.kind](n, x, n.config)


layer(*_LAYERS, masked=True)(_layer)


@layer("PReLU", masked=True)
def prelu(n: KerasNode) -> Value:
    x = n.input()
    return fn.where(x < 0.0, x * n.weight(0), x)


_OPERATIONS = {
    "".join(w.title() for w in name.split("_")): name for name in (*_PLAIN, *_FUNCTIONS)
} | {"ReLU": "relu", "Mish": "mish", "Identity": "linear"}


def _operation(n: KerasNode) -> Value:
    name, x = _OPERATIONS[n.kind], n.input()
    if name == "gelu" and "approximate" not in n.config:
        return n.add(act.Gelu("tanh"), x)
    return activated(n, x, {"class_name": name, "config": n.config | n.kwargs})


operation(*_OPERATIONS)(_operation)
