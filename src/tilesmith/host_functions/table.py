"""The table of host functions, filled as their modules are imported.

The functions of another package are in its module `hosted`.  These modules are imported when
somebody first asks for a function that this package doesn't have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tilesmith.support.errors import ModelError

Function: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Function)

_MODULES = ("reference", "sequences", "strings", "vectorizers")
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
    if name not in _FUNCTIONS:
        _import_others()
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ModelError(
            f"no host function is called {name!r}; the model was compiled by another version"
        )
    arguments = json.loads(settings) if settings else {}
    return function(**arguments) if name in _PREPARED else partial(function, **arguments)


def _import_others() -> None:
    """Import the modules `hosted` of all other packages."""
    root, _, _ = __name__.partition(".")
    for file in sorted(Path(__file__).parents[1].glob("*/hosted.py")):
        import_module(f"{root}.{file.parent.name}.{file.stem}")
