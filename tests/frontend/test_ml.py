"""Operators of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from test_operators import check, made, normal

from tilesmith.frontend.load import load
from tilesmith.support.errors import ModelError, UnsupportedError

ml = partial(made, domain="ai.onnx.ml")
WEIGHTS = normal(3, 5, seed=1).reshape(-1).tolist()

CASES: list[tuple[str, tuple[np.ndarray, ...], dict[str, Any]]] = [
    ("Scaler", (normal(4, 5),), {"scale": [2.0], "offset": [0.5]}),
    ("Scaler", (np.arange(20).reshape(4, 5),), {"scale": [1.0, 2, 3, 4, 5], "offset": [0.5] * 5}),
    *(("Normalizer", (normal(4, 5),), {"norm": name}) for name in ("MAX", "L1", "L2")),
    ("Normalizer", (np.zeros((2, 5), np.float32),), {"norm": "L2"}),
    ("Binarizer", (normal(4, 5),), {"threshold": 0.25}),
    (
        "Imputer",
        (np.where(normal(4, 3) > 0, np.nan, 2.0).astype(np.float32),),
        {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")},
    ),
    (
        "Imputer",
        (np.arange(6).reshape(2, 3) % 2,),
        {"imputed_value_int64s": [7], "replaced_value_int64": 1},
    ),
    ("FeatureVectorizer", (normal(4, 3), normal(4, 2)), {"inputdimensions": [3, 2]}),
    ("ArrayFeatureExtractor", (normal(4, 5), np.array([[3, 0, 4]])), {}),
    ("ArrayFeatureExtractor", (normal(5), np.array([3, 0])), {}),
    ("LinearRegressor", (normal(4, 5),), {"targets": 3, "coefficients": WEIGHTS}),
    (
        "LinearRegressor",
        (normal(4, 5),),
        {
            "targets": 3,
            "coefficients": WEIGHTS,
            "intercepts": [0.5, 0.0, -0.5],
            "post_transform": "LOGISTIC",
        },
    ),
]


@pytest.mark.parametrize(("op", "arrays", "attributes"), CASES, ids=[c[0] for c in CASES])
def test_operators(op: str, arrays: tuple[np.ndarray, ...], attributes: dict[str, Any]) -> None:
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    check(ml(op, inputs, **attributes), inputs)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifiers(transform: str) -> None:
    inputs = {"x": normal(16, 5)}
    model = ml(
        "LinearClassifier", inputs, outputs=2, coefficients=WEIGHTS, intercepts=[0.1, -0.2, 0.3],
        classlabels_ints=[7, 9, 4], post_transform=transform,
    )  # fmt: skip
    check(model, inputs)


def test_what_is_not_there_is_refused() -> None:
    inputs = {"x": normal(2, 5)}
    with pytest.raises(UnsupportedError, match="post_transform 'PROBIT'"):
        load(ml("LinearRegressor", inputs, coefficients=WEIGHTS[:5], post_transform="PROBIT"))
    with pytest.raises(UnsupportedError, match="labels that are strings"):
        load(ml("LinearClassifier", inputs, outputs=2, coefficients=WEIGHTS,
                classlabels_strings=["a", "b", "c"]))  # fmt: skip
    with pytest.raises(ModelError, match="expected 1 \\* 5 coefficients, found 15"):
        load(ml("LinearRegressor", inputs, coefficients=WEIGHTS))
