"""Products of a model that read operands of a low type, as the user chose by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase

from tilesmith.graph.control import graphs_in
from tilesmith.graph.nodes import Graph, Node
from tilesmith.graph.passes.choices import preferred
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.low_precision import (
    LOW_TYPES,
    Choice,
    Form,
    constant_factor,
    low_precision,
)
from tilesmith.graph.passes.winograd import has_form
from tilesmith.ir.dtypes import DType
from tilesmith.ops.conv import Conv
from tilesmith.support.errors import UsageError
from tilesmith.support.precision import ANY, AUTO, pins_of, precision_text

from .session import Session

_WILD = re.compile(r"[*?\[,]")
"""Characters that a pattern does not take literally."""

_SHOWN = 8
"""Upper bound on the names of products in a message."""


def precision_pass(session: Session) -> Callable[[Graph], Graph]:
    """The graph pass that applies the precision from the options.  Raises UsageError for "auto"."""
    if session.options.precision == AUTO:
        raise UsageError(
            'precision="auto" is decided by measuring when a model is compiled: use ts.compile, or '
            "give the precision that it chose"
        )
    pins = pins_of(session.options.precision)
    choice = low_choice(session)

    def wanted(loc: str) -> DType | None:
        name = next((name for pattern, name in pins if fnmatchcase(loc, pattern)), None)
        return LOW_TYPES.get(name or "")

    return lambda graph: low_precision(graph, wanted, choice)


def low_choice(session: Session) -> Choice:
    """The choice of a low type for the operands of each product that this type makes faster.  A
    convolution stays f32 if Winograd's algorithm on f32 is faster than the instructions for the
    low type.
    """
    target, bound = session.target, session.options.algorithm_bound
    lower = session.backend.low_precision(target)
    winograd = {
        low: session.backend.winograd(target, bound, preferred, low) for low in LOW_TYPES.values()
    }

    def choose(node: Node, constant: int, low: DType, constants: int) -> Form | None:
        form = lower(node, constant, low, constants)
        is_candidate = isinstance(node.op, Conv) and has_form(node.op, *node.inputs)
        if form == "operands" and is_candidate and winograd[low](node) is not None:
            return None
        return form

    return choose


def check_precision(graph: Graph, session: Session) -> None:
    """Raises UsageError for a precision if a model has no f32 products with constants, or if a
    pattern matches none of them.
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


def named(types: Mapping[str, str], all_of: Collection[str]) -> str:
    """The precision that gives these types to products, by name.

    If `types` has all names of the model's products (`all_of`), and they have the same type, the
    result is that type.
    """
    if set(types) == set(all_of) and len(set(types.values())) == 1:
        return next(iter(types.values()))
    return precision_text({_WILD.sub(_literal, name): t for name, t in types.items()})


def _literal(found: re.Match[str]) -> str:
    return "?" if found[0] == "," else f"[{found[0]}]"


def products_of(graph: Graph) -> tuple[str, ...]:
    """The names of f32 products with a constant, in order and without duplicates."""
    names: dict[str, None] = {}
    for part in graphs_in(graph):
        whole = decompose(part)
        constants = set(whole.constant)
        for n in whole.nodes:
            if constant_factor(n, constants.__contains__) is not None:
                names[n.loc] = None
    return tuple(names)
