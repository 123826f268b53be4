"""ONNX's If, Loop, Scan and recurrent layers at run time, against ONNX's reference evaluator."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilesmith as ts
from tilesmith import driver
from tilesmith.frontend.load import load

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, kind: int, shape: Sequence[int | str] | None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def body(nodes: str, inputs: Sequence[Any], outputs: Sequence[str], name: str = "body") -> Any:
    """A graph whose nodes are written as in ONNX's text form."""
    text = f"agraph () => () {{ {nodes} }}"
    parsed = onnx.parser.parse_graph(text)
    ends = [info(o, onnx.TensorProto.UNDEFINED, None) for o in outputs]
    return helper.make_graph(parsed.node, name, inputs, ends, parsed.initializer)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str]) -> Any:
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(nodes, "g", inputs, ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def compared(proto: Any, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results, which are those of the reference evaluator."""
    expected = ReferenceEvaluator(proto).run(None, dict(inputs))
    found = ts.compile(proto.SerializeToString()).run(inputs)
    for (name, a), b in zip(found.items(), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)
    return tuple(found.values())


def if_node(then: Any, otherwise: Any, condition: str, outputs: Sequence[str]) -> Any:
    return helper.make_node("If", [condition], outputs, then_branch=then, else_branch=otherwise)


@pytest.mark.parametrize("c", [True, False])
def test_a_branch_uses_values_around_it(c: bool) -> None:
    inner = if_node(body("y = Exp (x)", [], ["y"]), body("y = Neg (z)", [], ["y"]), "d", ["y"])
    then = body("z = Add (x, x) d = Not (c)", [], ["y"])
    then.node.append(inner)
    node = if_node(then, body("y = Identity (x)", [], ["y"]), "c", ["out"])
    proto = model([node], [info("c", BOOL, []), info("x", F32, [2, 3])], ["out"])
    compared(proto, {"c": np.asarray(c), "x": np.arange(6, dtype=np.float32).reshape(2, 3)})


def test_branches_of_different_ranks_run_on_the_host() -> None:
    then = body("y = Add (x, x)", [], ["y"])
    otherwise = body("y = ReduceSum <keepdims=0> (x)", [], ["y"])
    proto = model(
        [if_node(then, otherwise, "c", ["out"])],
        [info("c", BOOL, []), info("x", F32, [2])],
        ["out"],
    )
    with pytest.raises(ts.UnsupportedError, match=r"they give f32\[2\] and f32\[\]"):
        ts.compile(proto.SerializeToString(), fallback="error")
    with pytest.warns(UserWarning, match="If"):
        exe = ts.compile(proto.SerializeToString())
    for c, wanted in ((True, [2, 2]), (False, 2)):
        np.testing.assert_array_equal(exe(np.asarray(c), np.ones(2, np.float32)), wanted)
    exe = ts.compile(proto.SerializeToString(), values={"c": np.asarray(False)})
    assert exe(np.ones(2, np.float32)) == 2


@pytest.mark.parametrize("n", [0, 1, 5, 9])
@pytest.mark.parametrize("limit", [-1.0, 3.0, 1e9])
def test_a_loop_whose_count_and_condition_are_computed(n: int, limit: float) -> None:
    step = body(
        "b = Add (a, w) s = ReduceSum <keepdims=0> (b) go = Less (s, limit)",
        [info("i", I64, []), info("c", BOOL, []), info("a", F32, [3])],
        ["go", "b"],
    )
    loop = helper.make_node("Loop", ["n", "go0", "a0"], ["end"], body=step)
    nodes = [helper.make_node("Less", ["zero", "limit"], ["go0"]), loop]
    inputs = [info("n", I64, []), *(info(name, F32, []) for name in ("limit", "zero"))]
    inputs += [info(name, F32, [3]) for name in ("a0", "w")]
    compared(
        model(nodes, inputs, ["end"]),
        {
            "n": np.asarray(n),
            "limit": np.asarray(limit, np.float32),
            "zero": np.asarray(0, np.float32),
            "a0": np.zeros(3, np.float32),
            "w": np.array([0.5, 1, 0.25], np.float32),
        },
    )


def test_a_loop_without_a_count_ends_by_its_condition() -> None:
    step = body(
        "b = Add (a, a) go = Less (b, limit)",
        [info("i", I64, []), info("c", BOOL, []), info("a", F32, [])],
        ["go", "b"],
    )
    loop = helper.make_node("Loop", ["", "", "a0"], ["end"], body=step)
    proto = model([loop], [info("a0", F32, []), info("limit", F32, [])], ["end"])
    # The reference evaluator takes no step of a loop that has no count.
    exe = ts.compile(proto.SerializeToString())
    saved = io.BytesIO()
    exe.save(saved)
    for each in (exe, ts.load(saved.getvalue())):
        assert each(np.asarray(1, np.float32), np.asarray(1000, np.float32)) == 1024


@pytest.mark.parametrize("steps", [0, 3, 6])
def test_a_loop_collects_values_of_each_step(steps: int) -> None:
    step = body(
        "go = Identity (c) f = Cast <to=1> (i) b = Add (a, f) d = Mul (b, w)",
        [info("i", I64, []), info("c", BOOL, []), info("a", F32, [4])],
        ["go", "b", "d", "b"],
    )
    count = helper.make_node("Constant", [], ["n"], value_int=steps)
    loop = helper.make_node("Loop", ["n", "", "a0"], ["end", "ds", "bs"], body=step)
    proto = model([count, loop], [info("a0", F32, [4]), info("w", F32, [4])], ["end", "ds", "bs"])
    a, w = np.random.default_rng(3).standard_normal((2, 4)).astype(np.float32)
    exe = ts.compile(proto.SerializeToString())
    found = exe.run({"a0": a, "w": w})
    seen = []
    for i in range(steps):
        a = a + np.float32(i)
        seen.append(a)
    np.testing.assert_allclose(found["end"], a, rtol=1e-6)
    all_ = np.array(seen, np.float32).reshape(steps, 4)
    np.testing.assert_allclose(found["bs"], all_, rtol=1e-6)
    np.testing.assert_allclose(found["ds"], all_ * w, rtol=1e-6)


@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_in_a_scan(backward: int) -> None:
    inner = body(
        "t = Add (s, e) u = Tanh (t)",
        [info("s", F32, [2]), info("e", F32, [2])],
        ["t", "u"],
        "inner",
    )
    row = helper.make_node(
        "Scan", ["state", "m"], ["after", "us"], body=inner, num_scan_inputs=1,
        scan_input_directions=[backward],
    )  # fmt: skip
    outer = helper.make_graph(
        [row], "outer", [info("state", F32, [2]), info("m", F32, [7, 2])],
        [info("after", F32, [2]), info("us", F32, [7, 2])],
    )  # fmt: skip
    scan = helper.make_node(
        "Scan", ["s0", "x"], ["end", "all"], body=outer, num_scan_inputs=1, scan_input_axes=[1],
        scan_output_axes=[-1], scan_output_directions=[backward],
    )  # fmt: skip
    proto = model([scan], [info("s0", F32, [2]), info("x", F32, [7, 6, 2])], ["end", "all"])
    rng = np.random.default_rng(4)
    s0, x = (rng.standard_normal(s).astype(np.float32) for s in ((2,), (7, 6, 2)))
    state, seen = s0, []
    for m in np.moveaxis(x, 1, 0):
        us = []
        for e in m[::-1] if backward else m:
            state = state + e
            us.append(np.tanh(state))
        seen.append(np.array(us))
    found = ts.compile(proto.SerializeToString()).run({"s0": s0, "x": x})
    expected = np.stack(seen[::-1] if backward else seen, -1)
    np.testing.assert_allclose(found["end"], state, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["all"], expected, rtol=1e-4, atol=1e-5)


def state(beams: int, steps: int, suffix: str = "") -> list[Any]:
    """What a decoder carries: last tokens, hidden state, scores and the tokens so far."""
    types = {"tokens": (I64, [beams]), "h": (F32, [beams, 8]), "scores": (F32, [beams]),
             "text": (I64, [beams, steps])}  # fmt: skip
    return [info(name + suffix, *t) for name, t in types.items()]


def decoder(beams: int, width: int, steps: int) -> Any:
    """Decoding with a cell h = tanh(W h + E[token]): each step keeps the `beams` best
    continuations; when the best one ends (token 0), nothing changes any more.
    """
    step = body(
        """
        e = Gather (E, tokens)
        hw = MatMul (h, W)
        sum = Add (hw, e)
        new = Tanh (sum)
        logits = MatMul (new, V)
        p = LogSoftmax <axis=-1> (logits)
        column = Unsqueeze (scores, last)
        total = Add (p, column)
        flat = Reshape (total, whole)
        best, at = TopK (flat, k)
        parent = Div (at, vocabulary)
        token = Mod (at, vocabulary)
        chosen = Gather (new, parent)
        past = Gather (text, parent)
        place = Unsqueeze (i, last)
        here = Equal (positions, place)
        tcolumn = Unsqueeze (token, last)
        written = Where (here, tcolumn, past)
        firsttoken = Gather (token, zero)
        ended = Equal (firsttoken, zero)
        go = Not (ended)
        """,
        [info("i", I64, []), info("c", BOOL, []), *state(beams, steps)],
        ["go", "token", "chosen", "best", "written"],
    )
    constants = {
        "whole": np.array([-1]),
        "k": np.array([beams]),
        "vocabulary": np.asarray(width),
        "last": np.array([-1]),
        "zero": np.asarray(0),
        "positions": np.arange(steps),
    }
    nodes = [
        helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(a.astype(int)))
        for name, a in constants.items()
    ]
    nodes.append(helper.make_node("Equal", ["zero", "zero"], ["go0"]))  # the reference needs one
    inputs = ["n", "go0", "tokens0", "h0", "scores0", "text0"]
    ends = ["tokens1", "h1", "scores1", "text1"]
    nodes.append(helper.make_node("Loop", inputs, ends, body=step))
    seen = if_node(
        body("y = Identity (text1)", [], ["y"]), body("y = Neg (text1)", [], ["y"]), "plain", ["y"]
    )
    return model(
        [*nodes, seen],
        [info("n", I64, []), info("plain", BOOL, []), *state(beams, steps, "0"),
         info("E", F32, [width, 8]), info("W", F32, [8, 8]), info("V", F32, [8, width])],
        ["y", "scores1", "h1"],
    )  # fmt: skip


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_greedy_and_beam_search(beams: int, seed: int) -> None:
    width, steps = 11, 9
    rng = np.random.default_rng(seed)
    floats = {"h0": (beams, 8), "E": (width, 8), "W": (8, 8), "V": (8, width)}
    inputs: dict[str, np.ndarray] = {
        name: rng.standard_normal(s).astype(np.float32) for name, s in floats.items()
    }
    inputs |= {
        "n": np.asarray(steps),
        "plain": np.asarray(seed % 2 == 0),
        "tokens0": np.arange(1, beams + 1),
        "scores0": np.where(np.arange(beams) == 0, 0, -100).astype(np.float32),
        "text0": np.full((beams, steps), -1),
    }
    compared(decoder(beams, width, steps), inputs)


def lstm(steps: int) -> Any:
    rng = np.random.default_rng(5)
    weights = {"W": (1, 24, 5), "R": (1, 24, 6), "B": (1, 48)}
    arrays = {
        name: (rng.standard_normal(s) * 0.3).astype(np.float32) for name, s in weights.items()
    }
    node = helper.make_node("LSTM", ["x", "W", "R", "B"], ["y", "h", "c"], hidden_size=6)
    proto = model([node], [info("x", F32, [steps, 2, 5])], ["y", "h", "c"])
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(a, name) for name, a in arrays.items()
    )
    return proto


def test_the_number_of_steps_of_an_lstm_costs_no_code() -> None:
    programs = [ts.compile(lstm(steps).SerializeToString()).program for steps in (20, 200)]
    sizes = [sum(map(len, p.objects.values())) for p in programs]
    assert len(programs[0].calls) == len(programs[1].calls) < 12
    assert sizes[1] < 1.1 * sizes[0]
    x = np.random.default_rng(6).standard_normal((20, 2, 5)).astype(np.float32)
    compared(lstm(20), {"x": x})


def test_an_lstm_whose_batch_only_a_run_knows() -> None:
    proto = lstm(7)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    graph = load(proto.SerializeToString())
    exe = ts.Executable(driver.compile_program(graph, driver.Session.of(None)))
    for batch in (1, 2, 5):
        x = np.random.default_rng(batch).standard_normal((7, batch, 5)).astype(np.float32)
        expected = ReferenceEvaluator(proto).run(None, {"x": x})
        for a, b in zip(exe(x), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_loop_collects_as_often_as_an_input_says() -> None:
    """One program for all trip counts; none is negative."""
    inputs = [info("i", I64, []), info("c", BOOL, []), info("a", F32, [3])]
    step = body(
        "f = Cast <to = 1> (i) t = Add (a, f) d = Identity (c) o = Mul (t, t)",
        inputs,
        ["d", "t", "o"],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["end", "all"], body=step)
    proto = model([loop], [info("n", I64, []), info("x", F32, [3])], ["end", "all"])
    exe = ts.compile(proto.SerializeToString())
    made = driver.kernels_made()
    x = np.arange(3, dtype=np.float32)
    for n in (0, 1, 7, 100, -3):
        ends = [x + np.float32(i * (i + 1) // 2) for i in range(n)]
        found = exe.run({"n": np.array(n), "x": x})
        want = np.array(ends, np.float32).reshape(max(n, 0), 3)
        np.testing.assert_allclose(found["end"], ends[-1] if ends else x)
        np.testing.assert_allclose(found["all"], want**2)
    assert driver.kernels_made() == made
    with pytest.raises(ts.ModelError, match="expected 0 to 2147483647"):
        exe.run({"n": np.array(1 << 62), "x": x})


@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_whose_length_only_a_run_knows(backward: int) -> None:
    inputs = [info("s", F32, [3]), info("e", F32, [3])]
    step = body("t = Add (s, e) o = Mul (t, e)", inputs, ["t", "o"])
    scan = helper.make_node(
        "Scan",
        ["x", "q"],
        ["end", "all"],
        body=step,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
        scan_input_directions=[backward],
    )
    proto = model([scan], [info("x", F32, [3]), info("q", F32, [3, "n"])], ["end", "all"])
    exe = ts.compile(proto.SerializeToString())
    assert [s.type for s in exe.outputs] == ["f32[3]", "f32[3,n]"] and not exe.needs_growth
    for n in (1, 2, 9, 300):
        x = np.arange(3, dtype=np.float32)
        q = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
        order = q[:, ::-1] if backward else q
        sums = x[:, None] + np.cumsum(order, 1)
        found = exe.run({"x": x, "q": q})
        np.testing.assert_allclose(found["end"], sums[:, -1], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["all"], sums * order, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backward", [0, 1])
def test_scan_of_opset_8_runs_each_batch(backward: int) -> None:
    body = onnx.parser.parse_graph(
        "body (float[2] h, float[2] x) => (float[2] after, float[2] seen)"
        " { after = Add (h, x) seen = Mul (after, x) }"
    )
    node = helper.make_node(
        "Scan", ["", "h0", "xs"], ["h", "ys"], body=body, num_scan_inputs=1, directions=[backward]
    )
    shapes = {"h0": [3, 2], "xs": [3, 5, 2]}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in shapes.items()],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in ("h", "ys")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)
    rng = np.random.default_rng(0)
    h, xs = (rng.standard_normal(s).astype(np.float32) for s in shapes.values())
    steps = xs[:, ::-1] if backward else xs
    states = h[:, None] + np.cumsum(steps, axis=1)
    found = ts.compile(model.SerializeToString()).run({"h0": h, "xs": xs})
    np.testing.assert_allclose(found["h"], states[:, -1], rtol=1e-5)
    np.testing.assert_allclose(found["ys"], states * steps, rtol=1e-5)


@pytest.mark.parametrize("rest", ["y = Squeeze (s, axis)", "y = Reshape (s, flat)", "y = Neg (s)"])
def test_a_view_of_results_whose_number_the_loop_finds_is_a_result(rest: str) -> None:
    """The loop allocates their memory, so they can't lie in the memory of the model's result.

    The reference evaluator joins the rows of rank 2 and more along their first axis.
    """
    step = body(
        "sum = ReduceSum <keepdims = 0> (x) again = Less (sum, limit)"
        " after = Mul (x, x) row = Unsqueeze (x, axis0)",
        [info("i", I64, []), info("go", BOOL, []), info("x", F32, [2, 3])],
        ["again", "after", "row"],
    )
    numbers = {"axis0": [0], "axis": [1], "flat": [-1, 6]}
    constants = [helper.make_node("Constant", [], [k], value_ints=v) for k, v in numbers.items()]
    loop = helper.make_node("Loop", ["steps", "", "x"], ["last", "s"], body=step)
    after = onnx.parser.parse_graph(f"agraph () => () {{ {rest} }}").node
    inputs = [info("steps", I64, []), info("x", F32, [2, 3]), info("limit", F32, [])]
    exe = ts.compile(model([*constants, loop, *after], inputs, ["y"]).SerializeToString())
    x = np.linspace(0.5, 1.1, 6, dtype=np.float32).reshape(2, 3)
    for steps, limit in ((3, 1e9), (40, 4.0), (1, 0.0)):
        rows = [x]
        while len(rows) < steps and rows[-1].sum() < limit:
            rows.append(rows[-1] * rows[-1])
        found = exe.run({"steps": np.asarray(steps), "x": x, "limit": np.float32(limit)})["y"]
        sign = -1 if "Neg" in rest else 1
        np.testing.assert_allclose(found.ravel(), sign * np.ravel(rows), rtol=1e-4)
        assert len(found) == len(rows)
