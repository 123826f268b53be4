"""What a well-formed model becomes: inputs, shapes, values, control flow, functions, reports."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import onnx
import onnx_models as om
import pytest
from onnx import TensorProto, helper

from tilesmith.frontend.common.errors import ValuesNeededError
from tilesmith.frontend.load import FRONTENDS, load
from tilesmith.frontend.onnx.operators import OPERATORS
from tilesmith.frontend.onnx.registry import OLDEST_OPSET
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, OpenShapesError, UnsupportedError, UsageError

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def test_importing_the_frontend_does_not_import_onnx():
    code = "import sys, tilesmith.frontend.onnx; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_path_bytes_and_message_give_the_same(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(om.relu(), path)
    for source in (path, str(path), path.read_bytes(), om.relu()):
        graph = load(source)
        assert [v.name for v in graph.inputs] == ["x"]
        assert graph.output_names == ("y",)
        np.testing.assert_array_equal(evaluate(graph, [X])["y"], np.maximum(X, 0))


def test_names_that_are_too_long_are_refused(tmp_path):
    with pytest.raises(ModelError, match="name too long"):
        load("a" * 5000)
    network = tmp_path / "net.param"
    network.write_text("7767517\n2 2\nInput x 0 1 x 0=2\nInnerProduct y 1 1 x y 0=1 1=0 2=2\n")
    with pytest.raises(ModelError, match="name too long"):
        load((str(network), "b" * 5000))


def test_something_else_is_a_usage_error():
    kinds = [re.escape(kind) for f in reversed(FRONTENDS) for kind in f.kinds]
    assert len(kinds) > 6
    accepted = f"expected {', '.join(kinds)} or a Graph, got "
    for thing, name in ((3, "int"), (om.relu().graph, "GraphProto"), (None, "NoneType")):
        with pytest.raises(UsageError, match=accepted + name):
            load(thing)


def _open_model():
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    return om.model(nodes, [om.value("a", ["n", 3]), om.value("b", ["n", None])], ["y"])


def test_open_dimensions_become_symbols():
    graph = load(_open_model(), dynamic={"n": (2, 64)}, expected={"n": 8})
    assert [str(v.type) for v in graph.inputs] == ["f32[n,3]", "f32[n,3]"]  # b broadcasts to a
    (n,) = graph.symbols
    assert str(n.sizes) == "2..64~8"
    negative = om.model([helper.make_node("Relu", ["x"], ["y"])], [om.value("x", [-1, 3])], ["y"])
    assert str(load(negative).inputs[0].type) == "f32[x.0,3]"


def test_an_open_rank_is_asked_for():
    unranked = om.model([helper.make_node("Relu", ["x"], ["y"])], [om.value("x", None)], ["y"])
    with pytest.raises(OpenShapesError, match=r"'x': f32 of unknown rank.*shapes=.*--shape x="):
        load(unranked)


def test_shapes_by_input_and_by_dimension():
    graph = load(_open_model(), shapes={"n": 4, "b": (4, 3)})
    assert [str(v.type) for v in graph.inputs] == ["f32[4,3]", "f32[4,3]"]
    graph = load(_open_model(), shapes={"b": (5, 1)})
    assert [str(v.type) for v in graph.inputs] == ["f32[5,3]", "f32[5,1]"]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"aa": (1, 2)}, "no input is named 'aa'.*did you mean 'a'"),
        ({"a": (2, 4)}, r"input 'a': expected shape \[n, 3\], found \[2, 4\]"),
        ({"a": (2,)}, "expected 2 dimensions"),
        ({"a": (2, 3), "b": (3, 3)}, "dimension 'n' is given as 2 and, by input 'b', as 3"),
        ({"b": (-1, 3), "n": -1}, "expected a number for dimension 'n'"),
    ],
)
def test_bad_shapes(shapes, message):
    with pytest.raises(ModelError, match=message):
        load(_open_model(), shapes=shapes)


def _tiled_by_input():
    node = helper.make_node("Tile", ["x", "s", "axis"], ["y"])  # as the first opset had it
    inputs = [om.value("x", [2, 3]), om.value("s", [1], TensorProto.INT64)]
    return om.model([node], inputs, ["y"], {"axis": np.array([1])}, opset=5)


def test_values_make_an_input_constant():
    with pytest.raises(ValuesNeededError, match="computed from input 's'") as found:
        load(_tiled_by_input())
    assert found.value.inputs == ("s",)
    graph = load(_tiled_by_input(), values={"s": np.array([2])})
    assert [v.name for v in graph.inputs] == ["x"]
    assert evaluate(graph, [X])["y"].shape == (2, 6)


def test_shape_arithmetic_becomes_numbers():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "rest": np.array([-1, 1])}
    graph = load(om.model(nodes, [om.value("x", [2, 3])], ["y"], constants))
    assert [n.op.name for n in graph.nodes] == ["reshape"]
    assert not graph.constants


def test_large_constant_results_are_computed_when_needed():
    nodes = [
        helper.make_node("ConstantOfShape", ["big"], ["z"]),
        helper.make_node("ReduceSum", ["z"], ["total"], keepdims=0),
        helper.make_node("Cast", ["total"], ["i"], to=TensorProto.INT64),
        helper.make_node("Add", ["i", "t"], ["s"]),
        helper.make_node("Reshape", ["x", "s"], ["y"]),
    ]
    constants = {"big": np.array([1000, 100]), "t": np.array([3, 2])}
    graph = load(om.model(nodes, [om.value("x", [2, 3])], ["y"], constants))
    assert str(graph.outputs[0].type) == "f32[3,2]"


def test_unsorted_nodes_are_put_in_order():
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    graph = load(om.model(nodes, [om.value("x", [2, 3])], ["y"]))
    np.testing.assert_array_equal(evaluate(graph, [X])["y"], -np.maximum(X, 0))


def test_all_unsupported_nodes_are_listed_at_once():
    nodes = [
        helper.make_node("Sharpen", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Blur", ["x"], ["c"], name="second"),
        helper.make_node("Frobnicate", ["b", "c"], ["y"], name="third", domain="my.ops"),
    ]
    made = om.model(nodes, [om.value("x", [2, 3])], ["y"])
    made.opset_import.append(helper.make_opsetid("my.ops", 3))
    with pytest.raises(UnsupportedError) as found:
        load(made)
    message = str(found.value)
    assert "3 nodes of 3 operators" in message
    for part in (
        "Sharpen (opset 20) at 'first'",
        "'second'",
        "my.ops.Frobnicate (opset 3)",
    ):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize("opset", [0, 99])
def test_opsets_out_of_range(opset):
    made = om.relu()
    made.opset_import[0].version = opset
    with pytest.raises(UnsupportedError, match=f"opset {opset}; supported are 1 to"):
        load(made)


def _if_model(known: bool):
    branch = lambda op, name: helper.make_graph(  # noqa: E731
        [helper.make_node(op, ["x"], [name])], name, [], [onnx.ValueInfoProto(name=name)]
    )
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Relu", "t"), else_branch=branch("Neg", "e")
    )
    inputs = [om.value("x", [2, 3])]
    if known:
        return om.model([node], inputs, ["y"], {"c": np.array(False)})
    return om.model([node], [*inputs, om.value("c", [], TensorProto.BOOL)], ["y"])


def test_if_with_a_known_condition_is_its_branch():
    graph = load(_if_model(known=True))
    assert [n.op.name for n in graph.nodes] == ["neg"]


@pytest.mark.parametrize("condition", [True, False])
def test_if_with_an_input_as_condition_computes_both(condition):
    graph = load(_if_model(known=False))
    found = evaluate(graph, {"x": X, "c": np.array(condition)})["y"]
    np.testing.assert_array_equal(found, np.maximum(X, 0) if condition else -X)


def test_loop_is_unrolled():
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("Identity", ["go"], ["again"]),
            helper.make_node("Identity", ["next"], ["scan"]),
        ],
        "body",
        [
            om.value("i", [], TensorProto.INT64),
            om.value("go", [], TensorProto.BOOL),
            om.value("state", None),
        ],
        [onnx.ValueInfoProto(name=o) for o in ("again", "next", "scan")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=body)
    graph = load(om.model([node], [om.value("x", [2, 3])], ["y", "all"], {"n": np.array(3)}))
    found = evaluate(graph, [X])
    np.testing.assert_array_equal(found["y"], 4 * X)
    np.testing.assert_array_equal(found["all"], np.stack([2 * X, 3 * X, 4 * X]))


def _function(name, nodes, attributes=(), defaults=()):
    return helper.make_function(
        "local",
        name,
        ["a"],
        ["b"],
        nodes,
        [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)],
        attributes,
        defaults,
    )


def test_functions_are_inlined_with_their_attributes():
    inner = helper.make_node("LeakyRelu", ["a"], ["b"])
    inner.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1))
    leaky = _function("Leaky", [inner], defaults=[helper.make_attribute("slope", 0.5)])
    nodes = [
        helper.make_node("Leaky", ["x"], ["h"], domain="local"),
        helper.make_node("Leaky", ["h"], ["y"], domain="local", slope=0.25),
    ]
    graph = load(om.model(nodes, [om.value("x", [2, 3])], ["y"], functions=[leaky]))
    np.testing.assert_array_equal(evaluate(graph, [X])["y"], np.where(X < 0, X * 0.125, X))


def test_recursive_functions_are_refused():
    again = _function("Again", [helper.make_node("Again", ["a"], ["b"], domain="local")])
    node = helper.make_node("Again", ["x"], ["y"], domain="local")
    with pytest.raises(ModelError, match="function 'Again' calls itself"):
        load(om.model([node], [om.value("x", [2, 3])], ["y"], functions=[again]))


def test_functions_that_multiply_are_refused(monkeypatch):
    monkeypatch.setattr("tilesmith.frontend.common.folding.MAX_NODES", 2000)
    chain = [_function("F0", [helper.make_node("Relu", ["a"], ["b"])])]
    for i in range(1, 40):
        twice = [
            helper.make_node(f"F{i - 1}", ["a"], ["m"], domain="local"),
            helper.make_node(f"F{i - 1}", ["m"], ["b"], domain="local"),
        ]
        chain.append(_function(f"F{i}", twice))
    node = helper.make_node("F39", ["x"], ["y"], domain="local")
    with pytest.raises(ModelError, match="unfolds into more than 2000 nodes"):
        load(om.model([node], [om.value("x", [2, 3])], ["y"], functions=chain))


def test_every_operator_is_there_exactly_at_the_versions_of_its_schemas():
    newest = onnx.defs.onnx_opset_version()
    for name in (name for domain, name in OPERATORS if not domain):
        for version in range(OLDEST_OPSET, newest + 1):
            try:
                deprecated = onnx.defs.get_schema(name, version).deprecated
            except onnx.defs.SchemaError:
                deprecated = True
            if name == "GroupNormalization" and 18 <= version < 21:
                continue  # withdrawn later, yet exported and supported
            if name == "SimplifiedLayerNormalization":
                continue  # ONNX Runtime's, which it puts in this domain
            known = OPERATORS.find("", name, version) is not None
            assert known == (not deprecated), (name, version)
