"""Computation of the sizes of a run, for programs with symbolic extents."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilesmith.codegen.context import Code
from tilesmith.program.functions import ARENA, OUTPUTS, SCRATCH
from tilesmith.program.nodes import Measurement
from tilesmith.support.cgroup import usable_memory
from tilesmith.support.errors import ModelError

from .arrays import stored_dtype
from .program import Program

_KEPT = 64
"""Upper bound on the number of runs whose sizes are cached."""


@dataclass(frozen=True, slots=True)
class RunSizes:
    """Sizes that a run needs.

    call: for `Runner.call`: bytes of arena and scratch, then the extents of the symbols.
    outputs: shapes of the results; None for a shape that depends on data, and for host objects.
    formulas: values of the input extents that are formulas of the symbols, in order.
    """

    call: tuple[int, ...]
    outputs: tuple[tuple[int, ...] | None, ...]
    formulas: tuple[int, ...]


class SizeFunction:
    """The function of a program that computes the sizes of a run."""

    def __init__(self, program: Program, address: int, threads: int) -> None:
        self._program = program
        self._threads = threads
        pointer = ctypes.POINTER(ctypes.c_int64)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer)(address)
        self._positions = {s.name: i for i, s in enumerate(program.symbols)}
        self._ranks = [len(s.shape) for s in program.inputs]
        self._places = [
            (n, axis, self._positions[d])
            for n, spec in enumerate(program.inputs)
            for axis, d in enumerate(spec.shape)
            if isinstance(d, str) and d in self._positions
        ]
        self._formulas = [
            (n, axis)
            for n, spec in enumerate(program.inputs)
            for axis, d in enumerate(spec.shape)
            if isinstance(d, str) and d not in self._positions
        ]
        self._of_extents = lru_cache(maxsize=_KEPT)(self._compute)
        self._seen: dict[tuple[tuple[int, ...] | None, ...], RunSizes] = {}
        self._as_given = all(
            s.dtype.is_host or stored_dtype(s.dtype) == s.dtype.numpy for s in program.inputs
        )

    def of(self, arrays: Sequence[Any]) -> RunSizes:
        """The sizes of a run on these inputs, which must have correct ranks and fixed extents.

        Raises ModelError if two inputs have different extents for one symbol, for an extent outside
        its range, and if the run needs more memory than there is.
        """
        sizes = self._of_extents(self.extents([a.shape for a in arrays]))
        for (n, axis), wanted in zip(self._formulas, sizes.formulas, strict=True):
            if arrays[n].shape[axis] != wanted:
                spec = self._program.inputs[n]
                raise ModelError(
                    f"input {spec.name!r}, axis {axis}: expected {spec.shape[axis]} = {wanted}, "
                    f"found {arrays[n].shape[axis]}"
                    f"{demands(self._program, [(spec.name, axis)])}"
                )
        if self._as_given:
            if len(self._seen) >= _KEPT:
                self._seen.clear()
            self._seen[tuple(a.shape for a in arrays)] = sizes
        return sizes

    def seen(self, arrays: Sequence[Any]) -> RunSizes | None:
        """The cached sizes for NumPy arrays whose shapes `of` has accepted before, else None.

        Programs with an input that native memory stores differently from NumPy (4-bit integers)
        have no cached sizes.
        """
        shapes = [a.shape if type(a) is np.ndarray else None for a in arrays]
        return self._seen.get(tuple(shapes))

    def extents(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The extent of each symbol, taken from the shapes of the inputs."""
        extents = [-1] * len(self._positions)
        for n, axis, position in self._places:
            extent = shapes[n][axis]
            if extents[position] == -1:
                extents[position] = extent
            elif extents[position] != extent:
                self._disagree(position, shapes)
        return tuple(extents)

    def _disagree(self, position: int, shapes: Sequence[tuple[int, ...]]) -> None:
        inputs, symbol = self._program.inputs, self._program.symbols[position]
        places = [(n, axis) for n, axis, p in self._places if p == position]
        seen = ", ".join(
            f"{shapes[n][axis]} (axis {axis} of {inputs[n].name!r})" for n, axis in places
        )
        broadcast = next((n for n, axis in places if shapes[n][axis] == 1), None)
        cure = (
            ""
            if broadcast is None
            else (
                f"; if an extent of 1 is to be broadcast, compile with the shape of "
                f"{inputs[broadcast].name!r} in shapes="
            )
        )
        raise ModelError(
            f"dimension {symbol.name!r}: expected one size in all inputs, found {seen}{cure}"
            f"{demands(self._program, [(inputs[n].name, axis) for n, axis in places])}"
        )

    def _compute(self, extents: tuple[int, ...]) -> RunSizes:
        program = self._program
        numbers = (ctypes.c_int64 * len(extents))(*extents)
        values = (ctypes.c_int64 * program.size_values)()
        code = self._function(numbers, values)
        if code != Code.OK:
            self._refuse(code, extents)
        shapes: list[tuple[int, ...] | None] = []
        first = OUTPUTS
        for i, spec in enumerate(program.outputs):
            if i in program.grown or spec.dtype.is_host:
                shapes.append(None)
                continue
            shapes.append(tuple(values[first : first + len(spec.shape)]))
            first += len(spec.shape)
        formulas = tuple(values[first : first + len(self._formulas)])
        results = zip(program.outputs, shapes, strict=True)
        needed = values[ARENA] + values[SCRATCH] * self._threads
        needed += sum(s.dtype.bytes * math.prod(shape) for s, shape in results if shape is not None)
        memory = usable_memory()
        if memory is not None and needed > memory:
            raise ModelError(
                f"a run with {self._shown(extents)} needs {needed} bytes, the machine has "
                f"{memory}; give smaller inputs"
            )
        return RunSizes((values[ARENA], values[SCRATCH], *extents), tuple(shapes), formulas)

    def _refuse(self, code: int, extents: tuple[int, ...]) -> None:
        for symbol, n in zip(self._program.symbols, extents, strict=True):
            if not symbol.sizes.low <= n <= symbol.sizes.high:
                position = self._positions[symbol.name]
                inputs = self._program.inputs
                axes = [(inputs[i].name, axis) for i, axis, p in self._places if p == position]
                cure = demands(self._program, axes) or (
                    f"; compile the model with another range, as in dynamic={{{symbol.name!r}: "
                    f"({min(n, symbol.sizes.low)}, {max(n, symbol.sizes.high)})}}"
                )
                raise ModelError(
                    f"dimension {symbol.name!r}: expected {symbol.sizes.low} to "
                    f"{symbol.sizes.high}, found {n}{cure}"
                )
        why = (
            "are too large"
            if code == Code.OVERFLOW
            else "make an extent inside it negative, or less than an operator needs"
        )
        raise ModelError(f"the model can't run with {self._shown(extents)}: these sizes {why}")

    def _shown(self, extents: tuple[int, ...]) -> str:
        pairs = zip(self._program.symbols, extents, strict=True)
        return ", ".join(f"{s.name} = {n}" for s, n in pairs)


