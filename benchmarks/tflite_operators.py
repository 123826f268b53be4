"""Generated TFLite models of one operator: for each builtin operator that LiteRT has, cases of
several shapes, types and options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from tflite_models import ModelWriter

F32, I8, U8, I16, I32, I64 = np.float32, np.int8, np.uint8, np.int16, np.int32, np.int64
QUANTISED = (I8, U8, I16)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FIXED = {
    "LOGISTIC": {I8: (1 / 256, -128), U8: (1 / 256, 0), I16: (1 / 32768, 0)},
    "SOFTMAX": {I8: (1 / 256, -128), U8: (1 / 256, 0), I16: (1 / 32768, 0)},
    "TANH": {I8: (1 / 128, 0), U8: (1 / 128, 128), I16: (1 / 32768, 0)},
    "LOG_SOFTMAX": {I8: (16 / 256, 127), U8: (16 / 256, 255)},
    "L2_NORMALIZATION": {I8: (1 / 128, 0), U8: (1 / 128, 128)},
}
"""Scales and zero points of results that TFLite prescribes."""


@dataclass(frozen=True)
class Operand:
    """An input or output: its value (of an output, an example of it), whether it is stored, and its
    scale and zero point.
    """

    array: np.ndarray
    is_stored: bool = False
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    is_variable: bool = False


@dataclass(frozen=True)
class Case:
    """A model of one operator.

    number: its place among the operator's cases.
    """

    operator: str
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    options: str = ""
    values: tuple[tuple[str, Any], ...] = ()
    number: int = 0
    bodies: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.operator} {self.number}"

    def content(self, shapes: Sequence[Sequence[int]] | None = None) -> bytes:
        """The model's bytes.  `shapes`: of the outputs, if they are known."""
        model = ModelWriter()
        g = model.graph()

        def declared(o: Operand, name: str, shape: Sequence[int] | None = None) -> int:
            scales = {} if o.scale is None else {"scale": o.scale, "zero": o.zero, "axis": o.axis}
            if o.is_stored:
                return g.const(o.array, name=name, **scales)
            if o.is_variable:
                return g.tensor(o.array.shape, o.array.dtype, name, is_variable=True, **scales)
            shape = o.array.shape if shape is None else shape
            return g.tensor(shape, o.array.dtype, name, **scales)

        numbers = [-1 if o is None else declared(o, f"x{i}") for i, o in enumerate(self.inputs)]
        for o, number in zip(self.inputs, numbers, strict=True):
            if o is not None and not o.is_stored and not o.is_variable:
                g.table["inputs"].append(number)
        made = [
            declared(o, f"y{i}", None if shapes is None else shapes[i])
            for i, o in enumerate(self.outputs)
        ]
        g.op(self.operator, numbers, made, self.options, **dict(self.values))
        g.output(*made)
        for kind in self.bodies:
            body = model.graph(kind)
            of = [body.input((), self.inputs[0].array.dtype) for _ in range(2)]  # type: ignore[union-attr]
            y = body.tensor((), self.inputs[0].array.dtype)  # type: ignore[union-attr]
            body.op(kind, of, [y])
            body.output(y)
        return model.bytes()

    @property
    def given(self) -> list[np.ndarray]:
        """The values of the inputs that a caller gives."""
        return [
            o.array for o in self.inputs if o is not None and not o.is_stored and not o.is_variable
        ]


