"""LightGBM's models, exported by onnxmltools, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import tilesmith as ts

lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
onnxmltools = pytest.importorskip("onnxmltools", reason="onnxmltools is not installed")

COLUMNS = 6


def data() -> tuple[np.ndarray, np.ndarray]:
    """Numbers, some of them missing, with a category in the last column."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, COLUMNS)).astype(np.float32)
    x[:, -1] = rng.integers(0, 6, len(x))
    y = 2 * x[:, 0] + np.sin(3 * x[:, 1]) + 3 * (x[:, -1] == 3)
    x[::7, 1] = np.nan
    return x, y


X, Y = data()
MODELS: dict[str, Any] = {
    "regressor": (lightgbm.LGBMRegressor(), Y),
    "poisson": (lightgbm.LGBMRegressor(objective="poisson"), np.exp(Y / 3)),
    "forest": (
        lightgbm.LGBMRegressor(boosting_type="rf", bagging_freq=1, bagging_fraction=0.7),
        Y,
    ),
    "two classes": (lightgbm.LGBMClassifier(), (Y > 0).astype(np.int64)),
    "three classes": (lightgbm.LGBMClassifier(), np.digitize(Y, [-1, 1])),
}


@pytest.mark.parametrize("split", [None, 5])
@pytest.mark.parametrize("name", MODELS)
def test_lightgbm_model(name: str, split: int | None) -> None:
    model, target = MODELS[name]
    model.set_params(n_estimators=12, num_leaves=15, verbose=-1, n_jobs=1)
    model.fit(X, target, categorical_feature=[COLUMNS - 1])
    known = onnxmltools.convert.common.data_types.FloatTensorType([None, COLUMNS])
    options = {} if split is None else {"split": split}
    if "classes" in name:
        options["zipmap"] = False
    exported = onnxmltools.convert_lightgbm(
        model, initial_types=[("x", known)], target_opset=15, **options
    )
    exe = ts.compile(exported, threads=1)
    peer = ort.InferenceSession(exported.SerializeToString())
    for rows in (1, 90):
        x = X[:rows].copy()
        x[:, -1] = np.arange(rows) % 8  # also categories that training had not
        wanted = dict(zip((o.name for o in peer.get_outputs()), peer.run(None, {"x": x})))
        found = exe.run({"x": x})
        assert found.keys() == wanted.keys()
        for key, values in wanted.items():
            np.testing.assert_allclose(found[key], values, 1e-5, 1e-5, err_msg=key)
