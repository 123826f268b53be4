"""StableHLO's text: both forms of operations, regions, constants, open sizes, and damaged texts."""
# ruff: noqa: E501 - lines of the texts

from __future__ import annotations

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect, load, source_nodes
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, UnsupportedError

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
F = "tensor<2x3xf32>"
ONE = "tensor<f32>"


def function(body: str, results: str = F, inputs: str = f"%x: {F}", more: str = "") -> bytes:
    text = f"module @m {{\n  func.func public @main({inputs}) -> ({results}) {{\n{body}\n  }}\n{more}}}"
    return text.encode()


def run(model: bytes, *arrays: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(v) for v in evaluate(load(model), [*arrays]).values()]


def test_operations_in_their_own_form() -> None:
    model = function(
        f"""    %cst = stablehlo.constant dense<0.0> : {ONE} loc("a"(#loc1))
    %0 = call @relu(%x) : ({F}) -> {F}
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : ({F}, {ONE}) -> tensor<2xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<2xf32>) -> {F}
    %3 = stablehlo.compare GT, %x, %2, FLOAT : ({F}, {F}) -> tensor<2x3xi1>
    %4 = stablehlo.select %3, %x, %2 : tensor<2x3xi1>, {F}
    %5 = stablehlo.slice %4 [0:2, 0:3:2] : ({F}) -> tensor<2x2xf32>
    return %5, %1 : tensor<2x2xf32>, tensor<2xf32>""",
        'tensor<2x2xf32> {jax.result_info = "a"}, tensor<2xf32>',
        f'%x: {F} {{mhlo.sharding = "none"}} loc("x")',
        f"""  func.func private @relu(%arg0: {F}) -> {F} {{
    %cst = stablehlo.constant dense<0.000000e+00> : {ONE}
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : ({ONE}) -> {F}
    %1 = stablehlo.maximum %arg0, %0 : {F}
    return %1 : {F}
  }}
""",
    )  # fmt: skip
    total = np.maximum(X, 0).sum(1)
    wide = np.broadcast_to(total[:, None], X.shape)
    exe = ts.compile(b"#loc1 = loc(unknown)\n" + model)
    found = exe.run({"x": X})
    np.testing.assert_allclose(found["output0"], np.where(wide < X, X, wide)[:, ::2])
    np.testing.assert_allclose(found["output1"], total)


def test_operations_in_the_generic_form() -> None:
    model = function(
        f"""    %c = "stablehlo.constant"() <{{value = dense<2.0> : {ONE}}}> : () -> {ONE}
    %r = "stablehlo.reduce"(%x, %c) <{{dimensions = array<i64: 0, 1>}}> ({{
    ^bb0(%a: {ONE}, %b: {ONE}):
      %m = "stablehlo.multiply"(%a, %b) : ({ONE}, {ONE}) -> {ONE}
      "stablehlo.return"(%m) : ({ONE}) -> ()
    }}) : ({F}, {ONE}) -> {ONE}
    "func.return"(%r) : ({ONE}) -> ()""",
        ONE,
    )
    assert run(model, X)[0] == X.prod() * 2


def test_products_and_convolutions() -> None:
    y = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    dot = f"""    %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : ({F}, tensor<2x3x2xf32>) -> tensor<2x2xf32>
    return %0 : tensor<2x2xf32>"""
    model = function(dot, "tensor<2x2xf32>", f"%x: {F}, %y: tensor<2x3x2xf32>")
    np.testing.assert_allclose(run(model, X, y)[0], np.einsum("bi,bij->bj", X, y))
    window = "window = {stride = [1], pad = [[1, 0]], rhs_dilate = [1], reverse = [true]}"
    conv = f"""    %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], {window} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : (tensor<1x4x1xf32>, tensor<2x1x1xf32>) -> tensor<1x4x1xf32>
    return %0 : tensor<1x4x1xf32>"""
    model = function(conv, "tensor<1x4x1xf32>", "%x: tensor<1x4x1xf32>, %w: tensor<2x1x1xf32>")
    x, w = np.arange(4, dtype=np.float32), np.array([10, 1], np.float32)
    found = run(model, x.reshape(1, 4, 1), w.reshape(2, 1, 1))[0]
    np.testing.assert_allclose(found.reshape(-1), np.convolve(x, w)[:4])