class Drawer:
    """Random operands of one operator."""

    def __init__(self, operator: str, seed: int) -> None:
        self.operator, self.rng = operator, np.random.default_rng(seed)

    def of(
        self, shape: Sequence[int], dtype: Any = F32, low: float = -9, high: float = 9
    ) -> Operand:
        """Numbers of a type; integers of 8 and 16 bits are quantised, over their whole range."""
        if dtype is F32:
            x = self.rng.normal(0, 1, shape) if low == -9 else self.rng.uniform(low, high, shape)
            return Operand(x.astype(F32))
        if dtype is np.bool_:
            return Operand(self.rng.random(shape) < 0.5)
        if dtype in QUANTISED:
            info = np.iinfo(dtype)
            x = self.rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            return Operand(x, False, *self.scale(dtype))
        return Operand(self.rng.integers(low, high, shape, dtype, endpoint=True))

    def scale(self, dtype: Any) -> tuple[float, int]:
        zero = 0 if dtype is I16 else int(self.rng.integers(-9, 10)) + (128 if dtype is U8 else 0)
        size = 2.0**-13 if dtype is I16 else 2.0**-5
        return float(np.float32(self.rng.uniform(0.5, 1.5) * size)), zero

    def result(self, dtype: Any, like: Operand | None = None) -> Operand:
        """An output of a type; a quantised one has a scale of its own, or that of `like`."""
        y = np.zeros((), dtype)
        if dtype not in QUANTISED:
            return Operand(y)
        if like is not None and like.scale is not None:
            return Operand(y, False, like.scale, like.zero)
        return Operand(y, False, *_FIXED.get(self.operator, {}).get(dtype, self.scale(dtype)))


def stored(value: Any, dtype: Any = I32) -> Operand:
    return Operand(np.asarray(value, dtype), True)


Row = tuple[Sequence[Operand | None], Sequence[Operand], str, dict[str, Any]]
SHAPES = ((2, 3, 4), (1, 7), (1, 4, 5, 3))
PAIRS = (((2, 3, 4), (2, 3, 4)), ((2, 1, 4), (3, 1)), ((1, 3, 2, 4), (4,)), ((3,), ()))


def _option_name(operator: str) -> str:
    return "".join(w.capitalize() for w in operator.split("_")) + "Options"


UNARY = _names("""
ABS CEIL COS ELU EXP FLOOR GELU HARD_SWISH LOG LOGISTIC NEG RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1
ROUND RSQRT SIGN SIN SQRT SQUARE TANH ZEROS_LIKE LOG_SOFTMAX L2_NORMALIZATION
""")
KEEPS_SCALE = {"ABS", "ZEROS_LIKE"}
BINARY = _names("""
ADD SUB MUL DIV MAXIMUM MINIMUM POW SQUARED_DIFFERENCE FLOOR_DIV FLOOR_MOD ATAN2 BITWISE_XOR
RIGHT_SHIFT LOGICAL_OR LOGICAL_AND STABLEHLO_ADD STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM
STABLEHLO_MINIMUM
""")
FUSING = {"ADD", "SUB", "MUL", "DIV"}
COMPARISONS = ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"]
REDUCTIONS = ["SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"]


def _unary(d: Drawer) -> Iterator[Row]:
    low = 0.05 if d.operator in ("LOG", "RSQRT", "SQRT") else -9
    for shape, dtype in product(SHAPES, (F32, I32, I64, *QUANTISED)):
        x = d.of(shape, dtype, low if dtype is F32 else -9)
        if d.operator in ("LOG", "RSQRT", "SQRT") and x.scale is not None:
            x = replace(x, zero=int(np.iinfo(dtype).min))
        yield [x], [d.result(dtype, x if d.operator in KEEPS_SCALE else None)], "", {}


def _binary(d: Drawer) -> Iterator[Row]:
    signs = ("DIV", "FLOOR_DIV", "FLOOR_MOD", "POW", "RIGHT_SHIFT")
    for (a, b), dtype in product(PAIRS, (F32, I32, I64, np.bool_, *QUANTISED)):
        low = (0.2 if dtype is F32 else 1) if d.operator in signs else -9
        x, y = d.of(a, dtype, 0.2 if d.operator == "POW" else -9), d.of(b, dtype, low, 4)
        if d.operator == "DIV" and y.scale is not None:
            y = replace(y, array=np.where(y.array == y.zero, y.zero + 1, y.array).astype(dtype))
        if d.operator in ("MAXIMUM", "MINIMUM") and x.scale is not None:
            y = replace(y, scale=x.scale, zero=x.zero)
        like = x if d.operator in ("MAXIMUM", "MINIMUM") else None
        options = _option_name(d.operator) if d.operator in FUSING else ""
        for act in (0, 1, 3) if d.operator in FUSING and a == PAIRS[0][0] else (0,):
            values = {"fused_activation_function": act} if options else {}
            yield [x, y], [d.result(dtype, like)], options, values


