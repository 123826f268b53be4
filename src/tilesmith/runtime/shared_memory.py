"""Arrays in CUDA device memory that several libraries use: PyTorch, CuPy, JAX and Tilesmith.

Such an array is described by a shadow: a NumPy array with the same address, type, shape and
strides.  So the checks for host arrays also work for device arrays.  Nothing may read a shadow's
elements.

The stream that computes an array is known: for PyTorch it is the current stream, and other
libraries name it in the CUDA array interface.  With DLPack, the consumer passes a stream, and the
library makes that stream wait.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import (
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)  # fmt: skip
from tilesmith.support.errors import ModelError

from .arrays import check_no_dual, is_foreign, is_torch, to_torch

_CUDA = (2, 13)  # kinds of devices in DLPack: memory of a device, and managed memory
_LEGACY = 1
"""CUDA's legacy default stream, which waits for other streams.  0 and None stand for it."""

_CODES: dict[DType, int] = {
    bool_: 6, bf16: 4, f16: 2, f32: 2, f64: 2, i8: 0, i16: 0, i32: 0, i64: 0,
    u8: 1, u16: 1, u32: 1, u64: 1,
}  # fmt: skip
"""DLPack's type codes of element types."""


class _Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _Held:
    """The object whose memory a shadow views.

    owner: the owner of the memory, which the shadow keeps alive.
    """

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def shadow(
    address: int, dtype: DType, shape: Sequence[int], strides: Sequence[int] | None, owner: Any
) -> np.ndarray:
    """The shadow of device memory.

    strides: in bytes.
    owner: the owner of the memory.
    """
    stored = f"u{dtype.bytes}" if is_foreign(dtype.numpy) else dtype.numpy
    array = np.asarray(
        _Held(
            {
                "version": 3,
                "typestr": np.dtype(stored).str,
                "shape": tuple(shape),
                "strides": None if strides is None else tuple(strides),
                "data": (address, False),
            },
            owner,
        )
    )
    return array.view(dtype.numpy)


def is_shared(value: Any) -> bool:
    """Whether a value is an array on a CUDA device."""
    if isinstance(value, np.ndarray):
        return False
    if is_torch(value):
        return value.is_cuda
    if getattr(value, "__cuda_array_interface__", None) is not None:
        return True
    device = getattr(value, "__dlpack_device__", None)
    return device is not None and int(device()[0]) in _CUDA


def stream_of(values: Iterable[Any]) -> int | None:
    """The stream of the first array that has a known stream; None if there is none."""
    for value in values:
        if (stream := _stream(value)) is not None:
            return stream
    return None


def _stream(value: Any) -> int | None:
    if is_torch(value):
        if not value.is_cuda:
            return None
        torch = sys.modules["torch"]
        return int(torch.cuda.current_stream(value.get_device()).cuda_stream) or _LEGACY
    stream = (getattr(value, "__cuda_array_interface__", None) or {}).get("stream")
    return None if stream is None else int(stream)


@dataclass(frozen=True, slots=True)
class Taken:
    """An array of another library.

    shadow: shadow of its memory.
    number: number of its device; None if it must be looked up by address.
    stream: stream that computes it; None if no waiting is needed.
    """

    shadow: np.ndarray
    number: int | None
    stream: int | None


def taken(value: Any, what: str, stream: int) -> Taken:
    """An array on a device, as the library that made the array describes it.

    stream: the stream that will use it.

    Raises ModelError, with `what` in the message, for element types that Tilesmith lacks.
    """
    if is_torch(value):
        return _of_torch(value, what)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        return _of_dlpack(value, what, stream)
    name = interface["typestr"]
    dtype = next((d for d in _CODES if d.numpy.str == name), None)
    if dtype is None:
        raise _unknown(what, name)
    shadowed = shadow(
        interface["data"][0], dtype, interface["shape"], interface.get("strides"), value
    )
    return Taken(shadowed, None, _stream(value))


