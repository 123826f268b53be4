"""Import of branches.  The import of loops uses some of these functions, too.

If a condition is known, it chooses a branch.  Otherwise the node becomes a graph node with two
bodies.  If the branches' results differ in an extent, the graph node defines a symbol for the
extent.  Branches that can't be bodies are both computed (they have no effects), and `Where` selects
the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilesmith.frontend.common.body import Body, alternatives
from tilesmith.frontend.common.calling import CallingNode
from tilesmith.frontend.common.errors import NotedError
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.host_values import as_value, common_type, lifted
from tilesmith.frontend.common.slots import FAILED, Result, Slot, kind_of
from tilesmith.graph.control import If
from tilesmith.graph.measure import stages_of
from tilesmith.graph.nodes import Value
from tilesmith.ir import extents
from tilesmith.ir.dtypes import bool_
from tilesmith.ir.expr import Var
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.symbols import expected, symbol, symbols_of
from tilesmith.ir.types import Dim, TensorType, same_dim
from tilesmith.ops.functions import where


def results_of(slots: list[Slot]) -> tuple[Slot, ...]:
    """The results of a sub-graph.

    Raises NotedError if a node inside failed.  The failure is already recorded.
    """
    if any(s is FAILED for s in slots):
        raise NotedError("its sub-graph has nodes that are not supported")
    return tuple(slots)


def tensors(n: CallingNode, slots: Sequence[Slot]) -> tuple[Value, ...]:
    """The results of a sub-graph, which must be tensors."""
    for s in slots:
        if not isinstance(s, Value):
            n.unsupported(f"{kind_of(s)} as a result that is chosen or collected at run time")
    return tuple(s for s in slots if isinstance(s, Value))


def values_of(n: CallingNode, slots: list[Slot]) -> tuple[Value, ...]:
    return tensors(n, results_of(slots))


def branched(
    n: CallingNode, condition: Value, branches: tuple[Any, Any], arguments: Sequence[Slot] = ()
) -> Result:
    """The results of the first graph of `branches` if `condition` (one bool) is true, else those of
    the second, for the same arguments.
    """
    if condition.dtype is not bool_ or condition.type.size != 1:
        n.bad(f"cond: expected one bool, found {condition.type}")
    known = n.known(condition)
    if known is not None:
        chosen = branches[0] if bool(known.reshape(-1)[0]) else branches[1]
        return results_of(n.inline(chosen, arguments, n.loc))
    bodies = [Body(n.builder, name, is_branch=True) for name in ("then", "otherwise")]
    inside = [
        n.nest(b, g, [b.slot(a) for a in arguments], n.loc)
        for b, g in zip(bodies, branches, strict=True)
    ]
    for i, results in enumerate(inside):
        if results is None and bodies[i].misfit:
            inside[i] = _refusing(n, bodies, i, inside[1 - i])
    then, otherwise = map(only_tensors, inside)
    if then is None or otherwise is None:
        made = [as_values(b, f) for b, f in zip(bodies, inside, strict=True) if f is not None]
        if len(made) < len(bodies):
            return _both(n, condition, branches, arguments)
        then, otherwise = made
    then, otherwise = _lifted(bodies, then, otherwise)
    _check_alike(n, condition, then, otherwise, in_rank=True)
    (first, second), captured = alternatives(bodies, (then, otherwise))
    op = _with_results(n, If(first, second))
    return several(n.add(op, one(n, condition), *captured))


def selected(
    n: CallingNode, index: Value, branches: Sequence[Any], arguments: Sequence[Slot], first: int = 0
) -> Result:
    """The results of `branches[index - first]`, or of the last branch if there is no such branch.

    `n.inline` and `n.nest` must accept functions of a builder and arguments in place of graphs.
    """
    if len(branches) < 2:
        return results_of(n.inline(branches[0], arguments, n.loc)) if branches else ()

    def this(builder: FoldingBuilder, slots: Sequence[Slot]) -> Sequence[Slot]:
        return n.inline(branches[0], slots[1:], n.loc)

    def others(builder: FoldingBuilder, slots: Sequence[Slot]) -> Sequence[Slot]:
        number = slots[0]
        assert isinstance(number, Value)
        made = selected(replace(n, builder=builder), number, branches[1:], slots[1:], first + 1)
        return made if isinstance(made, tuple) else (made,)

    return branched(n, index.equals(first), (this, others), (index, *arguments))


def _refusing(
    n: CallingNode, bodies: list[Body], number: int, others: Sequence[Slot] | None
) -> list[Slot] | None:
    """The results of an invalid branch: zeros, with the types of the other branch's results.  A run
    that takes the invalid branch is refused.  None if the types depend on extents that only the
    other branch measures.
    """
    results = only_tensors(others)
    if results is None or not all(
        isinstance(v.type, TensorType) and v.type.is_static for v in results
    ):
        return None
    body = Body(n.builder, bodies[number].name, is_branch=True)
    made = body.refuse(bodies[number].misfit, [v.type for v in results], f"{n.loc}/{body.name}")
    bodies[number] = body
    return list(made)


def _with_results(n: CallingNode, op: If) -> If:
    """The operator with symbols for the extents in which its branches differ."""
    symbols: dict[tuple[Dim, Dim], Var] = {}
    bounds: list[Dim] = []
    inside = {s for body in op.bodies for stage in stages_of(body) for s in stage.symbols}

    def common(a: Dim, b: Dim) -> Dim:
        if same_dim(a, b):
            return a
        if (a, b) not in symbols:
            most = extents.larger(a, b)
            is_known = inside.isdisjoint(symbols_of((most,)))
            symbols[a, b] = either(f"{n.label}.{len(symbols)}", a, b)
            bounds.append(most if is_known else LARGEST)
        return symbols[a, b]

    types = tuple(
        TensorType(a.dtype, tuple(map(common, a.shape, b.shape)))
        for a, b in zip(op.then.outputs, op.otherwise.outputs, strict=True)
    )
    if not symbols:
        return op
    n.builder.measured.update(symbols.values())
    return replace(op, results=types, symbols=tuple(symbols.values()), bounds=tuple(bounds))


def either(name: str, a: Dim, b: Dim) -> Var:
    """A symbol for an extent that is either of two."""
    both = [extents.values_of(d) for d in (a, b)]
    low = min(0 if v.lo is None else max(v.lo, 0) for v in both)
    high = max(LARGEST if v.hi is None else min(v.hi, LARGEST) for v in both)
    return symbol(name, low, high, min(max(*map(expected, (a, b)), low), high))


def _both(
    n: CallingNode, condition: Value, branches: tuple[Any, Any], arguments: Sequence[Slot]
) -> Result:
    """A selection between the results of both branches, for branches that can't be bodies."""
    then, otherwise = (values_of(n, n.inline(g, arguments, n.loc)) for g in branches)
    _check_alike(n, condition, then, otherwise)
    condition = one(n, condition)
    return tuple(where(condition, a, b) for a, b in zip(then, otherwise, strict=True))


