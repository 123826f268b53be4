"""Conversion of users' arrays to NumPy arrays, without copies where possible, and of results to
users' types.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tilesmith.ir.dtypes import DType, bf16, dtype, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0
from tilesmith.support.arrays import check_bare
from tilesmith.support.errors import ModelError, UsageError

from .program import Program, TensorSpec

_TORCH_TYPES: dict[str, DType] = {
    "bfloat16": bf16,
    "float8_e4m3fn": f8e4m3fn,
    "float8_e4m3fnuz": f8e4m3fnuz,
    "float8_e5m2": f8e5m2,
    "float8_e5m2fnuz": f8e5m2fnuz,
    "float8_e8m0fnu": f8e8m0,
}
"""Torch's names of the types that torch and Tilesmith have, but NumPy lacks."""

_ON_CPU = (1, 3)
"""DLPack's numbers of the device types whose memory the CPU can read: the CPU, and CUDA's pinned
host memory.
"""

_TORCH_NAMES = {d: name for name, d in _TORCH_TYPES.items()}


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")  # a caller that passes a tensor has imported torch
    return torch is not None and isinstance(value, torch.Tensor)


def is_dual(value: Any) -> bool:
    """Whether a value is a PyTorch tensor with a tangent, for forward-mode differentiation."""
    if not is_torch(value):
        return False
    forward_ad = sys.modules["torch.autograd.forward_ad"]  # torch imports this module
    return forward_ad.unpack_dual(value).tangent is not None


def check_no_dual(value: Any, what: str) -> None:
    """Raises ModelError for a PyTorch tensor with a tangent, which native code would drop."""
    if is_dual(value):
        raise ModelError(
            f"{what}: expected a tensor without a tangent, found a dual tensor of forward-mode "
            "differentiation; give torch.autograd.forward_ad.unpack_dual(x).primal, or call the "
            "module itself for derivatives"
        )


def to_numpy(value: Any, what: str, dtype: DType | None = None) -> np.ndarray:
    """A NumPy view of an array, a torch tensor, or anything with DLPack or the array interface.

    dtype: the expected element type, for advice in messages.

    Raises ModelError, with `what` in the message, for any other object, and for arrays with masked
    elements or units.
    """
    if type(value) is np.ndarray:
        return value
    if is_torch(value):
        return _of_torch(value, what)
    try:
        array = _of_interfaces(value, what)
    except ModelError:
        raise
    except Exception as e:  # the object's own code may raise anything
        raise ModelError(
            f"{what}: the {type(value).__name__} can't be read as an array: {type(e).__name__}: "
            f"{_one_line(e)}"
        ) from e
    if array is not None:
        return array
    raise ModelError(
        f"{what}: expected a NumPy array, a torch tensor or an object with DLPack or the array "
        "interface, "
        f"found {type(value).__name__}{_cure(value, dtype)}"
    )


def _cure(value: Any, dtype: DType | None) -> str:
    """Advice for a caller who passed a Python container instead of an array: text to append to a
    message.
    """
    if isinstance(value, (list, tuple, range)):
        name = "dtype" if dtype is None else f"np.{dtype.numpy.name}"
        if dtype is not None and dtype.numpy.isbuiltin != 1:
            name = f"ml_dtypes.{dtype.numpy.name}"
        return f"; make an array of it, as in np.asarray(x, {name})"
    if isinstance(value, Mapping):
        return "; inputs by name are for run, as in exe.run({'x': x})"
    return ""


def _of_torch(value: Any, what: str) -> np.ndarray:
    """A view of a torch tensor; a copy if a conjugation or negation of the tensor is pending."""
    torch = sys.modules["torch"]
    if value.device.type != "cpu":
        raise ModelError(
            f"{what}: expected a tensor on the CPU, found one on {value.device}; move it "
            "with .cpu(), or compile for its device"
        )
    if value.layout is not torch.strided:
        raise ModelError(
            f"{what}: expected a dense tensor, found one of layout {value.layout}; make it dense "
            "with .to_dense()"
        )
    if value.is_quantized:
        raise ModelError(
            f"{what}: expected a plain tensor, found a quantised one of {value.dtype}; give "
            ".dequantize() or .int_repr()"
        )
    check_no_dual(value, what)
    try:
        tensor = value.detach().resolve_conj().resolve_neg()
        stored = _TORCH_TYPES.get(str(tensor.dtype).removeprefix("torch."))
        if stored is not None:  # NumPy knows this type only through ml_dtypes
            integer = torch.int16 if stored.bytes == 2 else torch.uint8
            return tensor.view(integer).numpy().view(stored.numpy)
        return tensor.numpy()
    except (TypeError, RuntimeError, ValueError) as e:  # a type that NumPy lacks, or a wrapper
        raise ModelError(
            f"{what}: the tensor of {value.dtype} can't be read as an array: {_one_line(e)}; "
            "expected one with memory of its own, neither nested nor fake nor inside torch.func; "
            "torch.compile(model, backend='tilesmith') works inside torch.func"
        ) from e


