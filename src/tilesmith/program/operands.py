"""The text of an argument of a step, which is also its form in files.

    input0      input0+64      output1+8      constants+128      arena+64      arena+%3
    arena+%3+64     slot2      slot2+%3       pointer4+16        %3            7

`%3` is value 3 of the sizes that a run computes: an extent, or an offset.  A slot is memory that
grows.  A pointer is moved by a loop.  A number is a scalar argument.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import cast

from tilesmith.support.errors import ParseError

from .nodes import Arg, ArgKind

PATTERN = (
    r"(?:(?:(?P<memory>input|output|pointer)(?P<index>\d+)|(?P<constants>constants)"
    r"|(?P<arena>arena|slot(?P<slot>\d+))(?:\+%(?P<value>\d+))?)(?:\+(?P<offset>\d+))?"
    r"|%(?P<extent>\d+)|(?P<scalar>-?\d+))(?![\w.$])"
)
"""A regular expression for the text of an argument."""

_OPERAND = re.compile(PATTERN)


def print_operand(arg: Arg) -> str:
    """The text of an argument."""
    if arg.kind == "scalar":
        return str(arg.index)
    if arg.kind == "extent":
        return f"%{arg.index}"
    offset = arg.offset
    if arg.kind == "constant":
        base, offset = "constants", arg.index
    elif arg.kind in ("arena", "place"):
        base = "arena" if arg.slot is None else f"slot{arg.slot}"
        if arg.kind == "arena":
            offset = arg.index
        else:
            base += f"+%{arg.index}"
    else:
        base = f"{arg.kind}{arg.index}"
    return f"{base}+{offset}" if offset else base


@lru_cache(4096)
def parse_operand(text: str) -> Arg:
    """The argument with this text.  Raises ParseError for other texts."""
    m = _OPERAND.fullmatch(text)
    if m is None:
        raise ParseError(f"expected an argument such as arena+64, input0 or %3, found {text!r}")
    offset = int(m["offset"] or 0)
    if m["memory"]:
        return Arg(cast(ArgKind, m["memory"]), int(m["index"]), offset)
    if m["constants"]:
        return Arg("constant", offset)
    if m["arena"]:
        slot = None if m["slot"] is None else int(m["slot"])
        if m["value"] is None:
            return Arg("arena", offset, slot=slot)
        return Arg("place", int(m["value"]), offset, slot)
    return Arg("extent", int(m["extent"])) if m["extent"] else Arg("scalar", int(m["scalar"]))