def _check_alike(
    n: CallingNode,
    condition: Value,
    then: Sequence[Value],
    otherwise: Sequence[Value],
    in_rank: bool = False,
) -> None:
    """Raises ValuesNeededError unless both branches' results have equal types.  With `in_rank`,
    only element types and ranks must be equal, and the error is an UnsupportedError.
    """
    if len(then) != len(otherwise):
        n.bad(
            f"expected as many results from both branches, found {len(then)} and {len(otherwise)}"
        )
    for a, b in zip(then, otherwise, strict=True):
        alike = (a.dtype, a.type.rank) == (b.dtype, b.type.rank) if in_rank else a.type == b.type
        if not alike and in_rank:
            n.unsupported(f"only a run knows its branch; they give {a.type} and {b.type}")
        if not alike:
            n.array(condition, f"cond (its branches give {a.type} and {b.type})")


def only_tensors(slots: Sequence[Slot] | None) -> tuple[Value, ...] | None:
    """The results of a body if all are tensors; else None."""
    if slots is None:
        return None
    values = tuple(s for s in slots if isinstance(s, Value))
    return values if len(values) == len(slots) else None


def as_values(body: Body, slots: Sequence[Slot]) -> tuple[Value, ...]:
    """The results of a body.  Sequences and optional values become host values."""
    return tuple(as_value(body, s) for s in slots)


def _lifted(
    bodies: Sequence[Body], then: Sequence[Value], otherwise: Sequence[Value]
) -> tuple[tuple[Value, ...], ...]:
    """The results of both branches.  A result that is a host value in one branch becomes a host
    value in the other, too.
    """
    types = [common_type(a.type, b.type) for a, b in zip(then, otherwise)]
    return tuple(
        tuple(v if t is None else lifted(body, v, t) for v, t in zip(values, types))
        for body, values in zip(bodies, (then, otherwise), strict=True)
    )


def one(n: CallingNode, value: Value) -> Value:
    """A tensor of one element, reshaped to rank 0."""
    return value.reshape() if value.type.rank else value


def several(made: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    return made if isinstance(made, tuple) else (made,)