def _one_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _of_interfaces(value: Any, what: str) -> np.ndarray | None:
    """A view of an object that has an array interface; None for another object."""
    interface = getattr(value, "__cuda_array_interface__", None)
    device = getattr(value, "__dlpack_device__", None)
    if interface is not None or (device is not None and int(device()[0]) not in _ON_CPU):
        raise ModelError(
            f"{what}: expected an array on the CPU, found a {type(value).__name__} on a device; "
            "copy it to the CPU, or compile for its device"
        )
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        check_bare(value, what)
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return None


def check(array: np.ndarray, spec: TensorSpec, what: Literal["input", "output"]) -> None:
    """Raises ModelError unless dtype and shape match `spec`."""
    if array.dtype != spec.dtype.numpy:
        cure = "; convert it with .astype" if what == "input" else ""
        raise ModelError(
            f"{what} {spec.name!r}: expected element type {spec.dtype} ({spec.dtype.numpy}), "
            f"found {array.dtype}{cure}"
        )
    check_shape(array, spec, what)


def check_shape(array: np.ndarray, spec: TensorSpec, what: Literal["input", "output"]) -> None:
    """Raises ModelError unless the shape matches `spec`."""
    same_rank = len(array.shape) == len(spec.shape)
    if not same_rank or any(isinstance(d, int) and d != n for d, n in zip(spec.shape, array.shape)):
        raise ModelError(
            f"{what} {spec.name!r}: expected shape {_shape(spec)}, found {array.shape}"
        )


def _shape(spec: TensorSpec) -> str:
    """The text of a shape in Python's notation, with names for extents known only at run time."""
    shown = ", ".join(map(str, spec.shape))
    return f"({shown},)" if len(spec.shape) == 1 else f"({shown})"


def as_output(value: Any, spec: TensorSpec, what: str = "") -> np.ndarray:
    """The memory of an array that a caller passes for an output, in the form of `as_stored`.

    what: the output's description in messages (default: its name).

    Raises ModelError unless a result of `spec` can be written to the array, UsageError for an
    output of a host type.
    """
    what = what or f"output {spec.name!r}"
    if spec.dtype.is_host:
        raise UsageError(f"{what} is a Python object ({spec.type}); expected None in its place")
    if not isinstance(value, np.ndarray) and not is_torch(value):
        raise ModelError(
            f"{what}: expected a NumPy array or a torch tensor, found {type(value).__name__}"
        )
    array = to_numpy(value, what)
    check(array, spec, "output")
    # A torch tensor whose conjugation or negation is pending has no view, only a copy.
    is_view = isinstance(value, np.ndarray) or array.ctypes.data == value.data_ptr()
    flags = array.flags
    if not (is_view and flags.c_contiguous and flags.aligned and flags.writeable):
        raise ModelError(f"{what}: expected a writable, C-contiguous array")
    return as_stored(array)


