"""Names of other compilers that have no counterpart here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from tilesmith.support.errors import UsageError


def elsewhere(what: str, name: str, ours: Mapping[str, str]) -> NoReturn:
    """Raises UsageError for a name in `ours`, which says what to use, and AttributeError for any
    other name.
    """
    if name in ours:
        raise UsageError(f"{what}.{name} has no counterpart: use {ours[name]}")
    raise AttributeError(f"{what} has no attribute {name!r}")


def refusing(what: str, ours: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module: `elsewhere` for each name that the module lacks."""
    return lambda name: elsewhere(what, name, ours)
