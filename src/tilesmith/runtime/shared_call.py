"""A call on arrays in device memory, which are read and written in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.support.errors import DeviceError, ModelError, UsageError

from .arrays import (
    as_output,
    as_stored,
    check,
    check_apart,
    is_torch,
    stored_dtype,
    to_numpy,
)
from .cuda import Address, CudaDevice
from .program import Program, TensorSpec
from .shared_memory import (
    DeviceArray,
    is_shared,
    size_of,
    stream_of,
    taken,
    torch_result,
)

_VECTOR = 16
"""Alignment in bytes of memory that kernels use."""


@dataclass(frozen=True, slots=True)
class _Array:
    """An argument.

    stored: the array on the host, or the shadow of an array on the device.
    is_there: whether the array is on the device.
    waits: whether the call must wait for the device at its end, since the stream of the array's
        owner is not known.
    """

    stored: np.ndarray
    is_there: bool
    waits: bool = False

    @property
    def address(self) -> int:
        return self.stored.ctypes.data

    @property
    def is_usable(self) -> bool:
        """Whether kernels can use its memory in place."""
        return self.is_there and self.address % _VECTOR == 0


class SharedCall:
    """The arguments of one call, on one stream.

    device: the device with the stream of the call.
    inputs, outputs: device memory of each input and output, the caller's or the executable's.
    """

    def __init__(
        self,
        program: Program,
        device: CudaDevice,
        arrays: Sequence[Any],
        given: Sequence[Any],
        own: tuple[Sequence[Any], Sequence[Any]],
    ) -> None:
        """given: for each output, the caller's array or None.
        own: the executable's memory for inputs and outputs.

        Raises ModelError for arrays of a wrong type, shape or device, UsageError for an output that
        shares memory with another array.
        """
        self.program = program
        assert program.target.device is not None
        self._number = program.target.device.number
        stream = stream_of((*arrays, *(g for g in given if g is not None)))
        self.device = device if stream is None else device.on(stream)
        self._like = next((a for a in (*arrays, *given) if is_torch(a) and is_shared(a)), None)
        self._arrays = arrays
        self._read = [
            self._array(a, s, "input") for a, s in zip(arrays, program.inputs, strict=True)
        ]
        homes = dict(program.in_place)
        self._given = [self._at_home(i, g, homes) for i, g in enumerate(given)]
        self._written = [
            None if g is None else self._array(g, s, "output")
            for g, s in zip(self._given, program.outputs, strict=True)
        ]
        self._check_apart({*homes.values()})
        self.inputs = [Address(a.address) if a.is_usable else m for a, m in zip(self._read, own[0])]
        self._fresh: list[Any] = [
            self._made(s) if w is None else None
            for w, s in zip(self._written, program.outputs, strict=True)
        ]
        self.outputs = [
            self.inputs[homes[i]] if i in homes else self._output(i, m)
            for i, m in enumerate(own[1])
        ]

    def _array(self, value: Any, spec: TensorSpec, kind: Any) -> _Array:
        what = f"{kind} {spec.name!r}"
        if not is_shared(value):
            if kind == "output":
                return _Array(as_output(value, spec), False)
            array = to_numpy(value, what, spec.dtype)
            check(array, spec, kind)
            return _Array(as_stored(array), False)
        shared = taken(value, what, self.device.stream)
        array = shared.shadow
        check(array, spec, kind)
        if not array.flags.c_contiguous:
            raise ModelError(
                f"{what}: expected a C-contiguous array on the device, found strides "
                f"{array.strides} in bytes; copy it, with .contiguous() or ascontiguousarray"
            )
        self._check_device(shared.number, array, what)
        if shared.stream is not None and shared.stream != self.device.stream:
            self.device.after(self.device.on(shared.stream).mark())
        return _Array(array.view(stored_dtype(spec.dtype)), True, shared.stream is None)

    def _check_device(self, number: int | None, array: np.ndarray, what: str) -> None:
        if not array.size:
            return
        if number is None:
            try:
                number = self.device.number_of(array.ctypes.data)
            except DeviceError as e:
                raise ModelError(f"{what}: {e}") from None
        if number != self._number:
            raise ModelError(
                f"{what}: expected memory of CUDA device {self._number}, found an array on device "
                f"{number}; move it, or compile for 'cuda:{number}'"
            )

    def _at_home(self, out: int, given: Any, homes: dict[int, int]) -> Any:
        """The array to which an output is written, or None (see `arrays.at_home`)."""
        if out not in homes:
            return given
        home = self._arrays[homes[out]]
        spec, name = self.program.outputs[out], f"input {self.program.inputs[homes[out]].name!r}"
        if given is not None and given is not home:
            raise UsageError(
                f"output {spec.name!r} lives in {name}: expected None or the input's array as its "
                "out, found another one; compile without in_place, or copy the result"
            )
        if not self._read[homes[out]].is_usable:
            raise ModelError(
                f"{name}, in which output {spec.name!r} lives: expected an array on the device, "
                f"from a multiple of {_VECTOR} bytes on, like the other arrays of the call"
            )
        return home

    def _check_apart(self, homes: set[int]) -> None:
        inputs = [
            (f"input {s.name!r}", a.stored)
            for i, (s, a) in enumerate(zip(self.program.inputs, self._read, strict=True))
            if i not in homes
        ]
        pairs = zip(self.program.outputs, self._written, strict=True)
        check_apart(inputs, [(f"output {s.name!r}", w.stored) for s, w in pairs if w is not None])

    def _made(self, spec: TensorSpec) -> Any:
        """A new array for a result."""
        shape = spec.static_shape
        if self._like is not None:
            return torch_result(self._like, spec.dtype, shape)
        memory = self.device.empty(size_of(spec.dtype, shape))
        return DeviceArray(self.device, self._number, memory, spec.dtype, shape)

    def _output(self, i: int, own: Any) -> Any:
        written, fresh = self._written[i], self._fresh[i]
        if fresh is None:
            assert written is not None
            return Address(written.address) if written.is_usable else own
        return Address(fresh.data_ptr() if is_torch(fresh) else fresh.memory.address)

    def copy_in(self) -> None:
        """Copy the inputs that kernels can't use in place."""
        for array, memory in zip(self._read, self.inputs, strict=True):
            if not array.is_there:
                self.device.write(memory, array.stored)
            elif not array.is_usable:
                source = Address(array.address)
                self.device.copy(memory, 0, source, 0, array.stored.nbytes)

    def copy_out(self) -> tuple[Any, ...]:
        """Copy outputs to the caller's arrays, and wait if necessary.

        Returns the results.
        """
        for array, memory in zip(self._written, self.outputs, strict=True):
            if array is None or array.is_usable:
                continue
            if array.is_there:
                self.device.copy(Address(array.address), 0, memory, 0, array.stored.nbytes)
            else:
                self.device.read(array.stored, memory)
        if any(a.waits for a in (*self._read, *self._written) if a is not None):
            self.device.finish()
        return tuple(f if g is None else g for f, g in zip(self._fresh, self._given, strict=True))