def at_home(program: Program, inputs: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """For each output, the array to which it is written.  If the output lives in an input
    (`Program.in_place`), this is the input's array, else the caller's array in `given` or None.

    Raises UsageError if the caller gives another array for an output that lives in an input,
    ModelError if the input's array can't be written.
    """
    outputs = [*given]
    for out, home in program.in_place:
        spec, name = program.outputs[out], f"input {program.inputs[home].name!r}"
        if given[out] is not None and given[out] is not inputs[home]:
            raise UsageError(
                f"output {spec.name!r} lives in {name}: expected None or the input's array as its "
                "out, found another one; compile without in_place, or copy the result"
            )
        as_output(inputs[home], spec, f"{name}, in which output {spec.name!r} lives")
        outputs[out] = inputs[home]
    return tuple(outputs)


def beginning(array: Any, shape: Sequence[int]) -> Any:
    """The first elements of a contiguous array or torch tensor in the given `shape`; the array
    itself if it has that shape.
    """
    if tuple(array.shape) == tuple(shape):
        return array
    return array.reshape(-1)[: math.prod(shape)].reshape(tuple(shape))


def check_apart(
    inputs: Sequence[tuple[str, np.ndarray]], outputs: Sequence[tuple[str, np.ndarray]]
) -> None:
    """Raises UsageError if an output shares memory with another array.  All arrays must be
    C-contiguous.  Each comes with its name for the message.
    """
    before = list(inputs)
    for name, array in outputs:
        for other, also in before:
            if np.may_share_memory(array, also):  # exact for contiguous arrays
                raise UsageError(
                    f"{name} shares memory with {other}; expected an array with memory of its own"
                )
        before.append((name, array))


def as_stored(array: np.ndarray) -> np.ndarray:
    """A C-contiguous, aligned array for the buffer protocol.  Elements of types that the protocol
    lacks (`is_foreign`) become unsigned integers with the same bits.
    """
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.array(array, order="C")
    return array.view(f"u{array.itemsize}") if is_foreign(array.dtype) else array


def is_foreign(dtype: np.dtype) -> bool:
    """True for element types that other packages define, such as bfloat16.  NumPy can't export them
    through the buffer protocol.
    """
    return dtype.isbuiltin == 2  # another package defined the type


def stored_dtype(dtype: DType) -> np.dtype:
    """The NumPy type of native memory for elements of `dtype`.  Foreign types (`is_foreign`) become
    unsigned integers with the same bits, host objects their numbers (i64).
    """
    if dtype.is_host:
        return np.dtype(np.int64)
    return np.dtype(f"u{dtype.bytes}") if is_foreign(dtype.numpy) else dtype.numpy


def stored_shape(spec: TensorSpec) -> tuple[int | str, ...]:
    """The shape of a tensor's native memory.  A value of Python (a string, list or dict) is
    stored as one number that refers to it, so its shape is ().
    """
    return () if spec.dtype.is_host else spec.shape


def to_torch(array: Any) -> Any:
    """A torch tensor over the memory of `array`.  If torch lacks the element type, the tensor
    contains the elements' bits as uint8.  Strings and objects are returned unchanged.
    """
    torch = sys.modules["torch"]
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        return array
    if not is_foreign(array.dtype):
        return torch.from_numpy(array)
    bits = torch.from_numpy(array.view(np.int16 if array.itemsize == 2 else np.uint8))
    torch_name = _TORCH_NAMES.get(dtype(array.dtype))
    return bits if torch_name is None else bits.view(getattr(torch, torch_name))


def nearest(name: str, names: Iterable[str]) -> str:
    """A suggestion for a mistyped `name`: text to append to a message."""
    by_lower = {n.lower(): n for n in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f"; did you mean {by_lower[matches[0]]!r}?" if matches else ""


def check_names(given: Iterable[str], what: str, specs: tuple[TensorSpec, ...]) -> None:
    """Raises ModelError unless all `given` names occur in `specs`.  what: "input" or "output"."""
    names = [s.name for s in specs]
    for name in given:
        if name not in names:
            raise ModelError(
                f"no {what} is called {name!r}{nearest(str(name), names)}; the {what}s are "
                f"{listing(specs)}"
            )


def check_inputs(given: Iterable[str], specs: tuple[TensorSpec, ...]) -> None:
    """Like `check_names` for inputs.  The message explains how an initialiser of the model becomes
    an input.
    """
    try:
        check_names(given, "input", specs)
    except ModelError as e:
        raise ModelError(
            f"{e}; an initialiser of the model is an input where compile names it: optional=[...] "
            "(--optional)"
        ) from None


def check_count(arrays: Sequence[Any], specs: tuple[TensorSpec, ...]) -> None:
    """Raises ModelError unless there is an array for each input."""
    if len(arrays) != len(specs):
        raise ModelError(f"expected {len(specs)} inputs ({listing(specs)}), found {len(arrays)}")


def listing(specs: tuple[TensorSpec, ...]) -> str:
    """Inputs or outputs as text."""
    return ", ".join(map(str, specs)) or "none"
