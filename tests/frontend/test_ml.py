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


def forest(mode: str, seed: int, tracks: bool = False) -> dict[str, Any]:
    """Three trees of seven nodes, whose leaves are the last four."""
    rng = np.random.default_rng(seed)
    inner = np.arange(7) < 3
    return {
        "nodes_treeids": np.repeat(range(3), 7).tolist(),
        "nodes_nodeids": [*range(7)] * 3,
        "nodes_featureids": rng.integers(0, 5, 21).tolist(),
        "nodes_values": rng.integers(-1, 2, 21).astype(float).tolist(),
        "nodes_modes": [mode if i else "LEAF" for i in inner] * 3,
        "nodes_truenodeids": [2 * i + 1 if b else 0 for i, b in enumerate(inner)] * 3,
        "nodes_falsenodeids": [2 * i + 2 if b else 0 for i, b in enumerate(inner)] * 3,
        "nodes_missing_value_tracks_true": (rng.integers(0, 2, 21) * tracks).tolist(),
    }


def leaves(group: str, ids: list[int], seed: int, positive: bool = False) -> dict[str, Any]:
    """Weights of each leaf of `forest` for each of `ids`."""
    weights = normal(12 * len(ids), seed=seed)
    return {
        f"{group}_treeids": np.repeat(range(3), 4 * len(ids)).tolist(),
        f"{group}_nodeids": np.repeat([3, 4, 5, 6], len(ids)).tolist() * 3,
        f"{group}_ids": ids * 12,
        f"{group}_weights": (np.abs(weights) / 6 if positive else weights).tolist(),
    }


def rows() -> dict[str, np.ndarray]:
    """Among them limits and NaN."""
    values = np.array([-1.5, -1.0, 0.0, 0.5, 1.0, np.nan], np.float32)
    return {"x": np.random.default_rng(2).choice(values, (64, 5))}


@pytest.mark.parametrize("tracks", [False, True])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
def test_tree_regressors(mode: str, tracks: bool) -> None:
    table = leaves("target", [0, 1], 0)
    for more in ({"aggregate_function": "AVERAGE"}, {"base_values": [0.5, -1.0]}):
        given = forest(mode, 3, tracks) | table | more
        check(ml("TreeEnsembleRegressor", rows(), n_targets=2, **given), rows())


@pytest.mark.parametrize(("ids", "transform"), [
    (ids, name) for ids in ([0, 1, 2], [0]) for name in ("NONE", "LOGISTIC", "SOFTMAX")
    if (ids, name) != ([0], "SOFTMAX")
], ids=str)  # fmt: skip
def test_tree_classifiers(ids: list[int], transform: str) -> None:
    labels = [5, 3, 8] if len(ids) == 3 else [0, 1]
    for positive in (False, True):
        given = forest("BRANCH_LEQ", 6) | leaves("class", ids, 4, positive)
        model = ml(
            "TreeEnsembleClassifier", rows(), outputs=2, classlabels_int64s=labels,
            post_transform=transform, **given,
        )  # fmt: skip
        check(model, rows())


def test_damaged_trees() -> None:
    good = forest("BRANCH_LEQ", 3) | leaves("target", [0], 0)
    for change, message in (
        ({"nodes_truenodeids": [0] * 21}, "one root in each|below themselves"),
        ({"nodes_falsenodeids": [9] * 21}, "a child among the nodes of its tree, found 9"),
        ({"nodes_featureids": [5] * 21}, "features 0 to 4"),
        ({"target_ids": [1] * 12}, "outputs 0 to 0"),
        ({"nodes_modes": ["LEAF"] * 20}, "as many modes"),
    ):
        with pytest.raises(ModelError, match=message):
            load(ml("TreeEnsembleRegressor", rows(), **(good | change)))


def test_what_is_not_there_is_refused() -> None:
    inputs = {"x": normal(2, 5)}
    with pytest.raises(UnsupportedError, match="post_transform 'PROBIT'"):
        load(ml("LinearRegressor", inputs, coefficients=WEIGHTS[:5], post_transform="PROBIT"))
    with pytest.raises(UnsupportedError, match="labels that are strings"):
        load(ml("LinearClassifier", inputs, outputs=2, coefficients=WEIGHTS,
                classlabels_strings=["a", "b", "c"]))  # fmt: skip
    with pytest.raises(ModelError, match="expected 1 \\* 5 coefficients, found 15"):
        load(ml("LinearRegressor", inputs, coefficients=WEIGHTS))
