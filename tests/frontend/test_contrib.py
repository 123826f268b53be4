"""Operators of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_nodes import check, made, normal, onnxruntime

from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.ops.quantize import Dequantize
from tilesmith.support.errors import ModelError, UnsupportedError

contrib = partial(made, domain="com.microsoft")
RNG = np.random.default_rng(5)


def given(*shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {f"x{i}": normal(*s, seed=i) for i, s in enumerate(shapes)}


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


def int8(*shape: int) -> np.ndarray:
    """Of 7 bits: sums of two products of 8 bits saturate in ONNX Runtime on AVX2."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def uint8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


FLOATS: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    ("FusedMatMul", ((2, 4, 3), (2, 4, 5)), {"transA": 1, "alpha": 0.5}),
    ("FusedMatMul", ((4, 2, 3), (2, 5, 3)), {"transBatchA": 1, "transB": 1}),
    ("Gelu", ((3, 5),), {}),
    ("FastGelu", ((3, 5),), {}),
    ("FastGelu", ((3, 5), (5,)), {}),
    ("BiasGelu", ((2, 3, 5), (5,)), {}),
    ("QuickGelu", ((3, 5),), {"alpha": 1.5}),
    ("FusedConv", ((1, 2, 5, 5), (4, 2, 3, 3), (4,)), {"activation": "Relu", "pads": [1] * 4}),
    (
        "FusedConv",
        ((1, 2, 5, 5), (4, 2, 3, 3), (4,), (1, 4, 3, 3)),
        {"activation": "LeakyRelu", "activation_params": [0.25]},
    ),
    ("FusedGemm", ((3, 4), (4, 5), (5,)), {"activation": "LeakyRelu", "activation_alpha": 0.5}),
    ("SkipLayerNormalization", ((2, 3, 8), (2, 3, 8), (8,), (8,), (8,)), {"epsilon": 1e-5}),
    ("SkipLayerNormalization", ((2, 3, 8), (2, 3, 8), (8,)), {}),
    ("SkipSimplifiedLayerNormalization", ((2, 3, 8), (2, 3, 8), (8,), (8,)), {"epsilon": 1e-5}),
    ("Attention", ((2, 4, 6), (6, 24), (24,)), {"num_heads": 2}),
    ("Attention", ((2, 4, 6), (6, 24), (24,)), {"num_heads": 2, "unidirectional": 1, "scale": 0.3}),
    (
        "Attention",
        ((2, 4, 6), (6, 20), (20,)),
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]},
    ),
    ("MultiHeadAttention", ((2, 4, 8), (2, 5, 8), (2, 5, 8)), {"num_heads": 2}),
    ("MultiHeadAttention", ((2, 4, 8), (2, 5, 8), (2, 5, 8), (24,)), {"num_heads": 2}),
    ("MultiHeadAttention", ((2, 4, 8), (2, 2, 5, 4), (2, 2, 5, 4)), {"num_heads": 2}),
]


@pytest.mark.parametrize(("op", "shapes", "attributes"), FLOATS)
def test_operators_of_floats(op, shapes, attributes):
    inputs = given(*shapes)
    check(contrib(op, inputs, **attributes), inputs, relative=2e-4, absolute=2e-5)


def test_the_sum_of_a_skip_is_an_output():
    inputs = given((2, 3, 8), (2, 3, 8), (8,))
    model = contrib("SkipLayerNormalization", inputs, outputs=4)
    model.graph.node[0].output[1] = model.graph.node[0].output[2] = ""
    del model.graph.output[1:3]
    check(model, inputs, relative=2e-4, absolute=2e-5)


def test_simplified_layer_normalization_is_in_the_default_domain():
    inputs = given((2, 3, 8), (8,))
    check(made("SimplifiedLayerNormalization", inputs, outputs=2, epsilon=1e-5), inputs)


@pytest.mark.parametrize("masked", [False, True])
def test_embed_layer_normalization(masked):
    ids = RNG.integers(0, 6, (2, 4)).astype(np.int32)
    inputs = {"ids": ids, "segments": (ids % 2).astype(np.int32)}
    tables = {"words": normal(6, 8), "positions": normal(9, 8), "segment_table": normal(2, 8)}
    constants = {**tables, "gamma": positive(8), "beta": normal(8)}
    if masked:
        constants["mask"] = np.int32([[1, 1, 1, 0], [1, 1, 1, 1]])
    model = contrib("EmbedLayerNormalization", inputs, outputs=2, constants=constants)
    check(model, inputs, relative=2e-4, absolute=2e-5)


