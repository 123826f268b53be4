"""Pipelines of scikit-learn, exported by skl2onnx, against ONNX Runtime and scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from onnx_nodes import onnxruntime

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate

pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")

from skl2onnx import to_onnx
from skl2onnx.common.data_types import StringTensorType
from sklearn import cluster, datasets, ensemble, linear_model, naive_bayes, neighbors, svm
from sklearn.decomposition import PCA
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

IRIS = datasets.load_iris(return_X_y=True)
NAMED = IRIS[0], np.array(["setosa", "versicolor", "virginica"])[IRIS[1]]
BINARY = IRIS[0][:100], IRIS[1][:100]
DIABETES = datasets.load_diabetes(return_X_y=True)

PIPELINES: dict[str, tuple[Any, Any]] = {
    "logistic": (make_pipeline(StandardScaler(), linear_model.LogisticRegression()), NAMED),
    "forest": (ensemble.RandomForestClassifier(5, random_state=0), BINARY),
    "regression_forest": (ensemble.RandomForestRegressor(5, random_state=0), DIABETES),
    "extra_trees": (ensemble.ExtraTreesClassifier(5, random_state=0), NAMED),
    "boosting": (ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0), BINARY),
    "boosted_regression": (ensemble.GradientBoostingRegressor(n_estimators=4), DIABETES),
    "ada_boost": (ensemble.AdaBoostClassifier(n_estimators=3, random_state=0), IRIS),
    "neighbours": (neighbors.KNeighborsClassifier(), IRIS),
    "bayes": (naive_bayes.GaussianNB(), IRIS),
    "network": (make_pipeline(PCA(2), MLPClassifier(max_iter=30, random_state=0)), IRIS),
    "clusters": (cluster.KMeans(3, n_init=1, random_state=0), IRIS),
    "support_vectors": (svm.SVC(probability=True, kernel="linear", random_state=0), IRIS),
    "support_vector_regression": (svm.NuSVR(kernel="linear"), DIABETES),
}
COMPILED = ("logistic", "forest", "regression_forest", "boosting")


def agree(found: Any, wanted: Any) -> None:
    for got, want in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if want.dtype == object:
            assert got.tolist() == want.tolist()
        else:
            np.testing.assert_allclose(got, want, 1e-3, 1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines(name: str) -> None:
    """One program for any number of samples gives what ONNX Runtime gives."""
    pipeline, (x, y) = PIPELINES[name]
    x = x.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.fit(x, y)
        options = {id(pipeline): {"zipmap": False}} if hasattr(pipeline, "predict_proba") else None
        model = to_onnx(pipeline, x[:1], options=options)
    (given,) = [i.name for i in model.graph.input]
    run = ts.compile(model, threads=1).run if name in COMPILED else None
    for rows in (x[:1], x[::3]):
        inputs = {given: rows}
        if run is None:
            found = list(evaluate(load(model), inputs).values())
        else:
            found = list(run(inputs).values())
        agree(found, onnxruntime(model, inputs))
    if y is not DIABETES[1]:
        np.testing.assert_array_equal(found[0], pipeline.predict(x[::3]))


def test_strings_in_and_dictionaries_out() -> None:
    rows = np.array([["a", "x"], ["b", "y"], ["c", "x"], ["a", "z"]] * 3, object)
    pipeline = make_pipeline(
        OneHotEncoder(handle_unknown="ignore"), linear_model.LogisticRegression()
    )
    pipeline.fit(rows, np.array(["no", "yes", "yes"] * 4))
    model = to_onnx(pipeline, initial_types=[("x", StringTensorType([None, 2]))])
    rows[0, 0] = "unknown"
    labels, scores = ts.compile(model, threads=1).run({"x": rows}).values()
    wanted = onnxruntime(model, {"x": rows})
    assert labels.tolist() == wanted[0].tolist() == pipeline.predict(rows).tolist()
    for got, want in zip(scores, wanted[1], strict=True):
        assert got == pytest.approx(want, abs=1e-6)
