"""TFLite's activation functions: operators, and the functions fused into other operators."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import same_operators, tflite_op
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f32, i32
from tilesmith.ops import activation as act
from tilesmith.ops import elementwise as ew
from tilesmith.ops import norm
from tilesmith.ops.base import Op
from tilesmith.ops.functions import clip, tanh, where

_PLAIN: dict[str, Callable[[], Op]] = {
    "ELU": act.Elu,
    "HARD_SWISH": act.HardSwish,
    "LOGISTIC": act.Sigmoid,
    "RELU": act.Relu,
    "RELU6": lambda: ew.Clip(0, 6),
    "RELU_0_TO_1": lambda: ew.Clip(0, 1),
    "RELU_N1_TO_1": lambda: ew.Clip(-1, 1),
    "TANH": ew.Tanh,
}

same_operators(_PLAIN)

FUSED = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Activation functions that are fused into other operators, in the order of their numbers."""


def activate(n: TfliteNode, y: Value) -> Value:
    """Apply the operator's fused activation function to `y`."""
    return activated(n, y, n.choice("fused_activation_function", FUSED))


def activated(n: TfliteNode, y: Value, name: str) -> Value:
    """Apply the function `name` of `FUSED` to `y`."""
    if name == "NONE":
        return y
    if name == "RELU":
        return n.add(act.Relu(), y)
    if name == "RELU_N1_TO_1":
        return clip(y, -1, 1)
    if name == "RELU6":
        return clip(y, 0, 6)
    if name == "TANH" and y.dtype.is_float:
        return tanh(y)
    if name == "SIGN_BIT" and y.dtype is f32:  # 1 for negative numbers, also for -0
        return (n.add(ew.Bitcast(i32), y) < 0).cast(f32)
    return n.unsupported(f"fused activation function {name} of {y.type}")


@tflite_op("LEAKY_RELU")
def leaky_relu(n: TfliteNode) -> Result:
    return n.add(act.LeakyRelu(n.option("alpha")), n.input(0))


@tflite_op("PRELU")
def prelu(n: TfliteNode) -> Result:
    x, slope = n.input(0), n.input(1)
    return where(x < 0, x * slope, x)


@tflite_op("GELU")
def gelu(n: TfliteNode) -> Result:
    return n.add(act.Gelu("tanh" if n.option("approximate") else "none"), n.input(0))


@tflite_op("SOFTMAX")
def softmax(n: TfliteNode) -> Result:
    x, beta = n.input(0), n.option("beta")
    return n.add(norm.Softmax(-1), x if beta == 1 else x * beta)


@tflite_op("LOG_SOFTMAX")
def log_softmax(n: TfliteNode) -> Result:
    return n.add(norm.LogSoftmax(-1), n.input(0))