MASKS = [
    np.int32([3, 5]),
    np.int32([3, 5, 1, 0]),
    np.int32([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]]),
    np.tile(np.int32(np.tri(5)), (2, 1, 1)),
]


@pytest.mark.parametrize("mask", MASKS, ids=lambda m: str(m.shape))
def test_masks_of_attention(mask):
    inputs = given((2, 5, 6))
    constants = {"w": normal(6, 24), "b": normal(24), "mask": mask}
    check(contrib("Attention", inputs, constants=constants, num_heads=2), inputs, None, 2e-4, 2e-5)


def test_attention_with_a_past():
    inputs = {"x": normal(2, 3, 8), "past": normal(2, 2, 2, 4, 4, seed=1)}
    model = contrib("Attention", {"x": inputs["x"]}, outputs=2, num_heads=2, unidirectional=1)
    node = model.graph.node[0]
    for name, array in (("w", normal(8, 24)), ("b", normal(24))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    node.input[:] = ["x", "w", "b", "", "past"]
    past = helper.make_tensor_value_info("past", onnx.TensorProto.FLOAT, inputs["past"].shape)
    model.graph.input.append(past)
    check(model, inputs, relative=2e-4, absolute=2e-5)


def test_multi_head_attention_with_padding_and_a_past():
    arrays = {
        **given((2, 3, 8), (2, 3, 8), (2, 3, 8)),
        "mask": np.int32([[1, 1, 1, 1, 1, 1, 0], [1] * 7]),
        "extra": normal(2, 2, 3, 7, seed=3),
        "past_k": normal(2, 2, 4, 4, seed=4),
        "past_v": normal(2, 2, 4, 4, seed=5),
    }
    model = contrib("MultiHeadAttention", arrays, outputs=3, num_heads=2)
    model.graph.node[0].input.insert(3, "")
    check(model, arrays, relative=2e-4, absolute=2e-5)


def test_packed_operands_of_multi_head_attention():
    """ONNX Runtime has no kernel for them on CPUs."""
    packed = normal(2, 4, 2, 3, 4)
    apart = {f"x{i}": packed[:, :, :, i].reshape(2, 4, 8) for i in range(3)}
    expected = onnxruntime(contrib("MultiHeadAttention", apart, num_heads=2), apart)
    inputs = {"qkv": packed}
    model = contrib("MultiHeadAttention", inputs, num_heads=2)
    check(model, inputs, expected, 2e-4, 2e-5)
    inputs = {"q": apart["x0"], "kv": packed[:, :, :, 1:].copy()}
    model = contrib("MultiHeadAttention", inputs, num_heads=2)
    check(model, inputs, expected, 2e-4, 2e-5)


def test_decoder_masked_multi_head_attention():
    arrays = {
        **given((2, 1, 8), (2, 1, 8), (2, 1, 8)),
        "past_k": normal(2, 2, 6, 4, seed=4),
        "past_v": normal(2, 2, 6, 4, seed=5),
        "length": np.int32([3]),
    }
    model = contrib("DecoderMaskedMultiHeadAttention", arrays, outputs=3, num_heads=2)
    model.graph.node[0].attribute.append(helper.make_attribute("past_present_share_buffer", 1))
    node = model.graph.node[0]
    node.input[:] = [*node.input[:3], "", "", *node.input[3:]]
    check_valid(model, arrays, np.int64([4, 4]), 2, 1)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.int64([2]), np.int64([[0, 1, 2], [4, 2, 1]])])
def test_rotary_embedding(interleaved, positions):
    inputs = {"x": normal(2, 3, 8), "positions": positions}
    constants = {"cos": normal(6, 2), "sin": normal(6, 2, seed=1)}
    model = contrib("RotaryEmbedding", inputs, constants=constants, interleaved=interleaved)
    check(model, inputs)