def _comparison(d: Drawer) -> Iterator[Row]:
    for (a, b), dtype in product(PAIRS[:3], (F32, I32, I64, np.bool_, *QUANTISED)):
        yield [d.of(a, dtype), d.of(b, dtype)], [Operand(np.zeros((), np.bool_))], "", {}


def _reduction(d: Drawer) -> Iterator[Row]:
    dtypes = (
        (np.bool_,) if d.operator in ("REDUCE_ANY", "REDUCE_ALL") else (F32, I32, I64, *QUANTISED)
    )
    for axes, keep, dtype in product(([1], [0, 2], [-1], [2, 1]), (True, False), dtypes):
        x = d.of((2, 3, 4), dtype, -2, 2)
        like = x if d.operator in ("REDUCE_MAX", "REDUCE_MIN") else None
        yield [x, stored(axes)], [d.result(dtype, like)], "ReducerOptions", {"keep_dims": keep}


def _images(d: Drawer) -> Iterator[Row]:
    """Convolutions and pools."""
    operator, transposed = d.operator, d.operator == "TRANSPOSE_CONV"
    is_pool = operator.endswith("POOL_2D")
    is_depthwise = operator == "DEPTHWISE_CONV_2D"
    grid = product((F32, *QUANTISED, "hybrid"), ((1, 1, 1), (2, 1, 1), (1, 2, 2)), (0, 1), (0, 3))
    for dtype, (stride, step_h, step_w), padding, act in grid:
        kind = F32 if dtype == "hybrid" else dtype
        x = d.of((2, 7, 6, 4), kind)
        strides = {"padding": padding, "stride_w": stride, "stride_h": stride}
        if is_pool:
            if step_h > 1 or dtype == "hybrid":
                continue
            values = {**strides, "filter_width": 2, "filter_height": 3}
            y = d.result(kind, x)
            yield [x], [y], "Pool2DOptions", {**values, "fused_activation_function": act}
            continue
        shape = (1, 3, 2, 8) if is_depthwise else (8, 3, 2, 4)
        w = d.of(shape, I8 if dtype in (I8, I16, "hybrid") else kind)
        least = -127 if w.array.dtype == I8 else w.array.min()
        w = replace(w, array=np.maximum(w.array, least), is_stored=True)
        bias = Operand(d.rng.normal(0, 1, 8).astype(F32), True)
        if dtype in QUANTISED:
            channels = np.asarray(d.rng.uniform(0.01, 0.05, 8), F32)
            if dtype is not U8:
                w = replace(w, scale=channels, zero=0, axis=3 if is_depthwise else 0)
            of = np.float32(x.scale) * np.asarray(w.scale, F32)
            numbers = d.rng.integers(-999, 999, 8).astype(I64 if dtype is I16 else I32)
            bias = Operand(numbers, True, of, 0)
        elif is_depthwise:  # TFLite's hybrid kernel reads a scale for each channel
            w = replace(w, scale=np.asarray(d.rng.uniform(0.01, 0.05, 8), F32), zero=0, axis=3)
        elif dtype == "hybrid":
            w = replace(w, zero=0)
        y = d.result(kind)
        if dtype in QUANTISED:
            y = replace(y, scale=y.scale * 8)
        if transposed:
            if step_h > 1:
                continue
            size = [7, 6] if stride == 1 else [14, 12]
            if padding:
                size = [(7 - 1) * stride + 3, (6 - 1) * stride + 2]
            row = [stored([2, *size, 8]), w, x, bias]
            yield row, [y], "TransposeConvOptions", strides
            continue
        values = {**strides, "dilation_h_factor": step_h, "dilation_w_factor": step_w}
        values["fused_activation_function"] = act
        if is_depthwise:
            values["depth_multiplier"] = 2
        name = "DepthwiseConv2DOptions" if is_depthwise else "Conv2DOptions"
        yield [x, w, bias], [y], name, values


