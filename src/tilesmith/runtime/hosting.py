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
from typing import Any, TypeAlias

import numpy as np

from tilesmith.codegen.steps import HostArray, HostCall
from tilesmith.host import prepare
from tilesmith.host.values import checked
from tilesmith.ir.dtypes import DType, by_name, string
from tilesmith.support.errors import ModelError, TilesmithError

from .arrays import check_shape
from .native import memory
from .program import Program, TensorSpec

_Extent: TypeAlias = tuple[tuple[int, ...], int]
"""Shape and bytes of a tensor."""
_MOST_SEEN = 64
"""Most combinations of extents that a call remembers."""


@dataclass(frozen=True, slots=True)
class _Array:
    """A tensor that a host function reads or writes.

    dtype: its element type.
    numpy: the same for NumPy.
    shape: its extents; None for one that is an argument of the call.
    is_host: whether native memory holds its number alone.
    """

    dtype: DType
    numpy: np.dtype
    shape: tuple[int | None, ...]
    is_host: bool

    @staticmethod
    def of(array: HostArray) -> _Array:
        dtype = by_name(array.dtype)
        assert dtype is not None
        shape = tuple(d if isinstance(d, int) else None for d in array.shape)
        numpy = np.dtype(object) if dtype.is_host else dtype.numpy
        return _Array(dtype, numpy, shape, dtype.is_host)

    def filled(self, extents: Iterator[int]) -> tuple[int, ...]:
        return tuple([next(extents) if d is None else d for d in self.shape])


class _Call:
    """A call of a host function, which is prepared once.

    named: the node and its operator, for messages.
    function: what it runs.
    inputs, outputs: the tensors that it reads and writes.
    """

    def __init__(self, call: HostCall) -> None:
        self.named = (
            f"node {call.label!r} ({call.operator or call.function}), which runs on the host"
        )
        self.function = _prepared(call, self.named)
        self.inputs = tuple(map(_Array.of, call.inputs))
        self.outputs = tuple(map(_Array.of, call.outputs))
        self.places = len(self.inputs) + len(self.outputs)
        self._seen: dict[tuple[int, ...], tuple[_Extent, ...]] = {}

    def extents(self, given: tuple[int, ...]) -> tuple[_Extent, ...]:
        """Shapes and bytes of the inputs, then of the outputs, for the extents that are arguments
        of the call.
        """
        found = self._seen.get(given)
        if found is None:
            numbers = iter(given)
            shapes = [a.filled(numbers) for a in (*self.inputs, *self.outputs)]
            arrays = zip((*self.inputs, *self.outputs), shapes, strict=True)
            found = tuple((s, math.prod(s) * a.numpy.itemsize) for a, s in arrays)
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[given] = found
        return found


class HostFunctions:
    """The host functions of a program, each prepared once.

    seconds: time spent in each call, of all runs together.
    """

    def __init__(self, program: Program) -> None:
        self.calls = program.host_calls
        self.prepared = [_Call(c) for c in self.calls]
        self.seconds = [0.0] * len(self.calls)

    def times(self, before: Sequence[float], runs: int) -> tuple[tuple[str, float], ...]:
        """Seconds per run of each call, by node and operator, in `runs` runs since `seconds` was
        `before`.
        """
        spent = [(now - then) / runs for now, then in zip(self.seconds, before, strict=True)]
        return tuple(
            (f"{c.operator or c.function} {c.label}", t) for c, t in zip(self.calls, spent)
        )

    def run(self) -> HostRun:
        """The host of one run."""
        return HostRun(self)


def _prepared(call: HostCall, named: str) -> Any:
    try:
        return prepare(call.function, call.settings)
    except TilesmithError as e:
        raise type(e)(f"{named}: {e}") from e.__cause__
    except Exception as e:  # settings that came from a file
        raise ModelError(f"{named}: {type(e).__name__}: {e}") from e


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

    def __call__(self, number: int, arguments: tuple[int, ...]) -> None:
        """Run a function on its arguments (see `HostCall.arguments`).

        Raises ModelError, naming the node, for what the function raises.
        """
        start = time.perf_counter()
        call = self.host.prepared[number]
        extents = call.extents(arguments[call.places :])
        given = [  # native tensors are copied, for their memory is another's later
            self.objects[_number(at).value] if a.is_host else _view(a.numpy, at, extent).copy()
            for a, at, extent in zip(call.inputs, arguments, extents)
        ]
        try:
            made = call.function(*given)
            results = made if isinstance(made, tuple) else (made,)
            if len(results) != len(call.outputs):
                raise ModelError(f"expected {len(call.outputs)} results, found {len(results)}")
            for i, value in enumerate(results):
                at = len(given) + i
                self._write(call.outputs[i], arguments[at], extents[at], value)
        except TilesmithError as e:
            raise type(e)(f"{call.named}: {e}") from e
        except Exception as e:  # whatever the reference evaluator or NumPy say of these inputs
            raise ModelError(f"{call.named}: {type(e).__name__}: {e}") from e
        self.host.seconds[number] += time.perf_counter() - start

    def _write(self, array: _Array, address: int, extent: _Extent, value: Any) -> None:
        shape = extent[0]
        if array.is_host:
            if array.dtype is string and np.shape(value) != shape:
                raise ModelError(f"expected a result of shape {shape}, found {np.shape(value)}")
            _number(address).value = self.number(value)
            return
        found = np.asarray(value)
        fits = found.dtype == array.numpy or np.can_cast(found.dtype, array.numpy, "same_kind")
        if found.shape != shape or not fits:
            raise ModelError(
                f"expected a result {array.dtype}{list(shape)}, found {found.dtype}"
                f"{list(found.shape)}"
            )
        _view(array.numpy, address, extent)[...] = found

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


def _view(dtype: np.dtype, address: int, extent: _Extent) -> np.ndarray:
    """The native memory of a tensor."""
    shape, size = extent
    return np.ndarray(shape, dtype, memory(address, size))


_number = ctypes.c_int64.from_address
"""The number of an object, in native memory."""
