"""Random schedules of random computations keep the answer, or are refused by a typed error.

`python -m benchmarks.fuzz` runs more of them, and shows the fewest steps for what it finds.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import children
from fuzz import judge
from fuzz.schedules import campaign
from fuzz.schedules import judge as schedules
from fuzz.schedules.campaign import judge_schedules, shrunk, source_of
from fuzz.schedules.computations import random_computation
from fuzz.schedules.guards import guarded
from fuzz.schedules.judge import INTERPRETER, NATIVE, C, Scheduled, logged_steps, made, scheduled
from fuzz.schedules.steps import MOVES
from tilesmith import te
from tilesmith.te.steps import PRIMITIVES, Step

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "te.md"
SHARES = {INTERPRETER: 60, NATIVE: 30, C: 10}


@pytest.mark.parametrize("target", SHARES)
def test_random_schedules(target: str) -> None:
    cases = [scheduled(seed, [target]) for seed in range(SHARES[target])]
    found = dict(zip(cases, judge_schedules(cases), strict=True))
    failed = {f"seed {c.seed}": v for c, v in found.items()
              if v.result in (judge.WRONG, judge.CRASHED)}  # fmt: skip
    assert not failed, "python -m benchmarks.fuzz --schedules SEED 1 shows the fewest steps"
    assert sum(v.result == judge.RIGHT for v in found.values()) > len(cases) / 2


def test_every_step_of_the_guide_occurs(tmp_path: Path) -> None:
    """What docs/te.md names is tried, and all steps that there are have been taken somewhere."""
    guide = set(re.findall(r"\w+", GUIDE.read_text(encoding="utf-8")))
    public = {n for c in (te.Stage, te.Schedule) for n in vars(c) if n[0] != "_"}
    made_by = {move.__name__.removeprefix("_") for move, _ in MOVES}
    steps = {*PRIMITIVES, "tile"}
    assert guide & public & steps <= made_by
    assert set(PRIMITIVES) <= made_by, "a new step needs a move in fuzz/schedules/steps.py"
    taken = set()
    for seed in count():
        schedules.log_steps(Scheduled(seed, INTERPRETER), tmp_path / "steps")
        taken |= {step.primitive for step in logged_steps(tmp_path / "steps")}
        if taken == set(PRIMITIVES):
            return
        assert seed < 400, f"never taken: {set(PRIMITIVES) - taken}"


def test_a_seed_always_makes_the_same_case(tmp_path: Path) -> None:
    for seed in range(20):
        assert random_computation(seed).source == random_computation(seed).source
        found = []
        for name in ("first", "second"):
            schedules.log_steps(Scheduled(seed, INTERPRETER), tmp_path / name)
            found.append(logged_steps(tmp_path / name))
        assert found[0] == found[1]


def test_the_computations_are_of_many_kinds() -> None:
    programs = [random_computation(seed) for seed in range(200)]
    text = "\n".join(p.source for p in programs)
    words = "te.scan te.extern te.comm_reducer te.if_then_else te.var te.sum te.prod te.max ("
    for word in (words + " f16 bf16 f64 i8 u64 bool").split():
        assert word in text
    assert sum(len(p.outputs) > 1 for p in programs) > 50


def _unrolled() -> Scheduled:
    """A case in which a loop is unrolled, and more."""
    for seed in count():
        case = Scheduled(seed, INTERPRETER)
        stages = [x for x in made(case).plain.stages if not x.state.is_placeholder and x.leaf_axes]
        if len(stages) > 1 and all(isinstance(a.extent, int) for x in stages for a in x.leaf_axes):
            s = te.Schedule(made(case).plain.ops, made(case).plain.state)
            for x in stages:
                s[x.name].split(x.leaf_axes[0], 4)
                s[x.name].unroll(s[x.name].leaf_axes[-1])
            return replace(case, steps=s.steps)
    raise AssertionError


def _is_unroll(steps: tuple[Step, ...]) -> bool:
    return any(step.primitive == "unroll" for step in steps)


def test_a_wrong_result_shrinks_to_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    results = schedules._results

    def wrong(case, m, s, func):
        for how, found in results(case, m, s, func):
            yield how, [x + _is_unroll(s.steps) for x in found]

    monkeypatch.setattr(schedules, "_results", wrong)
    case = _unrolled()
    (verdict,) = judge_schedules([case])
    assert verdict.result == judge.WRONG and "expected" in verdict.reason
    small, verdict = shrunk(case, verdict)
    assert verdict.result == judge.WRONG
    assert [step.primitive for step in small.steps] == ["unroll"]
    scope = {}
    exec(source_of(small), scope)
    assert scope["s"].steps == small.steps and len(scope["arguments"]) > 1


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda *_: {}["x"], "KeyError"),
        (lambda *_: os._exit(7), "status 7"),
        (lambda *_: sum(count()), "no result"),
    ],
)
def test_a_step_that_fails_shrinks_to_itself(act, reason, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PRIMITIVES["unroll"], "apply", act)
    monkeypatch.setattr(campaign, "SECONDS", 0.4)
    monkeypatch.setattr(campaign, "_MOST_TRIES", 4)
    cases = [Scheduled(seed, INTERPRETER) for seed in range(50)]
    verdicts = zip(cases, judge_schedules(cases), strict=True)
    case, verdict = next((c, v) for c, v in verdicts if v.result == judge.CRASHED)
    assert reason in verdict.reason
    small, verdict = shrunk(case, verdict)
    assert reason in verdict.reason
    assert small.steps is not None and small.steps[-1].primitive == "unroll"


@pytest.mark.parametrize("at_end", [True, False])
def test_an_access_beyond_an_array_ends_the_process(at_end: bool) -> None:
    def read(offset: int) -> int:
        faulthandler.disable()  # no report of what is meant
        with guarded([np.arange(5, dtype=np.int32)], at_end) as (a,):
            return ctypes.c_int32.from_address(a.ctypes.data + 4 * offset).value

    inside, outside = children.each([2, 5 if at_end else -1], read, 10.0)
    assert inside == 2 and isinstance(outside, children.Died)
