"""Relay's text and NNVM's graphs: syntax, control flow, constants, parameters, errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import rounding_cases
import torch
import torch.nn.functional as F

from tilesmith.frontend.load import inspect, load, source_nodes
from tilesmith.frontend.relay.tensors import written_constants, written_parameters
from tilesmith.graph.evaluate import evaluate
from tilesmith.ir.dtypes import f32, i8
from tilesmith.support.errors import ModelError, OpenShapesError, UnsupportedError
from written_models.nnvm import network

HEAD = '#[version = "0.0.5"]\n'
X = np.array([1.0, -2.0, 3.0], np.float32)
FOUR = np.array(4, np.int32)
LOOP = """
  let %loop = fn (%i: int32, %x: Tensor[(3), float32]) {
    %0 = less(%i, %n);
    if (%0) {
      %1 = add(%i, 1 /* ty=int32 */);
      %2 = multiply(%x, 2f);
      %loop(%1, %2)
    } else {
      (%i, %x)
    }
  };
  %3 = %loop(0, %x);
  %3.1
"""


def run(text, *arrays, **options):
    """The outputs of a program, in order."""
    graph = load((HEAD + text).encode(), **options)
    return [*evaluate(graph, [*arrays]).values()]


def of_list(body, *arrays, more=""):
    """The only output of @main for %x: Tensor[(3), float32] and %n: int32."""
    types = "%x: Tensor[(3), float32], %n: int32"
    return run(f"{more}def @main({types}) {{ {body} }}", *(arrays or (X, FOUR)))[0]


def test_ties_round_away_from_zero():
    count = rounding_cases.X.size
    text = f"def @main(%x: Tensor[({count}), float32]) {{ round(%x) }}"
    np.testing.assert_array_equal(run(text, rounding_cases.X)[0], rounding_cases.AWAY)


# Syntax


def test_a_graph_of_numbered_nodes():
    text = """
// a comment
def @main(%x: Tensor[(3), float32] /* ty=Tensor[(3), float32] */) -> Tensor[(3), float32] {
  %0 = add(%x, 1f /* ty=float32 /* nested */ */) /* ty=Tensor[(3), float32] span=a:1:2 */;
  %1 = (%0, %x);
  multiply(%1.0, %1.1)
}
"""
    np.testing.assert_array_equal(run(text, X)[0], (X + 1) * X)


def test_infix_operators_bind_as_in_arithmetic():
    np.testing.assert_array_equal(of_list("%x + %x * 2f - %x / 4f"), X + X * 2 - X / 4)
    np.testing.assert_array_equal(of_list("(%x + %x) * 2f < -%x".replace("-%x", "-1f")), X * 4 < -1)


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        ("2f", np.float32(2)), ("-1.5e-2f", np.float32(-0.015)), ("3", np.int32(3)),
        ("7i64", np.int64(7)), ("1.5f64", np.float64(1.5)), ("2f16", np.float16(2)),
        ("True", np.bool_(True)), ("inff", np.float32(np.inf)), ("200u8", np.uint8(200)),
        ("--10", np.int32(10)), ("2147483648", np.int64(1 << 31)),
        ("-42i", np.int32(-42)),
    ],
)  # fmt: skip
def test_numbers(number, wanted):
    (found,) = run(f"def @main(%x: Tensor[(3), float32]) {{ {number} }}", X)
    assert found.dtype == wanted.dtype
    assert found == wanted


def test_names_with_points_and_projections_of_tuples():
    body = "let %p.q = (%conv1.weight, (1f, 2f)); %p.q.1.0"
    text = f"def @main(%conv1.weight: Tensor[(3), float32]) {{ {body} }}"
    assert run(text, X)[0] == 1


def test_an_expression_of_free_variables():
    free = "".join(f"free_var %{v}: Tensor[(3), float32];\n" for v in "xy")
    text = free + "%0 = add(%x, %y);\nnn.relu(%0)"
    np.testing.assert_array_equal(run(text, X, X)[0], np.maximum(X + X, 0))


def test_inputs_may_be_tuples_and_outputs_too():
    text = "def @main(%p: (Tensor[(3), float32], (int32, int32))) { (%p.1, %p.0) }"
    graph = load((HEAD + text).encode())
    assert [v.name for v in graph.inputs] == ["p.0", "p.1.0", "p.1.1"]
    assert graph.output_names == ("output0", "output1", "output2")


def test_open_dimensions_stay_open():
    text = "def @main(%x: Tensor[(?, 3), float32]) { nn.softmax(%x) }"
    graph = load((HEAD + text).encode())
    assert len(graph.symbols) == 1
    fixed = load((HEAD + text).encode(), shapes={"x": (5, 3)})
    assert fixed.inputs[0].type.shape == (5, 3)


def test_what_printers_of_tvm_write():
    text = """
