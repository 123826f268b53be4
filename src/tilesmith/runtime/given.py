"""Conversion of inputs that users pass."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

from .arrays import as_stored, check, check_count, to_numpy
from .program import Program, TensorSpec
from .sizes import demands


def as_array(value: Any, spec: TensorSpec) -> np.ndarray:
    """A user's value for an input as an array.  A value of a host type is checked and boxed.

    A Python number is accepted for an input without dimensions if the input's type can represent
    it.

    Raises ModelError for a value that is not an array.
    """
    if spec.dtype.is_host:
        from .hosting import boxed

        return boxed(value, spec)
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        return _number(value, spec)
    if _is_picture(value):
        return _pixels(value, spec)
    return to_numpy(value, f"input {spec.name!r}", spec.dtype)


def _is_picture(value: Any) -> bool:
    pil = sys.modules.get("PIL.Image")  # a caller that passes a picture has imported PIL
    return pil is not None and isinstance(value, pil.Image)


def _pixels(picture: Any, spec: TensorSpec) -> np.ndarray:
    """A picture of PIL as [1, channels, height, width]: grey for one channel, red, green and blue
    for three, from 0 to 255.  Raises ModelError for an input of another form.
    """
    channels = spec.shape[1] if len(spec.shape) == 4 else None
    if channels not in (1, 3) or spec.dtype.is_bool:
        raise ModelError(
            f"input {spec.name!r}: expected an array {spec.type}, found a picture, which fits "
            "inputs [1, 1 or 3, height, width]; make an array of it with np.asarray"
        )
    pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
    pixels = pixels.reshape(1, *pixels.shape[:2], channels).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(pixels, spec.dtype.numpy)


def _number(value: bool | int | float, spec: TensorSpec) -> np.ndarray:
    """A Python number as an array without dimensions.  A float is rounded to the input's type if it
    is within the range of this type.  Raises ModelError if the type can't represent the number.
    """
    what = f"input {spec.name!r}"
    if spec.shape != ():
        raise ModelError(
            f"{what}: expected an array of shape {list(spec.shape)}, found the number {value!r}"
        )
    dtype = spec.dtype
    if isinstance(value, bool) or dtype.is_bool:
        fits = isinstance(value, bool) and dtype.is_bool
    elif dtype.is_float:
        fits = not (isinstance(value, int) or math.isfinite(value)) or abs(value) <= dtype.largest
    else:
        fits = isinstance(value, int) and dtype.min <= value <= dtype.max
    if not fits:
        raise ModelError(f"{what}: expected a number of type {dtype}, found {value!r}")
    return np.asarray(value, dtype.numpy)


def stored_inputs(program: Program, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """The inputs of a run in the form that native code reads.  Inputs in another form are copied.

    Raises ModelError if count, type or shape is wrong.  For a shape, the message names the node
    that requires it, if there is one.
    """
    check_count(arrays, program.inputs)
    converted: list[np.ndarray] = []
    for value, spec in zip(arrays, program.inputs, strict=True):
        array = as_array(value, spec)
        if not spec.dtype.is_host:
            _check_input(program, array, spec)
            array = as_stored(array)
        converted.append(array)
    return tuple(converted)


def _check_input(program: Program, array: np.ndarray, spec: TensorSpec) -> None:
    try:
        check(array, spec, "input")
    except ModelError as e:
        if array.dtype != spec.dtype.numpy:
            raise
        axes = [(spec.name, axis) for axis in range(len(spec.shape))]
        raise ModelError(f"{e}{demands(program, axes)}") from None
