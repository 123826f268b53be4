"""The part of a program that runs in Python: its host functions, and values that are no native
tensors.

Native memory holds the numbers of such values among the `objects` of a run.  They live until the
run ends.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from tilesmith.codegen.steps import HostArray, HostCall
from tilesmith.host import prepare
from tilesmith.host.values import checked
from tilesmith.ir.dtypes import DType, by_name, string
from tilesmith.support.errors import ModelError, TilesmithError

from .arrays import check_shape
from .program import Program, TensorSpec


@dataclass(frozen=True, slots=True)
class _Array:
    """A tensor that a host function reads or writes.

    dtype: its element type.
    numpy: the same for NumPy.
    shape: its extents; None for one that is an argument of the call.
    known: the extents, if no argument decides one.
    """

    dtype: DType
    numpy: np.dtype
    shape: tuple[int | None, ...]
    known: tuple[int, ...] | None

    @staticmethod
    def of(array: HostArray) -> _Array:
        dtype = by_name(array.dtype)
        assert dtype is not None
        shape = tuple(d if isinstance(d, int) else None for d in array.shape)
        known = tuple(d for d in shape if d is not None)
        numpy = np.dtype(object) if dtype.is_host else dtype.numpy
        return _Array(dtype, numpy, shape, known if len(known) == len(shape) else None)

    def filled(self, extents: Iterator[int]) -> tuple[int, ...]:
        if self.known is not None:
            return self.known
        return tuple([next(extents) if d is None else d for d in self.shape])


class HostFunctions:
    """The host functions of a program, each prepared once.

    seconds: time spent in each call, of all runs together.
    """

    def __init__(self, program: Program) -> None:
        self.calls = program.host_calls
        self.functions = [_prepared(c) for c in self.calls]
        self.arrays = [
            (tuple(map(_Array.of, c.inputs)), tuple(map(_Array.of, c.outputs))) for c in self.calls
        ]
        self.seconds = np.zeros(len(self.calls))

    def times(self, before: np.ndarray, runs: int) -> tuple[tuple[str, float], ...]:
        """Seconds per run of each call, by node and operator, in `runs` runs since `seconds` was
        `before`.
        """
        spent = ((self.seconds - before) / runs).tolist()
        return tuple(
            (f"{c.operator or c.function} {c.label}", t) for c, t in zip(self.calls, spent)
        )

    def run(self) -> HostRun:
        """The host of one run."""
        return HostRun(self)


def _prepared(call: HostCall) -> Any:
    try:
        return prepare(call.function, call.settings)
    except TilesmithError as e:
        raise type(e)(f"{_named(call)}: {e}") from e.__cause__
    except Exception as e:  # settings that came from a file
        raise ModelError(f"{_named(call)}: {type(e).__name__}: {e}") from e


@dataclass(slots=True, eq=False)
class HostRun:
    """The host functions of one run, which calls it by number.

    objects: the values that are no native tensors, by their number.
    """

    host: HostFunctions
    objects: list[Any] = field(default_factory=list)

    def number(self, value: Any) -> int:
        """The number of a new object."""
        self.objects.append(value)
        return len(self.objects) - 1

    def __call__(self, number: int, address: int, count: int) -> None:
        """Run a function on `count` 64-bit arguments at `address` (see `HostCall.arguments`).

        Raises ModelError, naming the node, for what the function raises.
        """
        start = time.perf_counter()
        call, (inputs, outputs) = self.host.calls[number], self.host.arrays[number]
        arguments = (ctypes.c_int64 * count).from_address(address)
        places, extents = len(inputs) + len(outputs), iter(arguments[len(inputs) + len(outputs) :])
        given = [
            self._read(a, at, a.filled(extents))
            for a, at in zip(inputs, arguments[: len(inputs)], strict=True)
        ]
        try:
            made = self.host.functions[number](*given)
            results = made if isinstance(made, tuple) else (made,)
            for a, at, value in zip(
                outputs, islice(arguments, len(inputs), places), results, strict=True
            ):
                self._write(a, at, a.filled(extents), value)
        except TilesmithError as e:
            raise type(e)(f"{_named(call)}: {e}") from e
        except Exception as e:  # whatever the reference evaluator or NumPy say of these inputs
            raise ModelError(f"{_named(call)}: {type(e).__name__}: {e}") from e
        self.host.seconds[number] += time.perf_counter() - start

    def _read(self, array: _Array, address: int, shape: tuple[int, ...]) -> Any:
        """A value; a copy of a native tensor, whose memory is another's later."""
        if array.dtype.is_host:
            return self.objects[ctypes.c_int64.from_address(address).value]
        return _view(array.numpy, address, shape).copy()

    def _write(self, array: _Array, address: int, shape: tuple[int, ...], value: Any) -> None:
        if array.dtype.is_host:
            if array.dtype is string and np.shape(value) != shape:
                raise ModelError(f"expected a result of shape {shape}, found {np.shape(value)}")
            ctypes.c_int64.from_address(address).value = self.number(value)
            return
        found = np.asarray(value)
        fits = found.dtype == array.numpy or np.can_cast(found.dtype, array.numpy, "same_kind")
        if found.shape != shape or not fits:
            raise ModelError(
                f"expected a result {array.dtype}{list(shape)}, found {found.dtype}"
                f"{list(found.shape)}"
            )
        _view(array.numpy, address, shape)[...] = found

    def take(
        self, specs: Sequence[TensorSpec], arrays: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, ...]:
        """Inputs as `Runner.call` takes them: for those of host types, which are boxed, numbers."""
        return tuple(
            np.asarray(self.number(_unboxed(a, s.dtype)), np.int64) if s.dtype.is_host else a
            for s, a in zip(specs, arrays, strict=True)
        )

    def results(self, specs: Sequence[TensorSpec], arrays: Sequence[np.ndarray]) -> list[Any]:
        """Outputs as users get them: for the numbers of objects, the objects."""
        pairs = zip(specs, arrays, strict=True)
        return [self.objects[int(a)] if s.dtype.is_host else a for s, a in pairs]


def boxed(value: Any, spec: TensorSpec) -> np.ndarray:
    """A user's value for an input of a host type, as an array of objects: strings by their shape,
    others alone.

    Raises ModelError for a value that is not of the input's type.
    """
    found = checked(value, spec.dtype, f"input {spec.name!r}")
    if spec.dtype is string:
        check_shape(found, spec, "input")
        return found
    box = np.empty((), object)
    box[()] = found
    return box


def _unboxed(array: np.ndarray, dtype: DType) -> Any:
    return array if dtype is string else array[()]


def _named(call: HostCall) -> str:
    return f"node {call.label!r} ({call.operator or call.function}), which runs on the host"


def _view(dtype: np.dtype, address: int, shape: tuple[int, ...]) -> np.ndarray:
    """The native memory of a tensor."""
    size = math.prod(shape) * dtype.itemsize
    return np.ndarray(shape, dtype, memoryview((ctypes.c_uint8 * size).from_address(address)))
