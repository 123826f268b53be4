"""Derivatives of models: `grad`, `value_and_grad` and `jvp`, from a model to a graph."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilesmith.frontend.load import load
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.graph.passes.differentiate import differentiate, push_forward
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError

from .entry import of_frontend
from .request import Request


@checked(UsageError)
def grad(
    model: Any,
    wrt: str | Sequence[str] | None = None,
    of: str | Sequence[str] | None = None,
    **source: Any,
) -> Graph:
    """The graph that computes gradients of a model: one output `d_<name>` for each of `wrt`.

    `ts.compile` takes it like any other graph.  It has the model's inputs and, for each output in
    `of` that is not a scalar, an input `d_<output>` of the output's type: the cotangent, which
    weights the output's elements.

    model: as for `compile`.
    wrt: names of inputs or weights of floats (default: all inputs of floats).
    of: names of outputs of floats (default: the first output).  The gradients of several outputs
        are added.
    source: the arguments of `compile` that say how a model is read: `shapes`, `values`, `dynamic`,
        `example_inputs`, `signature` and others.

    To differentiate twice, take the gradient of the result.  Operators with steps, integers and
    `StopGradient` have the gradient zero.

    Raises UsageError for a name that the model does not have; ModelError if an output does not
    depend on a name in `wrt`; UnsupportedError, which names each node without a gradient.
    """
    graph, numbers, values = _selected(model, wrt, of, source)
    graph = differentiate(graph, numbers, values)
    last = len(graph.outputs) - len(values)
    return dce(replace(graph, outputs=graph.outputs[last:], output_names=graph.output_names[last:]))


@checked(UsageError)
def value_and_grad(
    model: Any,
    wrt: str | Sequence[str] | None = None,
    of: str | Sequence[str] | None = None,
    **source: Any,
) -> Graph:
    """The graph of `grad` with the model's own outputs in front of the gradients.

    Arguments and errors: as for `grad`.
    """
    return differentiate(*_selected(model, wrt, of, source))


@checked(UsageError)
def jvp(
    model: Any,
    wrt: str | Sequence[str] | None = None,
    of: str | Sequence[str] | None = None,
    **source: Any,
) -> Graph:
    """The graph that also computes derivatives along a direction (forward mode): the model's
    outputs, then one output `d_<name>` for each of `of`.

    It has the model's inputs and, for each of `wrt`, an input `d_<name>` of its type: the tangent.
    The output `d_<name>` is the Jacobian times the tangents.

    model, source: as for `grad`.
    wrt: names of inputs or weights of floats (default: all inputs of floats).
    of: names of outputs of floats (default: all outputs of floats).

    The derivative follows from the rules of `grad`, and so do the errors.
    """
    return push_forward(*_selected(model, wrt, of, source, every=True))


def _selected(
    model: Any,
    wrt: str | Sequence[str] | None,
    of: str | Sequence[str] | None,
    source: Any,
    every: bool = False,
) -> tuple[Graph, list[int], list[Value]]:
    """The graph of a model, the numbers of the outputs `of` and the values of the names `wrt`.

    every: whether all outputs of floats are selected if `of` is None; otherwise only the first
        output is selected.
    """
    request, exported = of_frontend(Request.of(model=model, **source))
    graph = _read(request)
    own = {v.name for v in graph.inputs} | {c.value.name for c in graph.constants}
    folded = [n for n in _names(wrt or ()) if n not in own]
    if folded and exported is None and not isinstance(request.model, Graph):
        # Importing may fold a weight, but not an initialiser that is an input.
        graph = _read(replace(request, optional=(*request.optional, *folded)))
    if of is not None:
        numbers = [_found(n, graph.output_names, "output") for n in _names(of)]
    elif every:
        numbers = [n for n, v in enumerate(graph.outputs) if v.dtype.is_float]
    else:
        numbers = [0]
    return graph, numbers, _values(graph, wrt)


def _read(request: Request) -> Graph:
    return load(
        request.model, request.shapes, request.values, dynamic=request.dynamic,
        expected=request.expected, optional=request.optional, signature=request.signature,
    )  # fmt: skip


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _values(graph: Graph, wrt: str | Sequence[str] | None) -> list[Value]:
    """The inputs and weights with the names `wrt`."""
    if wrt is None:
        return [v for v in graph.inputs if v.dtype.is_float]
    known = [*graph.inputs, *(c.value for c in graph.constants if c.value.name)]
    names = [v.name for v in known]
    return [known[_found(n, names, "input or weight")] for n in _names(wrt)]


def _found(name: str, names: Sequence[str], what: str) -> int:
    """The position of a name.  Raises UsageError if it is missing."""
    if name in names:
        return names.index(name)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    raise UsageError(f"no {what} is named {name!r}; there are {shown}{hint}")
