"""What all frontends share, seen through a second one: a toy format of one line per node.

toy
input x 2 n
y = relu x
output y
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx_models as om
import pytest

from tilesmith.frontend import load as entry
from tilesmith.frontend.common.errors import ValuesNeededError, errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.frontend.common.node import NodeContext
from tilesmith.frontend.common.order import Named, ordered
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.slots import FAILED, Scope
from tilesmith.frontend.common.source import Frontend, Reader, Source
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.dtypes import f32
from tilesmith.ops.activation import Relu
from tilesmith.ops.elementwise import Add, Neg
from tilesmith.ops.pool import MaxPool
from tilesmith.ops.shape import Reshape
from tilesmith.support.errors import ModelError, OpenShapesError, UnsupportedError, UsageError

TOY: Registry = Registry()
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@TOY.register("relu")
def _relu(n: NodeContext, x: Value) -> Value:
    return n.add(Relu(), x)


@TOY.register("neg", until=1)
def _neg(n: NodeContext, x: Value) -> Value:
    return n.add(Neg(), x)


@TOY.register("add")
def _add(n: NodeContext, a: Value, b: Value) -> Value:
    return n.add(Add(), a, b)


@TOY.register("pool")
def _pool(n: NodeContext, x: Value) -> Value:
    return n.add(MaxPool((2, 2)), x)


@TOY.register("shape")
def _shape(n: NodeContext, x: Value) -> Value:
    return n.const(np.array(n.shape(x), np.int64))


@TOY.register("reversed")
def _reversed(n: NodeContext, x: Value) -> Value:
    return n.const(np.array(n.int_list(x, "the list")[::-1], np.int64))


@TOY.register("reshape")
def _reshape(n: NodeContext, x: Value, shape: Value) -> Value:
    return n.add(Reshape(n.int_list(shape, "shape")), x)


def _read(source: Source, given: Given) -> Graph:
    content = source.model.text.encode() if source.content is None else bytes(source.content)
    lines = [line.split() for line in content.decode().splitlines()[1:]]
    with errors_name(source.name or "a toy"):
        return _graph(lines, given)


def _graph(lines: list[list[str]], given: Given) -> Graph:
    importer, scope = Importer(FoldingBuilder()), Scope()
    declared = [
        Declared(name, f32, tuple(int(d) if d.isdigit() else d for d in dims))
        for kind, name, *dims in lines
        if kind == "input"
    ]
    for name, type in input_types(declared, given, fixed(declared, given.values)).items():
        value = given.values.get(name)
        scope.names[name] = (
            importer.builder.input(name, type)
            if value is None
            else importer.builder.constant(np.asarray(value))
        )
    nodes = [Named(line, line[0], (line[0],), line[3:]) for line in lines if line[1] == "="]
    for name, _, operator, *inputs in ordered(nodes, set(scope.names), (), "toy"):
        slots = [scope.find(i) for i in inputs]

        def make(name=name, operator=operator, slots=slots):
            function = TOY.find("", operator, 2)
            if function is None:
                raise UnsupportedError("the operator is not supported")
            if FAILED in slots:
                return None
            return (function(NodeContext(importer.builder, name, name), *slots),)

        results = importer.attempt(Site(operator, "", name), make)
        scope.names[name] = FAILED if results is None else results[0]
    importer.check()
    names = [line[1] for line in lines if line[0] == "output"]
    outputs = [scope.find(name) for name in names]
    return dce(importer.builder.finish([v for v in outputs if isinstance(v, Value)], names))


class Toy:
    """A model as an object."""

    def __init__(self, *lines: str) -> None:
        self.text = "\n".join(("toy", *lines))


def _recognises(source: Source) -> bool:
    if source.content is None:
        return isinstance(source.model, Toy)
    return bytes(source.content[:4]) == b"toy\n"


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(sys.modules, "toy_reader", SimpleNamespace(READER=Reader(_read)))
    frontend = Frontend("a toy file", ("a path to a toy", "a Toy"), _recognises, "toy_reader")
    monkeypatch.setattr(entry, "FRONTENDS", (frontend, *entry.FRONTENDS))


def test_the_frontend_is_found_by_content_not_by_name(tmp_path: Path) -> None:
    made = Toy("input x 2 3", "y = relu x", "output y")
    misnamed, model = tmp_path / "toy.onnx", tmp_path / "model.toy"
    misnamed.write_text(made.text)
    model.write_bytes(om.relu().SerializeToString())
    for source in (made, made.text.encode(), misnamed, str(misnamed), model, om.relu()):
        graph = entry.load(source)
        np.testing.assert_array_equal(evaluate(graph, [X])["y"], np.maximum(X, 0))
    assert entry.load(graph) is graph


def test_what_is_no_model_is_told_what_is(tmp_path: Path) -> None:
    accepted = "expected a path to an ONNX model, .*, a path to a toy, a Toy or a Graph, got list"
    with pytest.raises(UsageError, match=accepted):
        entry.load(["model"])
    with pytest.raises(
        ModelError, match=r"expected an ONNX file or .* or a toy file at .* a folder"
    ):
        entry.load(tmp_path)


def test_shapes_are_computed_on_the_way() -> None:
    made = Toy(
        "input x 2 n", "y = reshape h r", "h = relu x", "s = shape h", "r = reversed s", "output y"
    )
    graph = entry.load(made, shapes={"n": 3})
    assert [n.op.name for n in graph.nodes] == ["relu", "reshape"]
    assert [n.loc for n in graph.nodes] == ["h", "y"]
    assert str(graph.outputs[0].type) == "f32[3,2]"
    # `shape` asks for numbers
    with pytest.raises(OpenShapesError, match=r"^a toy: .*f32\[2,n\].*--shape x="):
        entry.load(made)


def test_values_that_depend_on_inputs_are_asked_for() -> None:
    made = Toy("input x 2 3", "input s 2", "n = relu s", "y = reshape x n", "output y")
    with pytest.raises(ValuesNeededError, match="reshape at 'y': the value of shape") as found:
        entry.load(made)
    assert found.value.inputs == ("s",)
    # now its value is known, and that it is no list of integers
    with pytest.raises(ModelError, match=r"node 'y' \(reshape\): shape: expected a list of integ"):
        entry.load(made, values={"s": np.array([3, 2], np.float32)})


def test_constants_are_computed_except_by_heavy_operators() -> None:
    made = Toy("input x 1 1 2 2", "a = add x x", "b = pool a", "c = relu b", "output a", "output c")
    graph = entry.load(made, values={"x": np.full((1, 1, 2, 2), 3, np.float32)})
    assert [n.op.name for n in graph.nodes] == ["max_pool", "relu"]
    np.testing.assert_array_equal(evaluate(graph, [])["c"], [[[[6]]]])


def test_all_problems_are_reported_at_once() -> None:
    made = Toy(
        "input x 2 3",
        "a = frobnicate x",
        "b = relu a",
        "c = neg x",  # known at version 1 only
        "d = frobnicate b",
        "y = add b c",
        "output y",
    )
    with pytest.raises(UnsupportedError) as found:
        entry.load(made)
    assert str(found.value) == (
        "a toy: 3 nodes of 2 operators cannot be compiled: "
        "frobnicate at 'a', 'd': the operator is not supported; "
        "neg at 'c': the operator is not supported"
    )


def test_a_bad_node_is_named() -> None:
    made = Toy("input x 2 3", "input z 4 5", "y = add x z", "output y")
    with pytest.raises(ModelError, match=r"^a toy: node 'y' \(add\): add\(f32\[2,3\], f32\[4,5\]"):
        entry.load(made)
    cycle = Toy("input x 2 3", "a = relu b", "b = relu a", "output a")
    with pytest.raises(ModelError, match=r"nodes depend on one another in a cycle: 'a', 'b'"):
        entry.load(cycle)
