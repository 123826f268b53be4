"""Workloads: what records are of, as text that is the same wherever the same work is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilesmith.graph.nodes import Graph, Node
from tilesmith.graph.passes.repack import with_packing
from tilesmith.graph.text import print_graph


def group_workload(body: Graph, constants: Iterable[int]) -> str:
    """The workload of a fused body without names (see `canonical`).

    How `constants`, inputs by number, are packed is a decision, not part of the work.
    """
    known = sorted(constants)
    plain = with_packing(body, dict.fromkeys(known))
    return f"{print_graph(plain)}constants {known}\n"


def convolution_workload(node: Node, accuracy: str) -> str:
    """The workload of a convolution node whatever the algorithm, within an accuracy policy."""
    x, w = (v.type for v in node.inputs)
    return f"{node.op!r} {x} {w} {accuracy}\n"


def label_of(operators: Sequence[str], signature: str) -> str:
    """A group in a few words for people."""
    names = " ".join(operators)
    return f"{names[:40]} {signature.rpartition('-> ')[2]}"
