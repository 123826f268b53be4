"""Open dimensions of inputs that may be empty, since a model only concatenates along them.

A decoder's caches have such dimensions.  Their length is 0 in the first step, and each later node
sees the length after the concatenation, which is at least 1.  These dimensions are found before
the model is imported, by the nodes that read the inputs and not by names (decision 112).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.onnx.attributes import INT, INTS, attribute_type
from tilesmith.frontend.onnx.proto import text
from tilesmith.frontend.onnx.structure import subgraphs

_MICROSOFT = "com.microsoft"
_PASTS: Mapping[tuple[str, str], Mapping[int, int]] = {
    ("", "Attention"): {4: 2, 5: 2},
    (_MICROSOFT, "Attention"): {4: 3},
    (_MICROSOFT, "MultiHeadAttention"): {6: 2, 7: 2},
    (_MICROSOFT, "GroupQueryAttention"): {3: 2, 4: 2},
}
"""Operators that append new keys and values to cached ones -> {number of a cache input: axis}."""

_JOINED, _GONE = -1, -2
_SAME = ("Identity", "Cast", "CastLike")
_SIZES = ("Shape", "Size")


def joined(graph: Any, inputs: Sequence[Declared]) -> list[str]:
    """Names of the open dimensions along which the model only concatenates.  An unnamed dimension
    of input NAME is called "NAME.AXIS".

    graph: a GraphProto.
    """
    uses = _Uses(graph, frozenset(i.name for i in inputs))
    fits: dict[str, bool] = {}
    for i in inputs:
        for axis, d in enumerate(i.dims or ()):
            if isinstance(d, str):
                key = d or f"{i.name}.{axis}"
                fits[key] = fits.get(key, True) and uses.joins(i.name, axis, len(i.dims or ()))
    return [key for key, fit in fits.items() if fit]


class _Uses:
    """The nodes that read each value, including nodes in branches and bodies."""

    def __init__(self, graph: Any, given: frozenset[str]) -> None:
        self._given = given
        self._nodes: dict[str, list[tuple[Any, int]]] = defaultdict(list)
        self._returned: set[str] = set()
        for node in self._all(graph):
            for i, name in enumerate(node.input):
                if name:
                    self._nodes[text(name, "an input's name")].append((node, i))

    def _all(self, graph: Any) -> Iterator[Any]:
        waiting = [graph]
        while waiting:
            for node in waiting.pop().node:
                yield node
                for inner in subgraphs(node):
                    self._returned.update(text(o.name, "an output's name") for o in inner.output)
                    waiting.append(inner)

    def joins(self, name: str, axis: int, rank: int) -> bool:
        """Whether each node that reads this axis concatenates along it, and at least one does."""
        waiting, seen, some = [(name, axis)], {(name, axis)}, False
        while waiting:
            value, position = waiting.pop()
            if value in self._returned:
                return False
            for node, i in self._nodes[value]:
                then = self._then(node, i, position, rank)
                if then is None:
                    return False
                some = some or then == _JOINED
                if then >= 0:
                    new = {(text(o, "an output's name"), then) for o in node.output if o}
                    waiting.extend(new - seen)
                    seen |= new
        return some

    def _then(self, node: Any, i: int, axis: int, rank: int) -> int | None:
        """The axis of the results that corresponds to this axis of input `i`.  `_JOINED` for a
        concatenation, `_GONE` if the results are sizes, and None for any other use.
        """
        op = text(node.op_type, "an operator's name")
        domain = text(node.domain, "a domain")
        domain = "" if domain == "ai.onnx" else domain
        if _PASTS.get((domain, op), {}).get(i) == axis:
            return _JOINED
        if domain:
            return None
        if op in _SAME and i == 0:
            return axis
        if op in _SIZES:
            return _GONE
        if op == "Transpose":
            order = _numbers(node, "perm") or [*reversed(range(rank))]
            return order.index(axis) if axis in order else None
        if op == "Concat":
            axes = _numbers(node, "axis")
            if len(axes) != 1 or not -rank <= axes[0] < rank:
                return None
            if axes[0] % rank != axis:
                return axis
            return _JOINED if any(n not in self._given for n in node.input) else None
        return None


def _numbers(node: Any, name: str) -> list[int]:
    """The integers of an attribute; none if it has another type, which the import refuses."""
    for a in node.attribute:
        if a.name == name and attribute_type(a) in (INT, INTS):
            return [int(a.i)] if attribute_type(a) == INT else [int(v) for v in a.ints]
    return []