def _fully_connected(d: Drawer) -> Iterator[Row]:
    for dtype, act, keep in product((F32, *QUANTISED, "hybrid"), (0, 1), (False, True)):
        kind = F32 if dtype == "hybrid" else dtype
        x = d.of((2, 3, 10), kind)
        w = d.of((6, 10), I8 if dtype in (I8, I16, "hybrid") else kind)
        w = replace(w, is_stored=True, zero=0 if dtype is not U8 else w.zero)
        bias = Operand(d.rng.normal(0, 1, 6).astype(F32), True)
        y = d.result(kind)
        if dtype in QUANTISED:
            numbers = d.rng.integers(-99, 99, 6).astype(I64 if dtype is I16 else I32)
            bias = Operand(numbers, True, float(np.float32(x.scale) * np.float32(w.scale)), 0)
            y = replace(y, scale=y.scale * 8)
        values = {"fused_activation_function": act, "keep_num_dims": keep}
        yield [x, w, bias], [y], "FullyConnectedOptions", values


def _batch_matmul(d: Drawer) -> Iterator[Row]:
    for dtype, ax, ay in product((F32, I8, I16), (False, True), (False, True)):
        x = d.of((2, 5, 4) if ax else (2, 4, 5), dtype)
        y = d.of((2, 6, 5) if ay else (2, 5, 6), dtype)
        z = d.result(dtype)
        if z.scale is not None:
            z = replace(z, scale=z.scale * 16)
        yield [x, y], [z], "BatchMatMulOptions", {"adj_x": ax, "adj_y": ay}


_NUMBERS = (F32, I32, I64, I8, U8, I16, np.bool_)


