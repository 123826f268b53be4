"""TFLite's lookups, scatters and reductions against its reference kernels."""

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
NUMBERS = RNG.integers(-9, 10, (2, 3, 4)).astype(np.int32)
BYTES = NUMBERS.astype(np.int8)
MATRIX = RNG.standard_normal((5, 3)).astype(np.float32)


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int32)


def scalar(number: float, dtype: Any = np.int32) -> np.ndarray:
    return np.array(number, dtype)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(
    ("indices", "axis", "batch", "shape"),
    [
        (ints(1, 0, 1), 0, 0, (3, 3, 4)),
        (ints([1, 0], [2, 2]), 1, 0, (2, 2, 2, 4)),
        (scalar(2), -1, 0, (2, 3)),
        (ints([1, 0], [2, 2]), 1, 1, (2, 2, 4)),
        (ints([1, 0], [2, 3]), 2, 1, (2, 3, 2)),
        (ints([[0, 1]] * 3, [[2, 3]] * 3), 2, 2, (2, 3, 2)),
        (ints([1], [2]), -1, -1, (2, 3, 1)),
    ],
)
def test_gather(
    indices: np.ndarray, axis: int, batch: int, shape: tuple[int, ...], is_open: bool
) -> None:
    for x in (X, NUMBERS):
        check_operator(
            "GATHER", [x, indices], "GatherOptions", outputs=[(shape, x.dtype)], axis=axis,
            batch_dims=batch, is_open=is_open,
        )  # fmt: skip


CASES: list[tuple[str, list[np.ndarray], tuple[int, ...], Any, str, dict[str, Any]]] = [
    ("GATHER_ND", [X, ints([1, 0], [0, 2])], (2, 4), np.float32, "", {}),
    ("GATHER_ND", [X, ints(1, 0, 2)], (), np.float32, "", {}),
    ("ONE_HOT", [ints([1, 0], [-1, 5]), scalar(4), scalar(3.0, np.float32),
                 scalar(-1.0, np.float32)], (2, 2, 4), np.float32, "OneHotOptions", {"axis": -1}),
    ("ONE_HOT", [ints(1, 2), scalar(3), scalar(7), scalar(0)], (3, 2), np.int32,
     "OneHotOptions", {"axis": 0}),
    ("EMBEDDING_LOOKUP", [ints(2, 0, 4), MATRIX], (3, 3), np.float32, "", {}),
    ("WHERE", [NUMBERS > 0], (-1, 3), np.int64, "", {}),
    ("WHERE", [NUMBERS[0, 0] > 0], (-1, 1), np.int64, "", {}),
    ("ARG_MAX", [X, scalar(1)], (2, 4), np.int32, "ArgMaxOptions", {"output_type": 2}),
    ("ARG_MAX", [NUMBERS, scalar(-1)], (2, 3), np.int64, "ArgMaxOptions", {"output_type": 4}),
    ("ARG_MIN", [X, scalar(0)], (3, 4), np.int32, "ArgMinOptions", {"output_type": 2}),
    ("BUCKETIZE", [X], (2, 3, 4), np.int32, "BucketizeOptions", {"boundaries": [-1, 0, 0.5]}),
    ("BUCKETIZE", [NUMBERS], (2, 3, 4), np.int32, "BucketizeOptions", {"boundaries": [-3, 4]}),
    ("MATRIX_DIAG", [X], (2, 3, 4, 4), np.float32, "", {}),
    ("MATRIX_SET_DIAG", [X, X[:, :, 0]], (2, 3, 4), np.float32, "", {}),
    ("MATRIX_SET_DIAG", [MATRIX, MATRIX[:3, 0] + 1], (5, 3), np.float32, "", {}),
    ("SCATTER_ND", [ints([4], [1], [4]), MATRIX[:3], ints(6, 3)], (6, 3), np.float32, "", {}),
    ("SCATTER_ND", [ints([1, 2], [0, 0]), ints(5, 7), ints(2, 3)], (2, 3), np.int32, "", {}),
    ("SPARSE_TO_DENSE", [ints(1, 4), ints(6), X[0, 0, :2], X[0, 1, 0]], (6,), np.float32, "", {}),
    ("SPARSE_TO_DENSE", [ints([0, 1], [2, 0]), ints(3, 2), X[0, 0, :2], X[0, 1, 0]], (3, 2),
     np.float32, "", {}),
    ("SEGMENT_SUM", [MATRIX, ints(0, 0, 1, 1, 2)], (-1, 3), np.float32, "", {}),
    ("UNSORTED_SEGMENT_SUM", [MATRIX, ints(0, 2, 1, -1, 0), scalar(4)], (4, 3), np.float32, "",
     {}),
    ("UNSORTED_SEGMENT_PROD", [MATRIX, ints(0, 2, 1, -1, 0), scalar(4)], (4, 3), np.float32, "",
     {}),
    ("UNSORTED_SEGMENT_MAX", [NUMBERS[0], ints(0, 2, 2), scalar(3)], (3, 4), np.int32, "", {}),
    ("UNSORTED_SEGMENT_MIN", [MATRIX, ints(0, 2, 1, 1, 0), scalar(4)], (4, 3), np.float32, "",
     {}),
]  # fmt: skip
"""Operator, inputs, the output's shape and type, options."""


