"""What several folders of tests want to know of the command line: its JSON and its options."""

from __future__ import annotations

import inspect
import json
from typing import Any, get_args

from typer.models import ArgumentInfo


def strict_json(text: str) -> Any:
    """JSON as its standard has it: without NaN and Infinity, which Python's reader takes."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def option_names(parameter: inspect.Parameter) -> list[str]:
    """The names of a verb's option (`--seed`), as its signature says; none of an argument."""
    info = get_args(parameter.annotation)[1]
    if isinstance(info, ArgumentInfo):
        return []
    words = [info.default, *(info.param_decls or ())]  # typer takes the first name for a default
    names = [n for w in words if isinstance(w, str) for n in w.split("/") if n.startswith("-")]
    return names or [f"--{parameter.name.replace('_', '-')}"]
