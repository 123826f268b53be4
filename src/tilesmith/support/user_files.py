"""Execution of users' Python files that register things, such as templates."""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from tilesmith.support.errors import UsageError


def run_user_file(path: Path, kind: str, function: str, table: dict[str, Any]) -> list[str]:
    """Run a file that registers things of a kind, such as "templates".  Returns the names that it
    registered in `table`.

    function: name of the function by which the file registers things, for messages.
    table: the registered things, by name.

    Raises UsageError if there is no such file, or if it registers nothing or fails.  After a
    failure, `table` is unchanged.
    """
    if not path.is_file():
        raise UsageError(f"there is no file of {kind} {str(path)!r}")
    before = dict(table)
    name = f"tilesmith_{kind}_{path.stem}"
    spec = spec_from_loader(name, SourceFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses in the file look up their module there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as e:
        table.clear()
        table.update(before)
        del sys.modules[name]
        frames = traceback.extract_tb(e.__traceback__)
        line = next((f", line {f.lineno}" for f in frames[::-1] if f.filename == str(path)), "")
        raise UsageError(
            f"the file of {kind} {str(path)!r}{line} fails: {type(e).__name__}: {e}"
        ) from e
    registered = [n for n, entry in table.items() if before.get(n) is not entry]
    if not registered:
        raise UsageError(
            f"the file of {kind} {str(path)!r} registers none: it is to call tilesmith.{function}"
        )
    return registered