def @part(%i0: Tensor[(3), float32], Inline=1, Compiler="ccompiler", Primitive=1) {
  %4 = fn (%p.0: Tensor[(3), float32], PartitionedFromPattern="add_nn.relu_",
      Composite="c.add") -> Tensor[(3), float32] {
    %3 = add(%p.0, 1f, /* en_id=1 */) /* ty=Tensor[(3), float32] */;
    nn.relu(%3, /* en_id=2 */) /* ty=Tensor[(3), float32] */
  };
  %4(%i0)
}
def @main[A](%Mobile/Conv_0/w:0: Tensor[(3), float32], %f: float32) {
  let %_ : fn (int32) -> int32 = fn (%x: int32) -> int32 { 0 };
  @part(%Mobile/Conv_0/w:0);
  multiply(@part(%Mobile/Conv_0/w:0), %f)
}"""
    two = np.array(2, np.float32)
    np.testing.assert_array_equal(run(text, X, two)[0], np.maximum(X + 1, 0) * 2)
    with pytest.raises(ModelError, match="algebraic data types and imports are not supported"):
        run("type List[A] { Nil }\ndef @main() { 1f }")


# Functions and control flow


def test_a_tail_call_of_a_local_function_is_a_loop():
    np.testing.assert_array_equal(of_list(LOOP), X * 16)
    assert any(n.op.name == "loop" for n in load((HEAD + main(LOOP)).encode()).nodes)


def main(body):
    return f"def @main(%x: Tensor[(3), float32], %n: int32) {{ {body} }}"


def test_a_loop_in_a_normal_form():
    body = """
    let %c = less_equal(%k, 0);
    let %r = if (%c) { %y } else {
      let %m = subtract(%k, 1);
      let %z = add(%y, %y);
      let %t = @double(%m, %z);
      %t
    };
    %r"""
    function = f"def @double(%k: int32, %y: Tensor[(3), float32]) {{ {body} }}\n"
    np.testing.assert_array_equal(of_list("@double(%n, %x)", more=function), X * 16)


def test_recursion_that_ends_when_the_model_is_compiled():
    function = "def @f(%n: int32) -> int32 { if (%n == 0) { 1 } else { %n * @f(%n - 1) } }\n"
    assert of_list("@f(5)", more=function) == 120
    with pytest.raises(UnsupportedError, match="where only a run knows whether it ends"):
        of_list("@f(%n)", more=function)
    endless = "def @f(%n: int32) -> int32 { 1 + @f(%n) }\n"
    with pytest.raises(ModelError, match="deep"):
        of_list("@f(%n)", more=endless)


def test_a_loop_with_tuples_that_captures_values():
    body = """
    let %k = multiply(%x, 2f);
    let %go = fn (%s) {
      if (%s.0 < %n) { %go((%s.0 + 1, (%s.1.0 + %k, %s.1.1))) } else { %s.1 }
    };
    let %r = %go((0, (%x, %x)));
    match (%r) { (%a, %b) => %a - %b, }"""
    np.testing.assert_array_equal(of_list(body), X * 8)


def test_branches():
    body = "if (less(%n, 7)) { let %g = fn (%y) { %y + %x }; %g(%x) } else { %x }"
    np.testing.assert_array_equal(of_list(body), X * 2)
    np.testing.assert_array_equal(of_list(body, X, np.array(9, np.int32)), X)


def test_closures():
    body = """
    let %k = %x * 3f;
    let %f = fn (%y) { %y + %k };
    let %g = fn (%h, %y) { %h(%h(%y)) };
    %g(%f, %x)"""
    np.testing.assert_array_equal(of_list(body), X * 7)


def test_a_loop_inside_a_branch_inside_a_loop():
    inner = "let %in = fn (%j, %y) { if (%j < 2) { %in(%j + 1, %y + %x) } else { %y } };"
    body = f"""
    let %out = fn (%i, %y) {{
      if (%i < %n) {{
        let %z = if (%i == 1) {{ {inner} %in(0, %y) }} else {{ %y * 2f }};
        %out(%i + 1, %z)
      }} else {{ %y }}
    }};
    %out(0, %x)"""
    np.testing.assert_array_equal(of_list(body), X * 16)


# Constants and parameters


def test_constants_of_the_section():
    w, q = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([1, -2, 3], np.int8)
    section = written_constants([(w, f32), (q, i8)])
    pair = "(meta[relay.Constant][0] /* ty */, meta[relay.Constant][1])"
    text = f"def @main(%x: Tensor[(3), float32]) {{ {pair} }}"
    found = run(f"{text}\n\n#[metadata]\n{section}", X)
    np.testing.assert_array_equal(found[0], w)
    np.testing.assert_array_equal(found[1], q)
    with pytest.raises(ModelError, match=r"line 2, column 40: the text has no section"):
        run(text, X)
    new = {"constant1": np.array([5, 5, 5], np.int8)}
    assert run(f"{text}\n#[metadata]\n{section}", X, weights=new)[1].tolist() == [5, 5, 5]


def test_parameters_beside_a_program(tmp_path):
    path, w = tmp_path / "m.relay", np.array([2.0, 3.0, 4.0], np.float32)
    path.write_text(
        HEAD + "def @main(%x: Tensor[(3), float32], %w: Tensor[(3), float32]) { %x * %w }"
    )
    assert len(load(path).inputs) == 2
    (tmp_path / "m.params").write_bytes(written_parameters({"w": (w, f32)}))
    graph = load(path)
    assert [v.name for v in graph.inputs] == ["x"]
    np.testing.assert_array_equal(evaluate(graph, [X])["output"], X * w)
    (tmp_path / "m.params").write_bytes(written_parameters({"w": (w[:2], f32)}))
    with pytest.raises(ModelError, match="parameter 'w': expected"):
        load(path)


def test_every_truncation_of_parameters_is_refused(tmp_path):
    path = tmp_path / "m.relay"
    path.write_text(HEAD + "def @main(%w: Tensor[(3), float32]) { %w }")
    content = written_parameters({"w": (X, f32)})
    for end in range(len(content)):
        (tmp_path / "m.params").write_bytes(content[:end])
        with pytest.raises(ModelError):
            load(path)


# Errors


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add(%x, %y)", r"line 2, column \d+: this variable is not defined, found '%y'"),
        ("add(%x, 1f", r"expected ',', found '}'"),
        ("%0 = add(%x, 1f) %0", "expected ';'"),
        ("@f(%x)", "the module has no function @f"),
        ("meta[relay.Constant][0]", "no section #.metadata"),
        ("%x.0", "expected a tuple with an element 0"),
        ("match (%x) { Cons(%h, %t) => %h }", "a pattern of tuples and names"),
        ("nn.conv2d(%x, %x)", "expected images and a kernel"),
        ("sum(%x, axis=[3])", "expected -1 to 0 for rank 1, found 3"),
        ("1.5i32", "a number of a type that Relay has"),
        ("(" * 100 + "%x" + ")" * 100, "more than 64 deep"),
        ('cast(%x, dtype="float33")', "expected an element type, found 'float33'"),
        ("/* open", "found '/\\*'"),
        ("2147483648i32", "expected a number that i32 has"),
        ("ref(%x)", "ref at 'line 2': the operator is not supported"),
    ],
)
def test_errors_of_programs(body, message):
    with pytest.raises(ModelError, match=message):
        of_list(body)


def test_unsupported_operators_are_reported_together():
    with pytest.raises(UnsupportedError, match=r"2 nodes of 2 operators.*nn.what.*nn.is") as found:
        of_list("%0 = nn.what(%x); %1 = nn.is(%x); %2 = add(%0, %1); (%2, %x)")
    assert "add" not in str(found.value)


def test_an_attribute_that_is_not_known_is_refused():
    with pytest.raises(UnsupportedError, match="attribute 'speed' = 3"):
        of_list("nn.softmax(%x, speed=3)")


def test_another_version_is_refused():
    with pytest.raises(ModelError, match=r'line 1, column 13: expected version "0.0.5"'):
        load(b'#[version = "0.0.9"]\ndef @main() { 1f }')


def test_listings():
    source = (HEAD + main(LOOP)).encode()
    assert source_nodes(source)[0] == ("line 4", "less")
    facts = inspect(source)
    assert facts.format == "Relay 0.0.5"
    assert facts.inputs == {"x": "f32[3]", "n": "i32[]"}
    assert facts.operators == {"less": 1, "add": 1, "multiply": 1}


# NNVM


def test_a_network_of_nnvm(tmp_path):
    draw = np.random.default_rng(0)
    shapes = {"w": (4, 3, 3, 3), "b": 4, "gamma": 4, "beta": 4, "mean": 4, "var": 4, "dw": (3, 64)}
    stored = {k: np.abs(draw.standard_normal(s)).astype(np.float32) for k, s in shapes.items()}
    (tmp_path / "net.json").write_bytes(network())
    (tmp_path / "net.params").write_bytes(
        written_parameters({k: (v, f32) for k, v in stored.items()})
    )
    with pytest.raises(OpenShapesError, match="'data': f32 of unknown rank"):
        load(tmp_path / "net.json")
    graph = load(tmp_path / "net.json", shapes={"data": (2, 3, 8, 8)})
    x = draw.standard_normal((2, 3, 8, 8)).astype(np.float32)
    t = {k: torch.from_numpy(v) for k, v in stored.items()}
    y = F.conv2d(torch.from_numpy(x), t["w"], t["b"], padding=1)
    y = F.batch_norm(y, t["mean"], t["var"], t["gamma"], t["beta"], eps=1e-3)
    y = F.max_pool2d(F.relu(y), 2) + 0.5
    wanted = F.softmax(y.flatten(1) @ t["dw"].T, -1)
    np.testing.assert_allclose(evaluate(graph, [x])["output"], wanted, 1e-4, 1e-6)
    assert inspect(tmp_path / "net.json").format == "NNVM"


def test_damaged_graphs_of_nnvm(tmp_path):
    good = json.loads(network())
    infinite = {"heads": [[0, float("inf"), 0]]}
    for change in (infinite, {"heads": [[99, 0]]}, {"heads": 3}, {"nodes": [{"op": "relu"}]}):
        with pytest.raises(ModelError):
            load(json.dumps(good | change).encode(), shapes={"data": (2, 3, 8, 8)})
