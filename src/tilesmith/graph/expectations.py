"""Expected sizes that are large enough for the program.

A symbol's usual size may be too small for the program: an image of 224 rows under a window of 513
has no result, and no decision for a result of -288 rows makes sense.  The smallest possible size is
no good expectation either: 512 samples make one frame of a spectrogram, but recordings are far
longer than 32 ms.  So the symbol's expected size is raised until the smallest extent that depends
on it is as large as a tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tilesmith.graph.bind import Binding
from tilesmith.graph.control import nodes_in
from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Expr, Var, free_vars
from tilesmith.ir.sizes import Sizes
from tilesmith.ir.symbols import value_of
from tilesmith.ir.types import Dim

DOUBLINGS = 16
"""Upper bound on the doublings in the search for sizes at which no extent is below 1."""

_ROOM_DOUBLINGS = 5
"""Upper bound on the doublings once no extent is below 1.  An extent grows at least as fast as its
symbol, so five doublings raise it from 1 to 32 or more.  No tile has more than 32 rows.
"""


def with_possible_sizes(graph: Graph) -> Graph:
    """`graph` with expected sizes for which no extent is below 1, as far as the symbols' ranges
    allow.  The same object if no extent is below 1 already, or if the search finds no such sizes.

    Extents that were below 1 become at least 32, unless a range or a formula limits them.
    """
    values = (*graph.inputs, *(v for _, n in nodes_in(graph) for v in n.outputs))
    extents = {
        d for v in values for d in v.type.shape if isinstance(d, Expr) and not isinstance(d, Var)
    }
    symbols = {v: v.sizes for d in extents for v in free_vars(d) if v.sizes is not None}
    usual = sizes = {v: s.expected for v, s in symbols.items()}
    extents = {d for d in extents if free_vars(d) <= sizes.keys()}
    for _ in range(DOUBLINGS):
        low = [d for d in extents if _is_below(1, d, sizes)]
        if not low:
            break
        sizes = _doubled(sizes, low, symbols)
    else:
        return graph
    odd = [d for d in extents if _is_below(1, d, usual)]
    for _ in range(_ROOM_DOUBLINGS):
        low = [d for d in odd if _is_below(1 << _ROOM_DOUBLINGS, d, sizes)]
        sizes = _doubled(sizes, low, symbols)
    changed: dict[Expr, Dim] = {
        v: Var(v.name, v.type, v.size, replace(s, expected=sizes[v]))
        for v, s in symbols.items()
        if sizes[v] != s.expected
    }
    return Binding(changed).graph(graph) if changed else graph


def _doubled(
    sizes: Mapping[Var, int], low: Iterable[Expr], symbols: Mapping[Var, Sizes]
) -> Mapping[Var, int]:
    """`sizes` with doubled values for symbols of `low`, the extents that are too small.

    An extent of several symbols, such as `n * frames`, does not show which symbol is too small.  So
    its symbols are doubled only when all extents of fewer symbols are large enough.
    """
    fewest = min((len(free_vars(d)) for d in low), default=0)
    grown = {v for d in low if len(free_vars(d)) == fewest for v in free_vars(d)}
    return {v: min(2 * n, symbols[v].high) if v in grown else n for v, n in sizes.items()}


def _is_below(least: int, extent: Expr, sizes: Mapping[Var, int]) -> bool:
    try:
        return value_of(extent, sizes) < least
    except ValueError:  # no value at these sizes, as in a division by zero
        return True
