"""The table of ATen operators: which Python function imports which overload.

A function is registered with `@aten_op("aten.add.Tensor")`.  It receives an `AtenNode` and the
call's arguments.  Its parameters have the names and the order of the operator's schema, so that a
source may pass arguments by position or by name.  Keyword arguments in `PLACEMENT` are dropped.
Tensors are values, and a symbolic size is an expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tilesmith.frontend.common.registry import Registry

ImportFunction: TypeAlias = Callable[..., Any]
"""Maps an `AtenNode` and arguments to a value, a number, or a tuple of these."""

OPERATORS: Registry[ImportFunction] = Registry()
"""Import functions by the overload's name.  Domains are empty, and there is only one version."""

PLACEMENT = frozenset(("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy"))
"""Arguments about the memory of a result, and about the copy to it.  The importer drops them."""

aten_op = OPERATORS.register
