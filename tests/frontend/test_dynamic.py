"""Models with open dimensions: one graph with symbols, which is right for every size.

The graph with its symbols bound to sizes gives the answers of the graph that was loaded for these
sizes, and ONNX Runtime's.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_models as om
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.bind import bind
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.graph.verify import verify
from tilesmith.support.errors import ModelError, OpenShapesError, UnsupportedError

RNG = np.random.default_rng(0)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(" "), outputs.split(), **attributes)


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


def x(*dims: int | str, name: str = "x", dtype: int = TensorProto.FLOAT) -> Any:
    return om.value(name, dims, dtype)


ONE = np.int64(1)
CASES: dict[str, tuple[Any, dict[str, Sequence[int]]]] = {}


def case(
    name: str,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    sizes: dict[str, Sequence[int]],
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: str = "y",
) -> None:
    CASES[name] = om.model(nodes, inputs, outputs.split(), constants, 18), sizes


case(
    "attention as PyTorch writes it",
    [
        node("Shape", "x", "s"), node("Gather", "s i0", "b"), node("Gather", "s i1", "l"),
        node("MatMul", "x w", "q"), node("Unsqueeze", "b a0", "bu"),
        node("Unsqueeze", "l a0", "lu"),
        node("Concat", "bu lu four eight", "split", axis=0), node("Reshape", "q split", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1, 3]),
        node("Transpose", "r", "k", perm=[0, 2, 3, 1]), node("MatMul", "t k", "scores"),
        node("Unsqueeze", "m a12", "mu"), node("Cast", "mu", "mf", to=1),
        node("Add", "scores mf", "masked"), node("Softmax", "masked", "p", axis=-1),
        node("MatMul", "p t", "o"), node("Transpose", "o", "ot", perm=[0, 2, 1, 3]),
        node("Concat", "bu lu rest", "joined", axis=0), node("Reshape", "ot joined", "y"),
    ],
    [x("batch", "seq", 32), x("batch", "seq", name="m", dtype=TensorProto.INT64)],
    {"batch": (1, 2, 5), "seq": (1, 7, 16)},
    {
        "i0": np.int64(0), "i1": ONE, "w": weights(32, 32), "a0": i64(0), "a12": i64(1, 2),
        "four": i64(4), "eight": i64(8), "rest": i64(-1),
    },
)  # fmt: skip
case(
    "an image classifier",
    [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", "p v", "d", group=4), node("Add", "d p", "a"),
        node("GlobalAveragePool", "a", "g"), node("Flatten", "g", "f"), node("Gemm", "f u", "y"),
    ],
    [x("n", 3, "h", "w")],
    {"n": (1, 3), "h": (8, 15), "w": (9, 20)},
    {"w": weights(4, 3, 3, 3), "v": weights(4, 1, 1, 1), "u": weights(4, 5)},
)  # fmt: skip
case(
    "a recogniser of text lines",
    [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "c", "r"),
        node("AveragePool", "r", "p", kernel_shape=[4, 1], strides=[4, 1]),
        node("Squeeze", "p a2", "q"), node("Transpose", "q", "t", perm=[2, 0, 1]),
        node("Transpose", "t", "b", perm=[1, 0, 2]), node("Shape", "b", "s"),
        node("Gather", "s i1", "l"), node("Unsqueeze", "l a0", "lu"),
        node("Concat", "minus lu six", "shape", axis=0), node("Reshape", "b shape", "z"),
        node("MatMul", "z v", "u"), node("Softmax", "u", "y", axis=2),
    ],
    [x("n", 1, 8, "w")],
    {"n": (1, 2), "w": (2, 5, 8, 31)},
    {
        "w": weights(6, 1, 3, 3), "a2": i64(2), "a0": i64(0), "i1": ONE, "minus": i64(-1),
        "six": i64(6), "v": weights(6, 9),
    },
)  # fmt: skip
case(
    "padding that keeps the extent",
    [
        node("Conv", "x w", "c", auto_pad="SAME_UPPER", strides=[2, 2]),
        node("AveragePool", "c", "p", kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
        node("MaxPool", "p", "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("ConvTranspose", "x v", "t", strides=[2, 2], auto_pad="SAME_UPPER"),
    ],
    [x("n", 3, "h", "w")],
    {"n": (1, 2), "h": (8, 15, 16), "w": (9, 20)},
    {"w": weights(4, 3, 3, 3), "v": weights(3, 4, 3, 3)},
    "y t",
)
case(
    "shapes made by operators",
    [
        node("Shape", "x", "s"), node("ConstantOfShape", "s", "z"), node("Add", "x z", "a"),
        node("Equal", "s minus", "e"), node("Where", "e ones s", "sh"), node("Expand", "a sh", "y"),
        node("Mul", "s two", "doubled"), node("Size", "x", "size"),
    ],
    [x("n", "m")],
    {"n": (1, 4), "m": (3, 1)},
    {"minus": i64(-1), "ones": i64(1, 1), "two": i64(2)},
    "y doubled size",
)  # fmt: skip
case(
    "positions and half of an axis",
    [
        node("Shape", "x", "s"), node("Gather", "s i1", "l"), node("Range", "zero l i1", "r"),
        node("Cast", "r", "rf", to=1), node("Add", "x rf", "y"), node("Cast", "l", "lf", to=1),
        node("Mul", "lf half", "lh"), node("Floor", "lh", "fl"), node("Cast", "fl", "k", to=7),
        node("Unsqueeze", "k a0", "ku"), node("Slice", "x a0 ku a1", "front"),
        node("ArgMax", "x", "best", axis=1, keepdims=0), node("OneHot", "best l values", "hot"),
    ],
    [x("n", "m")],
    {"n": (1, 4), "m": (1, 3, 9, 16)},
    {
        "i1": ONE, "zero": np.int64(0), "half": np.float32(0.5), "a0": i64(0), "a1": i64(1),
        "values": np.array([0, 1], np.float32),
    },
    "y front hot",
)  # fmt: skip
case(
    "slices",
    [
        node("Slice", "x back end a1", "y"), node("Slice", "x last before a1 step", "reversed"),
        node("Pad", "x pads", "padded", mode="edge"), node("Tile", "x repeats", "tiled"),
        node("Slice", "x back end a1 end", "first"),
        node("Slice", "x last before a1 before", "lowest"),
    ],
    [x("n", "m")],
    {"n": (1, 4), "m": (1, 3, 9)},
    {
        "back": i64(-5), "end": i64(2**63 - 1), "a1": i64(1), "last": i64(-1),
        "before": i64(-(2**63)), "step": i64(-2), "pads": i64(0, 2, 0, 3), "repeats": i64(2, 3),
    },
    "y reversed padded tiled first lowest",
)  # fmt: skip
case(
    "parts joined and cut",
    [node("Concat", "x z", "c", axis=1), node("Split", "c", "a y", axis=1, num_outputs=2)],
    [x("n", "m"), x("n", "k", name="z")],
    {"n": (2,), "m": (3, 4), "k": (5, 2)},
    outputs="a y",
)
case(
    "resampling",
    [
        node("Resize", "x  scales", "y", mode="linear"), node("Shape", "z", "s"),
        node("Slice", "s two four", "hw"), node("Shape", "x", "sx"),
        node("Slice", "sx a0 two", "nc"), node("Concat", "nc hw", "sizes", axis=0),
        node(
            "Resize", "x   sizes", "r", mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        node("Resize", "x   sizes", "l", mode="linear"),
        node(
            "Resize", "x   sizes", "c", mode="cubic",
            coordinate_transformation_mode="align_corners",
        ),
    ],
    [x(1, 2, "h", "w"), x(1, 2, "h2", "w2", name="z")],
    {"h": (3, 6), "w": (5,), "h2": (7, 12), "w2": (9, 4)},
    {"scales": np.array([1, 1, 2, 1.5], np.float32), "a0": i64(0), "two": i64(2), "four": i64(4)},
    "y r l c",
)  # fmt: skip
case(
    "a recurrent layer",
    [node("LSTM", "x w r", "y h c", hidden_size=4)],
    [x(5, "b", 3)],
    {"b": (1, 3)},
    {"w": weights(1, 16, 3), "r": weights(1, 16, 4)},
    "y h c",
)
case(
    "others",
    [
        node("ArgMax", "x", "a", axis=1), node("CumSum", "x one", "c"), node("Trilu", "x", "t"),
        node("Hardmax", "x", "h"), node("ReduceMean", "x", "r"), node("TopK", "x k", "v i"),
        node("Einsum", "x x", "e", equation="ij,kj->ik"), node("LayerNormalization", "x g", "l"),
    ],
    [x("n", 4)],
    {"n": (2, 5)},
    {"one": ONE, "k": i64(3), "g": np.ones(4, np.float32)},
    "a c t h r v i e l",
)  # fmt: skip
case(
    "space and depth",
    [
        node("DepthToSpace", "x", "d", blocksize=2), node("SpaceToDepth", "d", "y", blocksize=2),
        node("Flatten", "d", "f"),
    ],
    [x("n", 8, "h", "w")],
    {"n": (2,), "h": (3,), "w": (5, 2)},
    outputs="y f",
)  # fmt: skip


case(
    "normalisations",
    [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c g g g g", "b"),
        node("InstanceNormalization", "b g g", "i"),
        node("LRN", "i", "y", size=3),
        node("GlobalMaxPool", "c", "m"),
        node("LpPool", "c", "p", kernel_shape=[2, 2]),
    ],
    [x("n", 3, "h", "w")],
    {"n": (1, 2), "h": (5,), "w": (4, 7)},
    {"w": weights(4, 3, 3, 3), "g": np.ones(4, np.float32)},
    "y m p",
)
case(
    "places given by tensors",
    [
        node("GatherElements", "x i", "g", axis=1), node("ScatterElements", "x i g", "y", axis=1),
        node("CumSum", "x one", "c"), node("GatherND", "x j", "nd"),
        node("ScatterND", "x j nd", "snd"),
    ],
    [
        x("n", "m"), x("n", 2, name="i", dtype=TensorProto.INT64),
        x("k", 1, name="j", dtype=TensorProto.INT64),
    ],
    {"n": (2, 5), "m": (3,), "k": (1, 2)},
    {"one": ONE},
    "y c nd snd",
)  # fmt: skip
case(
    "a grid of samples",
    [node("GridSample", "x g", "y"), node("GridSample", "x g", "r", padding_mode="reflection")],
    [x("n", 2, "h", "w"), x("n", "p", "q", 2, name="g")],
    {"n": (1, 2), "h": (4,), "w": (5,), "p": (3,), "q": (2,)},
    outputs="y r",
)
case(
    "quantised products",
    [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "m"),
        node("Cast", "m", "y", to=1),
    ],
    [x("n", 4)],
    {"n": (1, 5)},
    {"w": np.arange(12, dtype=np.uint8).reshape(4, 3)},
)
case(
    "a rotation of halves",
    [
        node("Slice", "x a0 half a1", "p"),
        node("Slice", "x half end a1", "q"),
        node("Neg", "q", "n"),
        node("Concat", "n p", "y", axis=1),
    ],
    [x("n", "m")],
    {"n": (2,), "m": (3, 8)},
    {"a0": i64(0), "half": i64(2), "end": i64(2**62), "a1": i64(1)},
)


def _arrays(model: Any, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    found = {}
    for i in model.graph.input:
        kind = i.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in kind.shape.dim]
        array = RNG.standard_normal(shape).astype(np.float32)
        is_float = kind.elem_type == TensorProto.FLOAT
        found[i.name] = array if is_float else (array > 0).astype(np.int64)
        if i.name == "j":  # distinct places, so that no update meets another
            found[i.name] = np.arange(len(array)).reshape(-1, 1)
    return found


@pytest.mark.parametrize("name", CASES)
def test_one_graph_for_all_sizes(name: str) -> None:
    model, sizes = CASES[name]
    graph = load(model)
    verify(graph)
    text = print_graph(graph)
    assert print_graph(parse_graph(text, constants_of(graph))) == text
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for numbers in itertools.product(*sizes.values()):
        given = dict(zip(sizes, numbers, strict=True))
        bound = bind(graph, {s: given[s.name] for s in graph.symbols})
        verify(bound)
        inputs = _arrays(model, given)
        found = evaluate(bound, inputs)
        fixed = evaluate(load(model, shapes=given), inputs)
        for output, wanted in zip(graph.output_names, session.run(None, inputs), strict=True):
            np.testing.assert_array_equal(found[output], fixed[output])
            np.testing.assert_allclose(found[output], wanted, rtol=1e-4, atol=1e-4)


def _sum(*inputs: Any) -> Any:
    return om.model([node("Add", "x z", "y")], inputs, ["y"])


def test_extents_that_must_be_equal_are_one_symbol() -> None:
    graph = load(_sum(x("n", "m"), x("k", 128, name="z")), dynamic={"n": (2, 9), "k": 5})
    assert [str(v.type) for v in graph.inputs] == ["f32[n,128]", "f32[n,128]"]
    assert [str(s.sizes) for s in graph.symbols] == ["2..5~2"]
    joined = om.model(
        [node("Concat", "a b", "c", axis=0), node("Add", "c x", "y")],
        [x("past", name="a"), x("seq", name="b"), x("total")],
        ["y"],
    )
    assert [str(v.type) for v in load(joined).inputs] == [
        "f32[past]",
        "f32[seq]",
        "f32[past + seq]",
    ]


def test_extents_that_are_equal_for_no_size() -> None:
    with pytest.raises(ModelError, match=r"expected shapes that broadcast, found \[n,m\] and"):
        load(_sum(x("n", "m"), x("n", 128, name="z")), dynamic={"m": 64})
    with pytest.raises(ModelError, match=r"expected shapes that broadcast, found \[n\] and \[k\]"):
        load(_sum(x("n"), x("k", name="z")), dynamic={"n": 4, "k": (5, 6)})


def test_a_symbol_is_not_taken_as_one() -> None:
    graph = load(_sum(x("n", 1), x(1, "m", name="z")))
    assert str(graph.outputs[0].type) == "f32[n,m]"


def test_ranges_and_expected_sizes() -> None:
    image = om.model([node("Relu", "x", "y")], [x("n", "c", -1, "w")], ["y"])
    sizes = {s.name: str(s.sizes) for s in load(image).symbols}
    most = 2**31 - 1
    assert sizes == {"n": f"1..{most}~1", "c": f"1..{most}~128"} | dict.fromkeys(
        ("x.2", "w"), f"1..{most}~224"
    )
    graph = load(image, dynamic={"n": (0, 8), "x": {2: (32, 64), 3: 48}}, expected={"c": 3})
    sizes = {s.name: str(s.sizes) for s in graph.symbols}
    assert sizes == {"n": "0..8~1", "c": f"1..{most}~3", "x.2": "32..64~64", "w": "1..48~48"}
    sizes = {s.name: str(s.sizes) for s in load(image, expected={"x": (2, 3, 320, 240)}).symbols}
    assert sizes == {
        name: f"1..{most}~{n}"
        for name, n in zip(("n", "c", "x.2", "w"), (2, 3, 320, 240), strict=True)
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic": {"b": 4}}, "dynamic: no input is named 'b'.*inputs are x"),
        ({"dynamic": {"n": (5, 4)}}, "smallest and the largest size of dimension 'n'"),
        ({"dynamic": {"n": (1, 2**40)}}, "from 0 to 2147483647"),
        ({"dynamic": {"n": 4}, "expected": {"n": 5}}, "dimension 'n' is from 1 to 4, found 5"),
        ({"expected": {"m": 5}}, "expected: no input is named 'm'"),
        ({"expected": {"x": 5}}, r"'x' is an input, its shape is \(n, 3\).*found 5"),
        ({"expected": {"x": (5,)}}, r"'x' is an input, its shape is \(n, 3\).*found \(5,\)"),
        ({"expected": {"x": (5, 4)}}, r"'x' is an input, its shape is \(n, 3\).*found \(5, 4\)"),
        (
            {"dynamic": {"x": (1, 4)}},
            r"'x' is an input; expected ranges of its axes.*found \(1, 4\)",
        ),
    ],
)
def test_bad_ranges(options: dict[str, Any], message: str) -> None:
    model = om.model([node("Relu", "x", "y")], [x("n", 3)], ["y"])
    with pytest.raises(ModelError, match=message):
        load(model, **options)


def test_what_needs_numbers_asks_for_shapes() -> None:
    model = om.model([node("DepthToSpace", "x", "y", blocksize=2)], [x("n", "t", 1, 1)], ["y"])
    with pytest.raises(
        OpenShapesError, match=r"DepthToSpace \(opset 20\).*symbolic t.*--shape x="
    ) as found:
        load(model)
    assert found.value.inputs == ("x",)
    both = om.model(
        [node("DepthToSpace", "x", "y", blocksize=2), node("Frob", "y", "z")],
        [x("n", "t", 1, 1)],
        ["z"],
    )
    with pytest.raises(UnsupportedError, match="2 nodes of 2 operators"):
        load(both)


def test_divisions_by_what_may_be_zero_are_refused() -> None:
    nodes = [
        node("Shape", "k", "s"),
        node("Concat", "m s", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    inputs = [x("n"), x("k", name="k")]
    model = om.model(nodes, inputs, ["y"], {"m": i64(-1)})
    with pytest.raises(OpenShapesError, match=r"cannot work out -1 in \[-1,k\] for \[n\]"):
        load(model, dynamic={"k": (0, 8)})


@pytest.mark.parametrize("op", ["Shape", "Size"])
def test_an_extent_that_is_open_is_a_result(op):
    node = helper.make_node(op, ["x"], ["y"])
    exe = ts.compile(om.model([node], [om.value("x", ["n", 2])], ["y"]), threads=1)
    for n in (1, 5):
        (found,) = exe.run({"x": np.zeros((n, 2), np.float32)}).values()
        assert found.tolist() == ([n, 2] if op == "Shape" else 2 * n)


def test_squeeze_without_axes_keeps_open_dimensions_which_a_run_may_not_make_one():
    model = om.model([helper.make_node("Squeeze", ["x"], ["y"])], [om.value("x", ["n", 1])], ["y"])
    exe = ts.compile(model, threads=1)
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(exe(x[:, None]), x)
    with pytest.raises(ModelError, match=r"make '\(?n == 1\)?' 1; expected 0"):
        exe(x[:1, None])
    fixed = ts.compile(model, shapes={"n": 1}, threads=1)
    assert np.asarray(fixed(x[1:2, None])) == 1


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_of_any_length(kind: str) -> None:
    """The same layer, compiled for each length, gives the same answers."""
    rng = np.random.default_rng(0)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    shapes = {"w": (2, gates * 8, 6), "r": (2, gates * 8, 8), "b": (2, gates * 16)}
    constants = [
        numpy_helper.from_array((0.3 * rng.standard_normal(s)).astype(np.float32), name)
        for name, s in shapes.items()
    ]
    layer = helper.make_node(kind, ["x", *shapes], ["y"], hidden_size=8, direction="bidirectional")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "batch", 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([layer], "layer", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data = model.SerializeToString()
    exe = ts.compile(data, threads=1)
    for steps, batch in ((128, 1), (1, 1), (7, 3)):
        value = rng.standard_normal((steps, batch, 6)).astype(np.float32)
        fixed = ts.compile(data, threads=1, shapes={"x": value.shape})
        np.testing.assert_allclose(exe(value), fixed(value), rtol=1e-5, atol=1e-6)


def test_a_range_for_an_axis_that_the_model_fixes():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert load(model, dynamic={"x": {0: 1}}).inputs[0].type.shape == (1, 3)
    with pytest.raises(ModelError, match=r"dynamic\['x'\]: the model fixes axis 0 to 1"):
        load(model, dynamic={"x": {0: (1, 8)}})
