"""Tables of a format's operators: which function imports which operator, at which versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

from tilesmith.graph.nodes import Value
from tilesmith.ops.base import Op

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Entry(Generic[F]):
    """An import function for versions `since` to `until` inclusive (None: up to the newest)."""

    since: int
    until: int | None
    function: F


class Registry(Generic[F]):
    """Import functions by domain (the operator's namespace, often empty), name and version.

    An operator whose meaning changed has one function per range of versions.

    homes: for domains that few models use, the modules that register the operators.  They are
        imported when an operator of the domain is first looked up.
    """

    def __init__(self, homes: Mapping[str, Sequence[str]] | None = None) -> None:
        self._entries: dict[tuple[str, str], list[_Entry[F]]] = {}
        self._homes = homes or {}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(domain, name) of every operator."""
        for domain in self._homes:
            self._import(domain)
        return iter(self._entries)

    def _import(self, domain: str) -> None:
        for module in self._homes.get(domain, ()):
            import_module(module)

    def _entries_of(self, domain: str, name: str) -> Sequence[_Entry[F]]:
        self._import(domain)
        return self._entries.get((domain, name), ())

    def register(
        self, *names: str, since: int = 1, until: int | None = None, domain: str = ""
    ) -> Callable[[F], F]:
        """A decorator that registers an import function for the operators `names`, for versions
        `since` to `until` inclusive.  No two functions share a version.
        """

        def enter(function: F) -> F:
            for name in names:
                entries = self._entries.setdefault((domain, name), [])
                for e in entries:
                    if since <= (e.until or since) and e.since <= (until or e.since):
                        raise ValueError(f"operator {name!r} has two functions at version {since}")
                entries.append(_Entry(since, until, function))
            return function

        return enter

    def register_same(
        self, make: Callable[[], Op], *names: str, arity: int = 1, since: int = 1
    ) -> None:
        """Register operators without attributes that equal an operator of Tilesmith."""

        def convert(n: Any) -> Value:
            return n.add(make(), *(n.input(i) for i in range(arity)))

        function: Any = convert
        self.register(*names, since=since)(function)

    def find(self, domain: str, name: str, version: int = 1) -> F | None:
        """The function for an operator at a version, or None."""
        for e in self._entries_of(domain, name):
            if e.since <= version and (e.until is None or version <= e.until):
                return e.function
        return None

    def versions(self, domain: str, name: str) -> str:
        """Versions at which an operator has an import function, for messages; empty if there are
        none.
        """
        ranges = sorted((e.since, e.until) for e in self._entries_of(domain, name))
        return ", ".join(f"{a}+" if b is None else f"{a}-{b}" for a, b in ranges)
