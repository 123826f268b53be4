"""Rewriting the tensor reads of expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilesmith.ir.expr import Expr, Load, Select, Unary, post_order, rebuilt, same


def map_loads(roots: tuple[Expr, ...], f: Callable[[Load], Expr]) -> tuple[Expr, ...]:
    """`roots` with each Load replaced by `f(load)`, innermost Loads first."""
    done: dict[Expr, Expr] = {}
    for root in roots:
        for node in post_order(root):
            if node in done:
                continue
            result = rebuilt(node, done)
            done[node] = f(result) if isinstance(result, Load) else result
    return tuple(done[r] for r in roots)


def loads(roots: tuple[Expr, ...]) -> list[Load]:
    """The distinct Loads of `roots`, in order of first use."""
    ordered: dict[Load, None] = {}
    for root in roots:
        for node in post_order(root):
            if isinstance(node, Load):
                ordered[node] = None
    return list(ordered)


_SETS = 4  # upper bound on the sets of conditions that are kept for one node


def guarded_loads(root: Expr) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """The Loads of `root`, each with the conditions under which it is evaluated.  A shared Load
    appears once per set of conditions.

    A set is left out if a subset of it was found before.  A node with more than `_SETS` sets
    appears with the conditions that all its sets have in common, because a chain of selects can
    have exponentially many sets.
    """
    by_node: dict[Expr, list[tuple[Expr, ...]]] = {}
    stack: list[tuple[Expr, tuple[Expr, ...]]] = [(root, ())]
    while stack:
        node, known = stack.pop()
        before = by_node.setdefault(node, [])
        if any(same(known[: len(k)], k) for k in before):
            continue
        if len(before) >= _SETS:
            known = _common(*before, known)
            before.clear()
        before.append(known)
        if isinstance(node, Load):
            yield node, known if node.mask is None else (*known, node.mask)
        # The condition comes first, since it has the fewest conditions around it.
        if isinstance(node, Select):
            stack += [
                (node.if_true, (*known, node.cond)),
                (node.if_false, (*known, Unary("not", node.cond))),
                (node.cond, known),
            ]
        else:
            stack.extend((c, known) for c in node.children)


def _common(*lists: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The conditions with which all lists begin."""
    first = min(lists, key=len)
    count = next((n for n, e in enumerate(first) if any(k[n] is not e for k in lists)), len(first))
    return first[:count]