def test_a_loop_reads_values_around_it() -> None:
    model = function(
        f"""    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%i = %c, %v = %x) : tensor<i32>, {F}
    cond {{
      %1 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.add %v, %x : {F}
      stablehlo.return %1, %2 : tensor<i32>, {F}
    }}
    return %0#1 : {F}""",
        inputs=f"%x: {F}, %n: tensor<i32>",
    )
    for n in (0, 3):
        np.testing.assert_allclose(run(model, X, np.int32(n))[0], X * (n + 1))


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_a_comparison_in_total_order(kind: str) -> None:
    nan = np.float64("nan")
    order = [-nan, -np.inf, -2.0, -1e-7, -0.0, 0.0, 1e-7, 3.0, np.inf, nan]
    numbers = np.copysign(order, [-1] * 5 + [1] * 5).astype(
        {"f16": "f2", "f32": "f4"}.get(kind, "f8")
    )
    column, row = f"tensor<10x10x{kind}>", "tensor<10x10xi1>"
    for direction, wanted in (("LT", np.less), ("GE", np.greater_equal), ("EQ", np.equal)):
        body = f"""    %0 = stablehlo.compare {direction}, %x, %y, TOTALORDER : ({column}, {column}) -> {row}
    return %0 : {row}"""
        x, y = np.meshgrid(numbers, numbers, indexing="ij")
        found = run(function(body, row, f"%x: {column}, %y: {column}"), x, y)[0]
        np.testing.assert_array_equal(found, wanted.outer(np.arange(10), np.arange(10)))


def test_a_case_takes_the_last_region_for_a_number_out_of_range() -> None:
    regions = ", ".join(
        f"{{\n %b = stablehlo.{op} %x, %x : {F}\n stablehlo.return %b : {F}\n }}"
        for op in ("add", "subtract", "multiply")
    )
    body = f'    %0 = "stablehlo.case"(%n) ({regions}) : (tensor<i32>) -> {F}\n    return %0 : {F}'
    model = function(body, inputs=f"%x: {F}, %n: tensor<i32>")
    for n, wanted in ((0, X + X), (1, X - X), (2, X * X), (7, X * X), (-1, X * X)):
        np.testing.assert_allclose(run(model, X, np.int32(n))[0], wanted)


def test_a_reduction_of_two_tensors_is_the_place_of_the_largest() -> None:
    model = function(
        f"""    %i = stablehlo.iota dim = 1 : tensor<2x3xi32>
    %low = stablehlo.constant dense<0xFF800000> : {ONE}
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.reduce(%x init: %low), (%i init: %c) across dimensions = [1] : ({F}, tensor<2x3xi32>, {ONE}, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
     reducer(%a: {ONE}, %b: {ONE}) (%j: tensor<i32>, %k: tensor<i32>)  {{
      %1 = stablehlo.compare GE, %a, %b, FLOAT : ({ONE}, {ONE}) -> tensor<i1>
      %2 = stablehlo.select %1, %a, %b : tensor<i1>, {ONE}
      %3 = stablehlo.select %1, %j, %k : tensor<i1>, tensor<i32>
      stablehlo.return %2, %3 : {ONE}, tensor<i32>
    }}
    return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>""",
        "tensor<2xf32>, tensor<2xi32>",
    )
    best, places = run(model, X)
    assert best.tolist() == [3, 5] and places.tolist() == [2, 1]


def test_a_sort_by_a_function_of_the_elements() -> None:
    model = function(
        f"""    %i = stablehlo.iota dim = 1 : tensor<2x3xi32>
    %0:2 = "stablehlo.sort"(%x, %i) <{{dimension = 1 : i64, is_stable = true}}> ({{
    ^bb0(%a: {ONE}, %b: {ONE}, %j: tensor<i32>, %k: tensor<i32>):
      %1 = stablehlo.abs %a : {ONE}
      %2 = stablehlo.abs %b : {ONE}
      %3 = stablehlo.compare GT, %1, %2, TOTALORDER : ({ONE}, {ONE}) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    }}) : ({F}, tensor<2x3xi32>) -> ({F}, tensor<2x3xi32>)
    return %0#0, %0#1 : {F}, tensor<2x3xi32>""",
        f"{F}, tensor<2x3xi32>",
    )
    values, places = run(model, X)
    assert values.tolist() == [[3, -2, 1], [-6, 5, 4]]
    assert places.tolist() == [[2, 1, 0], [2, 1, 0]]


def test_each_position_of_a_batch_has_its_own_indices() -> None:
    model = function(
        f"""    %0 = "stablehlo.gather"(%x, %n) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>}}> : ({F}, tensor<2x1xi32>) -> tensor<2x2xf32>
    return %0 : tensor<2x2xf32>""",
        "tensor<2x2xf32>",
        f"%x: {F}, %n: tensor<2x1xi32>",
    )
    found = run(model, X, np.array([[1], [0]], np.int32))[0]
    np.testing.assert_array_equal(found, [X[0, 1:3], X[1, :2]])


