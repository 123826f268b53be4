"""`ts.compile` with pins and forbidden values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import tilesmith as ts
from tilesmith import driver
from tilesmith.driver import compiler
from tilesmith.runtime.executable import Executable
from tilesmith.search_space.constraints import Constraints
from tilesmith.search_space.records import Records, trial
from tilesmith.support.errors import UsageError
from tilesmith.tuning.tasks import Compiled, tasks_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 16, 20, 20)).astype(np.float32)


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path / "cache", threads=1, jobs=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A 3x3 convolution."""
    w = RNG.standard_normal((16, 16, 3, 3)).astype(np.float32) * 0.1
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, X.shape) for n in "xy")
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(w, "w")])
    file = tmp_path / "net.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def steps_of(exe: Executable) -> str:
    """The schedules of all kernels, a step a line."""
    return "\n".join(s for k in exe.profile(X, repeats=1) if k.info for s in k.info.steps)


def kernels_of(exe: Executable) -> set[str]:
    return set(exe.program.objects)


def test_knobs_and_choices_are_obeyed(path: Path, options: ts.Options) -> None:
    plain = ts.compile(path, options=options)
    wanted: list[dict[str, Any]] = [
        {"pins": {"algorithm": 0, "rows": 2}},
        {"pins": {"algorithm": 0, "rows": 3}},
        {"pins": {"algorithm": 0}, "forbid": {"schedule": ["strategy"]}},
        {"forbid": {"algorithm": [2, 4]}},
    ]
    made = [ts.compile(path, options=options, **w) for w in wanted]
    for exe in made:
        np.testing.assert_allclose(exe(X), plain(X), rtol=1e-3, atol=1e-4)
    assert len({frozenset(kernels_of(e)) for e in made}) == len(made)
    assert "factor=2" in steps_of(made[0]) and "factor=3" in steps_of(made[1])
    again = ts.compile(path, options=options)  # not what was kept under constraints
    assert kernels_of(again) == kernels_of(plain)
    again = ts.compile(path, options=options, pins={"rows": 3, "algorithm": 0})
    assert kernels_of(again) == kernels_of(made[1])


def test_records_count_where_they_obey(path: Path, options: ts.Options) -> None:
    pins = {"algorithm": 0}
    session = driver.Session.of(options)
    direct = ts.compile(path, options=options, pins=pins)
    constrained = replace(session, constraints=Constraints.of(pins, None))
    found = Compiled.of(
        driver.load_graph(driver.Request(path, session.options), session), constrained
    )
    (task,) = (t for t in tasks_of(found, constrained) if "conv" in t.label)
    with Records(options.cache_dir / "records.sqlite") as records:  # type: ignore[operator]  # set
        records.add(trial(task.key, {"rows": 2}, "ok", "", "", 0.5, 1.0))
    recorded = ts.compile(path, options=options, pins=pins)
    same = ts.compile(path, options=options, pins={**pins, "rows": 2})
    assert kernels_of(recorded) == kernels_of(same) != kernels_of(direct)
    other = ts.compile(path, options=options, pins=pins, forbid={"rows": [2]})
    assert kernels_of(other) == kernels_of(direct)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pins": {"algoritm": 0}}, r"'algoritm' can't be pinned: .*did you mean 'algorithm'\?"),
        ({"forbid": {"colour": ["red"]}}, r"'colour' can't be forbidden: .*; choices are alg"),
        ({"pins": {"algorithm": 3}}, r"'algorithm' can't be pinned to 3: .* one of 0, 2, 4"),
        ({"pins": {"algorithm": True}}, "'algorithm' can't be pinned to True"),
        ({"forbid": {"algorithm": [0, 2, 4]}}, "all of its values are forbidden"),
        ({"forbid": {"algorithm": 4}}, r"forbid\['algorithm'\]: expected a list.*, found 4"),
        ({"pins": ["algorithm"]}, "pins: expected a mapping or None"),
    ],
)
def test_what_there_is_not(
    path: Path, options: ts.Options, given: dict[str, Any], message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(compiler, "compile_kernels", None)  # nothing is compiled before
    with pytest.raises(UsageError, match=message):
        ts.compile(path, options=options, **given)
    monkeypatch.setattr(Compiled, "of_groups", None)
    with pytest.raises(UsageError, match=message):
        ts.tune(path, seconds=5, options=options, **given)
