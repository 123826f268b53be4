"""Encoders of ai.onnx.ml against ONNX Runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_nodes import check, made, onnxruntime

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError

ml = partial(made, domain="ai.onnx.ml")


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(7,), (3, 4)])
def test_one_hot_encoders(dtype: Any, shape: tuple[int, ...]) -> None:
    """Of numbers that are categories, and of others, which have no one."""
    inputs = {"x": np.random.default_rng(0).integers(0, 9, shape).astype(dtype)}
    check(ml("OneHotEncoder", inputs, cats_int64s=[7, 2, 5, 3]), inputs)


def test_a_category_that_has_to_be_known() -> None:
    inputs = {"x": np.int64([5, 7, 2])}
    model = ml("OneHotEncoder", inputs, cats_int64s=[7, 2, 5], zeros=0)
    check(model, inputs)
    with pytest.raises(ModelError, match="indices from -3 to 2"):
        ts.compile(model).run({"x": np.int64([5, 1, 2])})


def labels(version: int, inputs: dict[str, np.ndarray], **attributes: Any) -> onnx.ModelProto:
    model = ml("LabelEncoder", inputs, **attributes)
    model.opset_import[-1].version = version
    return model


def test_label_encoders_of_numbers() -> None:
    rng, nan = np.random.default_rng(1), np.nan
    ints = {"x": rng.integers(0, 9, (4, 3))}
    check(labels(2, ints, keys_int64s=[7, 2, 5], values_floats=[0.5, 1.5, 2.5]), ints)
    check(labels(2, ints, keys_int64s=[7, 2], values_int64s=[1, 2], default_int64=9), ints)
    floats = {"x": rng.choice(np.float32([0.5, 2, nan, 3, -0.0, np.inf]), (4, 3))}
    given = {"keys_floats": [2.0, nan, 0.0, np.inf, 3.0], "values_int64s": [1, 2, 3, 4, 5]}
    check(labels(4, floats, **given), floats)
    model, x = labels(2, floats, **given), np.resize(np.float32([nan, 2]), (4, 3))
    found = evaluate(load(model), {"x": x})["y0"]  # ONNX Runtime finds NaN since version 4 only
    assert found.tolist() == np.resize([2, 1], (4, 3)).tolist()


def test_label_encoders_of_tensors() -> None:
    doubles = {"x": np.float64([[0.1, 0.2], [0.3, 0.1 + 1e-12]])}
    given = {
        "keys_tensor": numpy_helper.from_array(np.float64([0.1, 0.3])),
        "values_tensor": numpy_helper.from_array(np.float64([-1.5, 4.5])),
        "default_tensor": numpy_helper.from_array(np.float64([9.0])),
    }
    check(labels(4, doubles, **given), doubles)
    short = {"x": np.int16([3, -4, 5])}
    given = {name: numpy_helper.from_array(a) for name, a in (
        ("keys_tensor", np.int16([-4, 3])), ("values_tensor", np.int16([8, 9])),
        ("default_tensor", np.int16([-1])),
    )}  # fmt: skip
    check(labels(4, short, **given), short, [np.int16([9, 8, -1])])


def test_the_last_of_equal_keys_counts() -> None:
    """As the specification says; ONNX Runtime takes the first."""
    model = labels(4, {"x": np.int64([4, 5])}, keys_int64s=[5, 4, 5], values_int64s=[1, 2, 3])
    assert evaluate(load(model), {"x": np.int64([4, 5])})["y0"].tolist() == [2, 3]


def test_label_encoders_say_what_is_wrong() -> None:
    inputs = {"x": np.int64([4, 5])}
    with pytest.raises(ModelError, match="as many values as keys, found 1 for 2"):
        load(labels(2, inputs, keys_int64s=[5, 4], values_int64s=[1]))
    with pytest.raises(ModelError, match="the keys' type float32, found i64"):
        load(labels(2, inputs, keys_floats=[5.0, 4.0], values_int64s=[1, 2]))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("shortest", "longest", "skips"), [(1, 1, 0), (1, 2, 3), (2, 3, 1)])
def test_counts_of_runs_of_integers(mode: str, shortest: int, longest: int, skips: int) -> None:
    given: dict[str, Any] = {
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 7, 6, 7, 1, 2, 3, 3, 2, 1], "ngram_counts": [0, 4, 10],
        "ngram_indexes": [0, 1, 2, 3, 7, 5, 4, 6, 8], "weights": [0.5, 1, 2, 3, 4, 5, 6, 7, 8],
        "mode": mode, "min_gram_length": shortest, "max_gram_length": longest,
        "max_skip_count": skips,
    }  # fmt: skip
    rng = np.random.default_rng(skips)
    for inputs in ({"x": rng.integers(1, 8, (6, 12))}, {"x": rng.integers(1, 8, 12, np.int32)}):
        check(made("TfIdfVectorizer", inputs, **given), inputs)
    words = {"x": rng.integers(1, 8, (6, 12)).astype(str).astype(object)}
    given["pool_strings"] = [str(k) for k in given.pop("pool_int64s")]
    model = made("TfIdfVectorizer", words, **given)
    (wanted,) = onnxruntime(model, words)
    np.testing.assert_allclose(ts.compile(model).run(words)["y0"], wanted)