def _moves(d: Drawer) -> Iterator[Row]:
    """Operators that move elements."""
    k, f = d.operator, stored
    for dtype in _NUMBERS:
        x, x4 = d.of((2, 3, 4), dtype), d.of((1, 4, 6, 8), dtype)
        y = [d.result(dtype, x)]
        y4 = [d.result(dtype, x4)]
        more = replace(d.of((2, 5, 4), dtype), scale=x.scale, zero=x.zero)
        rows: dict[str, list[Row]] = {
            "RESHAPE": [([x, f([4, -1])], y, "ReshapeOptions", {"new_shape": [4, -1]})],
            "TRANSPOSE": [([x, f(p)], y, "", {}) for p in ([2, 0, 1], [1, 0, 2])],
            "CONCATENATION": [([x, more], y, "ConcatenationOptions", {"axis": a}) for a in (1, -2)],
            "PAD": [([x, f(p)], y, "", {}) for p in ([[0, 1], [2, 0], [1, 1]], [[0, 0]] * 3)],
            "PADV2": [([x, f([[0, 1], [2, 0], [1, 1]]),
                        replace(d.of((), dtype), is_stored=True, scale=x.scale, zero=x.zero)],
                       y, "", {})],
            "MIRROR_PAD": [([x, f([[0, 1], [2, 0], [1, 1]])], y, "MirrorPadOptions", {"mode": m})
                           for m in (0, 1)],
            "SLICE": [([x, f([0, 1, 1]), f([2, -1, 2])], y, "", {})],
            "STRIDED_SLICE": [([x, f(b), f(e), f(s)], y, "StridedSliceOptions", v)
                              for b, e, s, v in (
                                  ([0, 1, 0], [2, 3, 4], [1, 1, 2], {}),
                                  ([1, 2, 3], [0, 0, 0], [-1, -1, -2], {"end_mask": 4}),
                                  ([1, 0, 0], [2, 3, 4], [1, 1, 1], {"shrink_axis_mask": 1}),
                                  ([0, 0], [0, 2], [1, 1], {"ellipsis_mask": 1}))],
            "SPLIT": [([f(1), d.of((2, 6, 4), dtype)], y * 3, "SplitOptions", {"num_splits": 3})],
            "SPLIT_V": [([d.of((2, 6, 4), dtype), f([1, 3, 2]), f(1)], y * 3, "SplitVOptions",
                         {"num_splits": 3})],
            "PACK": [([x, replace(x)], y, "PackOptions", {"axis": a, "values_count": 2})
                     for a in (0, 2, -1)],
            "UNPACK": [([x], y * n, "UnpackOptions", {"axis": a, "num": n})
                       for a, n in ((0, 2), (-2, 3))],
            "SQUEEZE": [([d.of((2, 1, 3, 1), dtype)], y, "SqueezeOptions", {"squeeze_dims": a})
                        for a in ([1], [])],
            "EXPAND_DIMS": [([x, f(a)], y, "", {}) for a in (1, -1)],
            "TILE": [([x, f([2, 1, 3])], y, "", {})],
            "BROADCAST_TO": [([d.of((3, 1), dtype), f([2, 3, 4])], y, "", {})],
            "GATHER": [([x, f([2, 0])], y, "GatherOptions", {"axis": 1}),
                       ([x, f([[1, 0]])], y, "GatherOptions", {"axis": 0}),
                       ([x, f([[2, 0], [1, 1]])], y, "GatherOptions",
                        {"axis": 1, "batch_dims": 1})],
            "GATHER_ND": [([x, f([[1, 2], [0, 0]])], y, "", {})],
            "SCATTER_ND": [([f([[1], [3], [1]]), d.of((3, 4), dtype), f([5, 4])], y, "", {})],
            "REVERSE_V2": [([x, f([1])], y, "", {})],
            "REVERSE_SEQUENCE": [([x, f([2, 3])], y, "ReverseSequenceOptions",
                                  {"seq_dim": 1, "batch_dim": 0})],
            "SPACE_TO_DEPTH": [([x4], y4, "SpaceToDepthOptions", {"block_size": 2})],
            "DEPTH_TO_SPACE": [([x4], y4, "DepthToSpaceOptions", {"block_size": 2})],
            "SPACE_TO_BATCH_ND": [([x4, f([2, 3]), f([[0, 0], [1, 2]])], y4, "", {})],
            "BATCH_TO_SPACE_ND": [([d.of((6, 2, 3, 4), dtype), f([2, 3]), f([[0, 1], [1, 0]])],
                                   y4, "", {})],
            "FILL": [([f([2, 3]), d.of((), dtype)], y, "", {})],
            "SELECT": [([d.of((2, 3, 4), np.bool_), x, replace(x)], y, "", {})],
            "SELECT_V2": [([d.of((3, 1), np.bool_), x, replace(x)], y, "", {})],
            "WHERE": [([x], [Operand(np.zeros((), I64))], "", {})],
            "ONE_HOT": [([f([0, 2, 1]), f(4), d.of((), dtype), d.of((), dtype)], y,
                         "OneHotOptions", {"axis": a}) for a in (-1, 0)],
            "MATRIX_DIAG": [([x], y, "", {})],
            "MATRIX_SET_DIAG": [([d.of((2, 3, 3), dtype), d.of((2, 3), dtype)], y, "", {})],
            "DYNAMIC_UPDATE_SLICE": [([x, d.of((1, 2, 2), dtype), f([1, 1, 0])], y, "", {})],
            "EMBEDDING_LOOKUP": [([f([1, 0, 1]), x], y, "", {})],
            "SPARSE_TO_DENSE": [([f([[0, 1], [2, 0]]), f([3, 2]), d.of((2,), dtype),
                                  d.of((), dtype)], y, "SparseToDenseOptions", {})],
            "UNIQUE": [([d.of((9,), dtype, 0, 3)], [*y, Operand(np.zeros((), I32))],
                        "UniqueOptions", {"idx_out_type": 2})],
            "TOPK_V2": [([x, f(2)], [*y, Operand(np.zeros((), I32))], "", {})],
            "ARG_MAX": [([x, f(a)], [Operand(np.zeros((), I32))], "ArgMaxOptions",
                         {"output_type": 2}) for a in (1, -1)],
            "ARG_MIN": [([x, f(a)], [Operand(np.zeros((), I64))], "ArgMinOptions",
                         {"output_type": 4}) for a in (1, -1)],
            "CUMSUM": [([x, f(1)], y, "CumsumOptions", {"exclusive": e, "reverse": r})
                       for e in (False, True) for r in (False, True)],
            "ADD_N": [([x, replace(x), replace(x)], y, "", {})],
            "SHAPE": [([x], [Operand(np.zeros((), I32))], "ShapeOptions", {"out_type": 2})],
            "RANK": [([x], [Operand(np.zeros((), I32))], "", {})],
            "DILATE": [([x, f([1, 3, 2]), d.of((), dtype)], y, "DilateOptions", {})],
            "STABLEHLO_PAD": [([x, d.of((), dtype)], y, "StablehloPadOptions",
                               {"edge_padding_low": [0, 1, 2], "edge_padding_high": [1, 0, 0],
                                "interior_padding": [0, 2, 0]})],
            "STABLEHLO_GATHER": [([x, f([[1, 0], [0, 2]])], y, "StablehloGatherOptions",
                                  {"offset_dims": [1], "collapsed_slice_dims": [0, 1],
                                   "start_index_map": [0, 1], "index_vector_dim": 1,
                                   "slice_sizes": [1, 1, 4]})],
            "SEGMENT_SUM": [([x, f([0, 0])], y, "", {})],
            **{f"UNSORTED_SEGMENT_{n}": [([d.of((4, 3), dtype), f([1, 0, 1, 2]), f(4)], y, "", {})]
               for n in ("SUM", "PROD", "MAX", "MIN")},
            "CAST": [([x], [d.result(t)], "", {}) for t in (F32, I32, I64, np.bool_)],
            "BITCAST": [([x], [Operand(np.zeros((), F32 if dtype is I32 else I32))], "", {})],
            "LEAKY_RELU": [([x], [d.result(dtype)], "LeakyReluOptions", {"alpha": 0.25})],
            "PRELU": [([x, replace(d.of((1, 1, 4), dtype), is_stored=True)], [d.result(dtype)], "",
                       {})],
            "SOFTMAX": [([d.of(s, dtype)], [d.result(dtype)], "SoftmaxOptions", {"beta": b})
                        for s, b in (((2, 5), 1.0), ((2, 3, 4), 0.5))],
            "LOGICAL_NOT": [([x], y, "", {})],
            "BROADCAST_ARGS": [([f([2, 1, 4]), f([3, 1])], [Operand(np.zeros((), I32))], "", {})],
        }  # fmt: skip
        yield from rows[k]


