"""How requests share a call: where the batch dimension of each input and output is, and how inputs
of unequal lengths are padded.

A request of `n` rows takes part in a call with other requests along the batch dimension.  Requests
may share a call if their shapes agree in all other dimensions, or in all but the length when inputs
are padded.  The answers are those of single calls if the model computes each row independently of
the other rows and of the padding.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.program.main import Symbol, TensorSpec
from tilesmith.runtime.arrays import check, check_inputs, listing
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.given import as_array
from tilesmith.support.arrays import sample_array
from tilesmith.support.errors import ModelError, UsageError

_LARGEST = 32
"""Largest number of rows of a call by default, unless the batch dimension allows less."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The arrays of a valid request.

    arrays: one array for each of `Layout.inputs`.
    given: the caller's objects for `arrays`.
    rows: extent of the batch dimension.
    length: extent of the padded dimension; 0 without padding.
    key: requests with equal keys may share a call.
    """

    arrays: tuple[np.ndarray, ...]
    given: tuple[Any, ...]
    rows: int
    length: int
    key: Hashable


class Layout:
    """The form of the requests to an executable.

    inputs: the inputs that a request has, in order.
    max_rows: largest number of rows of a call.
    """

    def __init__(
        self,
        exe: Executable,
        max_rows: int | None = None,
        batch: str | None = None,
        length: str | None = None,
        padding: float | Mapping[str, float] = 0,
        mask: str | None = None,
        buckets: Sequence[int] = (),
    ) -> None:
        """The arguments are those of `Batcher`.  Raises UsageError if calls of the executable can't
        be shared.
        """
        program = exe.program
        self.outputs = exe.outputs
        self._symbols = {s.name: s for s in program.symbols}
        defaults = program.optional_arrays
        required = tuple(s for s in exe.inputs if s.name not in defaults)
        self._check_program(exe, required)
        self._batch = self._batch_symbol(required, batch)
        if self._batch.low > 1:
            raise UsageError(
                f"Batcher: expected a batch dimension {self._batch.name!r} that may be 1, found "
                f"{self._batch.low} to {self._batch.high}; compile with "
                f"dynamic={{{self._batch.name!r}: (1, {self._batch.high})}}"
            )
        if max_rows is not None and max_rows > self._batch.high:
            raise UsageError(
                f"Batcher: max_batch: expected at most {self._batch.high}, the largest size of "
                f"dimension {self._batch.name!r}, found {max_rows}; give a smaller max_batch, or "
                "compile with a larger range in dynamic="
            )
        self.max_rows = min(_LARGEST, self._batch.high) if max_rows is None else max_rows
        self._length = None if length is None else self._length_symbol(length)
        self._mask = self._mask_of(mask, required)
        self.inputs = tuple(s for s in required if s.name != mask)
        self._in_axes = [self._axis(s, self._batch, "input") for s in required]
        self._out_axes = [self._axis(s, self._batch, "output") for s in self.outputs]
        self._required = required
        self._program = program
        self._pads = self._paddings(padding)
        self._buckets = self._checked_buckets(buckets)
        if self._length is not None:
            for spec in (*required, *self.outputs):
                self._check_lengths(spec)

    def accept(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Accepted:
        """The arrays of a request.  Raises ModelError if names, types or shapes are wrong."""
        given = self._in_order(arrays, named)
        converted = tuple(as_array(value, s) for value, s in zip(given, self.inputs, strict=True))
        extents: dict[str, tuple[int, str]] = {}
        for array, spec in zip(converted, self.inputs, strict=True):
            check(array, spec, "input")
            for axis, (d, n) in enumerate(zip(spec.shape, array.shape, strict=True)):
                if isinstance(d, str) and d in self._symbols:
                    self._check_extent(extents, d, n, f"axis {axis} of {spec.name!r}")
        rows = extents[self._batch.name][0]
        if not 1 <= rows <= self.max_rows:
            raise ModelError(
                f"dimension {self._batch.name!r}: expected a request of 1 to {self.max_rows} rows "
                f"(max_batch), found {rows}; divide it into smaller requests"
            )
        shapes = tuple(a.shape for a in converted)
        length, bucket = 0, 0
        skipped = {self._batch.name}
        if self._length is not None:
            skipped.add(self._length.name)
            length = extents[self._length.name][0]
            bucket = self._bucket(length)
        key = (
            bucket,
            tuple(
                tuple(n for d, n in zip(s.shape, shape, strict=True) if d not in skipped)
                for s, shape in zip(self.inputs, shapes, strict=True)
            ),
        )
        return Accepted(converted, given, rows, length, key)

    def example(self) -> dict[str, np.ndarray]:
        """A request of one row with random numbers, other dimensions at their expected sizes."""
        rng, limits = np.random.default_rng(0), self._program.index_limits
        axes = {s.name: axis for s, axis in zip(self._required, self._in_axes, strict=True)}
        names = {s.name for s in self.inputs}
        arrays: dict[str, np.ndarray] = {}
        for s in self._program.expected_inputs:
            if s.name in names:
                shape = list(s.static_shape)
                shape[axes[s.name]] = 1
                limit = limits.get(s.name)
                arrays[s.name] = sample_array(s.dtype.numpy, tuple(shape), rng, limit)
        return arrays

    def gather(self, requests: Sequence[Accepted]) -> dict[str, np.ndarray]:
        """The inputs by name of a call for all requests, whose keys are equal."""
        extent = self._extent(requests)
        gathered: dict[str, np.ndarray] = {}
        numbers = {s.name: i for i, s in enumerate(self.inputs)}
        for spec, axis in zip(self._required, self._in_axes, strict=True):
            if spec.name == self._mask:
                gathered[spec.name] = self._mask_array(spec, axis, requests, extent)
                continue
            number = numbers[spec.name]
            parts = [r.arrays[number] for r in requests]
            if self._length is not None and self._length.name in spec.shape:
                pad_axis = spec.shape.index(self._length.name)
                pad = self._pads.get(spec.name, 0)
                parts = [_padded(p, pad_axis, extent, pad) for p in parts]
            gathered[spec.name] = parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
        return gathered

    def scatter(
        self, results: Mapping[str, Any], requests: Sequence[Accepted]
    ) -> list[tuple[np.ndarray, ...]]:
        """For each request, its part of each output, in memory of its own."""
        answers: list[tuple[np.ndarray, ...]] = []
        first = 0
        for request in requests:
            parts: list[np.ndarray] = []
            for spec, axis in zip(self.outputs, self._out_axes, strict=True):
                place = [slice(None)] * len(spec.shape)
                place[axis] = slice(first, first + request.rows)
                if self._length is not None and self._length.name in spec.shape:
                    place[spec.shape.index(self._length.name)] = slice(request.length)
                whole = results[spec.name]
                part = whole[tuple(place)]
                parts.append(whole if part.shape == whole.shape else part.copy())
            answers.append(tuple(parts))
            first += request.rows
        return answers

    def _check_program(self, exe: Executable, required: tuple[TensorSpec, ...]) -> None:
        if exe.states or exe.program.in_place:
            raise UsageError(
                "Batcher: expected an executable whose calls are independent, found one that keeps "
                "states or writes to its inputs; compile without in_place="
            )
        hosts = [s for s in (*required, *self.outputs) if s.dtype.is_host]
        if hosts:
            raise UsageError(
                f"Batcher: expected inputs and outputs of numbers, found {listing(tuple(hosts))}; "
                "call the executable itself"
            )

    def _batch_symbol(self, inputs: Sequence[TensorSpec], batch: str | None) -> Symbol:
        first = inputs[0].shape[0] if inputs and inputs[0].shape else None
        name = first if batch is None else batch
        if isinstance(name, str) and name in self._symbols:
            return self._symbols[name]
        found = f"found {batch!r}" if batch is not None else f"found {first!r}"
        raise UsageError(
            f"Batcher: expected an open batch dimension, one of "
            f"{sorted(self._symbols) or 'none'}, {found}; compile a model with one, as in "
            "dynamic={'batch': (1, 64)}, and name it with batch= unless it is the first dimension "
            "of the first input"
        )

    def _length_symbol(self, length: str) -> Symbol:
        others = sorted(self._symbols.keys() - {self._batch.name})
        if length not in others:
            raise UsageError(
                f"Batcher: length: expected another open dimension, one of {others or 'none'}, "
                f"found {length!r}"
            )
        return self._symbols[length]

    def _mask_of(self, mask: str | None, required: Sequence[TensorSpec]) -> str | None:
        if mask is None:
            return None
        wanted = {self._batch.name, self._length.name if self._length else ""}
        for spec in required:
            if spec.name == mask and set(spec.shape) == wanted and len(spec.shape) == 2:
                return mask
        raise UsageError(
            f"Batcher: mask: expected an input of two dimensions, {self._batch.name!r} and the one "
            f"that length= names, found {mask!r}; the inputs are {listing(tuple(required))}"
        )

    def _axis(self, spec: TensorSpec, symbol: Symbol, what: str) -> int:
        if spec.shape.count(symbol.name) != 1:
            raise UsageError(
                f"Batcher: {what} {spec.name!r}: expected the batch dimension {symbol.name!r} "
                f"exactly once, found {spec.type}; rows of such a model can't share a call"
            )
        return spec.shape.index(symbol.name)

    def _paddings(self, padding: float | Mapping[str, float]) -> dict[str, float]:
        if self._length is None:
            if padding != 0:
                raise UsageError("Batcher: padding: expected length= with it, found none")
            return {}
        padded = [s for s in self.inputs if self._length.name in s.shape]
        values = padding if isinstance(padding, Mapping) else {s.name: padding for s in padded}
        for name, value in values.items():
            spec = next((s for s in padded if s.name == name), None)
            if spec is None:
                raise UsageError(
                    f"Batcher: padding: expected inputs with dimension {self._length.name!r} "
                    f"({listing(tuple(padded))}), found {name!r}"
                )
            if not _fits(value, spec.dtype):
                raise UsageError(
                    f"Batcher: padding: expected a value of type {spec.dtype} for {name!r}, found "
                    f"{value!r}"
                )
        return dict(values)

    def _checked_buckets(self, buckets: Sequence[int]) -> tuple[int, ...]:
        if not buckets:
            return ()
        if self._length is None:
            raise UsageError("Batcher: buckets: expected length= with them, found none")
        low, high = self._length.low, self._length.high
        if not all(low <= n <= high for n in buckets):
            raise UsageError(
                f"Batcher: buckets: expected lengths from {low} to {high}, the range of dimension "
                f"{self._length.name!r}, found {list(buckets)}"
            )
        return tuple(sorted(set(buckets)))

    def _check_lengths(self, spec: TensorSpec) -> None:
        known = {self._batch.name, self._length.name if self._length else ""}
        closed = [d for d in spec.shape if isinstance(d, str) and d not in self._symbols]
        twice = any(spec.shape.count(name) > 1 for name in known)
        if closed or twice:
            raise UsageError(
                f"Batcher: {spec.name!r}: expected dimensions that are numbers or open dimensions, "
                f"each once, found {spec.type}; leave length= out, so that only requests of equal "
                "lengths share a call"
            )

    def _check_extent(
        self, extents: dict[str, tuple[int, str]], name: str, n: int, place: str
    ) -> None:
        before, other = extents.setdefault(name, (n, place))
        symbol = self._symbols[name]
        if before != n:
            raise ModelError(
                f"dimension {name!r}: expected one size in all inputs, found {before} ({other}), "
                f"{n} ({place})"
            )
        if name != self._batch.name and not symbol.low <= n <= symbol.high:
            raise ModelError(
                f"dimension {name!r}: expected {symbol.low} to {symbol.high}, found {n} ({place})"
            )

    def _in_order(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        names = [s.name for s in self.inputs]
        if not named and len(arrays) == len(names):
            return tuple(arrays)
        check_inputs(named, self.inputs)
        rest = names[len(arrays) :]
        if len(arrays) > len(names) or set(named) != set(rest):
            raise ModelError(
                f"expected each input once, by its position or by its name "
                f"({listing(self.inputs)}), found {len(arrays)} by position and "
                f"{sorted(named) or 'none'} by name"
            )
        return (*arrays, *(named[name] for name in rest))

    def _bucket(self, length: int) -> int:
        if not self._buckets:
            return 0
        for n in self._buckets:
            if length <= n:
                return n
        raise ModelError(
            f"dimension {self._length.name if self._length else ''!r}: expected at most "
            f"{self._buckets[-1]}, the largest of buckets=, found {length}"
        )

    def _extent(self, requests: Sequence[Accepted]) -> int:
        """The length to which the requests are padded."""
        longest = max(r.length for r in requests)
        return self._bucket(longest) if self._buckets else longest

    def _mask_array(
        self, spec: TensorSpec, axis: int, requests: Sequence[Accepted], extent: int
    ) -> np.ndarray:
        """1 for the elements of requests, 0 for padding."""
        lengths = np.repeat([r.length for r in requests], [r.rows for r in requests])
        rows = (np.arange(extent) < lengths[:, None]).astype(spec.dtype.numpy)
        return np.ascontiguousarray(rows if axis == 0 else rows.T)


def _fits(value: float, dtype: DType) -> bool:
    """Whether an element type has a number; floats are rounded."""
    if dtype.is_bool:
        return value in (0, 1)
    if dtype.is_float:
        return abs(value) <= dtype.largest or math.isnan(value) or math.isinf(value)
    is_whole = isinstance(value, int) or value.is_integer()
    return is_whole and dtype.min <= value <= dtype.max


def _padded(array: np.ndarray, axis: int, extent: int, value: float) -> np.ndarray:
    """`array` with `value` behind its end along `axis`, up to `extent`."""
    missing = extent - array.shape[axis]
    if missing == 0:
        return array
    shape = list(array.shape)
    shape[axis] = missing
    return np.concatenate([array, np.full(shape, value, array.dtype)], axis)
