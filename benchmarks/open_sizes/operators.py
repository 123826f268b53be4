"""The operators' own cases (tests/common/op_cases.py) with all dimensions open.

An operator that needs dimensions equal gets one symbol for them.  One that is a number in the
operator's attributes, or that a rule of broadcasting needs, can't change and stays a number.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import tilesmith as ts
from tilesmith.graph.builder import Builder, array_type
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.support.errors import OpenDimensionError, TilesmithError

from .outcome import APART, REFUSED, RIGHT, Outcome, compare, outcome_of
from .sizes import Shapes, freedom, remade

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))


GUARDED = (
    "non_max_suppression", "scatter_sorted", "merge_sorted", "reinterpret", "stretch", "window",
)  # fmt: skip
"""Operators that stand behind another one, which makes their operands or checks the sizes."""


@lru_cache
def cases() -> tuple[tuple[str, Any], ...]:
    """Cases with dimensions, by a name."""
    from common.op_cases import CASES

    having = [c for c in CASES if c.op.name not in GUARDED and any(a.ndim for a in c.arrays())]
    seen: Counter[str] = Counter()
    found = []
    for c in having:
        name = str(c).replace("\n", " ")[:160]
        seen[name] += 1
        found.append((f"{name} #{seen[name]}" if seen[name] > 1 else name, c))
    return tuple(found)


def judged(named: tuple[str, Any]) -> Outcome:
    """What becomes of a case."""
    name, case = named
    arrays = case.arrays()
    if any(a.dtype.kind == "V" for a in arrays):
        return Outcome(APART, "a type that NumPy lacks")
    shapes = tuple(a.shape for a in arrays)

    def fits(shapes: Shapes) -> bool:
        try:
            _graph(case, arrays, shapes)
        except TilesmithError:
            return False
        return True

    free = freedom(shapes, fits)
    if not free.classes:
        return Outcome(APART, "no dimension can change")
    names = {free.name(p): shapes[p[0]][p[1]] for p in free.classes}
    symbols = {n: symbol(n, min(1, size), expected=max(size, 1)) for n, size in names.items() if n}
    opened = tuple(
        tuple(
            symbols[found] if (found := free.name((i, a))) else extent
            for a, extent in enumerate(shape)
        )
        for i, shape in enumerate(shapes)
    )
    try:
        exe = ts.compile(_graph(case, arrays, opened), threads=1)
    except OpenDimensionError as e:
        return Outcome(REFUSED, f"compiling: {e}")
    except Exception as e:
        return outcome_of(e, "compiling")
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    others = [remade(a, s, rng) for a, s in zip(arrays, free.others, strict=True)]
    for given in (arrays, others):
        when = "sizes " + ", ".join(str(list(a.shape)) for a in given)
        graph = _graph(case, given, tuple(a.shape for a in given))
        try:
            wanted = evaluate(graph, given)
        except (TilesmithError, ValueError) as e:
            return Outcome(APART, f"the interpreter refuses {when}: {e}")
        try:
            found = exe.run({f"x{i}": a for i, a in enumerate(given)})
            for f, w in zip(found.values(), wanted.values(), strict=True):
                compare(f, w, 1e-4)
        except Exception as e:
            return outcome_of(e, when)
    return Outcome(RIGHT)


def _graph(case: Any, arrays: list[np.ndarray], shapes: tuple[tuple[Dim, ...], ...]) -> Graph:
    b = Builder("case")
    values = [
        b.input(f"x{i}", TensorType(array_type(a).dtype, s))
        for i, (a, s) in enumerate(zip(arrays, shapes, strict=True))
    ]
    found = b.add(case.op, *values)
    outputs = found if isinstance(found, tuple) else (found,)
    return b.finish(outputs, [f"y{i}" for i in range(len(outputs))])