def test_sizes_stay_open() -> None:
    wide = "tensor<?x3xf32>"
    model = function(
        f"""    %c = stablehlo.constant dense<3> : tensor<1xi32>
    %one = stablehlo.constant dense<1.0> : {ONE}
    %0 = stablehlo.get_dimension_size %x, dim = 0 : ({wide}) -> tensor<i32>
    %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
    %2 = stablehlo.concatenate %1, %c, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %3 = stablehlo.dynamic_broadcast_in_dim %one, %2, dims = [] : ({ONE}, tensor<2xi32>) -> {wide}
    %4 = stablehlo.add %x, %3 : {wide}
    return %4 : {wide}""",
        wide,
        f"%x: {wide}",
    )
    exe = ts.compile(model)
    for count in (1, 2):
        np.testing.assert_allclose(exe.run({"x": X[:count]})["output"], X[:count] + 1)


@pytest.mark.parametrize(
    ("held", "type_", "wanted"),
    [
        ('"0x0000803F00000040"', "2xf32", [1, 2]),
        ("[[1, -2], [3, 4]]", "2x2xi8", [[1, -2], [3, 4]]),
        ("[true, false]", "2xi1", [True, False]),
        ("0x7F800000", "f32", np.inf),
        ("7", "2x2xui64", [[7, 7], [7, 7]]),
        ("1.5e+00", "bf16", 1.5),
        ("", "0x2xf32", np.zeros((0, 2)).tolist()),
    ],
)
def test_constants(held: str, type_: str, wanted: object) -> None:
    body = f"    %c = stablehlo.constant dense<{held}> : tensor<{type_}>\n    return %c : tensor<{type_}>"
    (found,) = run(function(body, f"tensor<{type_}>", ""))
    assert found.astype(found.dtype if found.dtype.kind != "V" else np.float32).tolist() == wanted


def test_calls_of_foreign_functions() -> None:
    call = "    %0:2 = stablehlo.custom_call @{}(%x) {{mhlo.attributes = {{k = 2 : i64, largest = true}}, mhlo.version = 1 : i64}} : ({}) -> (tensor<2x2xf32>, tensor<2x2xi32>)\n    return %0#0, %0#1 : tensor<2x2xf32>, tensor<2x2xi32>"
    results = "tensor<2x2xf32>, tensor<2x2xi32>"
    values, places = run(function(call.format("mhlo.topk", F), results), X)
    assert values.tolist() == [[3, 1], [5, 4]] and places.tolist() == [[2, 0], [1, 0]]
    with pytest.raises(UnsupportedError, match="a call of the foreign function 'lapack'"):
        load(function(call.format("lapack", F), results))


def test_listings() -> None:
    body = (
        f"    %0 = stablehlo.add %x, %x : {F}\n    %1 = stablehlo.odd %0 : {F}\n    return %1 : {F}"
    )
    facts = inspect(function(body))
    assert facts.format == "StableHLO text" and facts.inputs == {"x": "f32 [2, 3]"}
    assert facts.operators == {"add": 1, "odd": 1} and facts.unsupported == {"odd"}
    assert source_nodes(function(body)) == [("line 3", "add"), ("line 4", "odd")]


ADD = f"    %0 = stablehlo.add %x, %x : {F}\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (ADD, "expected as many outputs|expected at least one output"),
        (ADD + "    return %9 : " + F, "'%9' is used, which nothing before defines"),
        (f"    %0:2 = stablehlo.add %x, %x : ({F}, {F}) -> {F}", "expected 2 types of results"),
        (f"    %0 = call @other(%x) : ({F}) -> {F}", "the module has no function @other"),
        (f"    %0 = call @main(%x) : ({F}) -> {F}\n    return %0 : {F}", "more than 64 deep"),
        ("    %c = stablehlo.constant dense<" + "[" * 999, "nested more than"),
        ("    %c = stablehlo.constant dense<[1, 2]> : tensor<3xi32>", "line 3: expected elements"),
        ('    %c = stablehlo.constant dense<"0x00"> : tensor<3xi32>', "expected 12 bytes"),
        ("    %c = stablehlo.constant dense<300> : tensor<2xi8>", "line 3: "),
        (f"    %c = stablehlo.constant dense<0> : tensor<{9**19}x{9**9}xi8>", "line 3: .*elements"),
        ("    %c = stablehlo.constant dense<0> : tensor<2xf19>", "elements of type 'f19'"),
        ("    %0 = stablehlo.add %x", "expected 1 types of results of add, found 0"),
        ("    %0 = ", "expected an operation, found '}'"),
        ('    %0 = "stablehlo.add', "line 3: "),
        (f"    %0 = stablehlo.transpose %x, dims = [0, 5] : ({F}) -> {F}", "permutation|axes"),
        (f'    %0 = stablehlo.transpose %x, dims = "a" : ({F}) -> {F}', "transpose"),
    ],
)
def test_damaged_texts(body: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(function(body))


def test_every_truncation_is_refused() -> None:
    whole = function(ADD + f"    return %0 : {F}")
    for size in range(70, len(whole) - 2, 5):
        with pytest.raises(ModelError):
            load(whole[:size])
