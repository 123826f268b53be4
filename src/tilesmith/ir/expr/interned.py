"""Interning: equal nodes are one object, which is freed when nobody uses it."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from dataclasses import fields
from typing import Any

from tilesmith.ir.dtypes import DType
from tilesmith.support.forks import wait_in_forks


class _Ref(weakref.ref):
    """A weak reference to a node, and the key by which it is interned."""

    __slots__ = ("key",)
    key: Any


_nodes: dict[Any, _Ref] = {}
_dead: deque[_Ref] = deque()
"""References to freed nodes.  A callback in Python can't take them off the table at once: a
KeyboardInterrupt in it would be lost.
"""
_lock = threading.RLock()
wait_in_forks(2, _lock.acquire, _lock.release)


def _forget_dead() -> None:
    """Remove freed nodes from the table, with the references that they held."""
    with _lock:
        while _dead:
            ref = _dead.popleft()
            if _nodes.get(ref.key) is ref:
                del _nodes[ref.key]


class Interned(type):
    """Metaclass: constructing a node with fields seen before returns the existing node."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs:  # normalise to positional order so that the key is canonical
            names = [f.name for f in fields(cls)]  # type: ignore[arg-type]  # every node is a dataclass
            by_name = dict(zip(names, args, strict=False), **kwargs)
            args = tuple(by_name[n] for n in names if n in by_name)
        if _dead:
            _forget_dead()
        key = cls._key(args)  # type: ignore[attr-defined]  # defined on Expr
        if key is not None:
            ref = _nodes.get(key)
            made = None if ref is None else ref()
            if made is not None:
                return made
        made = type.__call__(cls, *args)
        dtype_, lanes = made._infer()
        _set_dtype(made, dtype_)
        _set_lanes(made, lanes)
        set_symbols(made, None)
        if key is not None:
            with _lock:  # another thread may have created the same node
                ref = _nodes.get(key)
                other = None if ref is None else ref()
                if other is not None:
                    return other
                ref = _nodes[key] = _Ref(made, _dead.append)
                ref.key = key
        return made


class Typed:
    """Properties that are derived once per node, so that a chain of thousands of nodes is not
    walked each time.

    `known_symbols` is the result of `symbols`, None before the first call.
    """

    __slots__ = ("dtype", "known_symbols", "lanes")

    dtype: DType
    lanes: int
    known_symbols: frozenset[Any] | None


# Nodes are frozen; these setters fill the slots when a node is made.
_set_dtype = Typed.__dict__["dtype"].__set__
_set_lanes = Typed.__dict__["lanes"].__set__
set_symbols = Typed.__dict__["known_symbols"].__set__
