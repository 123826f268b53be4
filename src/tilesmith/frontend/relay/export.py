"""Graphs as Relay programs.

A frontend's graph, which has the source's operators, is written node by node.  Composite operators
that Relay lacks are expanded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tilesmith.frontend.relay.parse import VERSION
from tilesmith.frontend.relay.tensors import written_constants
from tilesmith.frontend.relay.writer import Writer
from tilesmith.frontend.relay.written import WRITERS
from tilesmith.graph.control import graphs_in, in_bodies
from tilesmith.graph.nodes import Graph, Node
from tilesmith.graph.passes.decompose import decompose_only
from tilesmith.ops.norm import LayerNorm
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UnsupportedError, UsageError
from tilesmith.support.folders import write_text, writing

FORMS = ("graph", "anf")
"""The forms of a program: numbered nodes, or A-normal form with a `let` for each value."""


def to_relay(graph: Graph, form: str = "graph") -> str:
    """A Relay program that computes `graph`, with its constants.

    Raises UnsupportedError if an input has an open size.  For operators that Relay lacks, the error
    names all of them.
    """
    for v in graph.inputs:
        if not v.type.is_static:
            raise UnsupportedError(
                f"input {v.name!r}: expected a fixed shape to write Relay, found {v.type}; give "
                "shapes="
            )
    graph = _expanded(graph)
    nodes = [n for g in graphs_in(graph) for n in g.nodes]
    lacking = sorted({n.op.name for n in nodes if type(n.op) not in WRITERS})
    if lacking:
        raise UnsupportedError(f"no form in Relay is known for {', '.join(lacking)}")
    w = Writer(graph, form)
    inputs = ", ".join(f"{w.name(v)}: {w.type_of(v)}" for v in graph.inputs)
    results = w.body(graph, WRITERS)
    types = [w.type_of(v) for v in graph.outputs]
    out, type_ = (results[0], types[0]) if len(results) == 1 else map(w.tuple, (results, types))
    lines = "".join(f"  {line}\n" for line in (*w.lines, out))
    text = f'#[version = "{VERSION}"]\ndef @main({inputs}) -> {type_} {{\n{lines}}}\n'
    return text + f"\n#[metadata]\n{written_constants(w.section)}\n" if w.section else text


def _expanded(graph: Graph) -> Graph:
    """`graph` with composite operators that Relay lacks expanded, also in bodies."""
    kept = {id(n.op) for n in graph.nodes if isinstance(n.op, LayerNorm) and _is_last(n)}
    has_form = WRITERS.keys() - {LayerNorm}
    plain = decompose_only(graph, lambda op: type(op) not in has_form and id(op) not in kept)
    return in_bodies(plain, _expanded)


def _is_last(n: Node) -> bool:
    """Whether a LayerNorm has Relay's form: over the last axis, without statistics as results."""
    op: Any = n.op
    return op.axis in (-1, n.inputs[0].type.rank - 1) and not op.with_stats


@checked(UsageError)
def save_relay(graph: Graph, path: str | os.PathLike[str], form: str = "graph") -> None:
    """Write `graph` to a file of Relay's text.  Raises as `to_relay`, and UsageError if the file
    can't be written.
    """
    text, file = to_relay(graph, form), Path(path)
    with writing(file):
        write_text(file, text)
