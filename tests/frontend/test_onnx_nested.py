"""Branches and bodies in one another, as deep as Protocol Buffers reads them, and deeper."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts

onnx = pytest.importorskip("onnx")
helper, FLOAT, INT64, BOOL = onnx.helper, onnx.TensorProto.FLOAT, 7, 9
LEVELS = 30
X = np.arange(4, dtype=np.float32)


def info(name, type_=FLOAT, shape=(4,)):
    return helper.make_tensor_value_info(name, type_, shape)


def model(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branches(levels):
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["r0"])], "g", [], [info("r0")])
    for n in range(1, levels + 1):
        name = f"e{n}"
        other = helper.make_node("Neg", ["x"], [name])
        otherwise = helper.make_graph([other], name, [], [info(name)])
        node = helper.make_node("If", ["c"], [f"r{n}"], then_branch=graph, else_branch=otherwise)
        inputs = [info("x"), info("c", BOOL, ())] if n == levels else []
        graph = helper.make_graph([node], f"g{n}", inputs, [info(f"r{n}")])
    return model(graph)


def repeated(levels, kind):
    """Loops of one step, or scans of one element, around an addition."""
    graph = None
    one = helper.make_tensor("one", INT64, [], [1])
    for n in range(levels + 1):
        at = "x" if n == levels else f"v{n}"
        if graph is None:
            nodes = [helper.make_node("Add", [at, "x"], ["o0"])]
        elif kind == "Loop":
            nodes = [helper.make_node("Loop", ["one", "", at], [f"o{n}"], body=graph)]
        else:
            nodes = [
                helper.make_node("Scan", [at, "row"], [f"o{n}"], body=graph, num_scan_inputs=1)
            ]
        if n == levels:
            break
        if kind == "Loop":
            nodes.append(helper.make_node("Identity", [f"c{n}"], [f"co{n}"]))
            inputs = [info(f"i{n}", INT64, ()), info(f"c{n}", BOOL, ()), info(at)]
            outputs = [info(f"co{n}", BOOL, ()), info(f"o{n}")]
        else:
            inputs, outputs = [info(at), info(f"s{n}", FLOAT, ())], [info(f"o{n}")]
        graph = helper.make_graph(nodes, f"g{n}", inputs, outputs)
    row = helper.make_tensor("row", FLOAT, [1], [0.0])
    constants = [one if kind == "Loop" else row]
    return model(helper.make_graph(nodes, "main", [info("x")], [info(f"o{levels}")], constants))


def test_branches_in_branches():
    exe = ts.compile(branches(LEVELS), threads=1)
    np.testing.assert_array_equal(exe(X, np.array(True)), 2 * X)
    np.testing.assert_array_equal(exe(X, np.array(False)), -X)


@pytest.mark.parametrize("kind", ["Loop", "Scan"])
def test_loops_in_loops(kind):
    """Imported twice at each level, they would take hours."""
    np.testing.assert_array_equal(ts.compile(repeated(LEVELS, kind), threads=1)(X), 2 * X)


def test_deeper_than_messages_are_read():
    """The bytes are made from the inside out: `onnx` itself can't hold such a model."""

    def field(number, content):
        size, digits = len(content), b""
        while size > 127:
            digits, size = digits + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + digits + bytes([size]) + content

    graph = b""
    for _ in range(200):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    with pytest.raises(ts.ModelError, match=r"at most 100 deep.*about 32 may nest"):
        ts.compile(b"\x08\x08" + field(7, graph))
