"""ONNX's If and Loop whose results have shapes that a run finds, against ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith import driver

ort = pytest.importorskip("onnxruntime")

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, kind: int, shape: Sequence[int | str | None]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def part(nodes: str, inputs: Sequence[Any], outputs: Sequence[str]) -> Any:
    """A graph whose nodes are written as in ONNX's text form, and whose results have no types."""
    parsed = onnx.parser.parse_graph(f"agraph () => () {{ {nodes} }}")
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    return helper.make_graph(parsed.node, "part", inputs, ends, parsed.initializer)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str]) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


class Both:
    """A model compiled once, and what ONNX Runtime makes of it."""

    def __init__(self, proto: Any, **settings: Any) -> None:
        self.exe = ts.compile(proto.SerializeToString(), fallback="error", **settings)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        self.peer = ort.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.made = driver.kernels_made()

    def compare(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        wanted = self.peer.run(None, dict(inputs))
        found = list(self.exe.run(inputs).values())
        for name, a, b in zip([o.name for o in self.exe.outputs], found, wanted, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), name
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)
        assert driver.kernels_made() == self.made
        return found


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


STEP = [info("i", I64, []), info("c", BOOL, [])]


def test_branches_of_different_shapes() -> None:
    then = part("y = Concat <axis=0> (x, x, w) z = Exp (x)", [], ["y", "z"])
    otherwise = part(
        "one = Constant <value_ints=[1]> () m = Greater (x, w0) k = Squeeze (m, one)"
        "y = Compress <axis=0> (x, k) z = Identity (w)",
        [],
        ["y", "z"],
    )
    node = helper.make_node(
        "If", ["c"], ["a", "b"], then_branch=then, else_branch=otherwise
    )  # fmt: skip
    after = [
        helper.make_node("Exp", ["a"], ["ea"]),
        helper.make_node("Concat", ["ea", "b"], ["d"], axis=0),
    ]
    inputs = [info("c", BOOL, []), info("x", F32, ["n", 1]), info("w", F32, [3, 1])]
    inputs.append(info("w0", F32, []))
    both = Both(model([node, *after], inputs, ["a", "d"]))
    for n in (1, 2, 7, 40):
        for c in (True, False):
            given = {"c": np.asarray(c), "x": floats(n, 1), "w": floats(3, 1)}
            both.compare({**given, "w0": np.asarray(0.1, np.float32)})


@pytest.mark.parametrize("axis", [0, 1])
def test_a_value_to_which_each_step_appends(axis: int) -> None:
    """The number of steps is an input, so that memory is taken once."""
    step = part(
        f"b = Concat <axis={axis}> (a, x) go = Identity (c)",
        [*STEP, info("a", F32, [None, None])],
        ["go", "b"],
    )
    loop = helper.make_node("Loop", ["t", "", "a0"], ["end"], body=step)
    inputs = [info("t", I64, []), info("x", F32, [2, 2]), info("a0", F32, [2, 2])]
    both = Both(model([loop], inputs, ["end"]))
    for t in (0, 1, 2, 33):
        both.compare({"t": np.asarray(t), "x": floats(2, 2), "a0": floats(2, 2)})


def test_a_loop_that_ends_early_collects_rows_and_grows() -> None:
    step = part(
        "b = Concat <axis=0> (a, x) s = ReduceSum <keepdims=0> (b) go = Less (s, limit)"
        " m = Mul (x, s)",
        [*STEP, info("a", F32, [None, 3])],
        ["go", "b", "m"],
    )
    loop = helper.make_node("Loop", ["t", "", "a0"], ["end", "rows"], body=step)
    inputs = [info("t", I64, []), info("x", F32, [1, 3]), info("a0", F32, ["n", 3])]
    both = Both(model([loop], [*inputs, info("limit", F32, [])], ["end", "rows"]))
    for t in (1, 5, 50):
        for limit in (-1, 10, 1000):
            for n in (1, 4):
                given = {"t": np.asarray(t), "x": np.ones((1, 3), np.float32)}
                given |= {"a0": np.zeros((n, 3), np.float32)}
                both.compare({**given, "limit": np.asarray(limit, np.float32)})


def test_values_that_grow_alike_share_an_extent() -> None:
    """Keys, values and mask of attention get longer by one in each step."""
    step = part(
        "k1 = Concat <axis=0> (k, x) v1 = Concat <axis=0> (v, x) m1 = Concat <axis=0> (m, one)"
        "kt = Transpose <perm=[1, 0]> (k1) s = MatMul (x, kt) l = Mul (s, m1) p = Softmax (l)"
        "y = MatMul (p, v1) go = Identity (c)",
        [*STEP, info("k", F32, [None, 8]), info("v", F32, [None, 8]), info("m", F32, [None])],
        ["go", "k1", "v1", "m1", "y"],
    )
    loop = helper.make_node("Loop", ["t", "", "x", "x", "one"], ["k", "v", "m", "y"], body=step)
    inputs = [info("t", I64, []), info("x", F32, [1, 8]), info("one", F32, [1])]
    both = Both(model([loop], inputs, ["k", "v", "m", "y"]))
    for t in (1, 2, 19):
        given = {"t": np.asarray(t), "x": floats(1, 8), "one": np.ones(1, np.float32)}
        both.compare(given)


