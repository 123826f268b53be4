"""Walking and rewriting expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any

from tilesmith.ir.grammar import Role, fields_with, values_of
from tilesmith.ir.order import post_order

from .arithmetic import Expr, Var
from .interned import set_symbols
from .nodes import BufferLike

_NONE: frozenset[Var | BufferLike] = frozenset()


def same(a: Sequence[object], b: Sequence[object]) -> bool:
    """True if both hold the same objects in the same order.  `==` of sequences of expressions
    raises, since `==` of expressions makes a node.
    """
    return len(a) == len(b) and all(map(is_, a, b))


def same_labels(a: Expr, b: Expr) -> bool:
    """True if two nodes of one kind have equal labels; children and references may differ."""
    for f in fields_with(type(a), Role.LABEL):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if not (same(x, y) if f.is_many else x == y):
            return False
    return True


def index_of(items: Sequence[object], item: object) -> int:
    """The position of the object `item`, compared by identity (the method `index` uses `==`)."""
    return next(n for n, other in enumerate(items) if other is item)


def distinct(roots: Iterable[Expr]) -> list[Expr]:
    """The nodes of `roots`, each once, children first."""
    seen: dict[Expr, None] = {}
    for root in roots:
        for node in post_order(root, seen):
            seen[node] = None
    return list(seen)


def reached(
    roots: Iterable[Expr],
    inside: Callable[[Expr], Iterable[Expr]] = attrgetter("children"),
    seen: set[Expr] | None = None,
) -> Iterator[Expr]:
    """All nodes that can be reached from `roots` by steps of `inside`, each once.  A node comes
    before the nodes that are reached only through it.

    inside: gives the nodes that can be reached from a node in one step.
    seen: nodes to leave out; each reached node is added to this set.
    """
    known = set[Expr]() if seen is None else seen
    waiting = [*roots]
    while waiting:
        e = waiting.pop()
        if e not in known:
            known.add(e)
            yield e
            waiting += inside(e)


def count_uses(roots: Iterable[Expr], uses: dict[Expr, int]) -> None:
    """Count the uses of `roots` and of the nodes below them, and add the numbers to `uses`.  Uses
    by a node that is already in `uses` are not counted again.
    """
    seen = set(uses)
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
        for node in post_order(root):
            if node not in seen:
                seen.add(node)
                for c in node.children:
                    uses[c] = uses.get(c, 0) + 1


def symbols(root: Expr) -> frozenset[Var | BufferLike]:
    """The free Vars and the buffers on which the value of `root` depends.  Cached in each node."""
    if type(root) is Var:
        return frozenset((root,))
    known = root.known_symbols
    if known is not None:
        return known
    stack = [root]
    while stack:
        node = stack[-1]
        below = [c for c in node.children if c.known_symbols is None and type(c) is not Var]
        if below:
            stack += below
        else:
            stack.pop()
            known = _symbols_over(node)
            set_symbols(node, known)
    assert known is not None
    return known


def _symbols_over(node: Expr) -> frozenset[Var | BufferLike]:
    """The symbols of a node from the symbols of its children, which are known."""
    if node.binders:
        return _symbols_around(node)
    union = _NONE
    for child in node.children:
        # a Var must not store a set that contains it: the Var would never be freed
        inner = frozenset((child,)) if type(child) is Var else child.known_symbols or _NONE
        if not inner <= union:
            union = inner if union <= inner else union | inner
    return union | {getattr(node, r) for r in node.references} if node.references else union


def _symbols_around(node: Expr) -> frozenset[Var | BufferLike]:
    """The symbols of a node that declares variables for its bodies."""

    def values(role: Role) -> tuple[Any, ...]:
        return values_of(node, fields_with(type(node), role))

    inside = _NONE.union(*map(symbols, values(Role.BODY))) - {*values(Role.BINDER)}
    outside = map(symbols, values(Role.OPERAND))
    return inside.union(values(Role.REFERENCE), *outside)


def free_vars(root: Expr) -> frozenset[Var]:
    """The Vars that occur in `root` and are not bound by a `Let` inside it."""
    own = symbols(root)
    if all(isinstance(s, Var) for s in own):
        return own  # type: ignore[return-value]  # what the line above says
    return frozenset(s for s in own if isinstance(s, Var))


def vars_of(roots: Iterable[Expr]) -> set[Var]:
    """The Vars that occur in `roots`, such as the indices of a read."""
    return {v for root in roots for v in free_vars(root)}


def reads_memory(root: Expr) -> bool:
    """True if a `Load` occurs in `root`."""
    return not all(isinstance(s, Var) for s in symbols(root))


def rebuilt(node: Expr, done: Mapping[Expr, Expr]) -> Expr:
    """`node` with its rewritten children; the same object if none changed."""
    children = node.children
    new = tuple([done[c] for c in children])
    for a, b in zip(new, children):
        if a is not b:
            return node.with_children(new)
    return node


def substitute(root: Expr, mapping: dict[Expr, Expr]) -> Expr:
    """`root` with each key of `mapping` (usually Vars) replaced; the same object if none occurs."""
    if not mapping:
        return root
    if all(type(k) is Var for k in mapping) and symbols(root).isdisjoint(mapping):
        return root
    done: dict[Expr, Expr] = dict(mapping)
    for node in post_order(root, done):
        done[node] = rebuilt(node, done)
    return done[root]
