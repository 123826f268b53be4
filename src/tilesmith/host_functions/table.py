"""The table of host functions, filled as their modules are imported."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from tilesmith.support.errors import ModelError

Function: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Function)

_MODULES = ("reference", "sequences", "strings", "vectorizers")
_ELSEWHERE = {"accelerator": "tilesmith.accel.hosted"}
"""Functions of other packages, with their modules, which are imported at their first use."""
_FUNCTIONS: dict[str, Function] = {}
_PREPARED: set[str] = set()


def host_function(name: str, prepared: bool = False) -> Callable[[F], F]:
    """Registers a function of inputs, with its settings as keyword arguments.

    prepared: whether the decorated function gets only the settings, once, and returns the function
        of inputs.
    """

    def enter(function: F) -> F:
        _FUNCTIONS[name] = function
        if prepared:
            _PREPARED.add(name)
        return function

    return enter


def prepare(name: str, settings: str) -> Function:
    """The host function with a name, for settings in JSON.

    Raises ModelError if there is none.
    """
    for module in _MODULES:
        import_module(f"{__package__}.{module}")
    if name in _ELSEWHERE:
        import_module(_ELSEWHERE[name])
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ModelError(
            f"no host function is called {name!r}; the model was compiled by another version"
        )
    arguments = json.loads(settings) if settings else {}
    return function(**arguments) if name in _PREPARED else partial(function, **arguments)
