"""ONNX's own backend tests: all in the graph evaluator, and a thirty-second of them compiled.

These are compiled from the bytes of their models alone, as docs/conformance.md says, or where that
is needed with the values of inputs.  `python -m benchmarks.conformance` compiles all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import conformance
import tilesmith as ts
from tilesmith.frontend.common.errors import ValuesNeededError
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.support.errors import UnsupportedError

Engine = Callable[[Graph, dict[str, np.ndarray]], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def suite() -> list[conformance.Test]:
    return list(conformance.tests())


@pytest.fixture(scope="module")
def sample(suite: list[conformance.Test]) -> list[conformance.Test]:
    return suite[3::32]


@pytest.fixture(scope="module")
def alone(sample: list[conformance.Test]) -> dict[str, conformance.Outcome]:
    return {test.name: conformance.run_alone(test) for test in sample}


def test_nothing_crashes_and_no_answer_is_wrong(alone):
    found = {n: o for n, o in alone.items() if n not in conformance.EXPLAINED}
    bad = (conformance.WRONG, conformance.CRASHED)
    assert not {n: o for n, o in found.items() if o.result in bad}


def test_the_page_names_what_does_not_pass(alone):
    text = conformance.PAGE.read_text(encoding="utf-8")
    if f"ONNX {onnx.__version__} has" not in text:
        pytest.skip("docs/conformance.md is of another version of onnx")
    written = conformance.listed(text)
    assert written
    for name, outcome in alone.items():
        result, said = outcome.result, written.get(name, conformance.Outcome(conformance.PASSED))
        assert result == said.result, (name, outcome, said)
        if result == conformance.REFUSED:
            assert outcome.reason == said.reason, name


def _with_values(test: conformance.Test, given: dict[str, np.ndarray]) -> Graph:
    """The graph with those inputs fixed that shapes depend on."""
    fixed: dict[str, np.ndarray] = {}
    while True:
        shapes = {n: a.shape for n, a in given.items() if n not in fixed}
        try:
            return load(test.model, shapes=shapes, values=fixed)
        except ValuesNeededError as e:
            needed = {n: given[n] for n in e.inputs if n not in fixed}
            if not needed:
                raise
            fixed |= needed


def _check(test: conformance.Test, engine: Engine) -> None:
    for inputs, outputs in test.data:
        given = dict(zip(test.names, inputs, strict=False))
        graph = _with_values(test, given)
        found = engine(graph, {v.name: given[v.name] for v in graph.inputs})
        conformance.compare([*found.values()], outputs, test)


def _failures(tests: list[conformance.Test], engine: Engine) -> tuple[int, dict[str, str]]:
    """How many pass, and what is wrong with those that neither pass nor are unsupported."""
    passed, wrong = 0, {}
    for test in tests:
        try:
            _check(test, engine)
            passed += 1
        except UnsupportedError:
            continue
        except Exception as e:  # every other end is a wrong answer, reported with its test
            if test.name not in conformance.EXPLAINED:
                wrong[test.name] = f"{type(e).__name__}: {e}"
    return passed, wrong


def test_compiled_with_the_values_that_shapes_depend_on(sample, alone):
    mine = [t for t in sample if alone[t.name].reason == conformance.NEEDS_VALUES]
    passed, wrong = _failures(mine, lambda g, x: ts.compile(g, threads=2).run(x))
    assert not wrong
    assert passed >= 0.9 * len(mine)


def test_evaluated(suite):
    passed, wrong = _failures([t for t in suite if _is_numeric(t)], evaluate)
    assert not wrong
    assert passed >= 1500


def _is_numeric(test: conformance.Test) -> bool:
    """Whether all inputs are tensors of numbers: neither strings nor optionals nor sequences."""
    declared = onnx.load_model_from_string(test.model).graph.input
    return all(v.type.HasField("tensor_type") for v in declared) and all(
        isinstance(x, np.ndarray) and x.dtype.kind != "O" for i, _ in test.data for x in i
    )
