"""Workloads: the subjects of records, as text.  Equal work has equal text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilesmith.graph.custom import meanings
from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.repack import with_packing
from tilesmith.graph.text import print_graph
from tilesmith.support.options import Accuracy


def accuracy_text(accuracy: Accuracy) -> str:
    """The line for an accuracy policy in a workload; empty for the default."""
    return "" if accuracy == "default" else f"accuracy {accuracy}\n"


def group_workload(body: Graph, constants: Iterable[int], accuracy: Accuracy = "default") -> str:
    """The workload of a fused body without names (see `canonical`).

    The text does not contain the packing of `constants` (input numbers), because this is a
    decision.
    """
    known = sorted(constants)
    plain = with_packing(body, dict.fromkeys(known))
    rest = f"constants {known}\n{meanings(body.nodes)}{accuracy_text(accuracy)}"
    return print_graph(plain) + rest


def choice_workload(knob: str, nodes: Sequence[Node], accuracy: Accuracy) -> str:
    """The workload of a graph pass's choice about `nodes`, under an accuracy policy.

    Nodes that do the same on values of the same types and layouts have equal texts.
    """
    numbers: dict[Value, int] = {}

    def text(values: Sequence[Value]) -> str:
        nodes = (
            f"%{numbers.setdefault(v, len(numbers))}: {v.type} {v.layout or ''}" for v in values
        )
        return ", ".join(nodes)

    lines = (f"{n.op!r} {text(n.inputs)} -> {text(n.outputs)}" for n in nodes)
    return "\n".join((f"{knob} {accuracy}", *lines)) + meanings(nodes)
