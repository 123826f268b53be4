"""Lists, dicts and optional values: ONNX's sequences, maps and optionals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

from .native import WithNative
from .table import Function, host_function


@host_function("none")
def none() -> None:
    """An optional value that is missing."""
    return


@host_function("identity")
def identity(value: Any) -> Any:
    return value


@host_function("sequence_construct")
def sequence_construct(*items: Any) -> list[Any]:
    return list(items)


@host_function("sequence_length")
def sequence_length(items: Sequence[Any]) -> np.ndarray:
    return np.asarray(len(items), np.int64)


@host_function("sequence_at")
def sequence_at(items: Sequence[Any], position: np.ndarray) -> Any:
    return items[_position(position, len(items), len(items))]


@host_function("sequence_insert")
def sequence_insert(
    items: Sequence[Any], item: Any, position: np.ndarray | None = None
) -> list[Any]:
    count = len(items)
    index = count if position is None else _position(position, count, count + 1)
    return [*items[:index], item, *items[index:]]


@host_function("sequence_erase")
def sequence_erase(items: Sequence[Any], position: np.ndarray | None = None) -> list[Any]:
    count = len(items)
    index = count - 1 if position is None else _position(position, count, count)
    if not count:
        raise ModelError("expected a sequence with something to erase, found an empty one")
    return [*items[:index], *items[index + 1 :]]


def _position(position: np.ndarray, count: int, end: int) -> int:
    """The index, from 0 to `end` - 1, that `position` means in a sequence of `count` items.  A
    negative position counts from the end of the sequence.
    """
    signed = int(np.asarray(position).reshape(()))
    index = signed + count if signed < 0 else signed
    if not 0 <= index < end:
        raise ModelError(f"position {signed} is outside of a sequence of {count}")
    return index


@host_function("concat_from_sequence")
def concat_from_sequence(items: Sequence[np.ndarray], axis: int, new_axis: bool) -> np.ndarray:
    if not items:
        raise ModelError("expected at least one tensor to concatenate, found an empty sequence")
    return np.stack(items, axis) if new_axis else np.concatenate(items, axis)


@host_function("split_to_sequence")
def split_to_sequence(
    x: np.ndarray, split: np.ndarray | None = None, *, axis: int, keepdims: bool
) -> list[np.ndarray]:
    extent = x.shape[axis]
    if split is None or not split.shape:
        part = 1 if split is None else int(split)
        if part < 1:
            raise ModelError(f"split: expected at least 1, found {part}")
        ends = [*range(part, extent, part)]
    else:
        sizes = [int(n) for n in split]
        if sum(sizes) != extent or min(sizes, default=0) < 0:
            raise ModelError(f"split: expected sizes that add up to {extent}, found {sizes}")
        ends = [*np.cumsum(sizes)[:-1]]
    if not extent and split is None:
        return []
    parts = np.split(x, ends, axis)
    return parts if split is not None or keepdims else [p.squeeze(axis) for p in parts]


@host_function("optional_has_element")
def optional_has_element(value: Any) -> np.ndarray:
    return np.asarray(value is not None)


@host_function("optional_get_element")
def optional_get_element(value: Any) -> Any:
    if value is None:
        raise ModelError("expected an optional value that is there, found None")
    return value


@host_function("shape")
def shape(value: np.ndarray, rank: int) -> np.ndarray:
    """The extents of a tensor.  Raises ModelError unless its rank is `rank`, as in the model."""
    if not isinstance(value, np.ndarray) or value.ndim != rank:
        raise ModelError(f"expected a tensor of rank {rank}, found {_described(value)}")
    return np.asarray(value.shape, np.int64)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"one of rank {value.ndim}"
    return type(value).__name__


@host_function("dict_vectorizer", prepared=True)
def dict_vectorizer(keys: list[Any], dtype: str) -> Function:
    """A row with a dict's values for `keys`; 0, or "" for strings, for missing keys."""
    absent = "" if dtype == "object" else 0

    def run(items: Mapping[Any, Any]) -> np.ndarray:
        row = [items.get(k, absent) for k in keys]
        if absent == "":
            for k, value in zip(keys, row, strict=True):
                if not isinstance(value, str):
                    raise ModelError(f"expected strings, found {type(value).__name__} at {k!r}")
        return np.array([row], dtype)

    return WithNative(run, ("Row", tuple(keys)))


@host_function("zip_map", prepared=True)
def zip_map(keys: list[Any]) -> Function:
    """For each row, a dict from `keys` to the row's numbers."""

    def run(x: np.ndarray) -> list[dict[Any, Any]]:
        rows = x.reshape(1, -1) if x.ndim == 1 else x
        if rows.shape[1] != len(keys):
            raise ModelError(f"expected rows of {len(keys)} numbers, found {rows.shape[1]}")
        return [dict(zip(keys, row, strict=True)) for row in rows.tolist()]

    return WithNative(run, ("Maps", tuple(keys)))


@host_function("cast_map")
def cast_map(items: Mapping[int, Any], to: str, length: int | None) -> np.ndarray:
    """The values in the order of keys; with a `length`, each at the index given by its key."""
    values = dict(sorted(items.items()))
    if length is None:
        row = [*values.values()]
    else:
        row = [values.get(k, "" if to == "string" else 0) for k in range(length)]
    if to == "string":
        return np.array([[str(v) for v in row]], object)
    return np.array([[float(v) for v in row]]).astype(to)
