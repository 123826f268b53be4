#!/usr/bin/env python3
"""TFLite models of one operator, run by LiteRT's reference kernels and by Tilesmith:
`python -m benchmarks.tflite_conformance [WORD ...]`.

Each model is imported from its bytes alone and evaluated; every eighth one of an operator is
compiled and run too.  A case passes if every output has LiteRT's type,
shape and values: integers exactly, floats within 1e-4.  A case that LiteRT refuses is no case.

Without WORDs, which select operators by parts of their names, the result is written to
`docs/tflite-conformance.md`.  Exit status 1 if fewer than `BAR` of the cases pass.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import children
from tflite_operators import Case, cases

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tflite-conformance.md"
BAR = 0.97
SECONDS = 60.0
COMPILED = 8
"""Of so many cases of an operator, one is compiled too."""
PASSED, REFUSED, WRONG, CRASHED = "passed", "refused", "wrong", "crashed"


@dataclass(frozen=True)
class Outcome:
    """The result of a case; `reason` is empty for one that passed."""

    result: str
    reason: str = ""


def litert(case: Case) -> list[np.ndarray] | None:
    """The outputs of LiteRT's reference kernels; None if LiteRT refuses the model."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kinds = (OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    is_broken = case.operator == "SUM" and case.given[0].dtype in (np.int8, np.int16)
    for kernels in kinds[is_broken:]:  # the reference kernel of SUM reads memory never written
        try:
            run = Interpreter(model_content=case.content(), experimental_op_resolver_type=kernels)
            run.allocate_tensors()
            for place, array in zip(run.get_input_details(), case.given, strict=True):
                run.set_tensor(place["index"], array)
            run.invoke()
            return [run.get_tensor(d["index"]).copy() for d in run.get_output_details()]
        except (ValueError, RuntimeError):
            continue
    return None


def run_alone(task: tuple[Case, list[np.ndarray]]) -> Outcome:
    """Import a case's model, evaluate it, compile it if it is one of these cases, and compare the
    outputs with LiteRT's.
    """
    import tilesmith as ts
    from tilesmith.frontend.load import load
    from tilesmith.graph.evaluate import evaluate
    from tilesmith.support.errors import ModelError

    case, expected = task
    content = case.content([w.shape for w in expected])
    try:
        graph = load(content)
        states = [d.array for _, d in graph.defaults]
        made = [*evaluate(graph, [*case.given, *states]).values()]
        compare(made[: len(expected)], expected)
        if case.number % COMPILED == 0:
            made = ts.compile(content, threads=1)(*case.given)
            compare(made if isinstance(made, tuple) else (made,), expected)
    except AssertionError as e:
        return Outcome(WRONG, next((s for s in str(e).splitlines() if s.strip()), ""))
    except ModelError as e:
        return Outcome(REFUSED, str(e).rsplit("at 'y0': ", 1)[-1])
    except Exception as e:  # a defect, reported with its case
        return Outcome(CRASHED, f"{type(e).__name__}: {str(e)[:200]}")
    return Outcome(PASSED)


def compare(made: Sequence[Any], expected: Sequence[np.ndarray]) -> None:
    """Raises AssertionError where outputs differ."""
    assert len(made) == len(expected), f"expected {len(expected)} outputs, found {len(made)}"
    for g, w in zip(made, expected, strict=True):
        types = [f"{a.dtype}{list(a.shape)}" for a in (w, g)]
        assert types[0] == types[1], f"expected {types[0]}, found {types[1]}"
        if w.dtype.kind == "f":
            finite = np.abs(w[np.isfinite(w)])
            size = float(finite.max()) if finite.size else 1.0
            np.testing.assert_allclose(g, w, 1e-4, 1e-5 * max(size, 1e-30), equal_nan=True)
        else:
            np.testing.assert_array_equal(g, w)


def outcomes(suite: Sequence[Case]) -> tuple[list[Case], dict[str, Outcome]]:
    """The cases that LiteRT runs, and the outcome of each by name."""
    answers = list(children.each(suite, litert, SECONDS))
    tasks = [(c, a) for c, a in zip(suite, answers, strict=True) if isinstance(a, list)]
    found = children.each(tasks, run_alone, SECONDS)
    named = {
        case.name: Outcome(CRASHED, o.reason) if isinstance(o, children.Died) else o
        for (case, _), o in zip(tasks, found, strict=True)
    }
    return [case for case, _ in tasks], named


def page(run: Sequence[Case], found: dict[str, Outcome]) -> str:
    """docs/tflite-conformance.md."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case in run:
        counts[case.operator][found[case.name].result] += 1
    total = Counter(o.result for o in found.values())
    columns = (PASSED, REFUSED, WRONG, CRASHED)
    text = [
        "# TFLite conformance",
        "",
        f"{len(run)} generated models of one operator each, for {len(counts)} builtin operators, "
        "run by LiteRT's reference",
        "kernels and by Tilesmith: floats, integers, and quantised numbers of 8 and 16 bits, of "
        "several shapes and options.",
        "Each is imported from its bytes alone and evaluated; every eighth one of an operator is "
        "compiled and run too.",
        "Integers must be equal, floats within 1e-4.  Of these cases, "
        f"{total[PASSED] / max(len(run), 1):.1%} pass.",
        "`python -m benchmarks.tflite_conformance` writes this page.",
        "",
        "| operator | cases | passed | refused | wrong | crashed |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, c in (*sorted(counts.items()), ("all", total)):
        text.append(f"| {name} | {c.total()} | {' | '.join(str(c[k]) for k in columns)} |")
    rest = {name: o for name, o in found.items() if o.result != PASSED}
    if rest:
        text += [
            "",
            "## What does not pass",
            "",
            "| case | result | reason |",
            "| --- | --- | --- |",
        ]
        text += [f"| {n} | {o.result} | {o.reason.replace('|', '/')} |" for n, o in rest.items()]
    return "\n".join(text) + "\n"


def main(words: list[str]) -> int:
    run, found = outcomes(cases(words))
    if words:
        for name, o in found.items():
            print(f"{o.result:8} {name}  {o.reason}")
    else:
        PAGE.write_text(page(run, found), encoding="utf-8")
    counts = Counter(o.result for o in found.values())
    print(", ".join(f"{n} {result}" for result, n in counts.most_common()))
    return 0 if counts[PASSED] >= BAR * len(run) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    sys.exit(main(parser.parse_args().words))
