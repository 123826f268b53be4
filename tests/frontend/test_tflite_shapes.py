"""TFLite's operators on shapes, slices and blocks against its reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_cases import check_operator, one_operator

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RNG.standard_normal((2, 4, 6, 8)).astype(np.float32)
BYTES = RNG.integers(-128, 128, (2, 3, 4)).astype(np.int8)


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int32)


def scalar(number: int) -> np.ndarray:
    return np.array(number, np.int32)


CASES: list[tuple[str, list[np.ndarray], list[tuple[int, ...]], str, dict[str, Any]]] = [
    ("RESHAPE", [X, ints(6, -1)], [(6, 4)], "ReshapeOptions", {}),
    ("RESHAPE", [X, ints(4, -1)], [(4, 6)], "", {}),
    ("RESHAPE", [X], [(2, 12)], "ReshapeOptions", {"new_shape": [2, -1]}),
    ("RESHAPE", [X[:1, :1, :1]], [()], "ReshapeOptions", {"new_shape": [0]}),
    ("SQUEEZE", [X[:1, :, :1]], [(3,)], "SqueezeOptions", {}),
    ("SQUEEZE", [X[:1, :, :1]], [(1, 3)], "SqueezeOptions", {"squeeze_dims": [-1]}),
    ("EXPAND_DIMS", [X, scalar(1)], [(2, 1, 3, 4)], "", {}),
    ("EXPAND_DIMS", [X, ints(-1)], [(2, 3, 4, 1)], "", {}),
    ("TRANSPOSE", [X, ints(2, 0, 1)], [(4, 2, 3)], "", {}),
    ("PACK", [X, X + 1], [(2, 2, 3, 4)], "PackOptions", {"values_count": 2}),
    ("PACK", [X, X + 1], [(2, 3, 4, 2)], "PackOptions", {"values_count": 2, "axis": -1}),
    ("PACK", [X[0, 0, 0], X[0, 0, 1]], [(2,)], "PackOptions", {"values_count": 2}),
    ("UNPACK", [X], [(2, 4)] * 3, "UnpackOptions", {"num": 3, "axis": 1}),
    ("UNPACK", [X], [(2, 3)] * 4, "UnpackOptions", {"num": 4, "axis": -1}),
    ("CONCATENATION", [X, X[:, :1]], [(2, 4, 4)], "ConcatenationOptions", {"axis": 1}),
    ("CONCATENATION", [X, X, X], [(2, 3, 12)], "ConcatenationOptions", {"axis": -1}),
    ("SPLIT", [scalar(2), X], [(2, 3, 2)] * 2, "SplitOptions", {"num_splits": 2}),
    ("SPLIT", [scalar(-2), X], [(2, 1, 4)] * 3, "SplitOptions", {"num_splits": 3}),
    ("SPLIT_V", [X, ints(1, 3), scalar(2)], [(2, 3, 1), (2, 3, 3)], "SplitVOptions",
     {"num_splits": 2}),
    ("SPLIT_V", [X, ints(-1, 1), scalar(1)], [(2, 2, 4), (2, 1, 4)], "SplitVOptions",
     {"num_splits": 2}),
    ("TILE", [X, ints(2, 1, 3)], [(4, 3, 12)], "", {}),
    ("BROADCAST_TO", [X[:, :1], ints(5, 2, 3, 4)], [(5, 2, 3, 4)], "", {"version": 2}),
    ("FILL", [ints(2, 3), X[0, 0, 0]], [(2, 3)], "", {}),
    ("ZEROS_LIKE", [X], [(2, 3, 4)], "", {}),
    ("SLICE", [X, ints(0, 1, 2), ints(2, -1, 1)], [(2, 2, 1)], "", {}),
    ("PAD", [X, ints([0, 0], [1, 2], [3, 0])], [(2, 6, 7)], "", {}),
    ("PADV2", [X, ints([0, 0], [1, 2], [3, 0]), X[0, 0, 0]], [(2, 6, 7)], "", {}),
    ("MIRROR_PAD", [X, ints([0, 0], [1, 2], [3, 0])], [(2, 6, 7)], "MirrorPadOptions",
     {"mode": 0}),
    ("MIRROR_PAD", [X, ints([0, 0], [1, 3], [4, 0])], [(2, 7, 8)], "MirrorPadOptions",
     {"mode": 1}),
    ("REVERSE_V2", [X, ints(1)], [(2, 3, 4)], "", {}),
    ("REVERSE_SEQUENCE", [X, ints(1, 3)], [(2, 3, 4)], "ReverseSequenceOptions",
     {"seq_dim": 1, "batch_dim": 0}),
    ("REVERSE_SEQUENCE", [X, ints(2, 0, 4)], [(2, 3, 4)], "ReverseSequenceOptions",
     {"seq_dim": 2, "batch_dim": 1}),
    ("DYNAMIC_UPDATE_SLICE", [X, X[:, :1, :2] + 9, ints(0, 1, 3)], [(2, 3, 4)], "", {}),
    ("DYNAMIC_UPDATE_SLICE", [X, X[:, :2] + 9, ints(0, 1, 0)], [(2, 3, 4)], "", {}),
    ("SPACE_TO_DEPTH", [IMAGE], [(2, 2, 3, 32)], "SpaceToDepthOptions", {"block_size": 2}),
    ("DEPTH_TO_SPACE", [IMAGE], [(2, 8, 12, 2)], "DepthToSpaceOptions", {"block_size": 2}),
    ("SPACE_TO_BATCH_ND", [IMAGE, ints(2, 3), ints([1, 1], [0, 0])], [(12, 3, 2, 8)], "", {}),
    ("SPACE_TO_BATCH_ND", [X, ints(2), ints([0, 1])], [(4, 2, 4)], "", {}),
    ("BATCH_TO_SPACE_ND", [IMAGE, ints(1, 2), ints([1, 0], [0, 3])], [(1, 3, 9, 8)], "", {}),
]  # fmt: skip
"""Operator, inputs of which those after the tensors are stored, shapes of outputs, options."""


def _stored(kind: str, inputs: list[np.ndarray]) -> list[int]:
    if kind in ("PACK", "CONCATENATION"):
        return []
    return [i for i, x in enumerate(inputs) if x.dtype == np.int32]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("kind", "inputs", "shapes", "options", "values"), CASES)
def test_known_operands(
    kind: str, inputs: list[np.ndarray], shapes: list[tuple[int, ...]], options: str,
    values: dict[str, Any], is_open: bool,
) -> None:  # fmt: skip
    if is_open and (kind == "BROADCAST_TO" or (kind == "SQUEEZE" and not values)):
        pytest.skip("an extent must be known to be 1")
    outputs = [(s, np.float32) for s in shapes]
    check_operator(
        kind, inputs, options, outputs=outputs, stored=_stored(kind, inputs), is_open=is_open,
        **values,
    )  # fmt: skip


NOT_OF_BYTES = ("FILL", "ZEROS_LIKE", "PADV2", "DYNAMIC_UPDATE_SLICE", "REVERSE_SEQUENCE")
"""Operators that TFLite does not have for them, or not in this form."""

COMPUTED = ("RESHAPE", "SPLIT_V", "TILE", "BROADCAST_TO", "FILL", "SLICE", "PAD", "PADV2",
            "REVERSE_SEQUENCE", "DYNAMIC_UPDATE_SLICE")  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "inputs", "shapes", "options", "values"),
    [c for c in CASES if c[0] in COMPUTED and len(c[1]) > 1],
)
def test_computed_operands(
    kind: str, inputs: list[np.ndarray], shapes: list[tuple[int, ...]], options: str,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Shapes, sizes and pads are inputs of the model."""
    outputs = [([-1] * len(s), np.float32) for s in shapes]
    stored = [2] if kind == "SPLIT_V" else []
    check_operator(kind, inputs, options, outputs=outputs, stored=stored, **values)


