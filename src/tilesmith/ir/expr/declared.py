"""The methods of a kind of expression, made from its declared fields.

`node` makes a class of expressions from its fields with roles (`ir.grammar`).  For each class,
`node` makes three functions: one gives the children of an expression, one rebuilds it, and one
gives the key by which it is interned.  The source of these functions is as short as code written by
hand, because they run for every expression of every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, dataclass_transform

from tilesmith.ir.grammar import (
    NodeField,
    Role,
    fields_of,
    fields_with,
    function_of,
    items_of,
    reader,
    register,
)

_INSIDE = (Role.OPERAND, Role.BODY)

T = TypeVar("T", bound=type)


@dataclass_transform(frozen_default=True, eq_default=False)
def node(kind: T) -> T:
    """Decorator that makes a class a kind of expression.  The class becomes frozen, with slots, and
    is compared by identity.  `children`, `with_children` and `_key` are made from its fields, and
    `items` from its `syntax`.
    """
    make: Any = dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
    made: Any = make(kind)
    declared = fields_of(made)
    made.children = property(reader(_inside(declared)))
    made.with_children = function_of(f"lambda node, children: {_rebuilt(declared)}")
    if "_key" not in vars(kind):
        made._key = classmethod(_key_of(made, declared))
    made.is_read = hasattr(kind, "syntax")
    if not made.is_read:
        operands = ", ".join(f"{{{name}}}" for name in _names(made, Role.OPERAND))
        made.syntax = f"{kind.__name__.lower()}({operands})"
    else:
        register(made.syntax)
    made.items = items_of(made.syntax)
    made.binders = _names(made, Role.BINDER)
    made.references = _names(made, Role.REFERENCE)
    made.bodies = _names(made, Role.BODY)
    return made


def _names(kind: type, role: Role) -> tuple[str, ...]:
    return tuple(f.name for f in fields_with(kind, role))


def _inside(declared: tuple[NodeField, ...]) -> list[NodeField]:
    return [f for f in declared if f.role in _INSIDE]


def _rebuilt(declared: tuple[NodeField, ...]) -> str:
    """Source of the expression that makes the node with other children."""
    inside = _inside(declared)
    values = {f.name: f"node.{f.name}" for f in declared}
    taken: list[str] = []
    for f in inside:
        start = " + ".join(taken) or "0"
        is_there = f"node.{f.name} is not None"
        taken.append(
            f"len(node.{f.name})" if f.is_many else f"({is_there})" if f.is_optional else "1"
        )
        value = f"children[{start}]" + (f" if {is_there} else None" if f.is_optional else "")
        values[f.name] = f"children[{start} : {' + '.join(taken)}]" if f.is_many else value
    if len(inside) == 1 and inside[0].is_many:
        values[inside[0].name] = "children"
    return f"type(node)({', '.join(values.values())})" if inside else "node"


def _key_of(kind: type, declared: tuple[NodeField, ...]) -> Callable[..., Any]:
    """The function that computes the key of a node from its values.  The key holds the ids of
    references, since their `==` need not mean equality.  The node keeps the objects alive.
    """
    defaults = {f"_{f.name}": f.default for f in fields(kind) if f.default is not MISSING}
    refers = [f for f in declared if f.role is Role.REFERENCE]
    if not defaults and not refers:
        return lambda cls, args: (cls, args)
    values: list[str] = []
    for n, f in enumerate(declared):
        value = f"id(args[{n}])" if f in refers else f"args[{n}]"
        has_default = f"_{f.name}" in defaults
        values.append(f"{value} if len(args) > {n} else _{f.name}" if has_default else value)
    return function_of(f"lambda cls, args: (cls, {', '.join(values)})", **defaults)
