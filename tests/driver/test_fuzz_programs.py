"""Random PyTorch programs give what eager mode gives, by every road.

`python -m benchmarks.fuzz --programs FIRST COUNT` runs more of them, and shows the smallest program
for what it finds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fuzz.judge import CRASHED, REFUSED, RIGHT, WRONG
from fuzz.programs import shrink
from fuzz.programs.draw import random_program
from fuzz.programs.eager import Checked, Disturbed, Rejected, outcomes
from fuzz.programs.judge import judge
from fuzz.programs.program import Program, Statement
from fuzz.programs.roads import ROADS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
COUNT = 25
STATEMENTS = 4

# Children of a process that ran threads of PyTorch would wait for them: a process of its own.
CAMPAIGN = f"""
import json, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from fuzz.programs.campaign import verdicts
from fuzz.programs.roads import ROADS
roads = [*ROADS]
items = [(seed, roads[seed % len(roads)]) for seed in range({COUNT})]
print(json.dumps([(s, r, v.result, v.reason) for s, r, v in verdicts(items, {STATEMENTS})]))
"""


def test_random_programs():
    run = subprocess.run(
        [sys.executable, "-c", CAMPAIGN], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    failed = [v for v in found if v[2] in (WRONG, CRASHED)]
    command = f"python -m benchmarks.fuzz --statements {STATEMENTS} --programs SEED 1"
    assert not failed, f"{command} shows the smallest program"
    assert sum(v[2] == RIGHT for v in found) > 0.6 * len(found)
    assert {v[1] for v in found if v[2] == RIGHT} == {*ROADS}


def test_a_seed_always_makes_the_same_program():
    for seed in range(0, 15, 3):
        assert random_program(seed).source() == random_program(seed).source()


def test_programs_write_have_open_dimensions_and_gradients():
    programs = [random_program(seed) for seed in range(24)]
    writes = [any(not s.results for s in p.statements) for p in programs]
    assert sum(writes) > 12
    assert sum(len(p.runs) > 1 for p in programs) > 3
    assert sum(p.gradients for p in programs) > 4


def test_the_source_of_a_program_runs():
    for seed in range(4):
        exec(compile(random_program(seed).source(), "<source>", "exec"), {})


def _chain() -> Program:
    """Of which `tanh` alone matters."""
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    statements = [
        Statement("torch.neg({0})", ("x0",), ("v0",)),
        Statement("torch.tanh({0})", ("v0",), ("v1",)),
        Statement("torch.relu({0})", ("v1",), ("v2",)),
        Statement("{0}.add_(1)", ("x0",)),
    ]
    return Program(tuple(statements), ("v2",), {}, {}, ({"x0": x},), {})


def test_a_wrong_value_is_found_and_its_program_shrinks_to_one_statement(monkeypatch):
    """Were tanh the hyperbolic sine, one statement would show it."""
    from tilesmith.frontend.aten.registry import OPERATORS

    find = OPERATORS.find

    def wrong(self, domain, name, *version):
        return find(domain, name.replace("aten.tanh.", "aten.sinh."), *version)

    monkeypatch.setattr(type(OPERATORS), "find", wrong)
    monkeypatch.setattr(shrink, "judge_apart", lambda items: [judge(*i) for i in items])
    verdict = judge(_chain(), "module")
    assert verdict.result == WRONG
    assert "output 0" in verdict.reason
    assert verdict.reason.endswith("PyTorch's capture: right")
    small, verdict = shrink.shrunk(_chain(), "module", verdict)
    assert [s.form for s in small.statements] == ["torch.tanh({0})"]
    assert verdict.result == WRONG


@pytest.mark.parametrize("road", ["module", "archive", "backend"])
def test_an_input_that_is_not_written_is_found(road, monkeypatch):
    program = _chain()
    monkeypatch.setitem(
        ROADS, road, lambda p: ROADS["trace"](replace(p, statements=p.statements[:-1]))
    )
    verdict = judge(program, road)
    assert verdict.result == WRONG
    assert "x0 after the run" in verdict.reason


def test_errors_of_ours_are_crashes_and_typed_ones_refusals(monkeypatch):
    from tilesmith.support.errors import InternalError, UnsupportedError

    for error, result in (
        (InternalError("x"), CRASHED),
        (KeyError("x"), CRASHED),
        (UnsupportedError("x"), REFUSED),
    ):

        def failing(program, error=error):
            raise error

        monkeypatch.setitem(ROADS, "module", failing)
        assert judge(_chain(), "module").result == result


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("{0}.to(torch.uint8)", torch.tensor([300.0])),
        ("{0}.to(torch.int64)", torch.tensor([float("nan")])),
        ("{0} << 70", torch.tensor([1])),
        ("{0}.expand(5000, 2)", torch.tensor([1, 2])),
        ("torch.searchsorted({0}, 0.5)", torch.tensor([1.0, 0.0])),
        ("torch.bucketize({0}, {0})", torch.tensor([float("nan"), 0.0])),
        ("F.interpolate({0}, size=4, mode='linear')", torch.tensor([[[1.0, torch.inf, 2.0]]])),
        (
            "F.scaled_dot_product_attention({0}, {0}, {0})",
            torch.full((1, 2, 4), torch.nan).double(),
        ),
    ],
)
def test_results_that_nothing_specifies_are_no_programs(text, x):
    program = Program((Statement(text, ("x0",), ("v0",)),), ("v0",), {}, {}, ({"x0": x},), {})
    with pytest.raises(Rejected):
        outcomes(program, mode=Checked)


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("torch.bucketize({0}, {0})", torch.tensor([0.0, 0.0, torch.inf, torch.nan])),
        ("F.interpolate({0}, size=1, mode='linear')", torch.tensor([[[1.0, torch.inf]]])),
    ],
)
def test_results_that_are_specified_are_programs(text, x):
    program = Program((Statement(text, ("x0",), ("v0",)),), ("v0",), {}, {}, ({"x0": x},), {})
    assert outcomes(program, mode=Checked)


def test_exact_results_do_not_move_and_sums_that_cancel_do():
    x = torch.tensor([1e6, 1.0, -1e6])
    statements = (
        Statement("torch.flip({0}, (0,))", ("x0",), ("v0",)),
        Statement("{0}.sum()", ("x0",), ("v1",)),
    )
    program = Program(statements, ("v0", "v1"), {}, {}, ({"x0": x},), {})
    (moved,) = outcomes(program, mode=lambda: Disturbed(0))
    assert torch.equal(moved.tensors["output 0"], x.flip(0))
    assert 1e-3 < abs(moved.tensors["output 1"].item() - 1) < 1