def _resizes(d: Drawer) -> Iterator[Row]:
    for dtype, size, (corners, half) in product(
        (F32, *QUANTISED), ([6, 4], [3, 9]), ((False, False), (True, False), (False, True))
    ):
        x = d.of((2, 4, 5, 3), dtype)
        options = (
            "ResizeBilinearOptions" if "BILINEAR" in d.operator else "ResizeNearestNeighborOptions"
        )
        values = {"align_corners": corners, "half_pixel_centers": half}
        yield [x, stored(size)], [d.result(dtype, x)], options, values


def _rest(d: Drawer) -> Iterator[Row]:
    """Operators of floats with inputs of their own."""
    f = stored

    def w(*shape: int) -> Operand:
        return replace(d.of(shape), is_stored=True)

    def variable(*shape: int) -> Operand:
        return Operand(np.zeros(shape, F32), is_variable=True)

    def lstm(inputs: int, cells: int, form: int) -> list[Operand | None]:
        gates: list[Operand | None] = [*(w(cells, inputs) for _ in range(4)),
                                       *(w(cells, cells) for _ in range(4))]  # fmt: skip
        peepholes = [w(cells) if form == 1 else None for _ in range(3)]
        if form == 2:
            gates[0] = gates[4] = None
        biases = [None if form == 2 and i == 0 else w(cells) for i in range(4)]
        return [*gates, *peepholes, *biases, None, None, variable(2, cells), variable(2, cells)]

    x = d.of((2, 5, 4))
    y = [Operand(np.zeros((), F32))]
    of_step = [w(6, 4), w(6, 6), w(6)]
    boxes = np.sort(d.rng.random((6, 2, 2)), axis=1).reshape(6, 4).astype(F32)
    i32, count = Operand(np.zeros((), I32)), Operand(np.zeros((), I32))
    suppression = [Operand(boxes), d.of((6,), F32, 0, 1), f(4), f(0.5, F32), f(0.1, F32)]
    rows: dict[str, list[Row]] = {
        "RNN": [([d.of((2, 4)), *of_step, variable(2, 6)], y, "RNNOptions",
                 {"fused_activation_function": a}) for a in (0, 1, 4)],
        "UNIDIRECTIONAL_SEQUENCE_RNN": [
            ([x, *of_step, variable(b, 6)], y, "SequenceRNNOptions",
             {"time_major": b == 5, "fused_activation_function": 4}) for b in (2, 5)],
        "BIDIRECTIONAL_SEQUENCE_RNN": [
            ([x, *of_step, variable(2, 6), w(6, 4), w(6, 6), w(6), variable(2, 6), *[None] * 3],
             y * (1 if m else 2), "BidirectionalSequenceRNNOptions",
             {"merge_outputs": m, "fused_activation_function": 1}) for m in (True, False)],
        "UNIDIRECTIONAL_SEQUENCE_LSTM": [
            ([x, *lstm(4, 3, form)], y, "UnidirectionalSequenceLSTMOptions",
             {"fused_activation_function": 4, "cell_clip": c})
            for form in (0, 1, 2) for c in (0, 1)],
        "LSTM": [([d.of((2, 4)), *lstm(4, 3, form)], y, "LSTMOptions",
                  {"fused_activation_function": 4, "cell_clip": 0.5}) for form in (0, 1, 2)],
        "SVDF": [([d.of((2, 4)), w(6, 4), w(6, 5), w(6 // r), variable(2, 30)], y, "SVDFOptions",
                  {"rank": r, "fused_activation_function": a}) for r in (1, 2) for a in (0, 1)],
        "LOCAL_RESPONSE_NORMALIZATION": [([d.of((1, 3, 3, 8))], y,
                                          "LocalResponseNormalizationOptions",
                                          {"radius": r, "bias": 1.0, "alpha": 0.5, "beta": 0.75})
                                         for r in (1, 3)],
        "CONV_3D": [([d.of((1, 4, 5, 6, 2)), w(2, 3, 2, 2, 3), w(3)], y, "Conv3DOptions",
                     {"padding": p, "stride_d": 1, "stride_w": 2, "stride_h": 1,
                      "fused_activation_function": 1}) for p in (0, 1)],
        "CONV_3D_TRANSPOSE": [([f([1, 4, 5, 6, 3]), w(2, 3, 2, 3, 2), d.of((1, 4, 5, 6, 2))], y,
                               "Conv3DOptions", {"stride_d": 1, "stride_w": 1, "stride_h": 1})],
        "BUCKETIZE": [([d.of((3, 4), t)], [Operand(np.zeros((), I32))], "BucketizeOptions",
                       {"boundaries": np.array([-1, 0, 0.5], F32)}) for t in (F32, I32, I64)],
        "FAKE_QUANT": [([x], y, "FakeQuantOptions", {"min": a, "max": b, "num_bits": 8})
                       for a, b in ((-1.0, 2.0), (0.0, 1.0))],
        "RANGE": [([f(a, t), f(b, t), f(s, t)], [Operand(np.zeros((), t))], "", {})
                  for a, b, s, t in ((0, 9, 2, I32), (5, -4, -3, I64), (0.5, 3, 0.75, F32))],
        "EMBEDDING_LOOKUP_SPARSE": [([f([1, 3, 0]), f([[0, 0], [2, 0], [2, 1]]), f([3, 2]),
                                      f([1, 2, 0.5], F32), d.of((4, 5))], y,
                                     "EmbeddingLookupSparseOptions", {"combiner": c})
                                    for c in (0, 1, 2)],
        "NON_MAX_SUPPRESSION_V4": [(suppression, [i32, count], "", {})],
        "NON_MAX_SUPPRESSION_V5": [([*suppression, f(s, F32)], [i32, y[0], count], "", {})
                                   for s in (0, 0.5)],
        "QUANTIZE": [([x], [d.result(t)], "", {}) for t in QUANTISED]
        + [([d.of((2, 5, 4), a)], [d.result(b)], "", {}) for a in QUANTISED for b in QUANTISED],
        "DEQUANTIZE": [([d.of((2, 5, 4), t)], y, "", {}) for t in QUANTISED]
        + [([Operand(x.array.astype(np.float16), True)], y, "", {})],
        "HASHTABLE_LOOKUP": [([f([3, 9, 1]), f([1, 3, 4]), d.of((3, 5))],
                              [y[0], Operand(np.zeros((), U8))], "", {})],
    }  # fmt: skip
    yield from rows[d.operator]


def _windows(d: Drawer) -> Iterator[Row]:
    x, init = d.of((4, 5, 3)), stored(0.5, F32)
    y = [Operand(np.zeros((), F32))]
    if d.operator == "REDUCE_WINDOW":
        lists = [stored(v, I64) for v in ([2, 3, 1], [1, 2, 1], [2, 1, 1])]
        for number in (1, 2, 3, 4):
            yield [x, init, *lists], y, "ReduceWindowOptions", {"reduce_function": number}
        return
    values = {"window_dimensions": [1, 3, 2], "window_strides": [1, 2, 1],
              "base_dilations": [1] * 3, "window_dilations": [2, 1, 1],
              "padding": [0, 0, 1, 2, 0, 1]}  # fmt: skip
    for kind in ("ADD", "MUL", "MAXIMUM", "MINIMUM"):
        options = {**values, "body_subgraph_index": 1, "body": kind}
        yield [x, init], y, "StablehloReduceWindowOptions", options


_MOVING = _names("""
RESHAPE TRANSPOSE CONCATENATION PAD PADV2 MIRROR_PAD SLICE STRIDED_SLICE SPLIT SPLIT_V PACK UNPACK
SQUEEZE EXPAND_DIMS TILE BROADCAST_TO GATHER GATHER_ND SCATTER_ND REVERSE_V2 REVERSE_SEQUENCE
SPACE_TO_DEPTH DEPTH_TO_SPACE SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND FILL SELECT SELECT_V2 WHERE
ONE_HOT MATRIX_DIAG MATRIX_SET_DIAG DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP SPARSE_TO_DENSE UNIQUE
TOPK_V2 ARG_MAX ARG_MIN CUMSUM ADD_N SHAPE RANK DILATE STABLEHLO_PAD STABLEHLO_GATHER SEGMENT_SUM
UNSORTED_SEGMENT_SUM UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN CAST BITCAST
LEAKY_RELU PRELU SOFTMAX LOGICAL_NOT BROADCAST_ARGS
""")
_OF_REST = _names("""
RNN UNIDIRECTIONAL_SEQUENCE_RNN BIDIRECTIONAL_SEQUENCE_RNN UNIDIRECTIONAL_SEQUENCE_LSTM LSTM SVDF
LOCAL_RESPONSE_NORMALIZATION CONV_3D CONV_3D_TRANSPOSE BUCKETIZE FAKE_QUANT RANGE
EMBEDDING_LOOKUP_SPARSE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 QUANTIZE DEQUANTIZE
HASHTABLE_LOOKUP
""")
FAMILIES = {
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(
        ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "AVERAGE_POOL_2D", "MAX_POOL_2D",
         "L2_POOL_2D"), _images,
    ),
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    **dict.fromkeys(_MOVING, _moves),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resizes),
    **dict.fromkeys(("REDUCE_WINDOW", "STABLEHLO_REDUCE_WINDOW"), _windows),
    **dict.fromkeys(_OF_REST, _rest),
}  # fmt: skip
"""For each operator the function that draws its cases."""


def cases(words: Sequence[str] = ()) -> list[Case]:
    """All cases, or those of operators whose names contain one of `words`."""
    made = []
    for place, (operator, family) in enumerate(sorted(FAMILIES.items())):
        if words and not any(w in operator for w in words):
            continue
        for number, (inputs, outputs, options, values) in enumerate(
            family(Drawer(operator, place))
        ):
            bodies = (values.pop("body"),) if "body" in values else ()
            row = tuple(inputs), tuple(outputs), options, tuple(values.items())
            made.append(Case(operator, *row, number, bodies))
    return made
