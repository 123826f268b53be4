"""Outputs that live in the memory of an input, and scatters that write over their data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_models import model, node

import tilesmith as ts
from tilesmith import driver
from tilesmith.support.errors import ModelError, UsageError

RNG = np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _decoder(length: int, new: int = 1, *more: onnx.NodeProto, width: int = 16) -> onnx.ModelProto:
    """Scores of queries against a cache in which new keys are written."""
    nodes = [
        node("TensorScatter", "past new at", "present", axis=2),
        node("Transpose", "present", "t", perm=[0, 1, 3, 2]),
        node("MatMul", "q t", "scores"),
        *more,
    ]
    shapes = {"past": [1, 2, length, width], "new": [1, 2, new, width], "q": [1, 2, 1, width]}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    inputs.append(helper.make_tensor_value_info("at", TensorProto.INT64, [1]))
    names = ["scores", "present", *(o for m in more for o in m.output)]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


def _step(length: int, at: int, width: int = 16) -> dict[str, np.ndarray]:
    shapes = {"past": length, "new": 1, "q": 1}
    found = {name: _floats(1, 2, n, width) for name, n in shapes.items()}
    return {**found, "at": np.array([at])}


def test_a_cache_is_written_where_it_lies() -> None:
    exe = ts.compile(_decoder(40), in_place={"present": "past"})
    inputs = _step(40, 7)
    wanted = inputs["past"].copy()
    for at in (7, 8, 39):
        inputs["at"][0] = at
        wanted[:, :, at] = inputs["new"][:, :, 0]
        found = exe.run(inputs)
        assert found["present"] is inputs["past"]
        np.testing.assert_array_equal(found["present"], wanted)
        expected = inputs["q"] @ wanted.swapaxes(2, 3)
        np.testing.assert_allclose(found["scores"], expected, rtol=1e-5, atol=1e-5)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_a_step_touches_the_new_rows_only() -> None:
    length = 1 << 22  # half a gibibyte, of which no page is there yet
    inputs = [
        helper.make_tensor_value_info("past", TensorProto.FLOAT, [1, length, 32]),
        helper.make_tensor_value_info("new", TensorProto.FLOAT, [1, 1, 32]),
        helper.make_tensor_value_info("at", TensorProto.INT64, [1]),
    ]
    outputs = [helper.make_tensor_value_info("present", TensorProto.FLOAT, None)]
    nodes = [node("TensorScatter", "past new at", "present", axis=1)]
    graph = helper.make_graph(nodes, "write", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    exe = ts.compile(made, in_place={"present": "past"})
    cache, new = np.zeros((1, length, 32), np.float32), np.ones((1, 1, 32), np.float32)
    exe(cache, new, np.array([5]))
    before = _resident()
    assert exe(cache, new, np.array([length - 1])) is cache
    assert _resident() - before < cache.nbytes // 16
    assert cache[0, -1].sum() == 32 and cache[0, 5].sum() == 32 and not cache[0, 6:12].any()


def test_an_input_that_is_still_read_is_written_at_the_end() -> None:
    made = _decoder(24, 1, node("ReduceSum", "past", "sum", keepdims=0))
    exe = ts.compile(made, in_place={"present": "past"})
    inputs = _step(24, 3)
    old = inputs["past"].copy()
    found = exe.run(inputs)
    np.testing.assert_allclose(found["sum"], old.sum(), rtol=1e-4)
    old[:, :, 3] = inputs["new"][:, :, 0]
    np.testing.assert_array_equal(inputs["past"], old)


def test_a_weight_is_updated_in_place() -> None:
    made = model(
        [node("Mul", "w2 g", "step"), node("Sub", "w step", "updated"), node("Relu", "w", "w2")],
        {"w": [33, 5], "g": [33, 5]},
        ["updated"],
    )
    exe = ts.compile(made, in_place={"updated": "w"})
    assert len(exe.program.calls) == 1
    w, g = _floats(33, 5), _floats(33, 5)
    wanted = w - np.maximum(w, 0) * g
    assert exe(w, g) is w
    np.testing.assert_allclose(w, wanted, rtol=1e-6)


def test_outputs_may_trade_places() -> None:
    made = model(
        [node("Identity", "b", "first"), node("Identity", "a", "second")],
        {"a": [9], "b": [9]},
        ["first", "second"],
    )
    exe = ts.compile(made, in_place={"first": "a", "second": "b"})
    a, b = _floats(9), _floats(9)
    old = a.copy(), b.copy()
    exe(a, b)
    np.testing.assert_array_equal(a, old[1])
    np.testing.assert_array_equal(b, old[0])


def test_sizes_may_be_open() -> None:
    made = model([node("Add", "x y", "z")], {"x": ["n", 4], "y": ["n", 4]}, ["z"])
    exe = ts.compile(made, in_place={"z": "y"})
    for n in (1, 7, 64):
        x, y = _floats(n, 4), _floats(n, 4)
        wanted = x + y
        assert exe(x, y) is y
        np.testing.assert_array_equal(y, wanted)


_NODES = (
    ("Relu", 1, {}), ("Neg", 1, {}), ("Identity", 1, {}), ("Add", 2, {}), ("Mul", 2, {}),
    ("ScatterElements", 1, {"axis": 0}), ("ScatterElements", 1, {"axis": 0, "reduction": "add"}),
    ("ScatterND", 1, {}), ("Transpose", 1, {}), ("CumSum", 1, {}), ("MatMul", 2, {}),
)  # fmt: skip


def _random_model(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Nodes over square matrices, and outputs that live in some of the three inputs."""
    known, nodes = ["a", "b", "c"], []
    for i in range(int(rng.integers(2, 7))):
        op, count, attributes = _NODES[rng.integers(len(_NODES))]
        read = [str(rng.choice(known)) for _ in range(count)]
        more = {"ScatterElements": "i u", "ScatterND": "k v", "CumSum": "axis"}.get(op, "")
        known.append(f"v{i}")
        nodes.append(node(op, " ".join((*read, more)).strip(), known[-1], **attributes))
    results = (
        [str(r) for r in rng.choice(known[3:], int(rng.integers(1, 4)), replace=False)]
        if (len(known) > 6)
        else [known[-1]]
    )
    homes = dict(zip(results, map(str, rng.permutation(["a", "b", "c"])), strict=False))
    constants = {
        "i": rng.integers(0, 8, (3, 8)), "u": _floats(3, 8), "v": _floats(2, 8),
        "k": rng.permutation(8)[:2].reshape(2, 1), "axis": np.array(0),
    }  # fmt: skip
    used = {x for n in nodes for x in n.input}
    kept = {name: value for name, value in constants.items() if name in used}
    return model(nodes, {x: [8, 8] for x in "abc"}, results, kept), homes


