"""The ways in which a language differs from portable C, as a value."""

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
    """The ways in which a language differs from portable C.  The defaults describe portable C.

    name: the language's name in messages.
    reserved: further words that can't be names in the language.
    float_suffix: suffix of the names of mathematical functions on `float`.
    memory: qualifier of pointers to the memory of arguments and of the workspace.
    is_first: text of a further condition (`" && ..."`) under which a failure is recorded.
    failed: statement that a kernel runs after a failed assertion; "" if the kernel goes on.
    pointer: writer of the parameters for a buffer, given the type of its elements, and "restrict "
        or "".
    own_parameters: writer of the last parameters, which the runtime passes.
    statements: writers of statements, by class.  Each is called with the function's `Statements`
        and the statement.  A writer passes a statement that it doesn't handle to
        `Statements.plain`.
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
