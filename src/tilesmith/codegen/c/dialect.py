"""The differences between a language and portable C, as a value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilesmith.loop.nodes import Buffer, Stmt

from .builder import Builder


def _pointer(b: Builder, buffer: Buffer, type_: str, restrict: str) -> list[str]:
    return [f"{type_} *{restrict}{b.names(buffer)}"]


def _own_parameters(b: Builder) -> list[str]:
    return ["void *workspace", "struct tilesmith_context *context"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between a language and portable C.  The defaults describe portable C.

    name: its name in messages.
    reserved: words that can't be names in it.
    float_suffix: ending of the names of functions on `float`.
    memory: qualifier of pointers to the memory of arguments and of the workspace.
    is_first: an additional condition for recording a failure.
    failed: statement of a kernel after a failed assertion; "" to go on.
    pointer: declarations of the parameters for a buffer, given the type of its elements and whether
        its pointer is restricted.
    own_parameters: declarations of the last parameters, which the runtime passes.
    statements: writers of statements by class, which take the function's `Statements` and the
        statement.  A writer passes statements that it doesn't handle to `Statements.plain`.
    """

    name: str = "C"
    reserved: Collection[str] = ()
    float_suffix: str = "f"
    memory: str = ""
    is_first: str = ""
    failed: str = "return TILESMITH_ASSERTION;"
    pointer: Callable[[Builder, Buffer, str, str], list[str]] = _pointer
    own_parameters: Callable[[Builder], list[str]] = _own_parameters
    statements: Mapping[type[Stmt], Callable[[Any, Any], None]] = field(default_factory=dict)


PORTABLE = Dialect()