def _of_torch(value: Any, what: str) -> Taken:
    check_no_dual(value, what)
    name = str(value.dtype).removeprefix("torch.")
    dtype = next((d for d in _CODES if _torch_dtype(d) == value.dtype), None)
    if dtype is None or value.is_conj() or value.is_neg():
        raise _unknown(what, name)
    strides = [n * dtype.bytes for n in value.stride()]
    shadowed = shadow(value.data_ptr(), dtype, value.shape, strides, value)
    return Taken(shadowed, value.get_device(), _stream(value))


def _of_dlpack(value: Any, what: str, stream: int) -> Taken:
    capsule = value.__dlpack__(stream=stream)
    address = _pointer(capsule, b"dltensor")
    assert address is not None
    t = _Tensor.from_address(address)
    dtype = next((d for d, c in _CODES.items() if (c, d.bytes * 8) == (t.code, t.bits)), None)
    if dtype is None or t.lanes != 1:
        raise _unknown(what, f"kind {t.code} of {t.bits} bits")
    strides = [t.strides[i] * dtype.bytes for i in range(t.rank)] if t.strides else None
    shape = [t.shape[i] for i in range(t.rank)]
    shadowed = shadow((t.data or 0) + t.offset, dtype, shape, strides, capsule)
    return Taken(shadowed, t.device[1], None)


def _unknown(what: str, name: str) -> ModelError:
    return ModelError(f"{what}: expected elements of a type that models have, found {name}")


def _torch_dtype(dtype: DType) -> Any:
    return to_torch(np.empty(0, dtype.numpy)).dtype


def torch_result(like: Any, dtype: DType, shape: Sequence[int]) -> Any:
    """A new PyTorch tensor on the device of the tensor `like`."""
    torch = sys.modules["torch"]
    return torch.empty(tuple(shape), dtype=_torch_dtype(dtype), device=like.device)


class DeviceArray:
    """A result in CUDA device memory.  Calls return it if the device arrays among the inputs come
    from other libraries than PyTorch.

    `cupy.asarray(a)`, `torch.as_tensor(a)` and `jax.dlpack.from_dlpack(a)` take it without a copy;
    `a.numpy()` copies it to the host.

    dtype: element type.
    shape: its extents.
    """

    def __init__(
        self, device: Any, number: int, memory: Any, dtype: DType, shape: tuple[int, ...]
    ) -> None:
        """Wrap device memory.

        device: the open device, with the stream that computes the elements.
        number: number of the device.
        """
        self._device, self._number, self.memory = device, number, memory
        self.dtype, self.shape = dtype, shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if is_foreign(self.dtype.numpy):
            raise AttributeError(f"the interface has no {self.dtype}; use DLPack")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.memory.address, False),
            "strides": None,
            "stream": self._device.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA[0], self._number

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """A DLPack capsule.  The consumer's `stream` waits for the elements; with -1, no stream
        waits.

        Raises BufferError for element types that DLPack does not have.
        """
        if self.dtype not in _CODES:
            raise BufferError(f"DLPack has no {self.dtype}")
        if stream != -1:
            other = self._device.on(stream or _LEGACY)
            other.after(self._device.mark())
        size = self.dtype.bytes
        plain = shadow(self.memory.address, _PLAIN[size], self.shape, None, self.memory)
        capsule = plain.__dlpack__()
        address = _pointer(capsule, b"dltensor")
        assert address is not None
        t = _Tensor.from_address(address)
        t.device[0], t.device[1] = self.__dlpack_device__()
        t.code = _CODES[self.dtype]
        return capsule

    def numpy(self) -> np.ndarray:
        """A copy on the host, with the same shape and dtype.  Raises DeviceError if the device
        fails.
        """
        array = np.empty(self.shape, self.dtype.numpy)
        self._device.read(array.view(_PLAIN[self.dtype.bytes].numpy), self.memory)
        return array

    def __repr__(self) -> str:
        extents = ", ".join(map(str, self.shape))
        return f"DeviceArray({self.dtype}[{extents}] on cuda:{self._number})"


_PLAIN: dict[int, DType] = {1: u8, 2: u16, 4: u32, 8: u64}


def size_of(dtype: DType, shape: Sequence[int]) -> int:
    """Bytes of an array."""
    return dtype.bytes * prod(shape)