def unfit_extent(measurement: Measurement, values: Sequence[int]) -> str:
    """Reason why extents that a run measured are impossible.  values: the failure's values."""
    label = f"{measurement.label}: " if measurement.label else ""
    if not values:
        names = ", ".join(e.name for e in measurement.extents)
        return f"{label}the data make an extent that depends on {names} negative or too large"
    number, extent, low, high = values
    name = measurement.extents[number].name
    if low == high:
        return f"{label}the sizes or data of this run make {name!r} {extent}; expected {low}"
    return f"{label}the data make dimension {name!r} {extent}; expected {low} to {high}"


def demands(program: Program, places: Sequence[tuple[str, int]]) -> str:
    """Text to append to a message about axes of inputs: for each dimension of these axes, the last
    requirement that an operator put on it.

    places: pairs of an input's name and an axis.
    """
    by_dimension = {
        told["dimension"]: f"; dimension {told['dimension']!r} is {told['now']}: {told['demand']}"
        for told in _told(program)
        if not {tuple(p) for p in told["places"]}.isdisjoint(places)
    }
    return "".join(by_dimension.values())


def _told(program: Program) -> Iterator[dict[str, Any]]:
    """The valid entries about dimensions in the metadata.  Files may contain invalid ones."""
    told = program.metadata.get("narrowed")
    for entry in told if isinstance(told, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("places"), list):
            places = entry["places"]
            is_text = all(isinstance(entry.get(k), str) for k in ("dimension", "now", "demand"))
            if is_text and all(_is_place(p) for p in places):
                yield entry


def _is_place(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int)
    )