SLICES: list[tuple[list[int], list[int], list[int], Any, dict[str, Any]]] = [
    ([0, 1, 0], [2, 3, 4], [1, 1, 2], np.s_[:, 1:, ::2], {}),
    ([0, 1, 0], [9, 9, 9], [1, 1, 1], np.s_[:], {"begin_mask": 7}),
    ([1, 1, 1], [1, 1, 1], [1, 1, 1], np.s_[1:, 1:, 1:], {"end_mask": 7}),
    ([-1, -1, 3], [-3, 0, -9], [-1, -1, -2], np.s_[::-1, :0:-1, ::-2], {}),
    ([0, 0, 0], [0, 0, 0], [1, -1, -1], np.s_[:, ::-1, ::-1], {"begin_mask": 7, "end_mask": 7}),
    ([0, -1, 0], [2, 0, 4], [1, 1, 1], np.s_[:, -1], {"shrink_axis_mask": 2}),
    ([1, 1, 2], [2, 2, 3], [1, 1, 1], np.s_[1, 1, 2], {"shrink_axis_mask": 7}),
    ([1], [2], [1], np.s_[1:2], {}),
    ([0, 1], [1, 2], [1, 1], np.s_[..., 1:2], {"begin_mask": 1, "ellipsis_mask": 1}),
    ([0, 0, 1], [0, 0, 3], [1, 1, 1], np.s_[None, ..., 1:3],
     {"new_axis_mask": 1, "ellipsis_mask": 2}),
    ([1, 0, 0], [2, 0, 2], [1, 1, 1], np.s_[1, None, :2],
     {"new_axis_mask": 2, "shrink_axis_mask": 1}),
    ([0, 1, 1], [1, 2, 3], [1, 1, 1], np.s_[:1, 1:3, 1:], {"offset": True}),
]  # fmt: skip


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize(("begin", "end", "steps", "index", "masks"), SLICES)
def test_strided_slice(
    begin: list[int], end: list[int], steps: list[int], index: Any, masks: dict[str, Any],
    is_stored: bool, is_open: bool,
) -> None:  # fmt: skip
    """Against NumPy's indices, since LiteRT crashes on some of them."""
    inputs = [X, ints(*begin), ints(*end), ints(*steps)]
    stored = [1, 2, 3] if is_stored else [3]
    wanted = X[index]
    model = one_operator(
        "STRIDED_SLICE", inputs, [([-1] * wanted.ndim, np.float32)], "StridedSliceOptions",
        stored=stored, is_open=is_open, **masks,
    )  # fmt: skip
    given = [x for i, x in enumerate(inputs) if i not in stored]
    (result,) = evaluate(load(model), given).values()
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("case", [0, 3, 4, 5])
def test_strided_slice_like_litert(case: int) -> None:
    begin, end, steps, index, masks = SLICES[case]
    inputs = [X, ints(*begin), ints(*end), ints(*steps)]
    outputs = [(X[index].shape, np.float32)]
    check_operator("STRIDED_SLICE", inputs, "StridedSliceOptions", outputs=outputs,
                   stored=[1, 2, 3], **masks)  # fmt: skip