GROUPED = [
    (1, 4, 0, 4, [3], {}),
    (2, 4, 0, 4, [2, 3], {"do_rotary": 1}),
    (1, 1, 5, 6, [5], {"do_rotary": 1, "rotary_interleaved": 1}),
    (2, 1, 5, 6, [5, 3], {"softcap": 2.0}),
    (2, 1, 8, 6, [5, 3], {"local_window_size": 3}),
    (1, 3, 5, 8, [7], {"smooth_softmax": 1}),
]


@pytest.mark.parametrize(("batch", "rows", "old", "total", "last", "attributes"), GROUPED)
@pytest.mark.parametrize("packed", [False, True])
def test_group_query_attention(batch, rows, old, total, last, attributes, packed):
    heads, shared, width = 4, 2, 16
    widths = [(heads + 2 * shared) * width] if packed else [heads * width, *[shared * width] * 2]
    arrays = given(*((batch, rows, w) for w in widths))
    names = [*arrays, *([""] * (3 - len(widths)))]
    caches = {k: normal(batch, shared, old, width, seed=9) for k in ("past_k", "past_v") if old}
    names += [*caches] if old else ["", ""]
    constants = {"last": np.int32(last), "total": np.int32([total])}
    names += [*constants]
    if attributes.get("do_rotary"):
        tables = {"cos": normal(16, width // 2, seed=6), "sin": normal(16, width // 2, seed=7)}
        constants |= tables
        names += [*tables]
    inputs = {**arrays, **caches}
    attributes = {"num_heads": heads, "kv_num_heads": shared, **attributes}
    model = contrib("GroupQueryAttention", inputs, outputs=3, constants=constants, **attributes)
    model.graph.node[0].input[:] = names
    check_valid(model, inputs, np.asarray(last) + 1, batch, rows)


def check_valid(model, inputs, ends, batch, rows):
    """`check`, but for padding and places of the caches to which no key was written."""
    wanted = onnxruntime(model, inputs)
    found = [*evaluate(load(model), inputs).values()]
    for b in range(batch):
        end = min(rows, ends[b])
        np.testing.assert_allclose(found[0][b, :end], wanted[0][b, :end], 2e-4, 2e-5)
    for got, want in zip(found[1:], wanted[1:], strict=True):
        assert got.shape == want.shape
        for b in range(batch):
            end = ends[b]
            np.testing.assert_allclose(got[b, :, :end], want[b, :, :end], 2e-4, 2e-5)


def _scaled(at: int) -> dict[str, np.ndarray]:
    return {f"s{at}": np.float32(0.05 + 0.01 * at), f"z{at}": np.uint8(120 + at)}


QLINEAR: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    ("QLinearAdd", ((2, 3, 4), (4,)), {}),
    ("QLinearMul", ((2, 3, 4), (3, 1)), {}),
    ("QLinearSigmoid", ((2, 3),), {}),
    ("QLinearLeakyRelu", ((2, 3),), {"alpha": 0.25}),
    ("QLinearAveragePool", ((1, 2, 5, 5),), {"kernel_shape": [2, 2]}),
    ("QLinearAveragePool", ((1, 5, 5, 2),), {"kernel_shape": [3, 3], "channels_last": 1}),
    ("QLinearGlobalAveragePool", ((1, 2, 5, 5),), {}),
    ("QLinearSoftmax", ((2, 3, 4),), {"opset": 13, "axis": -1}),
]


def within_one(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    """Equal but for rounding: engines round products of scales in different orders."""
    check(model, inputs, relative=0, absolute=1)


@pytest.mark.parametrize(("op", "shapes", "attributes"), QLINEAR)
def test_quantised_operators(op, shapes, attributes):
    arrays = [uint8(*s) for s in shapes]
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    constants: dict[str, np.ndarray] = {}
    names = []
    for i in range(len(shapes)):
        constants |= _scaled(i)
        names += [f"x{i}", f"s{i}", f"z{i}"]
    scale = np.float32(0.004) if op in ("QLinearSigmoid", "QLinearSoftmax") else np.float32(0.3)
    constants |= {"sy": scale, "zy": np.uint8(7)}
    model = contrib(op, inputs, constants=constants)
    model.graph.node[0].attribute.extend(helper.make_attribute(*a) for a in attributes.items())
    model.graph.node[0].input[:] = [*names, "sy", "zy"]
    within_one(model, inputs)


def test_quantised_concat_and_where():
    inputs = {"a": uint8(2, 3), "b": uint8(2, 3)}
    constants = {**_scaled(0), **_scaled(1), "sy": np.float32(0.1), "zy": np.uint8(99)}
    model = contrib("QLinearConcat", inputs, constants=constants, axis=1)
    model.graph.node[0].input[:] = ["sy", "zy", "a", "s0", "z0", "b", "s1", "z1"]
    within_one(model, inputs)
    inputs = {"c": RNG.integers(0, 2, (2, 3)) > 0, **inputs}
    model = contrib("QLinearWhere", inputs, constants=constants)
    model.graph.node[0].input[:] = ["c", "a", "s0", "z0", "b", "s1", "z1", "sy", "zy"]
    within_one(model, inputs)


def test_quantised_convolution_with_channels_last():
    inputs = {"x": uint8(1, 5, 5, 4)}
    constants = {
        "s0": np.float32(0.02), "z0": np.uint8(120), "w": uint8(6, 4, 3, 3),
        "s1": np.float32(0.03), "z1": np.uint8(130), "sy": np.float32(0.5), "zy": np.uint8(100),
    }  # fmt: skip
    model = contrib("QLinearConv", inputs, constants=constants, channels_last=1, pads=[1] * 4)
    within_one(model, inputs)


@pytest.mark.parametrize("zero", [False, True])
def test_integer_products(zero):
    inputs = {"a": uint8(3, 8)}
    constants = {"b": int8(8, 5), "sa": np.float32(0.02), "sb": positive(5)}
    if zero:
        constants |= {"za": np.uint8(120), "zb": int8(5), "bias": normal(5)}
    check(contrib("MatMulIntegerToFloat", inputs, constants=constants), inputs, absolute=1e-3)
    floats = {"a": normal(3, 8)}
    constants = {"b": int8(8, 5), "sb": np.float32(0.05)}
    if zero:
        constants |= {"zb": np.int8(3), "bias": normal(5)}
    check(contrib("DynamicQuantizeMatMul", floats, constants=constants), floats, absolute=1e-3)


def test_quantised_gemm():
    inputs = {"a": uint8(3, 8)}
    constants = {
        "sa": np.float32(0.02), "za": np.uint8(120), "b": uint8(5, 8), "sb": np.float32(0.03),
        "zb": np.uint8(99), "c": RNG.integers(-99, 99, 5).astype(np.int32),
    }  # fmt: skip
    check(contrib("QGemm", inputs, constants=constants, transB=1), inputs, absolute=1e-4)
    constants |= {"sy": np.float32(0.4), "zy": np.uint8(100)}
    within_one(contrib("QGemm", inputs, constants=constants, transB=1), inputs)


def test_quantised_attention():
    inputs = {"x": uint8(2, 4, 8)}
    constants = {
        "w": uint8(8, 24), "b": normal(24), "sx": np.float32(0.01), "sw": np.float32(0.02),
        "mask": np.int32([3, 4]), "zx": np.uint8(128), "zw": np.uint8(120),
    }  # fmt: skip
    model = contrib("QAttention", inputs, constants=constants, num_heads=2)
    check(model, inputs, relative=1e-3, absolute=1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_quantize_lstm(per_channel, direction):
    """Inputs of all steps and the states of each step are rounded by their own ranges.

    The threads of ONNX Runtime round their parts of a batch by ranges of their own.
    """
    inputs, ways = {"x": normal(4, 1, 6)}, 2 if direction == "bidirectional" else 1
    scale = positive(ways, 12) * 0.01 if per_channel else positive(ways) * 0.01
    zero = np.zeros(scale.shape, np.int8) if per_channel else np.full(scale.shape, 7, np.int8)
    weights = {"w": int8(ways, 6, 12), "r": int8(ways, 3, 12), "b": normal(ways, 24)}
    tail = {"sw": scale, "zw": zero, "sr": scale * 2, "zr": zero}
    model = contrib(
        "DynamicQuantizeLSTM", inputs, outputs=3, constants={**weights, **tail},
        hidden_size=3, direction=direction,
    )  # fmt: skip
    model.graph.node[0].input[:] = ["x", "w", "r", "b", "", "", "", "", *tail]
    check(model, inputs, relative=1e-5, absolute=1e-5)


def _packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits in bytes along the last axis, the first in the lowest bits."""
    per = 8 // bits
    pad = -values.shape[-1] % per
    wide = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, pad)])
    parts = wide.reshape(*values.shape[:-1], -1, per).astype(np.uint32)
    return (parts << (np.arange(per) * bits)).sum(-1).astype(np.uint8)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_products_with_weights_of_few_bits(bits, zeros):
    rows, inner, columns, block = 3, 40, 5, 16
    blocks = -(-inner // block)
    values = RNG.integers(0, 1 << bits, (columns, blocks, block))
    points = np.full((columns, blocks), 1 << (bits - 1))
    scales = positive(columns, blocks) * 0.1
    constants = {"b": _packed(values, bits), "s": scales.reshape(-1)}
    if zeros != "none":
        points = RNG.integers(0, 1 << bits, (columns, blocks))
        stored = _packed(points, bits) if zeros == "packed" else points.astype(np.float32)
        constants["z"] = stored.reshape(-1)
    inputs = {"a": normal(rows, inner)}
    sizes = {"N": columns, "K": inner, "bits": bits, "block_size": block}
    weights = ((values - points[..., None]) * scales[..., None]).reshape(columns, -1)[:, :inner]
    model = contrib("MatMulNBits", inputs, constants=constants, **sizes)
    check(model, inputs, [inputs["a"] @ weights.T.astype(np.float32)], 1e-3, 1e-4)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("form", ["in order", "shuffled", "uneven", "input"])
def test_groups_in_another_order(form, zeros):
    """`g_idx` as GPTQ writes it: a group of 16 for each step of K."""
    rows, inner, columns, block, blocks = 3, 40, 5, 16, 3
    rng = np.random.default_rng(7)
    values = rng.integers(0, 16, (columns, blocks, block))
    scales = positive(columns, blocks) * 0.1
    groups = np.arange(blocks * block, dtype=np.int32) // block
    if form == "uneven":
        groups = rng.integers(0, blocks, blocks * block).astype(np.int32)
    elif form != "in order":
        groups[:inner] = rng.permutation(groups[:inner])
    points = rng.integers(0, 16, (columns, blocks)) if zeros else np.full((columns, blocks), 8)
    constants = {"b": _packed(values, 4), "s": scales}
    constants |= {"z": _packed(points, 4)} if zeros else {}
    inputs: dict[str, np.ndarray] = {"a": normal(rows, inner)}
    (inputs if form == "input" else constants)["g"] = groups
    model = contrib("MatMulNBits", inputs, constants=constants, N=columns, K=inner, bits=4,
                    block_size=block)  # fmt: skip
    model.graph.node[0].input[:] = ["a", "b", "s", "z" if zeros else "", "g"]
    at = groups[:inner]
    plain = values.reshape(columns, -1)[:, :inner]
    weights = ((plain - points[:, at]) * scales[:, at]).astype(np.float32)
    check(model, inputs, [inputs["a"] @ weights.T], 1e-3, 1e-4)
    packed = Dequantize(1, block) in [node.op for node in load(model).nodes]
    assert packed == (form in ("in order", "shuffled")), "weights stay packed"


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.full(16, 1, np.int32), "expected groups from 0 to 0 in g_idx, found 1 to 1"),
        (np.zeros(8, np.int32), "expected 16 numbers in g_idx, found"),
    ],
)
def test_groups_that_do_not_fit(groups, message):
    constants = {"b": uint8(1, 1, 8), "s": positive(1), "g": groups}
    model = contrib("MatMulNBits", {"a": normal(2, 16)}, constants=constants, N=1, K=16, bits=4,
                    block_size=16)  # fmt: skip
    model.graph.node[0].input[:] = ["a", "b", "s", "", "g"]
    with pytest.raises(ModelError, match=message):
        load(model)


SCALED: dict[str, tuple[int, Callable[[Any], onnx.ModelProto]]] = {
    "QuantizeLinear": (1, lambda s: made("QuantizeLinear", given((2,)), constants={"s": s})),
    "DequantizeLinear": (
        1, lambda s: made("DequantizeLinear", {"x": uint8(2)}, constants={"s": s}),
    ),
    "QLinearMatMul": (
        6,
        lambda s: made("QLinearMatMul", {"a": uint8(2, 3)}, constants={
            "as": positive(1), "az": uint8(1), "b": uint8(3, 2), "bs": positive(1),
            "bz": uint8(1), "s": s, "z": uint8(1)}),
    ),
    "QLinearSigmoid": (
        3,
        lambda s: contrib("QLinearSigmoid", {"x": uint8(2)}, constants={
            "xs": positive(1), "xz": uint8(1), "s": s, "z": uint8(1)}),
    ),
    "MatMulIntegerToFloat": (
        2,
        lambda s: contrib("MatMulIntegerToFloat", {"a": uint8(2, 3)}, constants={
            "b": uint8(3, 2), "s": s, "bs": positive(1)}),
    ),
    "MatMulNBits": (
        2,
        lambda s: contrib("MatMulNBits", {"a": normal(2, 16)}, constants={
            "b": uint8(1, 1, 8), "s": s}, N=1, K=16, bits=4, block_size=16),
    ),
}  # fmt: skip
"""For each operator, the number of an input that is a scale, and a model with that scale."""


@pytest.mark.parametrize("op", SCALED)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
def test_scales_that_are_no_numbers(op, value):
    at, model = SCALED[op]
    divides = op in ("QuantizeLinear", "QLinearMatMul", "QLinearSigmoid")
    if value == 0 and not divides:
        load(model(np.zeros(1, np.float32)))  # such numbers are all 0
        return
    wanted = "numbers other than 0" if divides else "numbers"
    message = f"expected finite {wanted} as scales in input {at}, found {value}"
    with pytest.raises(ModelError, match=message):
        load(model(np.asarray([value], np.float32)))


@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_quantised_table(zeros):
    table = RNG.integers(0, 16, (7, 32))
    constants: dict[str, np.ndarray] = {"scales": positive(7, 2)}
    inputs = {"at": np.int64([[0, 6], [3, 3]])}
    points = np.full((7, 2), 8)
    if zeros:
        points = RNG.integers(0, 16, (7, 2))
        constants["points"] = _packed(points, 4)
    model = contrib(
        "GatherBlockQuantized", inputs, constants={"table": _packed(table, 4), **constants},
        block_size=16, quantize_axis=1,
    )  # fmt: skip
    model.graph.node[0].input[:] = ["table", "at", *constants]
    wide = (table - points.repeat(16, 1)) * constants["scales"].repeat(16, 1)
    check(model, inputs, [wide[inputs["at"]].astype(np.float32)])


def test_channels_last_convolution():
    """ONNX Runtime has no kernel for it on CPUs."""
    inputs, w = {"x": normal(1, 5, 6, 3)}, normal(4, 2, 2, 3)
    rows = np.lib.stride_tricks.sliding_window_view(inputs["x"], (2, 2), (1, 2))
    expected = np.einsum("nhwcij,oijc->nhwo", rows, w) + 0.5
    constants = {"w": w, "b": np.full(4, 0.5, np.float32)}
    check(contrib("NhwcConv", inputs, constants=constants), inputs, [expected], 1e-4, 1e-5)


UNSUPPORTED: list[tuple[Callable[[], onnx.ModelProto], str]] = [
    (lambda: contrib("Attention", given((1, 2, 6), (6, 12)), num_heads=2, do_rotary=1), "rotary"),
    (
        lambda: contrib(
            "FusedConv", given((1, 2, 5, 5), (4, 2, 3, 3)), activation="Cubic", pads=[1] * 4
        ),
        "activation 'Cubic'",
    ),
    (
        lambda: contrib("MatMulNBits", {"a": normal(2, 16), "b": uint8(1, 1, 6), "s": positive(1)},
                        N=1, K=16, bits=3, block_size=16),
        "numbers of 3 bits",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "message"), UNSUPPORTED)
def test_what_is_not_supported(model, message):
    with pytest.raises(UnsupportedError, match=message):
        load(model())
