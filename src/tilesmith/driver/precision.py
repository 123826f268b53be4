"""Which products of a model read operands of a low type: what the user asked for, by name."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from tilesmith.graph.control import graphs_in
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.low_precision import LOW_TYPES, constant_factor, low_precision
from tilesmith.ir.dtypes import DType
from tilesmith.support.errors import UsageError
from tilesmith.support.precision import ANY, pins_of

from .session import Session

_SHOWN = 8
"""Names of products in a message."""


def precision_pass(session: Session) -> Callable[[Graph], Graph]:
    """The graph pass that the options ask for."""
    pins = pins_of(session.options.precision)
    choice = session.backend.low_precision(session.target)

    def wanted(loc: str) -> DType | None:
        name = next((name for pattern, name in pins if fnmatchcase(loc, pattern)), None)
        return LOW_TYPES.get(name or "")

    return lambda graph: low_precision(graph, wanted, choice)


def check_precision(graph: Graph, session: Session) -> None:
    """Raises UsageError for a precision of a model that has no products of f32 with constants, and
    for a pattern that matches none of them.
    """
    text = session.options.precision
    if text == "f32":
        return
    names = products_of(graph)
    if not names:
        raise UsageError(
            f"precision={text!r}: the model has no product or convolution of f32 with constant "
            "weights; compile it without"
        )
    for pattern, _ in pins_of(text):
        if pattern != ANY and not any(fnmatchcase(n, pattern) for n in names):
            shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if names[_SHOWN:] else "")
            raise UsageError(
                f"precision: no product is called {pattern!r}; the products are {shown}"
            )


def products_of(graph: Graph) -> tuple[str, ...]:
    """The names of the products of f32 with a constant, in order, each once."""
    found: dict[str, None] = {}
    for part in graphs_in(graph):
        whole = decompose(part)
        constants = set(whole.constant)
        for n in whole.nodes:
            if constant_factor(n, constants.__contains__) is not None:
                found[n.loc] = None
    return tuple(found)
