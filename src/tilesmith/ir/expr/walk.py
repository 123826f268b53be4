"""Walking and rewriting expressions."""

from __future__ import annotations

from collections.abc import Container, Iterator

from .arithmetic import Expr, Var
from .nodes import Let


def post_order(root: Expr, done: Container[Expr] = ()) -> Iterator[Expr]:
    """Every distinct node below and including `root`, children first; without those that are in
    `done` and what is only below them.  The caller may add nodes to it as they come.
    """
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        if node in seen or node in done:
            stack.pop()
            continue
        below = [c for c in node.children if c not in seen and c not in done]
        if below:
            below.reverse()
            stack += below
        else:
            stack.pop()
            seen.add(node)
            yield node


def substitute(root: Expr, mapping: dict[Expr, Expr]) -> Expr:
    """`root` with each key of `mapping` (usually Vars) replaced; itself when none occurs."""
    if not mapping:
        return root
    done: dict[Expr, Expr] = dict(mapping)
    for node in post_order(root, done):
        children = node.children
        new = tuple(done[c] for c in children)
        done[node] = (
            node
            if all(a is b for a, b in zip(new, children, strict=True))
            else node.with_children(new)
        )
    return done[root]


def free_vars(root: Expr) -> set[Var]:
    """The Vars that occur in `root` and are not bound by a `Let` inside it."""
    found: set[Var] = set()
    bound: set[Var] = set()
    for n in post_order(root):
        if isinstance(n, Var):
            found.add(n)
        elif isinstance(n, Let):
            bound.add(n.var)
    return found - bound
