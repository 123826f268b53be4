"""The part of a program that runs in Python: its host functions, and values that are not native
tensors.

The C runtime keeps such values as the objects of a run, until the run ends (`csrc/host.c`).  Native
memory holds only an object's number.  Some functions have a native form in the C runtime, for plain
inputs.  For other inputs, and to raise errors, the Python function runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tilesmith.host_functions import prepare
from tilesmith.host_functions.values import checked
from tilesmith.ir.dtypes import DType, string
from tilesmith.program.nodes import HostArray, HostCall
from tilesmith.support.errors import ModelError, TilesmithError

from .arrays import check_shape, is_foreign
from .native import Host, memory, native_form
from .program import Program, TensorSpec

_Extent: TypeAlias = tuple[tuple[int, ...], int]
"""Shape and bytes of a tensor."""
_MOST_SEEN = 64
"""Upper bound on the combinations of extents that a call caches."""


@dataclass(frozen=True, slots=True)
class _Array:
    """A tensor that a host function reads or writes.

    dtype: its element type.
    numpy: the element type for NumPy.
    shape: its extents; None for an extent that is an argument of the call.
    is_host: whether native memory contains only its object number.
    """

    dtype: DType
    numpy: np.dtype
    shape: tuple[int | None, ...]
    is_host: bool

    @property
    def native(self) -> tuple[str, int, tuple[int, ...]]:
        """The kind of element type, the bytes of an element, and the shape, as the C runtime's
        `Host` takes them.  Kind "v" stands for a type that C lacks.
        """
        shape = tuple(-1 if d is None else d for d in self.shape)
        if self.is_host:
            return "s" if self.dtype is string else "o", 8, shape
        return "v" if is_foreign(self.numpy) else self.numpy.kind, self.numpy.itemsize, shape

    @staticmethod
    def of(array: HostArray) -> _Array:
        dtype = array.dtype
        shape = tuple(d if isinstance(d, int) else None for d in array.shape)
        numpy = np.dtype(object) if dtype.is_host else dtype.numpy
        return _Array(dtype, numpy, shape, dtype.is_host)

    def filled(self, extents: Iterator[int]) -> tuple[int, ...]:
        return tuple([next(extents) if d is None else d for d in self.shape])


class _Call:
    """A call of a host function, which is prepared once for all runs.

    named: the node and its operator, for messages.
    function: the prepared function.
    inputs, outputs: the tensors that it reads and writes.
    native: the function's native form in the C runtime, or None.
    """

    def __init__(self, call: HostCall) -> None:
        self.named = (
            f"node {call.label!r} ({call.operator or call.function}), which runs on the host"
        )
        self.function, self.native = _prepared(call, self.named)
        self.inputs = tuple(map(_Array.of, call.inputs))
        self.outputs = tuple(map(_Array.of, call.outputs))
        self.places = len(self.inputs) + len(self.outputs)
        self._seen: dict[tuple[int, ...], tuple[_Extent, ...]] = {}

    @property
    def arrays(self) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
        """The inputs and outputs for `Host`."""
        return tuple(a.native for a in (*self.inputs, *self.outputs))

    def extents(self, given: tuple[int, ...]) -> tuple[_Extent, ...]:
        """Shapes and bytes of the inputs, then of the outputs.  `given`: the extents that the call
        receives as arguments.
        """
        known = self._seen.get(given)
        if known is None:
            numbers = iter(given)
            shapes = [a.filled(numbers) for a in (*self.inputs, *self.outputs)]
            arrays = zip((*self.inputs, *self.outputs), shapes, strict=True)
            known = tuple((s, math.prod(s) * a.numpy.itemsize) for a, s in arrays)
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[given] = known
        return known


class HostFunctions:
    """The host functions of a program, each prepared once.

    prepared: the calls, in the order of their numbers.
    native: the form of the calls that native runs receive.
    """

    def __init__(self, program: Program) -> None:
        self.calls = program.host_calls
        self.prepared = prepared = [_Call(c) for c in self.calls]
        self.native = Host(
            tuple((c.native, len(c.inputs), c.arrays) for c in prepared),
            np.empty,
            partial(_run, prepared),
        )

    @property
    def seconds(self) -> list[float]:
        """Total time of each call over all runs, in seconds."""
        return self.native.seconds()

    def times(self, before: Sequence[float], runs: int) -> tuple[tuple[str, float], ...]:
        """Seconds per run of each call, by node and operator.

        before: the result of `seconds` before the runs.
        runs: number of runs since then.
        """
        spent = [(now - then) / runs for now, then in zip(self.seconds, before, strict=True)]
        return tuple(
            (f"{c.operator or c.function} {c.label}", t) for c, t in zip(self.calls, spent)
        )


def _prepared(call: HostCall, named: str) -> tuple[Any, Any]:
    """The prepared function of a call, and its native form or None."""
    try:
        function = prepare(call.function, call.settings)
        return function, native_form(getattr(function, "native", None))
    except TilesmithError as e:
        raise type(e)(f"{named}: {e}") from e.__cause__
    except Exception as e:  # the settings come from a file, so any error is possible
        raise ModelError(f"{named}: {type(e).__name__}: {e}") from e


def _run(
    prepared: Sequence[_Call],
    number: int,
    arguments: tuple[int, ...] | int,
    objects: tuple[Any, ...] | None,
) -> list[Any]:
    """Run a host function on its arguments (see `HostCall.arguments`).  Native tensors among the
    results are written to memory; the others are returned.

    arguments: the arguments; for an invalid call, only their number.  A call is invalid if it is
        not in `prepared`, or if its number of arguments is wrong.
    objects: the value of each input that is not a native tensor; None for an invalid call.

    Raises ModelError, with the node in the message, for exceptions of the function.
    """
    if isinstance(arguments, int) or objects is None:
        raise ModelError(
            f"the program is damaged: its code calls host function {number} with {arguments} "
            f"arguments, and it describes {_described(prepared, number)}; compile the model again"
        )
    call = prepared[number]
    extents = call.extents(arguments[call.places :])
    inputs = [  # copy native tensors, since their memory is reused for other values
        value if a.is_host else _view(a.numpy, address, extent).copy()
        for a, address, extent, value in zip(call.inputs, arguments, extents, objects)
    ]
    computed: list[Any] = []
    try:
        made = call.function(*inputs)
        results = made if isinstance(made, tuple) else (made,)
        if len(results) != len(call.outputs):
            raise ModelError(f"expected {len(call.outputs)} results, found {len(results)}")
        for i, (array, value) in enumerate(zip(call.outputs, results), len(inputs)):
            if not array.is_host:
                _write(array, arguments[i], extents[i], value)
                continue
            computed.append(_shaped(value, extents[i][0]) if array.dtype is string else value)
    except TilesmithError as e:
        raise type(e)(f"{call.named}: {e}") from e
    except Exception as e:  # the reference evaluator or NumPy may raise anything for these inputs
        raise ModelError(f"{call.named}: {type(e).__name__}: {e}") from e
    return computed


def _described(prepared: Sequence[_Call], number: int) -> str:
    if not 0 <= number < len(prepared):
        return f"{len(prepared)} functions"
    call = prepared[number]
    extents = sum(a.shape.count(None) for a in (*call.inputs, *call.outputs))
    return f"{call.places + extents} for {call.named}"


def _write(array: _Array, address: int, extent: _Extent, value: Any) -> None:
    made = np.asarray(value)
    fits = made.dtype == array.numpy or np.can_cast(made.dtype, array.numpy, "same_kind")
    if not fits:
        raise ModelError(
            f"expected a result {array.dtype}{list(extent[0])}, found {made.dtype}"
            f"{list(made.shape)}"
        )
    _view(array.numpy, address, extent)[...] = _shaped(made, extent[0])


def _shaped(value: Any, shape: tuple[int, ...]) -> Any:
    """A result of a host function, checked against `shape`.  A result without elements is reshaped:
    after a loop of no iterations, the shape of a row is unknown.
    """
    if np.shape(value) == shape:
        return value
    if np.size(value) or 0 not in shape:
        raise ModelError(f"expected a result of shape {shape}, found {np.shape(value)}")
    return np.reshape(value, shape)


def boxed(value: Any, spec: TensorSpec) -> np.ndarray:
    """A user's value for an input of a host type, as an array of objects.  An array of strings
    keeps its shape; any other value becomes the only element of an array without dimensions.

    Raises ModelError for a value that is not of the input's type.
    """
    checked_value = checked(value, spec.dtype, f"input {spec.name!r}")
    if spec.dtype is string:
        check_shape(checked_value, spec, "input")
        return checked_value
    box = np.empty((), object)
    box[()] = checked_value
    return box


def _view(dtype: np.dtype, address: int, extent: _Extent) -> np.ndarray:
    """The native memory of a tensor."""
    shape, size = extent
    return np.ndarray(shape, dtype, memory(address, size))
