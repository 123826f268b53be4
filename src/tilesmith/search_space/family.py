"""Families of similar workloads: the same work with other extents, or with another epilogue.

Decisions found for one workload are worth trying for its relatives: the other workloads of its
family.  A family is the text of a group's anchor with `_` for every extent above 1.  The anchor is
the group's contractions; without contractions, its reductions; without both, the whole group.  The
extents are stored beside the text.  Extents of 1 stay in the text, because an axis with one element
makes another kind of loop nest.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.graph.passes.fuse import node_structure
from tilesmith.graph.passes.repack import with_packing
from tilesmith.graph.text import node_text, print_graph
from tilesmith.ops.winograd import WinogradConv

FAR = 2.0
"""Upper bound on |log2(a / b)| for an extent that is a in one workload and b in its relative."""
OTHER_GROUP = 0.5
"""Distance between two workloads with the same anchor but different nodes around it."""

_TYPE = re.compile(r"(?<=[a-z0-9])\[([0-9,]+)\]")
_SIZES = re.compile(r"(?<=\b)(shape|starts|ends|sizes|repeats)=\(([-0-9, ]*)\)")
_ROOM = re.compile(r"(?<=\d)(?:\+\d+:\d+|:\d+)(?=[ \"])")
_RANGE = re.compile(r"(range)\(([0-9, ]+)\)")


@dataclass(frozen=True, slots=True)
class Family:
    """The properties by which workloads are compared.

    anchor: hash of the anchor without extents; workloads with the same hash are relatives.
    group: hash of the whole group without extents.
    extents: extents of the anchor, in order.
    """

    anchor: str
    group: str
    extents: tuple[int, ...]

    @staticmethod
    def of_row(anchor: object, group: object, extents: object) -> Family:
        """The family in a row of the records.  `extents` is a text of numbers with spaces between
        them.

        Raises ValueError or TypeError if the values are not those of a family.
        """
        if not (isinstance(anchor, str) and isinstance(group, str) and isinstance(extents, str)):
            raise TypeError(f"expected texts, found {(anchor, group, extents)!r}")
        numbers = tuple(map(int, extents.split()))
        if min(numbers, default=2) < 2 or max(numbers, default=2) >= 1 << 63:
            raise ValueError(f"bad extents {extents!r}")
        return Family(anchor, group, numbers)

    @property
    def size(self) -> float:
        """An estimate of the anchor's work, made without lowering: the square root of the product
        of all extents of its inputs and outputs.  For a matrix product this is the number of
        multiplications.  The result is infinite if it exceeds the range of floats, as for a long
        chain.
        """
        size = math.prod(self.extents)
        return math.sqrt(size) if size.bit_length() < sys.float_info.max_exp else math.inf

    def distance(self, other: Family) -> float:
        """Distance of two workloads: the norm of the binary logarithms of their extents' ratios.
        It is infinite if the anchors differ or a ratio exceeds `FAR`.
        """
        if self.anchor != other.anchor or len(self.extents) != len(other.extents):
            return math.inf
        steps = [
            abs(math.log2(a / b))
            for a, b in zip(self.extents, other.extents, strict=True)
            if a != b
        ]
        if max(steps, default=0.0) > FAR:
            return math.inf
        return math.hypot(*steps) + (OTHER_GROUP if self.group != other.group else 0.0)


def group_family(body: Graph, constants: Iterable[int]) -> Family:
    """The family of a fused body.  It does not depend on the packing of `constants` (input
    numbers).
    """
    plain = with_packing(body, dict.fromkeys(constants))
    anchor, extents = _without_extents(" ".join(map(_alone, _anchors(plain))))
    group, _ = _without_extents(print_graph(plain))
    return Family(digest(_ROOM.sub("", anchor)), digest(group), extents)


def nest_family(text: str) -> Family:
    """The family of a loop nest in its text form."""
    abstract, extents = _without_extents(text)
    return Family(digest(abstract), digest(abstract), extents)


def _anchors(body: Graph) -> Sequence[Node]:
    kinds = [
        "contraction" if isinstance(n.op, WinogradConv) else node_structure(n).kind
        for n in body.nodes
    ]
    for wanted in ("contraction", "reduction"):
        if wanted in kinds:
            return [n for n, kind in zip(body.nodes, kinds, strict=True) if kind == wanted]
    return body.nodes


def _alone(node: Node) -> str:
    """A node's text without names, with the types of its inputs."""

    def nameless(values: tuple[Value, ...]) -> tuple[Value, ...]:
        fresh = {v: replace(v, name="") for v in values}
        return tuple(fresh[v] for v in values)

    inputs = nameless(node.inputs)
    types = ", ".join(f'{v.type}@"{v.layout or ""}"' for v in inputs)
    return f"({types}) {node_text(Node(node.op, inputs, nameless(node.outputs)))}"


def _without_extents(text: str) -> tuple[str, tuple[int, ...]]:
    extents: list[int] = []

    def extent(number: re.Match[str]) -> str:
        n = int(number[0])
        if n <= 1 or n >= 1 << 31:  # 0, 1, a negative index, or the end of an axis
            return number[0]
        extents.append(n)
        return "_"

    def several(found: re.Match[str]) -> str:
        return re.sub(r"-?\d+", extent, found[0])

    for pattern in (_TYPE, _SIZES, _RANGE):
        text = pattern.sub(several, text)
    return text, tuple(extents)


def digest(text: str) -> str:
    """A hash of a text, 16 hex digits."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
