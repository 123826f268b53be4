"""Post-order of the nodes of an acyclic graph, whatever their kind."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Protocol, TypeVar


class Parent(Protocol):
    """A node that has children."""

    @property
    def children(self) -> tuple[Any, ...]: ...


N = TypeVar("N", bound=Parent)


def post_order(root: N, done: Container[N] = ()) -> Iterator[N]:
    """Every distinct node below and including `root`, children first.

    done: nodes to leave out, together with nodes that can be reached only through them.  The caller
        may add nodes during the iteration.
    """
    if root in done:
        return
    seen: set[N] = set()
    stack: list[tuple[N, Iterator[N]]] = [(root, iter(root.children))]
    while stack:
        node, rest = stack[-1]
        for child in rest:
            if child not in seen and child not in done:
                below = child.children
                if below:
                    stack.append((child, iter(below)))
                    break
                seen.add(child)
                yield child
        else:
            stack.pop()
            seen.add(node)
            yield node