def test_shapes_as_values() -> None:
    check_operator("SHAPE", [X], "ShapeOptions", outputs=[((3,), np.int32)], out_type=2)
    check_operator("SHAPE", [X], "ShapeOptions", outputs=[((3,), np.int64)], out_type=4)
    check_operator("SHAPE", [X], "ShapeOptions", outputs=[((3,), np.int32)], out_type=2,
                   is_open=True)  # fmt: skip
    check_operator("RANK", [X], outputs=[((), np.int32)])
    for stored in ([0, 1], [0], []):
        check_operator("BROADCAST_ARGS", [ints(2, 1, 3), ints(4, 1)], outputs=[((3,), np.int32)],
                       stored=stored)  # fmt: skip


@pytest.mark.parametrize("stored", [[0, 1, 2], []])
@pytest.mark.parametrize("numbers", [(1, 9, 3), (9, 1, -2), (0.5, 3.0, 0.5)])
def test_range(numbers: tuple[float, ...], stored: list[int]) -> None:
    dtype = np.float32 if isinstance(numbers[0], float) else np.int32
    operands = [np.array(v, dtype) for v in numbers]
    count = len(np.arange(*numbers))
    check_operator("RANGE", operands, outputs=[((count if stored else -1,), dtype)], stored=stored)


@pytest.mark.parametrize(
    ("kind", "inputs", "shapes", "options", "values"),
    [c for c in CASES if c[0] not in NOT_OF_BYTES],
)
def test_quantised(
    kind: str, inputs: list[np.ndarray], shapes: list[tuple[int, ...]], options: str,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Stored integers move as they are; zeros are zero points."""
    stored = _stored(kind, inputs)
    bytes_of = [x if i in stored else (x * 30).astype(np.int8) for i, x in enumerate(inputs)]
    scale = (0.5, 7)
    check_operator(
        kind, bytes_of, options, outputs=[(s, np.int8) for s in shapes], stored=stored,
        quantized=[None if i in stored else scale for i in range(len(inputs))],
        quantized_outputs=[scale] * len(shapes), **values,
    )  # fmt: skip


def test_concatenation_of_different_scales() -> None:
    model = one_operator(
        "CONCATENATION", [BYTES, BYTES], [((2, 3, 8), np.int8)], "ConcatenationOptions", axis=2,
        quantized=[(0.5, 7), (0.25, 7)], quantized_outputs=[(0.5, 7)],
    )  # fmt: skip
    with pytest.raises(ts.ModelError, match="expected the scale and zero point of the result"):
        ts.compile(model)