def random_step(rng: random.Random) -> str:
    """Nodes that make `b`, of any number of rows, from `a` and `x`."""
    lines, last = [], "a"
    for i in range(rng.randint(1, 4)):
        made = f"v{i}"
        lines.append(
            rng.choice(
                [
                    f"{made} = Concat <axis=0> ({last}, x)",
                    f"{made} = Concat <axis=0> (x, {last})",
                    f"w{i} = Tanh ({last}) {made} = Add (w{i}, half)",
                    f"w{i} = Greater ({last}, low) u{i} = Cast <to=7> (w{i}) "
                    f"r{i} = ReduceMax <keepdims=0> (u{i}, axis1) k{i} = Cast <to=9> (r{i}) "
                    f"{made} = Compress <axis=0> ({last}, k{i})",
                    f"{made} = Slice ({last}, one, far, zero)",
                    f"w{i} = Concat <axis=0> ({last}, x) {made} = Slice (w{i}, zero, ten, zero)",
                    f"w{i} = ReduceSum <keepdims=1> ({last}, zero) "
                    f"{made} = Concat <axis=0> (w{i}, {last})",
                ]
            )
        )
        last = made
    return " ".join([*lines, f"b = Identity ({last})"])


def test_loops_of_random_bodies() -> None:
    first = random.randrange(1 << 30)
    print("seed", first)
    lists = {"one": 1, "zero": 0, "far": 1 << 40, "ten": 10, "axis1": 1}
    for seed in range(first, first + 8):
        rng = random.Random(seed)
        nodes = random_step(rng)
        step = part(
            f"{nodes} s = ReduceSum <keepdims=0> (b) go = Less (s, limit) row = Mul (x, s)",
            [*STEP, info("a", F32, [None, 3])],
            ["go", "b", "row"],
        )
        constants = [
            *(helper.make_tensor(k, I64, [1], [v]) for k, v in lists.items()),
            helper.make_tensor("half", F32, [], [0.5]),
            helper.make_tensor("low", F32, [], [0.6]),
        ]
        loop = helper.make_node("Loop", ["t", "", "a0"], ["end", "rows"], body=step)
        inputs = [info("t", I64, []), info("x", F32, [2, 3]), info("a0", F32, ["n", 3])]
        proto = model([loop], [*inputs, info("limit", F32, [])], ["end", "rows"])
        proto.graph.initializer.extend(constants)
        both = Both(proto)
        for t, n, limit in ((0, 2, 9), (1, 1, 9), (6, 3, 1e9), (9, 5, 4), (20, 1, 1e9)):
            given = {"t": np.asarray(t), "x": floats(2, 3), "a0": floats(n, 3)}
            given["limit"] = np.asarray(limit, np.float32)
            try:
                both.compare(given)
            except AssertionError as e:
                raise AssertionError(f"seed {seed}, {nodes}, {t} steps: {e}") from None


def test_slices_of_slices_of_an_open_extent() -> None:
    nodes = [
        helper.make_node("Slice", ["x", "two", "far", "zero"], ["a"]),
        helper.make_node("Slice", ["a", "one", "far", "zero"], ["y"]),
    ]
    proto = model(nodes, [info("x", F32, ["n", 3])], ["y"])
    lists = {"one": 1, "two": 2, "zero": 0, "far": 1 << 40}
    proto.graph.initializer.extend(helper.make_tensor(k, I64, [1], [v]) for k, v in lists.items())
    both = Both(proto, dynamic={"n": (0, 1000)})
    for n in (1, 2, 3, 4, 20):
        both.compare({"x": floats(n, 3)})


def test_indices_of_open_extents_are_no_larger_than_the_data() -> None:
    node = helper.make_node("GatherElements", ["x", "at"], ["y"], axis=1)
    both = Both(model([node], [info("x", F32, ["n", 4]), info("at", I64, ["m", 2])], ["y"]))
    for n, m in ((5, 3), (2, 2)):
        both.compare({"x": floats(n, 4), "at": np.arange(2 * m).reshape(m, 2) % 4})
    with pytest.raises(ts.ModelError, match=r"expected 0$"):
        both.exe(floats(2, 4), np.zeros((3, 2), np.int64))


def test_collected_results_whose_shapes_iterations_find() -> None:
    """In each step rows from `i % 2` on, as many as an input says."""
    step = part(
        "two = Constant <value_int=2> () j = Mod (i, two) k = Add (j, many)"
        "jl = Unsqueeze (j, zero) kl = Unsqueeze (k, zero) y = Slice (x, jl, kl)"
        "s = ReduceSum <keepdims=0> (y)"
        "b = Add (a, s) go = Less (b, limit)",
        [*STEP, info("a", F32, [])],
        ["go", "b", "b", "y"],
    )
    loop = helper.make_node("Loop", ["t", "", "a0"], ["end", "bs", "ys"], body=step)
    inputs = [info("t", I64, []), info("x", F32, [6, 2]), info("a0", F32, [])]
    inputs += [info("many", I64, []), info("limit", F32, [])]
    proto = model([loop], inputs, ["end", "bs", "ys"])
    proto.graph.initializer.append(helper.make_tensor("zero", I64, [1], [0]))
    both = Both(proto)
    given = {"x": np.abs(floats(6, 2)), "a0": np.zeros((), np.float32)}
    for t, many, limit in ((1, 3, 1e9), (4, 5, 1e9), (5, 1, 4), (60, 2, 50), (3, 0, 1)):
        given |= {"t": np.asarray(t), "many": np.asarray(many)}
        both.compare({**given, "limit": np.asarray(limit, np.float32)})
    given |= {"t": np.asarray(3), "many": np.asarray(6), "limit": np.asarray(1e9, np.float32)}
    with pytest.raises(ts.ModelError, match=r"expected 0$"):  # 6 rows, then 5
        both.exe.run(given)
    assert both.exe.run({**given, "t": np.asarray(0)})["ys"].size == 0
