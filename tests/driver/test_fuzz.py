"""Random ONNX graphs give what the reference evaluator gives.

`python -m benchmarks.fuzz` runs more of them, and shows the smallest graph for what it finds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import children
from fuzz import calls, files, judge, shrink, texts
from fuzz.builder import Rejected, info_of, model_of
from fuzz.campaign import verdicts
from fuzz.cases import Case, expected, random_case
from fuzz.entries import Entry, entries
from fuzz.mutants import mutant_verdicts

ROOT = Path(__file__).resolve().parents[2]
GRAPHS = range(200)
NODES = 3
"""Most nodes of a graph: many small ones find more in the time than fewer large ones."""


def test_random_graphs():
    found = dict(zip(GRAPHS, verdicts(GRAPHS, NODES, opt_level=0), strict=True))
    bad = (judge.WRONG, judge.CRASHED)
    failed = {f"seed {seed}": v for seed, v in found.items() if v.result in bad}
    command = f"python -m benchmarks.fuzz --nodes {NODES} --graphs SEED 1"
    assert not failed, f"{command} shows the smallest graph"
    assert sum(v.result == judge.RIGHT for v in found.values()) >= 0.9 * len(GRAPHS)


def test_damaged_models_are_refused_or_run():
    seeds = range(100)
    found = dict(zip(seeds, mutant_verdicts(seeds), strict=True))
    assert not {seed: v for seed, v in found.items() if v.result == judge.CRASHED}
    results = [v.result for v in found.values()]
    assert results.count(judge.REFUSED) > 50 and judge.RIGHT in results


def test_damaged_files_of_other_kinds_are_refused_or_read():
    seeds = range(90)
    found = dict(zip(seeds, files.file_verdicts(seeds), strict=True))
    assert not {seed: v for seed, v in found.items() if v.result == judge.CRASHED}
    results = [v.result for v in found.values()]
    assert results.count(judge.REFUSED) > 30 and judge.RIGHT in results


def test_damaged_texts_are_refused_or_are_programs(monkeypatch):
    monkeypatch.setattr(texts, "MODELS", 3)
    seeds = range(150)
    found = dict(zip(seeds, texts.text_verdicts(seeds), strict=True))
    assert not {seed: v for seed, v in found.items() if v.result == judge.CRASHED}
    results = [v.result for v in found.values()]
    assert results.count(judge.REFUSED) > 50 and results.count(judge.RIGHT) > 20


def test_every_kind_of_file_is_read_when_it_is_sound(tmp_path):
    for name, kind in files.KINDS.items():
        folder = tmp_path / name
        folder.mkdir()
        path = kind.make(folder)
        if name not in ("key", "signature"):  # a new key is of no old signature
            kind.read(path)


CALLS = 500


def test_public_entries_with_objects_of_every_type():
    """A share of the calls; `python -m benchmarks.fuzz --calls ENTRY` runs all of an entry's.

    In a process of its own: tensors of PyTorch can't be made in a child of one whose threads run.
    """
    command = [sys.executable, "-m", "benchmarks.fuzz", "--calls", "", "--sample", str(CALLS)]
    found = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert found.returncode == 0, found.stdout + found.stderr
    counts = {r: int(n) for n, r in re.findall(r"(\d+) (\w+)", found.stdout.splitlines()[-1])}
    assert counts[judge.REFUSED] > CALLS / 2 and counts[judge.RIGHT] > CALLS / 20, found.stdout


def test_most_entries_have_a_valid_call():
    """Else a wrong argument would be refused for another one's sake."""
    # Apart, since a call may change other packages, as `ts.ort.install` does.
    verdicts = children.each(entries(), calls.judge_valid, judge.SECONDS)
    found = zip(entries(), verdicts, strict=True)
    failed = [e.name for e, v in found if isinstance(v, children.Died) or v.result != judge.RIGHT]
    assert len(failed) < len(entries()) / 15, failed


@pytest.mark.parametrize(
    ("act", "result"),
    [
        (lambda x: x.no_such, judge.CRASHED),
        (lambda x: x + 1, judge.CRASHED),
        (lambda x: os._exit(3), judge.CRASHED),
        (lambda x: sum(count()), judge.CRASHED),
        (lambda: None, judge.REFUSED),
        (lambda x: x, judge.RIGHT),
    ],
)
def test_what_a_call_does_wrong_is_found(act, result, monkeypatch):
    monkeypatch.setattr(calls, "SECONDS", 1.0)
    entry = Entry("f", lambda x: act(x), {"x": int}, {}, ())
    if result == judge.REFUSED:
        entry = Entry("f", act, {"x": int}, {}, ())
    (verdict,) = calls.call_verdicts([calls.Call(entry, "x", "None")])
    assert verdict.result == result


def test_a_seed_always_makes_the_same_case():
    for seed in range(0, 40, 3):
        a, b = random_case(seed), random_case(seed)
        assert a.model == b.model
        for x, y in zip(a.runs, b.runs, strict=True):
            assert all(np.array_equal(x[n], y[n], equal_nan=x[n].dtype.kind == "f") for n in x)


def test_the_cases_have_open_dimensions_and_several_sizes():
    cases = [random_case(seed) for seed in range(0, 60, 3)]
    assert sum(len(c.runs) > 1 for c in cases) > len(cases) / 2


def _chain() -> Case:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    nodes = [
        helper.make_node(op, [f"v{i}"], [f"v{i + 1}"])
        for i, op in enumerate(("Neg", "Tanh", "Relu"))
    ]
    return Case(model_of(nodes, [info_of("v0", x)], ["v3"], {}, 20), ({"v0": x},))


def test_a_wrong_result_is_found_and_its_graph_shrinks_to_one_node(monkeypatch):
    """Were Tanh the hyperbolic sine, one node would show it."""
    from tilesmith.frontend.onnx.operators import OPERATORS
    from tilesmith.ops import elementwise as ew

    find = OPERATORS.find

    def wrong(domain, name, version):
        made = find(domain, name, version)
        return (lambda n: n.add(ew.Sinh(), n.input(0))) if name == "Tanh" else made

    monkeypatch.setattr(type(OPERATORS), "find", lambda self, *key: wrong(*key))
    case = _chain()
    (verdict,) = judge.judge_apart([case])
    assert verdict.result == judge.WRONG
    small, verdict = shrink.shrunk(case, verdict)
    assert [n.op_type for n in small.model.graph.node] == ["Tanh"]
    assert verdict.result == judge.WRONG
    assert "as the reference evaluator" in verdict.reason


def test_what_ends_or_holds_up_a_process_is_found(monkeypatch):
    import os
    from itertools import count

    for act, reason in (
        (lambda *_: os._exit(7), "status 7"),
        (lambda *_: sum(count()), "after 1 s"),
    ):
        monkeypatch.setattr(judge, "expected", act)
        monkeypatch.setattr(judge, "SECONDS", 1.0)
        (verdict,) = judge.judge_apart([_chain()])
        assert verdict.result == judge.CRASHED
        assert reason in verdict.reason


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("Div", (np.int64([4]), np.int64([0]))),
        ("Add", (np.ones(2, np.float32), np.ones(3, np.float32))),
        ("GatherElements", (np.ones(3, np.float32), np.int64([0, -(1 << 62)]))),
    ],
)
def test_results_that_nothing_specifies_are_no_cases(op, operands):
    given = dict(zip("ab", operands, strict=True))
    node = helper.make_node(op, ["a", "b"], ["y"])
    model = model_of([node], [info_of(n, a) for n, a in given.items()], ["y"], {}, 20)
    with pytest.raises(Rejected):
        expected(model, given)
