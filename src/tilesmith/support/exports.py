"""Packages that import a module when one of its names is first used, so that nobody waits for
unused modules.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` (PEP 562) of a package.

    package: the package's name.
    homes: for each module, the names to export, separated by blanks.  An empty text exports the
        module itself.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}
    home_of |= {module.rpartition(".")[2]: module for module, names in homes.items() if not names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        exported = importlib.import_module(home)
        if homes[home]:
            exported = getattr(exported, name)
        setattr(sys.modules[package], name, exported)  # later uses don't call this function
        return exported

    return get, lambda: sorted(home_of)
