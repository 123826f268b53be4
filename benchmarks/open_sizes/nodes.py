"""ONNX's node tests with all dimensions open.

A model is compiled once, with each dimension of each input under a name of its own; where that is
refused, with one name for dimensions that the operator needs equal, and numbers for those that it
needs as they are.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx

import conformance
import tilesmith as ts
from tilesmith.frontend.common.errors import ValuesNeededError
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Graph
from tilesmith.support.errors import TilesmithError

from .outcome import APART, PART, REFUSED, RIGHT, Outcome, compare, outcome_of
from .sizes import Freedom, Place, Shapes, freedom, remade

Arrays = dict[str, np.ndarray]


@lru_cache
def tests() -> tuple[conformance.Test, ...]:
    """Those whose inputs are tensors of numbers, of which one has a dimension."""
    return tuple(t for t in conformance.tests() if _is_open(t))


def _is_open(test: conformance.Test) -> bool:
    if test.name in conformance.EXPLAINED or not test.data:
        return False
    declared = onnx.load_model_from_string(test.model).graph.input
    arrays = test.data[0][0]
    return (
        all(v.type.HasField("tensor_type") for v in declared)
        and all(isinstance(a, np.ndarray) and a.dtype.kind != "O" for a in arrays)
        and any(a.ndim for a in arrays)
    )


def judged(test: conformance.Test) -> tuple[Outcome, Outcome]:
    """What becomes of a test with names of its own for all dimensions, and with shared names."""
    inputs, outputs = test.data[0]
    given: Arrays = dict(zip(test.names, inputs, strict=False))
    own = _tried(test, given, outputs, False)
    if own.result != REFUSED:
        return own, own
    return own, _tried(test, given, outputs, True)


_OPEN = re.compile(r"the symbolic (?:dimension )?(d\d+)\b")
"""What an error says of a dimension that must be a number."""


def _tried(test: conformance.Test, given: Arrays, outputs: Sequence[Any], shared: bool) -> Outcome:
    fixed: Arrays = {}
    closed: dict[Place, str] = {}
    plain = _opened(test.model, given, lambda i, a: given_name(given, i, a))
    while True:
        rest = {n: a for n, a in given.items() if n not in fixed}
        if not any(a.ndim for a in rest.values()):
            return Outcome(APART, "no input with dimensions is left")
        free = _freedom(plain, rest, fixed) if shared else None
        if free is not None:
            free = free.without(closed)
        model = _opened(test.model, rest, _names(rest, free))
        try:
            exe = ts.compile(model, values=fixed, threads=1, dynamic=_ranges(rest, free))
            break
        except ValuesNeededError as e:
            needed = {n: given[n] for n in e.inputs if n not in fixed}
            if not needed:
                return outcome_of(e, "compiling")
            fixed |= needed
        except Exception as e:
            said = outcome_of(e, "compiling")
            name = _OPEN.search(said.reason)
            if free is None or said.result != REFUSED or name is None:
                return said
            found = [p for p in free.classes if free.name(p) == name[1] and p not in closed]
            if not found:
                return said
            closed |= dict.fromkeys(found, said.reason)
    try:
        for f, w in zip(exe.run(rest).values(), outputs, strict=True):
            compare(f, w, test.relative)
    except Exception as e:
        return outcome_of(e, "first sizes")
    free = free or _freedom(plain, rest, fixed)
    if free is None:
        return Outcome(APART, "the interpreter refuses the test")
    rng = np.random.default_rng(zlib.crc32(test.name.encode()))
    others = {n: remade(a, s, rng) for (n, a), s in zip(rest.items(), free.others, strict=True)}
    sizes = ", ".join(str(list(s)) for s in free.others)
    try:
        graph = load(plain, shapes={n: a.shape for n, a in others.items()}, values=fixed)
        wanted = _evaluated(graph, others)
    except TilesmithError as e:
        return Outcome(APART, f"the interpreter refuses {sizes}: {e}")
    try:
        for f, w in zip(exe.run(others).values(), wanted.values(), strict=True):
            compare(f, w, test.relative)
    except Exception as e:
        return outcome_of(e, f"sizes {sizes}")
    if closed:
        names = [*rest]
        shown = ", ".join(f"axis {a} of {names[i]!r}" for i, a in closed)
        return Outcome(PART, f"{shown}: {next(iter(closed.values()))}")
    return Outcome(RIGHT, "" if free.others != _shapes(rest) else "no other sizes")


def _ranges(arrays: Arrays, free: Freedom | None) -> dict[str, tuple[int, int]]:
    """The ranges of names that are 0 in these arrays."""
    named = _names(arrays, free)
    found = {
        named(i, a): (0, 2**31 - 1)
        for i, array in enumerate(arrays.values())
        for a, extent in enumerate(array.shape)
        if not extent
    }
    return {name: r for name, r in found.items() if name is not None}


def _evaluated(graph: Graph, arrays: Arrays) -> Arrays:
    return evaluate(graph, {v.name: arrays[v.name] for v in graph.inputs})


def _shapes(arrays: Arrays) -> Shapes:
    return tuple(a.shape for a in arrays.values())


def _freedom(model: bytes, arrays: Arrays, fixed: Arrays) -> Freedom | None:
    def fits(shapes: Shapes) -> bool:
        given = dict(zip(arrays, shapes, strict=True))
        try:
            load(model, shapes=given, values=fixed)
        except TilesmithError:
            return False
        return True

    shapes = _shapes(arrays)
    return freedom(shapes, fits) if fits(shapes) else None


def given_name(arrays: Arrays, i: int, axis: int) -> str:
    return f"{[*arrays][i]}_{axis}"


def _names(arrays: Arrays, free: Freedom | None) -> Callable[[int, int], str | None]:
    if free is None:
        return lambda i, a: given_name(arrays, i, a)
    return lambda i, a: free.name((i, a))


def _opened(model: bytes, arrays: Arrays, name: Callable[[int, int], str | None]) -> bytes:
    """The model with dimensions of these inputs named (None: a number), and no other shapes."""
    proto = onnx.load_model_from_string(model)
    where = {n: i for i, n in enumerate(arrays)}
    for info in proto.graph.input:
        if info.name in where:
            number, array = where[info.name], arrays[info.name]
            shape = info.type.tensor_type.shape
            del shape.dim[:]
            for axis, extent in enumerate(array.shape):
                named = name(number, axis)
                if named is None:
                    shape.dim.add(dim_value=extent)
                else:
                    shape.dim.add(dim_param=named)
    for info in proto.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    return proto.SerializeToString()
