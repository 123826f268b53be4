"""StableHLO's operators in TFLite files against NumPy; TFLite has kernels for few of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tflite_cases import check_operator, one_operator

from tflite_models import ModelWriter
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
Y = RNG.standard_normal((2, 3, 4)).astype(np.float32)
P = np.abs(X) + np.float32(0.1)
K = RNG.integers(-9, 10, (2, 3)).astype(np.int32)
J = RNG.integers(1, 5, (2, 3)).astype(np.int32)


def s(number: int) -> np.ndarray:
    return np.array(number, np.int32)


def pad(x: np.ndarray, low: list[int], high: list[int], inner: list[int], v: float) -> np.ndarray:
    wide = np.full([d + max(d - 1, 0) * g for d, g in zip(x.shape, inner, strict=True)], v, x.dtype)
    wide[tuple(slice(None, None, g + 1) for g in inner)] = x
    cut = tuple(slice(max(-a, 0), d + min(b, 0)) for a, b, d in zip(low, high, wide.shape))
    return np.pad(wide[cut], [(max(a, 0), max(b, 0)) for a, b in zip(low, high)],
                  constant_values=v)  # fmt: skip


def updated(x: np.ndarray, update: np.ndarray, starts: list[int]) -> np.ndarray:
    y = x.copy()
    y[tuple(slice(a, a + d) for a, d in zip(starts, update.shape, strict=True))] = update
    return y


CASES: list[tuple[str, list[np.ndarray], np.ndarray, str, dict[str, Any]]] = [
    ("LOGISTIC", [X], 1 / (1 + np.exp(-X)), "", {}),
    ("CBRT", [X], np.cbrt(X), "", {}),
    ("RSQRT", [P], 1 / np.sqrt(P), "", {}),
    ("REMAINDER", [K, J], np.fmod(K, J), "", {}),
    ("POWER", [P, Y], P**Y, "", {}),
    ("AND", [K, J], K & J, "", {}),
    ("OR", [K > 0, J > 2], (K > 0) | (J > 2), "", {}),
    ("SHIFT_LEFT", [K, J], K << J, "", {}),
    ("SELECT", [X > 0, X, Y], np.where(X > 0, X, Y), "", {}),
    ("CLAMP", [np.float32(-1), X, np.float32(0.5)], np.clip(X, -1, 0.5), "", {}),
    ("CONVERT", [X], X.astype(np.int32), "", {}),
    ("RESHAPE", [X], X.reshape(6, 4), "", {}),
    ("TRANSPOSE", [X], X.transpose(2, 0, 1), "StablehloTransposeOptions",
     {"permutation": [2, 0, 1]}),
    ("CONCATENATE", [X, Y], np.concatenate([X, Y], 1), "StablehloConcatenateOptions",
     {"dimension": 1}),
    ("BROADCAST_IN_DIM", [K], np.broadcast_to(K[:, None, :, None], (2, 5, 3, 4)),
     "StablehloBroadcastInDimOptions", {"broadcast_dimensions": [0, 2]}),
    ("IOTA", [], np.broadcast_to(np.arange(3, dtype=np.int32)[:, None], (2, 3, 4)),
     "StablehloIotaOptions", {"iota_dimension": 1}),
    ("SLICE", [X], X[:, 1:, ::2], "StablehloSliceOptions",
     {"start_indices": [0, 1, 0], "limit_indices": [2, 3, 4], "strides": [1, 1, 2]}),
    ("DYNAMIC_SLICE", [X, s(0), s(2), s(1)], X[:, 1:, 1:3], "StablehloDynamicSliceOptions",
     {"slice_sizes": [2, 2, 2]}),
    ("DYNAMIC_UPDATE_SLICE", [X, Y[:, :1], s(0), s(1), s(0)], updated(X, Y[:, :1], [0, 1, 0]), "",
     {}),
    ("PAD", [X, np.float32(9)], pad(X, [0, 1, -1], [0, 2, 0], [0, 1, 2], 9),
     "StablehloPadOptions", {"edge_padding_low": [0, 1, -1], "edge_padding_high": [0, 2, 0],
                             "interior_padding": [0, 1, 2]}),
    ("DOT_GENERAL", [X, Y], np.einsum("bij,bkj->bik", X, Y), "StablehloDotGeneralOptions",
     {"lhs_batching_dimensions": [0], "rhs_batching_dimensions": [0],
      "lhs_contracting_dimensions": [2], "rhs_contracting_dimensions": [2]}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs", "wanted", "options", "values"), CASES)
def test_operator(
    kind: str, inputs: list[np.ndarray], wanted: np.ndarray, options: str, values: dict[str, Any]
) -> None:
    inputs = [np.asarray(x) for x in inputs]
    for stored in ([], [i for i, x in enumerate(inputs) if x.ndim == 0]):
        model = one_operator(f"STABLEHLO_{kind}", inputs, [(wanted.shape, wanted.dtype)], options,
                             stored=stored, **values)  # fmt: skip
        given = [x for i, x in enumerate(inputs) if i not in stored]
        (result,) = evaluate(load(model), given).values()
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("number", "function"),
    list(enumerate([np.equal, np.not_equal, np.greater_equal, np.greater, np.less_equal, np.less])),
)
def test_compare(number: int, function: Callable[..., np.ndarray]) -> None:
    model = one_operator("STABLEHLO_COMPARE", [K, J], [(K.shape, bool)], "StablehloCompareOptions",
                         comparison_direction=number)  # fmt: skip
    (result,) = evaluate(load(model), [K, J]).values()
    np.testing.assert_array_equal(result, function(K, J))


@pytest.mark.parametrize("kind", ["ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"])
def test_like_litert(kind: str) -> None:
    check_operator(f"STABLEHLO_{kind}", [X, Y])


def test_composite() -> None:
    """A composite operator is computed by its decomposition."""
    model = ModelWriter()
    main, inner = model.graph(), model.graph("decomposition")
    x, y = main.input((2, 3, 4), name="x0"), main.tensor((2, 3, 4), name="y0")
    main.op("STABLEHLO_COMPOSITE", [x], [y], "StableHLOCompositeOptions",
            decomposition_subgraph_index=1)  # fmt: skip
    main.output(y)
    a, three = inner.input((2, 3, 4)), inner.const(np.float32(3))
    b = inner.tensor((2, 3, 4))
    inner.op("MUL", [a, three], [b], "MulOptions")
    inner.output(b)
    (result,) = evaluate(load(model.bytes()), [X]).values()
    np.testing.assert_allclose(result, X * 3, 1e-6)