@pytest.mark.parametrize(("kind", "inputs", "shape", "dtype", "options", "values"), CASES)
def test_selection(
    kind: str, inputs: list[np.ndarray], shape: tuple[int, ...], dtype: Any, options: str,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """With stored shapes, axes and numbers, and with computed ones where TFLite takes them."""
    places = {"ONE_HOT": 1, "ARG_MAX": 1, "ARG_MIN": 1, "SCATTER_ND": 2, "SPARSE_TO_DENSE": 1}
    small = [places.get(kind, 2)] if kind in places or kind.startswith("UNSORTED") else []
    check_operator(kind, inputs, options, outputs=[(shape, dtype)], stored=small, **values)
    if kind not in ("ARG_MAX", "ARG_MIN") and small:
        dims = [-1] * len(shape)
        check_operator(kind, inputs, options, outputs=[(dims, dtype)], **values)


@pytest.mark.parametrize("kind", ["ARG_MAX", "MATRIX_DIAG", "WHERE", "BUCKETIZE"])
def test_open_dimensions(kind: str) -> None:
    _, inputs, shape, dtype, options, values = next(c for c in CASES if c[0] == kind)
    stored = [1] if len(inputs) > 1 else []
    check_operator(kind, inputs, options, outputs=[(shape, dtype)], stored=stored, is_open=True,
                   is_compiled=True, **values)  # fmt: skip


@pytest.mark.parametrize("stored", [[1], []])
@pytest.mark.parametrize("x", [X, NUMBERS, NUMBERS.astype(np.int64)])
def test_top_k(x: np.ndarray, stored: list[int]) -> None:
    dims = (2, 3, 2) if stored else (-1, -1, -1)
    outputs = [(dims, x.dtype), (dims, np.int32)]
    check_operator("TOPK_V2", [x, scalar(2)], outputs=outputs, stored=stored)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_unique(dtype: Any) -> None:
    x = np.array([3, 1, 3, 2, 1, 7, 2], dtype)
    outputs = [((-1,), dtype), ((7,), np.int32)]
    check_operator("UNIQUE", [x], "UniqueOptions", outputs=outputs, idx_out_type=2)


@pytest.mark.parametrize("combiner", range(3))
def test_embedding_lookup_sparse(combiner: int) -> None:
    ids, indices = ints(1, 3, 0, 1), ints([0, 0], [0, 1], [1, 0], [3, 2])
    inputs = [ids, indices, ints(4, 3), np.float32([2, 0.5, 1, 3]), MATRIX]
    model = one_operator("EMBEDDING_LOOKUP_SPARSE", inputs, [((-1, -1), np.float32)],
                         "EmbeddingLookupSparseOptions", combiner=combiner)  # fmt: skip
    (result,) = evaluate(load(model), inputs).values()
    by = [1, [2.5, 1, 1, 3], [4.25**0.5, 1, 1, 3]][combiner]
    total = [2 * MATRIX[1] + 0.5 * MATRIX[3], MATRIX[0], MATRIX[0] * 0, 3 * MATRIX[1]]
    np.testing.assert_allclose(result.T, np.transpose(total) / by, 1e-6)


REDUCTIONS = [
    *((kind, x) for kind in ("SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "MEAN")
      for x in (X, NUMBERS)),
    ("REDUCE_ANY", NUMBERS > 5),
    ("REDUCE_ALL", NUMBERS > -6),
]  # fmt: skip


@pytest.mark.parametrize("axes", [ints(1), ints(0, -1), scalar(2), ints(0, 1, 2), ints(1, -2)])
@pytest.mark.parametrize(("kind", "x"), REDUCTIONS)
def test_reduction(kind: str, x: np.ndarray, axes: np.ndarray) -> None:
    gone = {int(a) % 3 for a in axes.reshape(-1)}
    for keep in (False, True):
        shape = [1 if a in gone else d for a, d in enumerate(x.shape) if keep or a not in gone]
        check_operator(kind, [x, axes], "ReducerOptions", outputs=[(shape, x.dtype)], stored=[1],
                       keep_dims=keep)  # fmt: skip


@pytest.mark.parametrize("stored", [[1], []])
@pytest.mark.parametrize("kind", ["SUM", "MEAN", "REDUCE_MAX"])
def test_reduction_of_open_dimensions(kind: str, stored: list[int]) -> None:
    check_operator(kind, [X, ints(1, 2)], "ReducerOptions", outputs=[((2,), np.float32)],
                   stored=stored, is_open=True)  # fmt: skip


@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True), (True, True)])
def test_cumsum(flags: tuple[bool, bool]) -> None:
    for x in (X, NUMBERS):
        check_operator("CUMSUM", [x, scalar(1)], "CumsumOptions", stored=[1], exclusive=flags[0],
                       reverse=flags[1])  # fmt: skip


