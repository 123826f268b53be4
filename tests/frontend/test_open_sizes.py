"""Every operator with open sizes: the graph of all sizes, bound to some, gives what the graph that
was loaded for these gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_models as om
import pytest
from onnx import helper

import tilesmith as ts
from tilesmith.driver.compiler import named_symbols
from tilesmith.frontend.load import load
from tilesmith.graph.bind import bind
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.verify import verify
from tilesmith.support.errors import ModelError

SIZES = {"b": 2, "s": 3, "t": 5, "h": 6, "w": 7}
OTHERS = {"b": 3, "s": 1, "t": 4, "h": 9, "w": 8}


@dataclass(frozen=True)
class Case:
    """A node with open sizes.

    op: the operator, with its domain in front where it has one.
    inputs: types as "f4 b s 16": a NumPy type (or "n", an axis's length minus one as an index), and
        extents, numbers or names; None for one left out.
    attributes: of the node.
    outputs: number of results.
    fixed: inputs whose values are given.
    opset: of ONNX's own domain.
    """

    op: str
    inputs: tuple[str | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    fixed: dict[int, Any] = field(default_factory=dict)
    opset: int = 21

    def __str__(self) -> str:
        return f"{self.op.rpartition('.')[2]} {', '.join(i or '-' for i in self.inputs)}"

    def shapes(self) -> list[tuple[str, list[int | str]]]:
        found = []
        for given in self.inputs:
            kind, *dims = (given or "").split() or [""]
            found.append((kind, [int(d) if d.isdecimal() else d for d in dims]))
        return found

    def model(self, sizes: dict[str, int] | None = None) -> onnx.ModelProto:
        """For these sizes; with open dimensions without them."""
        infos, constants = [], {}
        names = [f"x{i}" if given else "" for i, given in enumerate(self.inputs)]
        for i, (kind, dims) in enumerate(self.shapes()):
            if i in self.fixed:
                constants[names[i]] = np.asarray(self.fixed[i])
            elif kind:
                shown = [sizes[d] if sizes and isinstance(d, str) else d for d in dims]
                dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
                infos.append(om.value(names[i], shown, dtype))
        domain, _, op = self.op.rpartition(".")
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(op, names, results, domain=domain, **self.attributes)
        made = om.model([node], infos, results, constants, opset=self.opset)
        made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return made

    def arrays(self, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        rng, found = np.random.default_rng(0), {}
        for i, (kind, dims) in enumerate(self.shapes()):
            if kind and i not in self.fixed:
                shape = [sizes[d] if isinstance(d, str) else d for d in dims]
                if np.dtype(kind).kind == "f":
                    found[f"x{i}"] = (1 + abs(rng.standard_normal(shape))).astype(kind)
                else:
                    found[f"x{i}"] = rng.integers(0, 2, shape).astype(kind)
        return found


MS = "com.microsoft."
CACHE = "f4 b 2 t 4"
TURN = "f4 16 2"
GQA = {"num_heads": 4, "kv_num_heads": 2}
CASES = (
    Case("Dropout", ("f4 b s",), outputs=2),
    Case("Dropout", ("f4 b s", "f4", "?"), {"seed": 1}, 2, {1: np.float32(0.3), 2: True}),
    Case("Dropout", ("f4 b s", "f4", "?"), {"seed": 1}, 2),
    Case("RandomNormalLike", ("f4 b s",), {"mean": 1.0, "scale": 2.0}),
    Case("RandomUniformLike", ("f4 b s 3",), {"seed": 1.0}),
    Case("Bernoulli", ("f4 b s",)),
    Case("RoiAlign", ("f4 b 2 h w", "f4 s 4", "i8 s"), {"output_height": 2, "mode": "max"}),
    Case("RoiAlign", ("f4 b 2 h w", "f4 s 4", "i8 s"), {"sampling_ratio": 2}),
    Case("Multinomial", ("f4 b s",), {"sample_size": 3}),
    Case(MS + "Attention", ("f4 b s 6", "f4 6 24", "f4 24"), {"num_heads": 2}),
    Case(MS + "Attention", ("f4 b s 6", "f4 6 24", "f4 24", "i4 b s"), {"num_heads": 2}),
    Case(MS + "Attention", ("f4 b s 6", "f4 6 24", "f4 24", "i4 b"), {"num_heads": 2}),
    Case(MS + "Attention", ("f4 b s 6", "f4 6 24", "f4 24", "i4 b s s"),
         {"num_heads": 2, "unidirectional": 1}),
    Case(MS + "Attention", ("f4 b s 6", "f4 6 24", "f4 24", None, "f4 2 b 2 t 4"),
         {"num_heads": 2, "unidirectional": 1}, 2),
    Case(MS + "QAttention", ("u1 b s 6", "i1 6 24", "f4 24", "f4", "f4", "i4 b s", "u1", "i1"),
         {"num_heads": 2}),
    Case(MS + "MultiHeadAttention", ("f4 b s 8", "f4 b t 8", "f4 b t 8"), {"num_heads": 2}),
    Case(MS + "MultiHeadAttention", ("f4 b s 8", "f4 b t 8", "f4 b t 8", "f4 24", "i4 b t"),
         {"num_heads": 2}),
    Case(MS + "MultiHeadAttention", ("f4 b s 24",), {"num_heads": 2}),
    Case(MS + "MultiHeadAttention", ("f4 b s 2 3 4",), {"num_heads": 2, "unidirectional": 1}),
    Case(MS + "MultiHeadAttention", ("f4 b s 8", "f4 b t 2 2 4"), {"num_heads": 2}),
    Case(MS + "MultiHeadAttention",
         ("f4 b s 8", "f4 b s 8", "f4 b s 8", None, None, None, CACHE, CACHE),
         {"num_heads": 2, "unidirectional": 1}, 3),
    Case(MS + "DecoderMaskedMultiHeadAttention",
         ("f4 b 1 8", "f4 b 1 8", "f4 b 1 8", None, None, CACHE, CACHE), {"num_heads": 2}, 3),
    Case(MS + "DecoderMaskedMultiHeadAttention",
         ("f4 b 1 8", "f4 b 1 8", "f4 b 1 8", None, None, CACHE, CACHE, "i4 1"),
         {"num_heads": 2, "past_present_share_buffer": 1}, 3),
    Case(MS + "RotaryEmbedding", ("f4 b s 8", "i8 b s", TURN, TURN), {"num_heads": 2}),
    Case(MS + "RotaryEmbedding", ("f4 b s 8", "i8 1", TURN, TURN), {"num_heads": 2}),
    Case(MS + "RotaryEmbedding", ("f4 b 2 s 4", "i8 b s", TURN, TURN)),
    Case(MS + "GroupQueryAttention",
         ("f4 b s 16", "f4 b s 8", "f4 b s 8", None, None, "i4 b", "i4"), GQA, 3, {6: np.int32(3)}),
    Case(MS + "GroupQueryAttention",
         ("f4 b s 16", "f4 b s 8", "f4 b s 8", None, None, "i4 b", "i4"), GQA, 3),
    Case(MS + "GroupQueryAttention",
         ("f4 b 1 16", "f4 b 1 8", "f4 b 1 8", CACHE, CACHE, "i4 b", "i4"), GQA, 3),
    Case(MS + "GroupQueryAttention",
         ("f4 b s 16", "f4 b s 8", "f4 b s 8", CACHE, CACHE, "i4 b", "i4", TURN, TURN),
         {**GQA, "do_rotary": 1, "local_window_size": 2}, 3),
    Case(MS + "GroupQueryAttention",
         ("f4 b s 32", None, None, CACHE, CACHE, "i4 b", "i4"), {**GQA, "smooth_softmax": 1}, 3),
    Case(MS + "SkipLayerNormalization", ("f4 b s 8", "f4 b s 8", "f4 8", "f4 8", "f4 8")),
    Case(MS + "SkipSimplifiedLayerNormalization", ("f4 b s 8", "f4 b s 8", "f4 8")),
    Case(MS + "EmbedLayerNormalization",
         ("i4 b s", "i4 b s", "f4 9 8", "f4 9 8", "f4 2 8", "f4 8", "f4 8"), {}, 2),
    Case(MS + "EmbedLayerNormalization",
         ("i4 b s", None, "f4 9 8", "f4 9 8", None, "f4 8", "f4 8", "i4 b s", "i4 b s"), {}, 3),
    Case(MS + "SimplifiedLayerNormalization", ("f4 b s 8", "f4 8"), {}, 2),
    Case(MS + "FusedMatMul", ("f4 b s 4", "f4 b t 4"), {"transB": 1, "alpha": 0.5}),
    Case(MS + "FusedGemm", ("f4 b 4", "f4 4 5", "f4 5"), {"activation": "Relu"}),
    Case(MS + "FusedConv", ("f4 b 2 h w", "f4 4 2 3 3", "f4 4"), {"activation": "Relu"}),
    Case(MS + "NhwcConv", ("f4 b h w 2", "f4 4 3 3 2")),
    Case(MS + "BiasGelu", ("f4 b s 8", "f4 8")),
    Case(MS + "QLinearAdd", ("u1 b s 4", "f4", "u1", "u1 b s 4", "f4", "u1", "f4", "u1")),
    Case(MS + "QLinearSoftmax", ("u1 b s", "f4", "u1", "f4", "u1"), {"opset": 13, "axis": -1}),
    Case(MS + "QLinearAveragePool", ("u1 b 2 h w", "f4", "u1", "f4", "u1"),
         {"kernel_shape": [2, 2]}),
    Case(MS + "QLinearGlobalAveragePool", ("u1 b h w 2", "f4", "u1", "f4", "u1"),
         {"channels_last": 1}),
    Case(MS + "QLinearConcat", ("f4", "u1", "u1 b s", "f4", "u1", "u1 b t", "f4", "u1"),
         {"axis": 1}),
    Case(MS + "QLinearConv",
         ("u1 b h w 2", "f4", "u1", "u1 4 2 3 3", "f4", "u1", "f4", "u1"), {"channels_last": 1}),
    Case(MS + "MatMulIntegerToFloat", ("u1 b s 4", "u1 4 5", "f4", "f4 5", "u1", "u1 5", "f4 5")),
    Case(MS + "DynamicQuantizeMatMul", ("f4 b s 4", "u1 4 5", "f4", "u1")),
    Case(MS + "DynamicQuantizeLSTM",
         ("f4 s b 4", "u1 1 4 12", "u1 1 3 12", None, None, None, None, None,
          "f4 1", "u1 1", "f4 1", "u1 1"), {"hidden_size": 3}, 3),
    Case(MS + "QGemm", ("u1 b 4", "f4", "u1", "u1 4 5", "f4", "u1", None, "f4", "u1")),
    Case(MS + "MatMulNBits", ("f4 b s 32", "u1 5 2 8", "f4 10"),
         {"N": 5, "K": 32, "block_size": 16}),
    Case(MS + "GatherBlockQuantized", ("u1 9 16", "i8 b s", "f4 9 2"),
         {"block_size": 16, "quantize_axis": 1}),
    Case("QLinearMatMul", ("u1 b s 4", "f4", "u1", "u1 4 5", "f4", "u1", "f4", "u1")),
    Case("QLinearMatMul", ("u1 s 4", "f4 s", "u1 s", "u1 4 t", "f4 t", "u1 t", "f4", "u1")),
    Case("QLinearConv", ("u1 b 2 h w", "f4", "u1", "u1 4 2 3 3", "f4 4", "u1 4", "f4", "u1"),
         {"pads": [1] * 4}),
    Case("ConvInteger", ("u1 b 2 h w", "u1 4 2 3 3", "u1")),
    Case("MatMulInteger", ("u1 b s 4", "u1 4 t", "u1", "u1 t")),
    Case("DynamicQuantizeLinear", ("f4 b s",), {}, 3),
    Case("QuantizeLinear", ("f4 b s 4", "f4 s", "u1 s"), {"axis": 1}),
    Case("QuantizeLinear", ("f4 b s", "f4", "u1")),
    Case("QuantizeLinear", ("f4 b 4 8", "f4 b 4 2", "u1 b 4 2"), {"axis": 2, "block_size": 4}),
    Case("DequantizeLinear", ("u1 b s 4", "f4 s", "u1 s"), {"axis": 1}),
    Case("DequantizeLinear", ("i4 b t", "f4 b", None), {"axis": 0}),
    Case("DequantizeLinear", ("u1 b 4 8", "f4 b 1 8", "u1 b 1 8"), {"axis": 1, "block_size": 4}),
    Case("TopK", ("f4 b t", "i8 1"), {}, 2, {1: np.array([3])}),
    Case("TopK", ("f4 b t", "i8 1"), {}, 2),
    Case("TopK", ("f4 t b", "i8 1"), {"axis": 0, "largest": 0}, 2, {1: np.array([3])}),
    Case("DFT", ("f4 b s 1", None, "i8"), {"onesided": 1}, 1, {2: np.int64(1)}, 20),
    Case("DFT", ("f4 b s 2", None, "i8"), {"inverse": 1}, 1, {2: np.int64(1)}, 20),
    Case("DFT", ("f4 b s 2", "i8", "i8"), {}, 1, {1: np.int64(4), 2: np.int64(1)}, 20),
    Case("DFT", ("f4 b s 2",), {"axis": 1}, 1, {}, 17),
    Case("Det", ("f4 b 3 3",)),
    Case("Det", ("f4 b s s",)),
    Case("ScatterND", ("f4 t 4", "i8 s 1", "f4 s 4")),
    Case("ScatterND", ("f4 b t 4", "i8 s 2", "f4 s 4"), {"reduction": "add"}),
    Case("ScatterElements", ("f4 b t", "i8 b s", "f4 b s"), {"axis": 1}),
    Case("GatherND", ("f4 b t 4", "i8 b s 1"), {"batch_dims": 1}),
    Case("GatherND", ("f4 b t 4", "i8 s 2")),
    Case("GatherElements", ("f4 b t", "i8 b s"), {"axis": 1}),
    Case("TensorScatter", ("f4 b 2 t 4", "f4 b 2 1 4", "i8 b"), {}, 1, {}, 24),
    Case("TensorScatter", ("f4 b t 4", "f4 b 1 4", "i8 b"), {"mode": "circular"}, 1, {}, 24),
    Case("Attention", ("f4 b 2 s 4", "f4 b 2 t 4", "f4 b 2 t 4"), {}, 1, {}, 23),
    Case("Attention", ("f4 b s 16", "f4 b s 8", "f4 b s 8", None, CACHE, CACHE),
         {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}, 3, {}, 23),
    Case("RotaryEmbedding", ("f4 b s 8", TURN, TURN, "i8 b s"), {"num_heads": 2}, 1, {}, 23),
    Case("CausalConvWithState", ("f4 b 3 s", "f4 3 1 4", "f4 3", "f4 b 3 3"), {}, 2, {}, 27),
    Case("LinearAttention", ("f4 b 3 8", "f4 b 3 8", "f4 b 3 8"),
         {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}, 2, {}, 27),
    Case("MaxUnpool", ("f4 b 2 3 3", "i8 b 2 3 3"), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("Col2Im", ("f4 b 8 9", "i8 2", "i8 2"), {}, 1,
         {1: np.array([4, 4]), 2: np.array([2, 2])}),
    Case("MaxRoiPool", ("f4 2 3 h w", "f4 s 5"), {"pooled_shape": [2, 2]}, 1,
         {1: np.array([[0, 0, 0, 3, 3], [1, 1, 1, 4, 4]], "f4")}),
    Case("STFT", ("f4 b 16 1", "i8", "f4 4"), {}, 1, {1: np.int64(2)}),
    Case("STFT", ("f4 b h 1", "i8", "f4 4"), {}, 1, {1: np.int64(2)}),
    Case("NegativeLogLikelihoodLoss", ("f4 b 4 s", "i8 b s", "f4 4")),
    Case("SoftmaxCrossEntropyLoss", ("f4 b 4 s", "i8 b s"), {}, 2),
    Case("GridSample", ("f4 b 2 h w", "f4 b s t 2")),
    Case("Einsum", ("f4 b s 4", "f4 b t 4"), {"equation": "bsd,btd->bst"}),
    Case("OneHot", ("i8 b s", "i8", "f4 2"), {}, 1, {1: np.int64(4)}),
    Case("DepthToSpace", ("f4 b 8 h w",), {"blocksize": 2}),
    Case("SpaceToDepth", ("f4 b 2 h w",), {"blocksize": 1}),
    Case("CenterCropPad", ("f4 b t", "i8 1"), {"axes": [1]}, 1, {1: np.array([3])}),
    Case("Trilu", ("f4 b s t",)),
    Case("EyeLike", ("f4 s t",), {"k": 1}),
    Case("CumSum", ("f4 b s", "i8"), {}, 1, {1: np.int64(1)}),
    Case("ReverseSequence", ("f4 s b 4", "i8 b")),
    Case("Compress", ("f4 b s", "? s"), {"axis": 1}),
    Case("Resize", ("f4 b 2 h w", None, "f4 4"), {}, 1, {2: np.array([1, 1, 2, 2], "f4")}),
    Case("DeformConv", ("f4 b 2 h w", "f4 4 2 3 3", "f4 b 18 h w"), {"pads": [1] * 4}),
    Case("LSTM", ("f4 s b 4", "f4 1 12 4", "f4 1 12 3"), {"hidden_size": 3}, 3),
    Case("GRU", ("f4 s b 4", "f4 1 9 4", "f4 1 9 3"), {"hidden_size": 3}, 2),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_open_sizes(case: Case) -> None:
    whole = load(case.model())
    verify(whole)
    for sizes in (SIZES, OTHERS):
        given = [shape for i, (_, shape) in enumerate(case.shapes()) if i not in case.fixed]
        names = {d for shape in given for d in shape if isinstance(d, str)}
        known = {n: sizes[n] for n in names}
        arrays = case.arrays(sizes)
        graph = bind(whole, named_symbols(whole, known))
        found = evaluate(graph, {v.name: arrays[v.name] for v in graph.inputs})
        fixed = load(case.model(sizes))
        wanted = evaluate(fixed, {v.name: arrays[v.name] for v in fixed.inputs})
        for name, array in wanted.items():
            assert found[name].shape == array.shape
            np.testing.assert_allclose(found[name], array, 1e-5, 1e-6, err_msg=name)


COMPILED = [
    c
    for c in CASES
    if str(c).partition(" ")[0]
    in ("Det", "GatherND", "TensorScatter", "EyeLike", "QuantizeLinear", "Multinomial", "RoiAlign")
    or str(c).startswith(("GroupQueryAttention f4 b 1", "RotaryEmbedding f4 b 2", "STFT f4 b h"))
]


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_open_sizes_compiled(case: Case) -> None:
    exe = ts.compile(case.model(), threads=1)
    for sizes in (SIZES, OTHERS):
        arrays = case.arrays(sizes)
        fixed = load(case.model(sizes))
        found = exe.run({s.name: arrays[s.name] for s in exe.inputs})
        wanted = evaluate(fixed, {v.name: arrays[v.name] for v in fixed.inputs})
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, 1e-4, 1e-4, err_msg=name)


@pytest.mark.parametrize("open_sizes", [False, True])
def test_a_decoding_step_writes_its_cache_in_place(open_sizes: bool) -> None:
    cache = "f4 b 2 t 4"
    case = Case(
        MS + "GroupQueryAttention",
        ("f4 b 1 16", "f4 b 1 8", "f4 b 1 8", cache, cache, "i4 b", "i4"), GQA, 3,
    )  # fmt: skip
    sizes = {"b": 2, "t": 5}
    made = case.model(None if open_sizes else sizes)
    exe = ts.compile(made, in_place={"y1": "x3", "y2": "x4"}, threads=1)
    arrays = case.arrays(sizes)
    arrays["x5"], arrays["x6"] = np.array([2, 3], np.int32), np.array(4, np.int32)
    wanted = ts.compile(case.model(sizes), threads=1).run({n: a.copy() for n, a in arrays.items()})
    found = exe.run(arrays)
    assert found["y1"] is arrays["x3"] and found["y2"] is arrays["x4"]
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, 1e-5, 1e-5, err_msg=name)
    arrays["x5"][0] = 5
    with pytest.raises(ModelError, match="expected indices from -5 to 4, found 5"):
        exe.run(arrays)


@pytest.mark.parametrize("name", ["?", "_", "-1", "", -1])
def test_dimensions_without_a_name_are_dimensions_of_their_own(name: str | int) -> None:
    """What exporters write in the place of a name: two of them need not be equal."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    graph = load(om.model([node], [om.value("x", [name, name, 3])], ["y"]))
    assert len(set(graph.inputs[0].type.shape)) == 3


def test_an_output_that_is_listed_twice_is_there_twice() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    neg = helper.make_node("Neg", ["x"], ["y_2"])
    model = om.model([node, neg], [om.value("x", [2])], ["y", "y", "y_2"])
    found = ts.compile(model, threads=1).run({"x": np.array([1, -1], np.float32)})
    assert {k: v.tolist() for k, v in found.items()} == {
        "y": [1, 0],
        "y_3": [1, 0],
        "y_2": [-1, 1],
    }


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique_elements_of_open_sizes(is_sorted: int) -> None:
    """Also of as many elements as a run finds: none, one, all the same."""
    names = ["y", "first", "inverse", "counts"]
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["some"]),
        helper.make_node("Unique", ["some"], names, sorted=is_sorted),
        helper.make_node("Unique", ["x"], ["rows"], axis=0, sorted=is_sorted),
    ]
    inputs = [om.value("x", ["b", "s"]), om.value("c", ["k"], onnx.TensorProto.BOOL)]
    exe = ts.compile(om.model(nodes, inputs, [*names, "rows"]), threads=1)
    x = np.array([[3, 1], [2, 2], [3, 1]], np.float32)
    for kept in ([1, 1, 1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1], [0, 0], [0, 0, 1, 1]):
        c = np.array(kept, np.bool_)
        found = exe.run({"x": x, "c": c})
        some = x.ravel()[: len(c)][c]
        y, first, inverse, counts = np.unique(
            some, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.arange(len(y)) if is_sorted else np.argsort(first)
        wanted = (y[order], first[order], np.argsort(order)[inverse], counts[order])
        for name, array in zip(names, wanted, strict=True):
            assert found[name].tolist() == array.tolist(), (name, kept)
        assert found["rows"].tolist() == ([[2, 2], [3, 1]] if is_sorted else [[3, 1], [2, 2]])
