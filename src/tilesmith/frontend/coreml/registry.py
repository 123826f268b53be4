"""The table of ML programs' operators: which Python function imports which operator.

A function is registered with `@mil_op("conv")`; it gets a `MilNode` and returns the node's output
(a tuple if there are several).  Arguments that are left out have the operator's defaults, which
are the same in all versions unless the function reads `n.version`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.coreml.node import MilNode
from tilesmith.ops.base import Op

ImportFunction: TypeAlias = Callable[[MilNode], Result]

OPERATORS: Registry[ImportFunction] = Registry()
"""The operators by name, in the empty domain."""

mil_op = OPERATORS.register


def same_operator(name: str, make: Callable[[], Op], *arguments: str) -> None:
    """Register an operator that equals an operator of Tilesmith on its tensors `arguments`."""

    def convert(n: MilNode) -> Result:
        return n.add(make(), *map(n.input, arguments))

    OPERATORS.register(name)(convert)


def apply(n: MilNode, kind: str, **arguments: object) -> Result:
    """The result of operator `kind` for these arguments (see `MilNode.of`).

    Raises UnsupportedError if there is no such operator.
    """
    function = OPERATORS.find("", kind)
    if function is None:
        n.unsupported(f"operator {kind!r} is not supported")
    return function(n.of(kind, **arguments))