def test_random_programs_with_and_without() -> None:
    for seed in range(25):
        made, homes = _random_model(np.random.default_rng(seed))
        inputs = {x: _floats(8, 8) for x in "abc"}
        names = {i.name for i in made.graph.input}
        wanted = ts.compile(made).run({x: a for x, a in inputs.items() if x in names})
        own = {x: a.copy() for x, a in inputs.items() if x in names}
        found = ts.compile(made, in_place=homes).run(own)
        for name, array in wanted.items():
            message = f"seed {seed}: {name} in {homes.get(name)}"
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=message)
            if name in homes:
                assert found[name] is own[homes[name]], message
        for x in own.keys() - set(homes.values()):
            np.testing.assert_array_equal(own[x], inputs[x], err_msg=f"seed {seed}: input {x}")


def test_chains_of_scatters_share_one_memory() -> None:
    made = model(
        [
            node("Relu", "x", "r"),
            node("ScatterElements", "r i u", "s1", axis=0),
            node("ScatterElements", "s1 j u", "s2", axis=0, reduction="add"),
            node("MatMul", "s2 s2", "y"),
        ],
        {"x": [64, 64]},
        ["y"],
        {"i": np.array([[3] * 64]), "j": np.array([[5] * 64]), "u": _floats(1, 64)},
    )
    exe = ts.compile(made)
    assert exe.program.arena_bytes == 64 * 64 * 4
    assert all(c.passed for c in driver.check(made))
    x = _floats(64, 64)
    wanted = np.maximum(x, 0)
    update = onnx.numpy_helper.to_array(made.graph.initializer[2])
    wanted[3] = update
    wanted[5] += update[0]
    np.testing.assert_allclose(exe(x), wanted @ wanted, rtol=1e-4, atol=1e-4)


def test_saved_and_profiled(tmp_path: Path) -> None:
    exe = ts.compile(_decoder(16), in_place={"present": "past"})
    exe.save(tmp_path / "step.tsm")
    loaded = ts.load(tmp_path / "step.tsm")
    assert loaded.program.in_place == exe.program.in_place == ((1, 0),)
    inputs = _step(16, 2)
    before = inputs["past"].copy()
    loaded.profile(*(inputs[s.name] for s in loaded.inputs), repeats=1)
    np.testing.assert_array_equal(inputs["past"], before)
    assert loaded.run(inputs)["present"] is inputs["past"]
    np.testing.assert_array_equal(inputs["past"][:, :, 2], inputs["new"][:, :, 0])


@pytest.mark.parametrize(
    ("homes", "message"),
    [
        ({"nothing": "past"}, "no output is called 'nothing'; the outputs are scores, present"),
        ({"present": "scores"}, "no input is called 'scores'"),
        ({"scores": "past"}, r"'scores' can't live in 'past'.*type f32\[1,2,24,16\], found f32"),
        ({"present": "past", "copy": "past"}, "'present' and 'copy' are to live in 'past'"),
    ],
)
def test_what_cannot_live_there(homes: dict[str, str], message: str) -> None:
    made = _decoder(24, 1, node("Identity", "present", "copy"))
    with pytest.raises(UsageError, match=message):
        ts.compile(made, in_place=homes)


def test_arrays_that_cannot_be_written() -> None:
    exe = ts.compile(_decoder(16), in_place={"present": "past"})
    inputs = _step(16, 0)
    refused = {**inputs, "past": inputs["past"].copy()}
    refused["past"].flags.writeable = False
    wanted = "input 'past', in which output 'present' lives: expected a writable, C-contiguous"
    with pytest.raises(ModelError, match=wanted):
        exe.run(refused)
    with pytest.raises(ModelError, match=wanted):
        exe.run({**inputs, "past": _floats(1, 2, 32, 16)[:, :, ::2]})
    with pytest.raises(UsageError, match="'present' lives in input 'past': expected None"):
        exe.run(inputs, out={"present": _floats(1, 2, 16, 16)})
    with pytest.raises(UsageError, match="'present' shares memory with input 'q'"):
        exe.run({**inputs, "q": inputs["past"].reshape(-1)[:32].reshape(1, 2, 1, 16)})
    assert exe.run(inputs, out={"present": inputs["past"]})["present"] is inputs["past"]
