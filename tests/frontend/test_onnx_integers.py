"""Integer arithmetic of ONNX and of te: all pairs of bytes, and the limits of wider types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import tilesmith as ts
from tilesmith import te

Pair = tuple[np.ndarray, np.ndarray]
Meaning = Callable[[np.ndarray, np.ndarray], np.ndarray]


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotients that are rounded to zero, in integers: f64 would round those of 64 bits."""
    quotient = a // b
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def shifted(shift: np.ufunc) -> Meaning:
    def shift_within(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = 8 * a.dtype.itemsize
        return np.where(b < bits, shift(a, np.minimum(b, bits - 1)), 0).astype(a.dtype)

    return shift_within


ANY: dict[str, Meaning] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": np.abs,
    "Sign": np.sign,
    "BitwiseNot": np.invert,
}
DIVISIONS: dict[str, Meaning] = {"Div": truncated, "Mod": np.mod, "Mod fmod=1": np.fmod}
SHIFTS: dict[str, Meaning] = {
    "BitShift direction=LEFT": shifted(np.left_shift),
    "BitShift direction=RIGHT": shifted(np.right_shift),
}
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def pairs(dtype: str) -> Pair:
    limits = np.iinfo(dtype)
    least, most = int(limits.min), int(limits.max)
    near = {least, least + 1, 0, 1, 2, 7, 31, 32, 63, 64, most // 2, most - 1, most}
    values = (
        range(least, most + 1) if limits.bits == 8 else near | ({-3, -2, -1} if least else set())
    )
    found = np.array(list(itertools.product(sorted(values), repeat=2)), dtype=dtype)
    return np.ascontiguousarray(found[:, 0]), np.ascontiguousarray(found[:, 1])


def model(names: list[str], dtype: str, count: int) -> ModelProto:
    """A node for each name, which may say attributes: `Mod fmod=1`."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = []
    for k, name in enumerate(names):
        operator, *said = name.split()
        attributes: dict[str, Any] = dict(s.split("=") for s in said)
        attributes = {n: int(v) if v.isdigit() else v for n, v in attributes.items()}
        inputs = ["a"] if operator in (*UNARY, "Neg") else ["a", "b"]
        nodes.append(helper.make_node(operator, inputs, [f"y{k}"], **attributes))
    inputs = [helper.make_tensor_value_info(n, kind, [count]) for n in "ab"]
    truth = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    outputs = [helper.make_tensor_value_info(
        f"y{k}", TensorProto.BOOL if name in truth else kind, [count])
        for k, name in enumerate(names)]  # fmt: skip
    graph = helper.make_graph(nodes, "integers", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def compare(meanings: dict[str, Meaning], operands: Pair, target: str) -> None:
    a, b = operands
    with np.errstate(all="ignore"):
        wanted = {n: meaning(a, b) for n, meaning in meanings.items()}
    compiled = ts.compile(model(list(meanings), str(a.dtype), len(a)), threads=1, target=target)
    found = compiled.run({"a": a, "b": b})
    for (name, want), got in zip(wanted.items(), found.values(), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=name)
        assert got.dtype == want.dtype


@pytest.mark.parametrize("target", ("native", "c"))
@pytest.mark.parametrize("dtype", TYPES)
def test_onnx(dtype: str, target: str) -> None:
    a, b = pairs(dtype)
    meanings: dict[str, Meaning] = {
        **ANY, **{n: lambda a, b, f=f: f(a) for n, f in UNARY.items()}
    }  # fmt: skip
    if dtype.startswith("u"):
        meanings |= SHIFTS
    else:
        meanings["Neg"] = lambda a, b: np.negative(a)
    compare(meanings, (a, b), target)
    traps = b == 0
    if not dtype.startswith("u"):
        traps |= (b == -1) & (a == np.iinfo(dtype).min)
    compare(DIVISIONS, (a[~traps], b[~traps]), target)


@pytest.mark.parametrize("target", ("native", "c"))
@pytest.mark.parametrize("dtype", TYPES)
def test_te(dtype: str, target: str) -> None:
    a, b = pairs(dtype)
    keep = b != 0
    a, b = a[keep], b[keep]
    meanings: dict[str, tuple[Callable[[Any, Any], Any], Meaning]] = {
        "+": (lambda x, y: x + y, np.add),
        "-": (lambda x, y: x - y, np.subtract),
        "*": (lambda x, y: x * y, np.multiply),
        "//": (lambda x, y: x // y, np.floor_divide),
        "%": (lambda x, y: x % y, np.mod),
        "max": (te.maximum, np.maximum),
        "min": (te.minimum, np.minimum),
    }
    x, y = te.placeholder((len(a),), dtype, "x"), te.placeholder((len(a),), dtype, "y")
    outputs = [te.compute(x.shape, lambda i, f=f: f(x[i], y[i])) for f, _ in meanings.values()]
    built = ts.build(te.create_schedule(outputs), [x, y, *outputs], target=target)
    found = [np.empty_like(a) for _ in meanings]
    built(a, b, *found)
    for (name, (_, meaning)), got in zip(meanings.items(), found, strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, meaning(a, b), err_msg=name)
