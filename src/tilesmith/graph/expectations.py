"""Expected sizes at which a program makes sense.

A symbol's usual size may be too small for the program: an image of 224 rows under a window of 513
has no result, and what is decided for a result of -288 rows is decided badly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesmith.graph.bind import Binding
from tilesmith.graph.control import nodes_in
from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Expr, Var, free_vars
from tilesmith.ir.symbols import value_of
from tilesmith.ir.types import Dim

DOUBLINGS = 16
"""How often sizes are doubled in search of possible ones."""


def with_possible_sizes(graph: Graph) -> Graph:
    """`graph` where symbols are expected to be so large that no extent is below 1, as far as their
    ranges allow; the same object if they are already, or if no such sizes are found.
    """
    values = (*graph.inputs, *(v for _, n in nodes_in(graph) for v in n.outputs))
    extents = {
        d for v in values for d in v.type.shape if isinstance(d, Expr) and not isinstance(d, Var)
    }
    symbols = {v: v.sizes for d in extents for v in free_vars(d) if v.sizes is not None}
    sizes = {v: s.expected for v, s in symbols.items()}
    for _ in range(DOUBLINGS):
        low = [d for d in extents if free_vars(d) <= sizes.keys() and _is_low(d, sizes)]
        if not low:
            break
        grown = {v: min(2 * sizes[v], symbols[v].high) for d in low for v in free_vars(d)}
        sizes = sizes | grown
    else:
        return graph
    changed: dict[Expr, Dim] = {
        v: Var(v.name, v.type, v.size, replace(s, expected=sizes[v]))
        for v, s in symbols.items()
        if sizes[v] != s.expected
    }
    return Binding(changed).graph(graph) if changed else graph


def _is_low(extent: Expr, sizes: Mapping[Var, int]) -> bool:
    try:
        return value_of(extent, sizes) < 1
    except ValueError:  # has no value at these sizes, such as a division by zero
        return True
