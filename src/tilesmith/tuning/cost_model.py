"""Cost models: predictions of which candidates are worth measuring.

A model learns from the trials of a run as they arrive, and orders candidates that were not
measured.  Only the order within a workload matters: neither ratios to the analytic schedule nor
scores are comparable across workloads.  Groups tell which rows belong to the same workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from tilesmith.support.errors import InternalError, UsageError
from tilesmith.support.logs import logger

if TYPE_CHECKING:
    import lightgbm

Array = np.ndarray[Any, Any]

PRETRAINED = Path(__file__).parent / "pretrained.txt"
"""A LightGBM model as text, written by benchmarks/train_cost_model.py."""
GRADES = 31
"""Number of grades of relevance in a ranking."""
SCATTER = 0.03
"""Relative scatter of measured times: smaller differences mean little."""
FEW = 2
"""Fewest rows of a group (a workload) from which an order can be learned."""

_log = logger("tuning")


class CostModel(Protocol):
    """Anything with these two methods can guide a search."""

    def fit(self, features: Array, ratios: Array, groups: Array) -> object:
        """Learn again from all trials so far.  `features`: float32 [n, F].  `ratios` [n]: measured
        times relative to the analytic schedule's, infinite for a failure.  `groups` [n]: numbers of
        workloads.
        """
        ...

    def predict(self, features: Array) -> Array:
        """A finite score for each row of float32 [n, F]: lower scores are faster."""
        ...


class Prior:
    """The analytic model: the score is one of the features, and nothing is learned.

    `column`: number of that feature; with None all candidates have the same score.
    """

    def __init__(self, column: int | None) -> None:
        self.column = column

    def fit(self, features: Array, ratios: Array, groups: Array) -> None:
        return None

    def predict(self, features: Array) -> Array:
        if self.column is None:
            return np.zeros(len(features))
        return features[:, self.column].astype(np.float64)


class Trees:
    """A trained, constant LightGBM model of the rank of a candidate within its workload, from 0
    (the fastest) to `SPREAD`.

    names: names of the features of the rows to score; the features of its training are looked up
        among these.

    Raises InternalError if the rows lack a feature that it needs.
    """

    PARAMETERS: ClassVar[dict[str, Any]] = {
        "objective": "l2",
        "learning_rate": 0.1,
        "num_leaves": 31,
        "min_data_in_leaf": 10,
        "feature_fraction": 0.3,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
        "max_bin": 63,
        "verbose": -1,
        "num_threads": 1,
        "seed": 0,
        "deterministic": True,
        "force_row_wise": True,
    }
    ROUNDS = 150
    FEATURES = 64
    """Upper bound on the features of a model, since each one makes predictions slower.  Those with
    the most gain are kept.
    """
    SPREAD = 2.0
    """Largest score.  `LightGbmModel` starts from these scores.  The larger their differences are,
    the more trials are needed to reverse their order.
    """

    def __init__(self, booster: lightgbm.Booster, names: Sequence[str]) -> None:
        missing = [n for n in booster.feature_name() if n not in names]
        if missing:
            raise InternalError(
                f"the cost model was trained on features that there are not: {', '.join(missing)}; "
                "train it again with benchmarks/train_cost_model.py"
            )
        self.booster = booster
        self.columns = [list(names).index(n) for n in booster.feature_name()]

    @staticmethod
    def read(path: Path, names: Sequence[str]) -> Trees:
        """The model in a text file.  Needs LightGBM."""
        import lightgbm

        return Trees(lightgbm.Booster(model_str=path.read_text()), names)

    @staticmethod
    def trained(features: Array, ratios: Array, groups: Array, names: Sequence[str]) -> Trees:
        """A model trained on measured times [n].  Only times of the same group are compared.  Needs
        LightGBM.
        """
        import lightgbm

        require_lightgbm()
        places = np.zeros(len(ratios))
        for g in np.unique(groups):
            mine = groups == g
            places[mine] = Trees.SPREAD * _places(ratios[mine])

        def train(columns: Array) -> lightgbm.Booster:
            rows = lightgbm.Dataset(
                features[:, columns],
                places,
                feature_name=[names[int(c)] for c in columns],
                params={"verbose": -1, "max_bin": Trees.PARAMETERS["max_bin"]},
            )
            return lightgbm.train(Trees.PARAMETERS, rows, Trees.ROUNDS)

        gain = train(np.arange(len(names))).feature_importance("gain")
        best = np.argsort(-gain, kind="stable")[: Trees.FEATURES]
        return Trees(train(np.sort(best)), names)

    def text(self) -> str:
        """The model in the form that `read` accepts."""
        return self.booster.model_to_string()

    def fit(self, features: Array, ratios: Array, groups: Array) -> None:
        return None

    def predict(self, features: Array) -> Array:
        rows = np.ascontiguousarray(features[:, self.columns])
        return np.asarray(self.booster.predict(rows, num_threads=1), np.float64)


class LightGbmModel:
    """Gradient-boosted trees that learn to rank (LambdaMART).  They correct the scores of `base`,
    so that after few trials the order is about that of `base`.  Deterministic.

    Needs LightGBM (`pip install tilesmith[tune]`); UsageError without it.
    """

    PARAMETERS: ClassVar[dict[str, Any]] = {
        "objective": "lambdarank",
        "label_gain": list(range(GRADES + 1)),
        "lambdarank_truncation_level": 64,
        "learning_rate": 0.08,
        "num_leaves": 15,
        "min_data_in_leaf": 3,
        "feature_fraction": 0.7,
        "lambda_l2": 0.1,
        "max_bin": 63,
        "verbose": -1,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
    }

    def __init__(self, base: CostModel | None = None, trees: int = 40, seed: int = 0) -> None:
        require_lightgbm()
        self.base = base
        self.trees = trees
        self.seed = seed
        self.booster: lightgbm.Booster | None = None

    def fit(self, features: Array, ratios: Array, groups: Array) -> None:
        import lightgbm

        order, sizes = _by_group(groups)
        if not len(order):
            return
        x, labels = features[order], grades(ratios, groups)[order]
        start = None if self.base is None else -self.base.predict(x)
        rows = lightgbm.Dataset(
            x, labels, group=sizes, init_score=start, params={"verbose": -1, "max_bin": 63}
        )
        parameters = {**self.PARAMETERS, "seed": self.seed}
        self.booster = lightgbm.train(parameters, rows, num_boost_round=self.trees)

    def predict(self, features: Array) -> Array:
        scores = np.zeros(len(features)) if self.base is None else self.base.predict(features)
        if self.booster is not None and len(features):
            correction = self.booster.predict(features, num_threads=1)
            scores = scores - np.asarray(correction, np.float64)
        return scores


def grades(ratios: Array, groups: Array) -> Array:
    """Relevance of each row for a ranking, 0 to `GRADES`: speed relative to its group's best."""
    speed = np.where(np.isfinite(ratios), 1 / np.maximum(ratios, 1e-9), 0.0)
    best = np.zeros(len(ratios))
    for g in np.unique(groups):
        best[groups == g] = max(speed[groups == g].max(), 1e-9)
    return np.rint(GRADES * speed / best).astype(np.int32)


