"""Tensors of strings: arrays of dtype object that hold `str`."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

from .native import WithNative
from .regex import ascii_table, full_match
from .table import Function, host_function


def strings(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An array of strings from a flat list of them."""
    out = np.empty(len(values), object)
    out[:] = values
    return out.reshape(shape)


@host_function("string_constant", prepared=True)
def string_constant(values: list[str], shape: list[int]) -> Function:
    array = strings(values, tuple(shape))
    array.flags.writeable = False
    return lambda: array


@host_function("string_concat", prepared=True)
def string_concat() -> Function:
    return WithNative(lambda a, b: np.asarray(a + b, object), ("Join",))


@host_function("string_equal", prepared=True)
def string_equal() -> Function:
    return WithNative(lambda a, b: np.asarray(a == b, bool), ("Equal",))


@host_function("string_split", prepared=True)
def string_split(delimiter: str | None = None, maxsplit: int | None = None) -> Function:
    """The parts of each string along a new last axis, padded with "", and their numbers."""
    limit = -1 if maxsplit is None else maxsplit
    separator = delimiter or None

    def run(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parts = [s.split(separator, limit) for s in x.reshape(-1)]
        counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
        longest = int(counts.max(initial=0))
        filled = [s for p in parts for s in (*p, *[""] * (longest - len(p)))]
        return strings(filled, (*x.shape, longest)), counts

    return WithNative(run, ("Split", separator, limit))


@host_function("regex_full_match", prepared=True)
def regex_full_match(pattern: str) -> Function:
    """Whether each string matches as a whole.  The syntax is Python's, which has most of RE2's."""
    matches = full_match(pattern)

    def run(x: np.ndarray) -> np.ndarray:
        return np.array([bool(matches(s)) for s in x.reshape(-1)], bool).reshape(x.shape)

    table = ascii_table(pattern)
    return WithNative(run, ("Test", matches) if table is None else ("Match", matches, *table))


_CASES = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@host_function("string_normalizer", prepared=True)
def string_normalizer(case: str, sensitive: bool, stopwords: list[str]) -> Function:
    """Strings without `stopwords`, in another case; one empty string if none is left."""
    change = _CASES[case]
    compared = str if sensitive else str.lower
    banned = {compared(s) for s in stopwords}

    def run(x: np.ndarray) -> np.ndarray:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
            raise ModelError(f"expected strings [C] or [1, C], found shape {list(x.shape)}")
        texts = x.reshape(-1).tolist()
        left = list(map(change, texts))
        if banned:
            names = left if change is compared else map(compared, texts)
            left = [s for s, name in zip(left, names, strict=True) if name not in banned]
        left = left or [""]
        return strings(left, (*x.shape[:-1], len(left)))

    calls = (None if f is str else f for f in (change, compared))
    return WithNative(run, ("Normalize", *calls, frozenset(banned) or None))


@host_function("cast_to_string")
def cast_to_string(x: np.ndarray) -> np.ndarray:
    """Numbers as text: the shortest that reads back as the same number."""
    if x.dtype == object:
        return x
    if x.dtype.kind == "b":
        shown = ["1" if v else "0" for v in x.reshape(-1)]
    elif x.dtype.kind in "iu":
        shown = [str(int(v)) for v in x.reshape(-1)]
    else:
        shown = [_float_text(v) for v in x.reshape(-1)]
    return strings(shown, x.shape)


def _float_text(value: Any) -> str:
    if value != value:
        return "NaN"
    if abs(value) == np.inf:
        return "INF" if value > 0 else "-INF"
    is_plain = value == 0 or 1e-4 <= abs(value) < 1e16
    return np.format_float_positional(value, trim="-") if is_plain else str(value)


_SPECIAL = {"INF": "inf", "+INF": "inf", "-INF": "-inf", "NAN": "nan"}


@host_function("cast_from_string")
def cast_from_string(x: np.ndarray, to: str) -> np.ndarray:
    """Text as numbers.  Raises ModelError for text that is not a number."""
    kind = np.dtype(to) if to != "bool" else np.dtype(bool)
    try:
        if kind.kind in "iu":
            values: list[Any] = [int(s) for s in x.reshape(-1)]
        elif kind.kind == "b":
            values = [bool(int(s)) for s in x.reshape(-1)]
        else:
            values = [float(_SPECIAL.get(s.strip().upper()) or s) for s in x.reshape(-1)]
        return np.array(values, kind).reshape(x.shape)
    except (ValueError, OverflowError) as e:
        raise ModelError(f"a string can't be cast to {to}: {e}") from None


@host_function("label_encoder", prepared=True)
def label_encoder(keys: list[Any], values: list[Any], default: Any, dtype: str) -> Function:
    """The values of the keys, and `default` for others; `dtype` is "string" or NumPy's name."""
    table = {_key(k): v for k, v in zip(keys, values, strict=True)}
    is_text = dtype == "string"

    def run(x: np.ndarray) -> np.ndarray:
        sought = x.reshape(-1).tolist()
        if x.dtype.kind == "f":
            sought = map(_key, sought)
        labels = map(table.get, sought, repeat(default))
        if is_text:
            return strings(list(labels), x.shape)
        return np.fromiter(labels, dtype, x.size).reshape(x.shape)

    places = {k: i for i, k in enumerate(table)}
    results = [*table.values(), default]
    if is_text:
        return WithNative(run, ("Lookup", places, tuple(results), 8, _key(np.nan)))
    packed = np.array(results, dtype)
    return WithNative(run, ("Lookup", places, packed.tobytes(), packed.itemsize, _key(np.nan)))


def _key(value: Any) -> Any:
    """A key under which NaN equals NaN."""
    return "NaN" if isinstance(value, float) and value != value else value
