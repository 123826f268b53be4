"""Checks of users' values for inputs of host types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilesmith.ir.dtypes import DType, string, unknown
from tilesmith.support.arrays import bare
from tilesmith.support.errors import ModelError


def checked(value: Any, dtype: DType, what: str) -> Any:
    """A value of a host type, its tensors as NumPy arrays.

    what: names the value in messages.

    Raises ModelError if it is of another type.
    """
    if dtype is unknown:
        return value
    if dtype is string:
        return _strings(value, what)
    form, of = dtype.form, dtype.of
    if form == "optional":
        return None if value is None else _element(value, of[0], what)
    if form == "seq":
        if not isinstance(value, (list, tuple)):
            raise ModelError(f"{what}: expected a list ({dtype}), found {type(value).__name__}")
        return [_element(v, of[0], f"{what}[{i}]") for i, v in enumerate(value)]
    if form == "map":
        if not isinstance(value, Mapping):
            raise ModelError(f"{what}: expected a dict ({dtype}), found {type(value).__name__}")
        return dict(value)
    return _element(value, of[0], what)


def _element(value: Any, dtype: DType, what: str) -> Any:
    """Check an element of a list, dict or optional: a tensor, or a value of a host type."""
    if dtype.is_host:
        return checked(value, dtype, what)
    if value is None or isinstance(value, (list, dict)):
        raise ModelError(f"{what}: expected a tensor of {dtype}, found {type(value).__name__}")
    array = bare(value, what)
    if array.dtype != dtype.numpy:
        raise ModelError(f"{what}: expected element type {dtype}, found {array.dtype}")
    return array


def _strings(value: Any, what: str) -> np.ndarray:
    array = bare(value, what)
    if array.dtype.kind in "US":
        array = array.astype(object)
    if array.dtype != object:
        raise ModelError(
            f"{what}: expected strings (an array of dtype object or str), found {array.dtype}"
        )
    if all(issubclass(t, str) for t in set(map(type, array.reshape(-1).tolist()))):
        return np.array(array, order="C")
    out = np.empty(array.shape, object)
    for i, s in np.ndenumerate(array):
        if not isinstance(s, (str, bytes)):
            raise ModelError(f"{what}: expected strings, found {type(s).__name__} at {list(i)}")
        try:
            out[i] = s.decode() if isinstance(s, bytes) else s
        except UnicodeDecodeError as e:
            raise ModelError(f"{what}: expected bytes in UTF-8, found {e} at {list(i)}") from None
    return out


def sample(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """A value of a host type: strings that read as numbers, an empty list or dict, or None."""
    if dtype is string:
        return rng.choice(np.array(["0", "1", "2"], object), shape)
    return {"seq": [], "map": {}}.get(dtype.form or "")
