"""The expansions of an archive's composed operators, kept in the cache on disk.

Only PyTorch knows an expansion, and importing PyTorch takes longer than all other work when a
model is compiled again.  So the expanded calls are kept.  Their key is made of the archive's
program and PyTorch's version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

from tilesmith.frontend.aten.program import Call, Ref
from tilesmith.ir.dtypes import DType, dtype
from tilesmith.support.cache import Cache, cache_key

Expanded: TypeAlias = "list[Call] | None"
"""The calls that replace one call; None where the call stays as it is."""


class _StrangeError(Exception):
    """Raised for an argument that can't be kept."""


@dataclass(slots=True)
class Kept:
    """The expansions of one archive.

    cache: the cache that keeps them.
    key: the key of the expansions in `cache`.
    guards: the conditions under which the expansions are valid.
    calls: the expansion of each call, by its target and name.
    is_whole: whether the cache had all expansions, so that PyTorch is not needed.
    """

    cache: Cache
    key: str
    guards: list[str] = field(default_factory=list)
    calls: dict[tuple[str, str], Expanded] = field(default_factory=dict)
    is_whole: bool = False

    @staticmethod
    def of(cache: Cache | None, program: bytes) -> Kept | None:
        """The expansions kept for an archive whose program has this text.  None without a cache, or
        if PyTorch is not installed.
        """
        try:
            installed = version("torch")
        except PackageNotFoundError:
            return None
        if cache is None:
            return None
        kept = Kept(cache, cache_key("composites", installed, program))
        if (stored := cache.get(kept.key)) is not None:
            guards, calls = json.loads(stored)
            kept.guards = guards
            kept.calls = {(target, name): _decoded_calls(c) for target, name, c in calls}
            kept.is_whole = True
        return kept

    def save(self, guards: Sequence[str], calls: Mapping[tuple[str, str], Expanded]) -> None:
        """Keep the expansions in the cache.  Keep none if an argument has no form in JSON."""
        try:
            rows = [[*key, _encoded_calls(expansion)] for key, expansion in calls.items()]
        except _StrangeError:
            return
        self.cache.put(self.key, json.dumps([list(guards), rows]).encode())


def _encoded_calls(calls: Expanded) -> Any:
    if calls is None:
        return None
    return [
        [
            c.target,
            _encoded(c.args),
            {name: _encoded(a) for name, a in c.kwargs.items()},
            c.results if isinstance(c.results, str) else list(c.results),
            c.where,
            c.several,
        ]
        for c in calls
    ]


def _decoded_calls(found: Any) -> Expanded:
    if found is None:
        return None
    return [
        Call(
            target,
            _decoded(args),
            {name: _decoded(a) for name, a in kwargs.items()},
            results if isinstance(results, str) else tuple(results),
            where,
            several,
        )
        for target, args, kwargs, results, where, several in found
    ]


def _encoded(given: Any) -> Any:
    """An argument as JSON: values that JSON lacks are objects with one field."""
    if isinstance(given, Ref):
        return {"ref": given.name}
    if isinstance(given, DType):
        return {"dtype": str(given)}
    if isinstance(given, (list, tuple)):
        return [_encoded(g) for g in given]
    if given is None or isinstance(given, (bool, int, float, str)):
        return given
    raise _StrangeError(type(given).__name__)


def _decoded(found: Any) -> Any:
    if isinstance(found, list):
        return [_decoded(f) for f in found]
    if isinstance(found, dict):
        return Ref(found["ref"]) if "ref" in found else dtype(found["dtype"])
    return found
