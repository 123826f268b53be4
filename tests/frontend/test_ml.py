"""Operators of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_nodes import check, made, normal, onnxruntime

import tilesmith as ts
from tilesmith import driver
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError

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


MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


@pytest.mark.parametrize("tracks", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_tree_regressors(mode: str, tracks: bool) -> None:
    table = forest(f"BRANCH_{mode}", 3, tracks) | leaves("target", [0, 1], 0)
    check(ml("TreeEnsembleRegressor", rows(), n_targets=2, **table), rows())
    for aggregate in ("AVERAGE", "MIN", "MAX"):
        more = {"aggregate_function": aggregate, "base_values": [0.5, -1.0]}
        evaluated(ml("TreeEnsembleRegressor", rows(), n_targets=2, **table, **more), rows())


def test_an_output_without_leaves_is_its_base_value() -> None:
    table = forest("BRANCH_LEQ", 3) | leaves("target", [0, 2], 0)
    more = {"aggregate_function": "MIN", "base_values": [0.5, -1.0, 2.0], "n_targets": 3}
    y = evaluate(load(ml("TreeEnsembleRegressor", rows(), **table, **more)), rows())["y0"]
    assert (y[:, 1] == -1.0).all()
    assert np.isfinite(y).all()


def probed(cases: Sequence[tuple[onnx.ModelProto, str]], inputs: dict[str, np.ndarray]) -> None:
    """Each model, evaluated, gives what ONNX Runtime gives; cases have the transformation."""
    for model, transform in cases:
        wanted, found = onnxruntime(model, inputs), evaluate(load(model), inputs)
        for got, want in zip(found.values(), wanted, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got, want, 1e-4, 1e-5, err_msg=transform)


def evaluated(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    probed([(model, "")], inputs)


@pytest.mark.parametrize("base", [[], [0.25], [0.25, -0.5]], ids=str)
@pytest.mark.parametrize("ids", [[0], [1], [0, 1]], ids=str)
def test_two_classes(ids: list[int], base: list[float]) -> None:
    """By one score or two, which are probabilities or not, with base values or without."""
    cases = []
    for positive in (False, True):
        given = forest("BRANCH_LEQ", 6) | leaves("class", ids, 4, positive)
        given |= {"base_values": base} if base else {}
        for name in TRANSFORMS:
            if (ids, name) == ([0], "PROBIT") and len(base) < 2:
                continue  # ONNX Runtime leaves the second column unwritten
            model = ml("TreeEnsembleClassifier", rows(), outputs=2, classlabels_int64s=[5, 3],
                       post_transform=name, **given)  # fmt: skip
            cases.append((model, name))
    probed(cases, rows())
    check(cases[0][0], rows())


@pytest.mark.parametrize("ids", [[0, 1, 2, 0], [0, 1, 2, 1], [0, 2, 2, 0], [0, 0, 0, 0]], ids=str)
def test_three_classes(ids: list[int]) -> None:
    """The best class is one that a leaf has a weight for."""
    given = forest("BRANCH_LEQ", 6) | leaves("class", ids, 4)
    cases = [
        (ml("TreeEnsembleClassifier", rows(), outputs=2, classlabels_int64s=[5, 3, 8],
            post_transform=name, **given, **base), name)
        for name in TRANSFORMS for base in ({}, {"base_values": [0.5, 0.25, -0.125]})
    ]  # fmt: skip
    probed(cases, rows())
    check(cases[0][0], rows())


def test_some_leaves_have_a_weight_for_the_second_class() -> None:
    given = forest("BRANCH_LEQ", 6) | leaves("class", [0, 2], 4)
    given["class_ids"] = [0, 0, 0, 1] * 6
    for base in ([], [0.5, 0.25]):
        more = {"base_values": base} if base else {}
        evaluated(ml("TreeEnsembleClassifier", rows(), outputs=2, classlabels_int64s=[5, 3],
                     **given, **more), rows())  # fmt: skip


def test_one_class_is_chosen_or_not() -> None:
    given = forest("BRANCH_LEQ", 6) | leaves("class", [0], 4)
    evaluated(ml("TreeEnsembleClassifier", rows(), outputs=2, classlabels_int64s=[5], **given),
              rows())  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_trees_of_wide_numbers(dtype: Any) -> None:
    """Since version 3 a limit may be f64: here just above and below what features are."""
    inputs = {"x": np.nan_to_num(rows()["x"]).astype(dtype)}
    given = forest("BRANCH_LEQ", 6) | leaves("class", [0, 1, 2], 4)
    if dtype is np.float64:
        close = np.float64(given.pop("nodes_values")) + np.resize([1e-12, -1e-12], 21)
        weights = np.float64(given.pop("class_weights"))
        given["nodes_values_as_tensor"] = numpy_helper.from_array(close)
        given["class_weights_as_tensor"] = numpy_helper.from_array(weights)
    model = ml("TreeEnsembleClassifier", inputs, outputs=2, classlabels_int64s=[4, 2, 3], **given)
    model.opset_import[-1].version = 3
    check(model, inputs)


def ensemble(
    dtype: Any, modes: Sequence[int], members: Sequence[float] = (), **more: Any
) -> onnx.ModelProto:
    """TreeEnsemble-5 of two trees: node 0 leads to node 1 and a leaf, others to leaves."""

    def tensor(array: Any, dtype: Any) -> onnx.TensorProto:
        return numpy_helper.from_array(np.asarray(array, dtype))

    if members:
        more["membership_values"] = tensor(members, dtype)
    model = ml(
        "TreeEnsemble", {"x": members_and_others(dtype)}, n_targets=2, tree_roots=[0, 2],
        nodes_modes=tensor(modes, np.uint8), nodes_splits=tensor([0.5, 1, 2], dtype),
        nodes_featureids=[0, 1, 2], nodes_truenodeids=[1, 0, 3], nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 4], nodes_falseleafs=[1, 1, 1], leaf_targetids=[0, 1, 0, 1, 0],
        leaf_weights=tensor([0.5, -2, 0.25, 4, 1.5], dtype), **more,
    )  # fmt: skip
    model.opset_import[-1].version = 5
    return model


def members_and_others(dtype: Any) -> np.ndarray:
    return np.random.default_rng(2).choice([-2, -1, 0, 1, 2, 3, 4, np.nan], (64, 5)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tree_ensembles(dtype: Any) -> None:
    inputs, nan = {"x": members_and_others(dtype)}, np.nan
    for tracks in ([0, 0, 0], [1, 0, 1]):
        more = {"nodes_missing_value_tracks_true": tracks}
        check(ensemble(dtype, [6, 6, 6], [1, 2, nan, 0, nan, -1, 3, 4], **more), inputs)
        evaluated(ensemble(dtype, [6, 0, 6], [1, 2, nan, -1, 3, 4, nan], **more), inputs)
    for aggregate in range(4):
        evaluated(ensemble(dtype, [0, 2, 5], aggregate_function=aggregate), inputs)


def test_members_are_compared_exactly() -> None:
    """ONNX Runtime rounds features to integers here."""
    model = ensemble(np.float32, [6, 6, 6], [1, np.nan, 0, np.nan, -1, 3, np.nan])
    below = np.nextafter(np.float32([1, 0, 3]), np.float32(-9))
    x = np.float32([[1, 0, 3, 0, 0], [1, below[1], -1, 0, 0], [below[0], 0, below[2], 0, 0]])
    y = evaluate(load(model), {"x": np.resize(x, (64, 5))})["y0"]
    np.testing.assert_array_equal(y[:3], [[0.5, 4], [0, 2], [1.75, 0]])


def test_transformations_have_their_numbers() -> None:
    """SOFTMAX is 1 and LOGISTIC is 2; ONNX Runtime has them the other way round."""
    inputs = {"x": members_and_others(np.float32)}
    plain, softmax, logistic = (
        evaluate(load(ensemble(np.float32, [0, 0, 0], post_transform=k)), inputs)["y0"]
        for k in range(3)
    )
    np.testing.assert_allclose(softmax.sum(axis=1), 1, 1e-6)
    np.testing.assert_allclose(logistic, 1 / (1 + np.exp(-plain)), 1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifiers_of_one_score_for_each(classes: int) -> None:
    inputs = {"x": normal(16, 5)}
    for count in {1, classes} if classes == 2 else {classes}:
        probed([
            (ml("LinearClassifier", inputs, outputs=2, coefficients=WEIGHTS[: 5 * count],
                intercepts=[0.1, -0.2, 0.3][:count], classlabels_ints=[7, 9, 4][:classes],
                post_transform=name), name)
            for name in TRANSFORMS[:4]
        ], inputs)  # fmt: skip
    probed([
        (ml("LinearRegressor", inputs, coefficients=WEIGHTS[: 5 * k], targets=k,
            post_transform=name), name)
        for name in TRANSFORMS[:4] for k in (1, 3)
    ], inputs)  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_classifiers(kernel: str, classes: int) -> None:
    rng, inputs = np.random.default_rng(classes), {"x": normal(16, 5)}
    per_class = rng.integers(1, 4, classes)
    count, pairs = int(per_class.sum()), classes * (classes - 1) // 2

    def model(name: str, **more: Any) -> onnx.ModelProto:
        return ml(
            "SVMClassifier", inputs, outputs=2, kernel_type=kernel, post_transform=name,
            kernel_params=[0.5, 0.3, 3.0], support_vectors=normal(count * 5, seed=1).tolist(),
            coefficients=normal(count * (classes - 1), seed=2).tolist(), rho=[0.1] * pairs,
            vectors_per_class=per_class.tolist(), classlabels_ints=[4, 7, 2, 9, 5][:classes],
            **more,
        )  # fmt: skip

    fitted = {"prob_a": [-0.7] * pairs, "prob_b": normal(pairs, seed=3).tolist()}
    probed(
        [(model(name, **more), name) for name in TRANSFORMS[:4] for more in ({}, fitted)], inputs
    )
    check(model("NONE", **fitted), inputs, absolute=1e-5)


def test_classifiers_without_support_vectors() -> None:
    inputs = {"x": normal(16, 5)}
    for classes in (2, 3):
        for weights in (np.array(WEIGHTS), np.abs(WEIGHTS)):
            for fitted in ({}, {"prob_a": [-0.5] * 3, "prob_b": [0.5] * 3}):
                evaluated(ml(
                    "SVMClassifier", inputs, outputs=2, kernel_params=[0.5, 0.3, 3.0], rho=[0.3],
                    coefficients=weights[: 5 * classes].tolist(), post_transform="LOGISTIC",
                    classlabels_ints=[4, 7, 2][:classes], **fitted,
                ), inputs)  # fmt: skip


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_regressors(kernel: str) -> None:
    inputs = {"x": normal(16, 5)}
    given = {"kernel_type": kernel, "kernel_params": [0.5, 0.3, 2.0], "rho": [0.1]}
    vectors = {"support_vectors": WEIGHTS + WEIGHTS[:5], "n_supports": 4}
    evaluated(ml("SVMRegressor", inputs, coefficients=WEIGHTS[:5], **given), inputs)
    for one_class in (0, 1):
        model = ml("SVMRegressor", inputs, coefficients=WEIGHTS[:4], one_class=one_class,
                   **given, **vectors)  # fmt: skip
        check(model, inputs)


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


@pytest.mark.parametrize("op", ["TreeEnsembleClassifier", "SVMClassifier", "LinearClassifier"])
def test_one_program_for_any_number_of_samples(op: str) -> None:
    given: dict[str, Any] = {"post_transform": "SOFTMAX"}
    if op == "TreeEnsembleClassifier":
        given |= forest("BRANCH_LEQ", 6) | leaves("class", [0, 1, 2], 4)
        given["classlabels_int64s"] = [5, 3, 8]
    else:
        given |= {"coefficients": WEIGHTS, "classlabels_ints": [5, 3, 8]}
    if op == "SVMClassifier":
        given |= {
            "coefficients": WEIGHTS[:10], "support_vectors": normal(25).tolist(),
            "vectors_per_class": [1, 2, 2], "rho": [0.1] * 3, "kernel_type": "RBF",
            "kernel_params": [0.5, 0.0, 3.0], "prob_a": [-0.7] * 3, "prob_b": [0.1] * 3,
        }  # fmt: skip
    if op == "LinearClassifier":
        given["intercepts"] = [0.1, 0.2, 0.3]
    model = ml(op, {"x": normal(1, 5)}, outputs=2, **given)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "samples"
    program = ts.compile(model, threads=1)
    made = driver.kernels_made()
    for samples in (1, 7, 64):
        inputs = {"x": normal(samples, 5, seed=samples)}
        for got, want in zip(program.run(inputs).values(), onnxruntime(model, inputs), strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    assert driver.kernels_made() == made


def test_damaged_models() -> None:
    inputs = {"x": normal(2, 5)}
    with pytest.raises(ModelError, match=r"expected one of NONE, .*, found 'CUBE'"):
        load(ml("LinearRegressor", inputs, coefficients=WEIGHTS[:5], post_transform="CUBE"))
