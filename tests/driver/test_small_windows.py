"""Windows over open axes whose least size is below the window's reach: what a run refuses because
an extent would be negative leaves all else compiled for all sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.support.errors import ModelError

RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 3, 16)).astype(np.float32)
WINDOWS = {"conv": (16, 5, 2), "pool": (3, 2, 0), "far": (8, 4, 0)}
"""Reach, stride and padding."""

SIZES = (1, 2, 3, 5, 8, 11, 12, 17, 22, 27, 40, 63)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def halves(x: np.ndarray) -> list[np.ndarray]:
    n = x.shape[2] // 2
    return [x[:, :, :n] + x[:, :, n : 2 * n]]


def parts(count: int) -> Any:
    def of(x: np.ndarray) -> list[np.ndarray]:
        size = -(-x.shape[2] // count)
        return [x[:, :, i * size : (i + 1) * size] for i in range(count)]

    return of


def padded(x: np.ndarray) -> list[np.ndarray]:
    return [np.pad(x, ((0, 0), (0, 0), (0, x.shape[2] % 2)))]


HALF = [
    node("Shape", "c", "s", start=2, end=3),
    node("Div", "s two", "half"),
    node("Mul", "half two", "both"),
    node("Slice", "c zero half two", "a"),
    node("Slice", "c half both two", "b"),
    node("Add", "a b", "y"),
]
TO_EVEN = [
    node("Shape", "c", "s", start=2, end=3),
    node("Mod", "s two", "rest", fmod=1),
    node("Concat", "zeros rest", "pads", axis=0),
    node("Pad", "c pads", "y"),
]
AFTER = {
    "halves": (HALF, ["y"], halves),
    "split 2": ([node("Split", "c", "y u", axis=2, num_outputs=2)], ["y", "u"], parts(2)),
    "split 3": ([node("Split", "c", "y u v", axis=2, num_outputs=3)], ["y", "u", "v"], parts(3)),
    "even": (TO_EVEN, ["y"], padded),
}


def windows(x: np.ndarray, reach: int, stride: int, pad: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad)))
    return np.lib.stride_tricks.sliding_window_view(x, reach, 2)[:, :, ::stride]


def first(kind: str) -> tuple[onnx.NodeProto, Any]:
    reach, stride, pad = WINDOWS[kind]
    common = {"strides": [stride], "pads": [pad, pad], "kernel_shape": [reach]}
    if kind == "pool":
        return node("MaxPool", "x", "c", **common), lambda x: windows(x, reach, stride, pad).max(3)
    weight = W[:, :, :reach]
    return (
        node("Conv", "x w", "c", **common),
        lambda x: np.einsum("nctk,ock->not", windows(x, reach, stride, pad), weight),
    )


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("kind", WINDOWS)
def test_what_follows_a_window_has_all_sizes(kind: str, after: str) -> None:
    made, expected = first(kind)
    nodes, outputs, then = AFTER[after]
    constants = {
        "w": W[:, :, : WINDOWS[kind][0]], "two": np.array([2]), "zero": np.array([0]),
        "zeros": np.zeros(5, np.int64),
    }  # fmt: skip
    used = {i for n in (made, *nodes) for i in n.input}
    graph = helper.make_graph(
        [made, *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "t"])],
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items() if n in used],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    exe = ts.compile(proto, threads=2)
    assert [(s.name, s.sizes.low) for s in exe.program.symbols] == [("n", 1), ("t", 1)]
    reach, stride, pad = WINDOWS[kind]
    for size in SIZES:
        x = RNG.standard_normal((2, 3, size)).astype(np.float32)
        places = (size + 2 * pad - reach) // stride + 1
        if places < 0:
            with pytest.raises(ModelError, match="negative"):
                exe(x)
            continue
        c = expected(x) if places else np.zeros((2, 3 if kind == "pool" else 4, 0), np.float32)
        for found, wanted in zip(exe.run({"x": x}).values(), then(c), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
