"""Generated schedules: whatever is decided, the answer is that of the unscheduled expressions."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from expressions import EXPRESSIONS, Arguments, arrays, matmul, outputs, softmax, total
from hypothesis import given, settings
from hypothesis import strategies as st

import tilesmith as ts
from tilesmith import te
from tilesmith.backend import CPU
from tilesmith.codegen.targets import target
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.parse import parse_graph
from tilesmith.loop.interpret import interpret
from tilesmith.search_space.groups import lower_group
from tilesmith.search_space.space import Candidate, Space
from tilesmith.strategy.sketch import generated
from tilesmith.strategy.sketch.tile import Operand
from tilesmith.support.arrays import difference
from tilesmith.support.errors import ScheduleError, UsageError
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.tensor import Placeholder

SIZES = st.tuples(*[st.integers(1, 33)] * 3)


def wander(space: Space, rng: random.Random) -> Candidate:
    """A candidate some random turns away from the first: turns may bring new knobs along."""
    found = space.start
    for _ in range(rng.randint(1, 3)):
        found = space.mutated(found, rng, turns=rng.randint(1, 6))
    return found


def run(s: te.Schedule, args: Arguments, name: str = "native") -> list[np.ndarray]:
    """The outputs of a schedule."""
    given = arrays(args, seed=1)
    ts.build(s, args, target=name, threads=2)(*given)
    return [a for a, t in zip(given, args, strict=True) if not isinstance(t.op, Placeholder)]


@pytest.mark.parametrize("name", EXPRESSIONS)
@settings(max_examples=5, deadline=None, print_blob=True)
@given(sizes=SIZES, seed=st.integers(0, 1 << 30), level=st.sampled_from(["native", "x86-64-v3"]))
def test_random_candidates_give_the_unscheduled_answer(
    name: str, sizes: tuple[int, int, int], seed: int, level: str
) -> None:
    args = EXPRESSIONS[name](*sizes)
    template = generated(args, target(level))
    expected = run(te.create_schedule(outputs(args)), args, level)
    candidate = wander(Space(template), random.Random(seed))
    for decisions in ({}, candidate):
        s, _ = template(Config(decisions))
        for found, want in zip(run(s, args, level), expected, strict=True):
            # the unscheduled sums, of up to half a million squares one by one, are the inexact ones
            assert difference(found, want) < 2e-4, f"{decisions}\n{s}"


@pytest.mark.parametrize("name", ["matmul", "softmax", "total", "convolution", "window", "sliding"])
def test_untuned_schedule(name: str, golden: Callable[[str], None]) -> None:
    args = EXPRESSIONS[name](64, 64, 64)
    golden(generated(args, target("x86-64-v4"))(ANALYTIC)[0].text())


def test_steps_of_a_window_share_what_neighbours_read() -> None:
    def read(step: int, along: int | None) -> float:
        return Operand((0, step, 1), (0, 0, 0), along, 4, 9999).overlap(2, (1, 14, 16), 7)

    assert read(64, 192) == (14 + 3 * 6) / (14 * 7)  # three columns apart
    assert read(64, 64 * 15) == 1  # further than the tile reaches
    assert read(64, 32) == read(64, -64) == read(64, None) == read(0, 64) == 1


def test_the_same_decisions_make_the_same_schedule() -> None:
    for name, make in EXPRESSIONS.items():
        args, again = make(20, 30, 12), make(20, 30, 12)
        space = Space(generated(args, target("x86-64-v4")))
        candidate = wander(space, random.Random(3))
        texts = [
            generated(a, target("x86-64-v4"))(Config(candidate))[0].text() for a in (args, again)
        ]
        assert texts[0] == texts[1], name


def test_sketches_are_knobs() -> None:
    knobs = Space(generated(softmax(64, 64, 1), target("x86-64-v4"))).knobs({})
    assert knobs["E.place"].options == ("inline", "tile", "root")
    assert knobs["S.fuse"].default is True
    assert "reduction" in knobs["O.lane"].options
    assert "S.parts" in Space(generated(total(40, 40, 4), target("x86-64-v4"))).knobs({})


def test_auto_schedule_is_a_schedule_to_build() -> None:
    args = matmul(30, 40, 50)
    expected = run(te.create_schedule(outputs(args)), args)
    for s in ("auto", ts.auto_schedule(args)):
        given = arrays(args, seed=1)
        ts.build(s, args)(*given)  # type: ignore[arg-type]
        assert difference(given[-1], expected[0]) < 1e-5
    with pytest.raises(UsageError, match='schedule is a Schedule or "auto"'):
        ts.build("fast", args)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="none of the arguments is an output"):
        ts.auto_schedule(args[:2])


def test_forbidden_values_do_not_occur() -> None:
    template = generated(matmul(64, 96, 64), target("x86-64-v4"))
    usual = Space(template).knobs({})["C.vectors"].default
    space = Space(template, forbidden={"C.vectors": [usual], "C.lane": ["i"]})
    rng = random.Random(5)
    found = [space.start, *(wander(space, rng) for _ in range(30)), *space.neighbours(space.start)]
    for candidate in found:
        knobs = space.knobs(candidate)
        assert candidate.get("C.lane", knobs["C.lane"].default) != "i"
        if "C.vectors" in knobs:
            assert candidate["C.vectors"] != usual
            assert usual not in knobs["C.vectors"].options


def test_pins_and_prohibitions_name_what_there_is() -> None:
    template = generated(matmul(64, 96, 64), target("x86-64-v4"))
    with pytest.raises(ScheduleError, match=r"no knob 'C\.rows'; the knobs are C\.lane"):
        Space(template, forbidden={"C.rows": [1]})
    with pytest.raises(ScheduleError, match=r"knob C\.lane: 'z' is none of 'i', 'j'"):
        Space(template, forbidden={"C.lane": ["z"]})
    with pytest.raises(ScheduleError, match=r"knob C\.lane: all of its values are forbidden"):
        Space(template, forbidden={"C.lane": ["i", "j", "reduction"]})
    other = Space(template, {"C.lane": "i"}, {"C.rows.j": [1]})  # a knob that `lane` brings along
    assert other.start["C.lane"] == "i" and other.start.get("C.rows.j") != 1


def test_tune_expression_learns_and_answers(tmp_path: Path) -> None:
    options = ts.Options(records=tmp_path / "records.sqlite")
    args = matmul(48, 64, 32)
    seen = []
    forbid = {"C.unroll": [1], "C.lane": ["i", "reduction"]}
    f = ts.tune_expression(
        args, seconds=30, trials=4, threads=1, options=options, forbid=forbid,
        report=lambda _, tasks: seen.extend(tasks),
    )  # fmt: skip
    expected = run(te.create_schedule(outputs(args)), args)
    given = arrays(args, seed=1)
    f(*given)
    assert difference(given[-1], expected[0]) < 1e-5
    assert seen[-1].trials >= 4
    assert all(t.candidate["C.unroll"] != 1 for t in seen[-1].seen.values())


def test_padding_that_lies_in_a_halo_is_no_transposition() -> None:
    body = parse_graph(
        'graph k(%x: f32[1,16,20,20]@"0 2+1:1 3+1:1 1", %w: f32[16,1,3,3]@"1 2 3 0") {\n'
        '  %y: f32[1,16,20,20]@"0 2 3 1" = conv(%x, %w) {pads=(1, 1, 1, 1), groups=16}\n'
        '  return %y as "y"\n}\n'
    )
    decisions = {"schedule": "sketch", "sketch.pad.place": "root"}
    func = lower_group(body, target("x86-64-v3"), CPU.rules, "k", Config(decisions))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(v.type.static_shape, np.float32) for v in body.inputs)
    layouts = [v.layout for v in (*body.inputs, *body.outputs)]
    y = np.full((1, 20, 20, 16), np.nan, np.float32)
    packed = [layout.pack(a) for layout, a in zip(layouts, (x, w), strict=False) if layout]
    interpret(func, [*packed, y])
    assert layouts[-1] is not None
    (expected,) = evaluate(body, [x, w]).values()
    assert difference(layouts[-1].unpack(y, expected.shape), expected) < 1e-5
