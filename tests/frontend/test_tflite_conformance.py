"""Generated TFLite models of one operator against LiteRT: the page says what passes.

A fiftieth of the cases runs here; `python -m benchmarks.tflite_conformance` runs all.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import tflite_conformance as conformance
import tflite_operators

pytest.importorskip("ai_edge_litert.interpreter")


@pytest.fixture(scope="module")
def page() -> str:
    return conformance.PAGE.read_text(encoding="utf-8")


def test_a_sample_of_the_cases_does_what_the_page_says(page: str) -> None:
    run, found = conformance.outcomes(tflite_operators.cases()[7::50])
    assert len(run) >= 20
    listed = dict(re.findall(r"^\| (\w+ \d+) \| (\w+) \|", page, re.M))
    for name, outcome in found.items():
        assert outcome.result == listed.get(name, conformance.PASSED), (name, outcome)


@pytest.mark.parametrize(
    "operator", ["DIV", "HASHTABLE_LOOKUP", "NON_MAX_SUPPRESSION_V5", "REDUCE_PROD"]
)
def test_operators_of_few_other_tests(operator: str) -> None:
    suite = [c for c in tflite_operators.cases([operator]) if c.operator == operator]
    run, found = conformance.outcomes(suite)
    assert run
    assert not [name for name, o in found.items() if o.result != conformance.PASSED]


def test_the_rows_of_the_page_reach_the_bar(page: str) -> None:
    rows = {
        name: [int(v) for v in numbers.split(" | ")]
        for name, numbers in re.findall(r"^\| (\w+) \| (\d+(?: \| \d+)*) \|$", page, re.M)
    }
    total = rows.pop("all")
    assert [sum(column) for column in zip(*rows.values(), strict=True)] == total
    cases, passed, *_, crashed = total
    assert passed >= conformance.BAR * cases and crashed == 0
    assert set(rows) <= set(tflite_operators.FAMILIES) and len(rows) >= 130
    assert f"{passed / cases:.1%} pass" in page
