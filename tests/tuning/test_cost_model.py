"""Cost models on made-up trials."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tilesmith.support.errors import InternalError, UsageError
from tilesmith.tuning import cost_model
from tilesmith.tuning.cost_model import (
    GRADES,
    PRETRAINED,
    Array,
    CostModel,
    Learner,
    LightGbmModel,
    Prior,
    Trees,
    check_model,
    default_model,
    grades,
)
from tilesmith.tuning.features import FEATURES

NAMES = [f"f{i}" for i in range(6)]


def trials(groups: int, each: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Rows whose ratio depends on two features, on another scale in each group."""
    rng = np.random.default_rng(seed)
    x = rng.random((groups * each, len(NAMES)), np.float32)
    g = np.repeat(np.arange(groups), each)
    rng.shuffle(g)
    scale = 0.1 + rng.random(groups)[g]
    return x, scale * (0.3 + (x[:, 0] - 0.6) ** 2 + 0.5 * x[:, 1]), g


def rank_correlation(a: Array, b: Array) -> float:
    def ranks(v: Array) -> Array:
        return np.argsort(np.argsort(v))

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def within(scores: Array, ratios: Array, groups: Array) -> float:
    """The mean rank correlation over groups."""
    return float(
        np.mean(
            [rank_correlation(scores[groups == g], ratios[groups == g]) for g in np.unique(groups)]
        )
    )


def test_lightgbm_learns_an_order_that_holds_for_other_workloads() -> None:
    model = LightGbmModel(trees=80)
    model.fit(*trials(8, 40))
    x, ratios, groups = trials(4, 60, seed=1)
    assert within(model.predict(x), ratios, groups) > 0.9


def test_training_is_deterministic() -> None:
    data = trials(3, 30)
    a, b = LightGbmModel(seed=2), LightGbmModel(seed=2)
    a.fit(*data)
    b.fit(*data)
    np.testing.assert_array_equal(a.predict(data[0]), b.predict(data[0]))


def test_without_trials_the_order_is_the_base_s() -> None:
    model = LightGbmModel(Prior(1))
    x, ratios, groups = trials(1, 20)
    np.testing.assert_array_equal(model.predict(x), x[:, 1])
    model.fit(x[:1], ratios[:1], groups[:1])  # nothing to order
    np.testing.assert_array_equal(model.predict(x), x[:, 1])


def test_trials_correct_the_base() -> None:
    x, ratios, groups = trials(4, 50)
    wrong = x.copy()
    wrong[:, 5] = -ratios
    model = LightGbmModel(Prior(5), trees=100)
    assert within(model.predict(wrong), ratios, groups) < -0.9
    model.fit(wrong, ratios, groups)
    assert within(model.predict(wrong), ratios, groups) > 0.8


def test_grades_are_shares_of_the_best_speed_of_a_group() -> None:
    ratios = np.array([1.0, 0.5, np.inf, 8.0, 4.0])
    found = grades(ratios, np.array([0, 0, 0, 1, 1]))
    assert list(found) == [round(GRADES / 2), GRADES, 0, round(GRADES / 2), GRADES]


def test_a_trained_model_finds_its_features_by_name(tmp_path: Path) -> None:
    x, ratios, groups = trials(2, 60)
    model = Trees.trained(x, ratios, groups, NAMES)
    same = model.predict(x)
    path = tmp_path / "model.txt"
    path.write_text(model.text())
    more = Trees.read(path, ["new", *NAMES[::-1]])
    np.testing.assert_array_equal(
        more.predict(np.hstack([np.ones((len(x), 1), np.float32), x[:, ::-1]])), same
    )
    assert within(same, ratios, groups) > 0.5
    with pytest.raises(InternalError, match=r"features that there are not: .*f1"):
        Trees.read(path, ["f0"])


def test_the_model_in_the_package_knows_the_features_there_are() -> None:
    model = Trees.read(PRETRAINED, FEATURES)
    assert len(model.columns) <= Trees.FEATURES
    rows = np.random.default_rng(0).random((5, len(FEATURES)), np.float32)
    assert np.isfinite(model.predict(rows)).all()


def test_the_default_model_starts_from_the_one_in_the_package() -> None:
    rows = np.random.default_rng(0).random((50, len(FEATURES)), np.float32)
    expected = Trees.read(PRETRAINED, FEATURES).predict(rows)
    np.testing.assert_allclose(default_model(FEATURES, prior=0).predict(rows), expected)


def test_without_lightgbm_the_prior_is_used_and_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cost_model, "has_lightgbm", lambda: False)
    with caplog.at_level(logging.WARNING):
        model = default_model(NAMES, prior=2)
    assert "pip install 'tilesmith[tune]'" in caplog.text
    x, ratios, groups = trials(1, 5)
    model.fit(x, ratios, groups)
    np.testing.assert_allclose(model.predict(x), x[:, 2])
    with pytest.raises(UsageError, match=r"tilesmith\[tune\]"):
        LightGbmModel()


class Bad:
    """Answers as it is told to."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def fit(self, features: Array, ratios: Array, groups: Array) -> None:
        return None

    def predict(self, features: Array) -> Array:
        return self.answer  # type: ignore[return-value]  # on purpose


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros(3), r"one score for each of the 4 rows, not an array of shape \(3,\)"),
        (np.zeros((4, 1)), r"not an array of shape \(4, 1\)"),
        (None, r"not an array of shape \(\)"),
        (np.array([0, np.nan, 1, 2]), "finite numbers"),
        (np.array([0, np.inf, 1, 2]), "finite numbers"),
        (np.array(list("abcd")), "finite numbers"),
    ],
)
def test_what_a_model_answers_is_checked(answer: object, message: str) -> None:
    with pytest.raises(UsageError, match=f"cost model Bad: .*{message}"):
        Learner(Bad(answer)).scores(np.zeros((4, 2), np.float32))


def test_what_is_no_model_is_refused() -> None:
    good: CostModel = Prior(0)
    check_model(good)
    with pytest.raises(UsageError, match="dict has no fit and no predict"):
        check_model({})
