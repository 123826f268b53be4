"""Sequences, optional values and maps in compiled programs, around native loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith.support.errors import ModelError

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info
LIST = helper.make_tensor_sequence_value_info


def model(nodes: str, inputs: Sequence[Any], outputs: Sequence[str], *more: Any) -> bytes:
    """A model whose nodes are written as in ONNX's text form, and `more` nodes behind them."""
    parsed = onnx.parser.parse_graph(f"agraph () => () {{ {nodes} }}")
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph([*parsed.node, *more], "g", inputs, ends, parsed.initializer)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9).SerializeToString()


def body(nodes: str, inputs: Sequence[Any], outputs: Sequence[str]) -> Any:
    parsed = onnx.parser.parse_graph(f"agraph () => () {{ {nodes} }}")
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    return helper.make_graph(parsed.node, "body", inputs, ends)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def test_lists_go_in_and_come_out() -> None:
    nodes = "t = SequenceInsert (s, x, i) u = SequenceErase (t) k = SequenceLength (u)"
    given = [LIST("s", F32, None), info("x", F32, [2]), info("i", I64, [])]
    exe = ts.compile(model(nodes, given, ["u", "k"]))
    assert str(exe.inputs[0]) == "s: seq_f32[]"
    a, b, x = arrays((3,), (1, 4), (2,))
    u, k = exe([a, b], x, np.array(0))
    assert k == 2 and len(u) == 2
    np.testing.assert_array_equal(u[0], x)
    np.testing.assert_array_equal(u[1], a)
    u, k = exe([], x, np.array(0))
    assert k == 0 and u == []


def test_wrong_lists() -> None:
    given = [LIST("s", F32, None), info("i", I64, [])]
    exe = ts.compile(model("y = SequenceAt (s, i)", given, ["y"]))
    zero, one = np.array(0), np.array([1.0], np.float32)
    for value, message in (
        (one, r"input 's': expected a list \(seq_f32\), found ndarray"),
        ([one, np.zeros(2)], r"input 's'\[1\]: expected element type f32, found float64"),
        ([], r"node 'y' \(SequenceAt\), .*: position 0 is outside of a sequence of 0"),
    ):
        with pytest.raises(ModelError, match=message):
            exe(value, zero)
    np.testing.assert_array_equal(exe([one], np.array(-1)), one)


def test_a_native_loop_carries_a_list_that_grows(tmp_path: Path) -> None:
    """As many iterations as the run wants; each appends what native code computes."""
    step = body(
        "y = Add (x, x) t = SequenceInsert (s, y) d = Identity (c)",
        [info("i", I64, []), info("c", BOOL, []), info("x", F32, [3]), LIST("s", F32, None)],
        ["d", "y", "t"],
    )
    loop = helper.make_node("Loop", ["n", "", "x", "e"], ["z", "all"], body=step)
    nodes = "e = SequenceEmpty ()"
    proto = model(nodes, [info("n", I64, []), info("x", F32, [3])], ["z", "all"], loop)
    ts.compile(proto).save(tmp_path / "m.tsm")
    for exe in (ts.compile(proto), ts.load(tmp_path / "m.tsm")):
        assert exe.program.calls
        for n in (0, 1, 7):
            (x,) = arrays((3,))
            z, found = exe(np.array(n), x)
            np.testing.assert_array_equal(z, x * 2.0**n)
            assert len(found) == n
            for i, y in enumerate(found):
                np.testing.assert_array_equal(y, x * 2.0 ** (i + 1))


@pytest.mark.parametrize("c", [True, False])
def test_branches_give_lists(c: bool) -> None:
    then = body("s = SequenceConstruct (x, x)", [], ["s"])
    otherwise = body("s = SequenceConstruct (x)", [], ["s"])
    chosen = helper.make_node("If", ["c"], ["s"], then_branch=then, else_branch=otherwise)
    exe = ts.compile(model("", [info("c", BOOL, []), info("x", F32, [2])], ["s"], chosen))
    (x,) = arrays((2,))
    found = exe(np.array(c), x)
    assert len(found) == (2 if c else 1)
    np.testing.assert_array_equal(found[0], x)


def test_optional_values() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, None))
    given = helper.make_value_info("o", kind)
    exe = ts.compile(model("y = OptionalHasElement (o)", [given], ["y"]))
    assert exe(arrays((2,))[0]) and not exe(None)
    get = ts.compile(model("y = OptionalGetElement (o)", [given], ["y"]))
    (x,) = arrays((2, 2))
    np.testing.assert_array_equal(get(x), x)
    with pytest.raises(ModelError, match="expected an optional value that is there, found None"):
        get(None)


def test_maps_go_in_and_come_out() -> None:
    zipped = 'y = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b"]> (x)'
    (x,) = arrays((2, 2))
    rows = ts.compile(model(zipped, [info("x", F32, [2, 2])], ["y"]))(x)
    assert [list(r) for r in rows] == [["a", "b"]] * 2 and rows[1]["b"] == x[1, 1]
    value = helper.make_tensor_type_proto(F32, None)
    kind = onnx.TypeProto()
    kind.map_type.key_type = TensorProto.STRING
    kind.map_type.value_type.CopyFrom(value)
    nodes = 'v = ai.onnx.ml.DictVectorizer <string_vocabulary = ["b", "c", "a"]> (m) y = Neg (v)'
    exe = ts.compile(model(nodes, [helper.make_value_info("m", kind)], ["y"]))
    np.testing.assert_array_equal(exe({"a": 1.5, "b": 2.0}), [[-2, 0, -1.5]])