def _places(ratios: Array) -> Array:
    """For each time, the expected fraction of other times that are faster, if times scatter by
    `SCATTER`.
    """
    z = np.log(ratios) / SCATTER
    apart = np.clip(z[:, None] - z[None, :], -30, 30)
    return (1 / (1 + np.exp(-apart))).mean(axis=1)


def _by_group(groups: Array) -> tuple[Array, list[int]]:
    """The numbers of the rows, group by group, and the sizes of the groups.  Groups of fewer than
    `FEW` rows are left out.
    """
    names, counts = np.unique(groups, return_counts=True)
    kept = [(g, c) for g, c in zip(names, counts, strict=True) if c >= FEW]
    rows = [np.flatnonzero(groups == g) for g, _ in kept]
    order = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    return order, [int(c) for _, c in kept]


@cache
def has_lightgbm() -> bool:
    return find_spec("lightgbm") is not None


def require_lightgbm() -> None:
    """Raises UsageError without LightGBM."""
    if not has_lightgbm():
        raise UsageError("this cost model needs LightGBM: pip install 'tilesmith[tune]'")


def default_model(names: Sequence[str], prior: int | None, seed: int = 0) -> CostModel:
    """The model in the package, corrected by trees that learn from the run.

    `names`: names of the features; `prior`: number of the column with the analytic model's score.
    Without LightGBM the analytic model is used alone, and a log message says how to install
    LightGBM.
    """
    base: CostModel = Prior(prior)
    if not has_lightgbm():
        _log.warning(
            "candidates are ordered by the analytic model alone: pip install 'tilesmith[tune]' "
            "lets a model learn from what is measured"
        )
        return base
    if PRETRAINED.is_file():
        try:
            base = Trees.read(PRETRAINED, names)
        except InternalError as e:
            _log.warning("%s", e)
    return LightGbmModel(base, seed=seed)


class Learner:
    """The trials of all searches of a run, and the cost model that learns from them.

    A query fits the model again if enough trials are new: `REFIT`, or a tenth of all trials.
    Raises UsageError if a model's answer violates `CostModel`.
    """

    REFIT = 4

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self._rows: list[Array] = []
        self._ratios: list[float] = []
        self._groups: list[int] = []
        self._fitted = 0

    def add(self, group: int, row: Array, ratio: float) -> None:
        """Record a trial."""
        self._rows.append(row)
        self._ratios.append(ratio)
        self._groups.append(group)

    def scores(self, features: Array) -> Array:
        """Scores that order candidates; lower ones are faster."""
        fresh = len(self._rows) - self._fitted
        if fresh >= max(self.REFIT, len(self._rows) // 10):
            self._fitted = len(self._rows)
            self.model.fit(
                np.stack(self._rows), np.array(self._ratios), np.array(self._groups, np.int64)
            )
        answer = np.asarray(self.model.predict(features))
        name = type(self.model).__name__
        if answer.shape != (len(features),):
            raise UsageError(
                f"cost model {name}: predict must return one score for each of the "
                f"{len(features)} rows, not an array of shape {answer.shape}"
            )
        if answer.dtype.kind not in "fiu" or not np.isfinite(answer).all():
            raise UsageError(f"cost model {name}: predict must return finite numbers")
        return answer


def check_model(model: object) -> None:
    """Raises UsageError for an object that is not a cost model."""
    missing = [n for n in ("fit", "predict") if not callable(getattr(model, n, None))]
    if missing:
        raise UsageError(
            f"a cost model is an object with fit(features, ratios, groups) and predict(features); "
            f"{type(model).__name__} has no {' and no '.join(missing)}"
        )
