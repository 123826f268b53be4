"""How a language differs from portable C, as a value."""

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
    """How a language differs from portable C, whose values are the defaults.

    name: what messages call it.
    reserved: words that can't be names in it.
    float_suffix: what the names of functions on `float` end in.
    memory: what qualifies pointers to the memory of arguments and of the workspace.
    is_first: a further condition for noting a failure.
    failed: what a kernel does after a failed assertion; "" for going on.
    pointer: declarations of the parameters that say where a buffer lies, given the type of its
        elements and whether its pointer is restricted.
    own_parameters: declarations of the last parameters, which are the runtime's.
    statements: by class, writers of statements, which take the function's `Statements` and the
        statement.  One that has nothing to say of a statement leaves it to `Statements.plain`.
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