def test_l2_normalization() -> None:
    check_operator("L2_NORMALIZATION", [X.reshape(2, 3, 1, 4)], "L2NormOptions")
    check_operator("L2_NORMALIZATION", [X * 0], "L2NormOptions")


@pytest.mark.parametrize(
    ("kind", "inputs", "shape", "dtype", "options", "values"),
    [
        ("GATHER", [BYTES, ints(1, 0)], (2, 3, 4), np.int8, "GatherOptions", {}),
        ("GATHER_ND", [BYTES, ints([1, 0])], (1, 4), np.int8, "", {}),
        ("REDUCE_MAX", [BYTES, ints(1)], (2, 4), np.int8, "ReducerOptions", {}),
        ("REDUCE_MIN", [BYTES, ints(1)], (2, 4), np.int8, "ReducerOptions", {}),
        ("ARG_MAX", [BYTES, scalar(1)], (2, 4), np.int32, "ArgMaxOptions", {"output_type": 2}),
    ],
)
def test_quantised(
    kind: str, inputs: list[np.ndarray], shape: tuple[int, ...], dtype: Any, options: str,
    values: dict[str, Any],
) -> None:  # fmt: skip
    scale = (0.5, 7)
    check_operator(kind, inputs, options, outputs=[(shape, dtype)], stored=[1],
                   quantized=[scale], quantized_outputs=[scale if dtype is np.int8 else None],
                   **values)  # fmt: skip


@pytest.mark.parametrize("scale", [0.5, [0.5, 0.25, 1, 2, 4]])
def test_embedding_lookup_in_a_quantised_table(scale: Any) -> None:
    table = RNG.integers(-128, 128, (5, 3)).astype(np.int8)
    check_operator("EMBEDDING_LOOKUP", [ints(2, 0, 4), table], outputs=[((3, 3), np.float32)],
                   stored=[1], quantized=[None, (scale, 0)])  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("MATRIX_DIAG", [X[0, 0, 0]]),
        ("MATRIX_SET_DIAG", [X[0, 0], X[0, 0]]),
        ("TOPK_V2", [X[0, 0, 0], scalar(1)]),
        ("TOPK_V2", [X, ints(1, 1)]),
        ("BROADCAST_ARGS", [scalar(1), ints(2)]),
        ("RANGE", [scalar(1), scalar(2)]),
        ("UNSORTED_SEGMENT_SUM", [MATRIX, ints(0, 0, 0, 0, 0), ints(1, 2)]),
    ],
)
def test_refused(kind: str, inputs: list[np.ndarray]) -> None:
    model = one_operator(kind, inputs, [((1,), inputs[0].dtype)] * 2)
    with pytest.raises(ts.ModelError, match=f"{kind}, operator 0 of 'main'.*expected .*found"):
        load(model)
