"""A builder that knows values: what does not depend on a model's inputs is computed on the way.

Source models compute shapes with operators (shape, gather, concat, reshape).  Results of small
constants are computed when their operator is added, larger ones when an importer asks for their
contents (`known`), so that such shapes are numbers by the time an operator needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate_op
from tilesmith.graph.nodes import Value
from tilesmith.ops.base import Op
from tilesmith.support.errors import ModelError, UnsupportedError

from .limits import MAX_ELEMENTS, MAX_NODES

_FOLD_ELEMENTS = 1 << 14
"""Results up to this many elements are computed at once, larger ones when something asks."""

_FOLD_BYTES = 1 << 30
"""Memory for all computed results together."""

_KNOWN_BYTES = 1 << 26
"""Memory for one result that is computed when something asks for it."""


class FoldingBuilder(Builder):
    """The `Builder` of an importer."""

    def __init__(self, name: str = "main") -> None:
        super().__init__(name)
        self._origin: dict[Value, tuple[Op, tuple[Value, ...], int]] = {}
        self._folded: dict[Value, np.ndarray] = {}
        self._fold_bytes = 0
        self._visited = 0
        self._streams = 0

    def next_stream(self) -> int:
        """The number of a source of random numbers among those that have no seed."""
        self._streams += 1
        return self._streams

    def count(self) -> None:
        """Counts a node of the source model, or one that it unfolds into; ModelError at too many
        (`MAX_NODES`).
        """
        self._visited += 1
        if self._visited > MAX_NODES:
            raise ModelError(
                f"the model unfolds into more than {MAX_NODES} nodes, the most allowed"
            )

    def add(self, op: Op, *inputs: Value, loc: str = "", name: str = "") -> Any:
        """`Builder.add`; the result is a constant when all inputs are small constants.

        Errors do not name `loc`: the importer does, for all that may fail at a node.  Raises
        ModelError when a result has more than `MAX_ELEMENTS` elements.
        """
        self.count()
        outputs = self._append(op, inputs, self._types(op, inputs), loc, name)
        for i, v in enumerate(outputs):
            if v.type.is_static and v.type.size > MAX_ELEMENTS:
                raise ModelError(
                    f"{op.name} gives {v.type}: more than {MAX_ELEMENTS} elements, the most allowed"
                )
            self._origin[v] = (op, inputs, i)
        small = all(v.type.size <= _FOLD_ELEMENTS for v in (*inputs, *outputs))
        cheap = small and not op.heavy_reference and self._fold_bytes < _FOLD_BYTES
        if cheap and all(map(self.is_constant, inputs)):
            arrays = evaluate_op(op, *map(self._array, inputs))
            self._fold_bytes += sum(a.nbytes for a in arrays)
            outputs = tuple(map(self.constant, arrays))
        return outputs[0] if len(outputs) == 1 else outputs

    def known(self, value: Value) -> np.ndarray | None:
        """The contents of a value that does not depend on inputs, computed now if need be; None
        where it does, or where computing it takes too much.
        """
        order: list[Value] = []
        for v in self._behind(value):
            if self._is_known(v):
                continue
            made = self._origin.get(v)
            if made is None or made[0].heavy_reference or v.type.bytes > _KNOWN_BYTES:
                return None
            order.append(v)
        self._fold(order)
        return self._array(value)

    def _fold(self, values: list[Value]) -> None:
        """Computes `values`, among which are all that they need."""
        waiting = list(values)
        while waiting:
            v = waiting[-1]
            if v in self._folded:
                waiting.pop()
                continue
            op, inputs, index = self._origin[v]
            missing = [i for i in inputs if not self._is_known(i)]
            if missing:
                waiting += missing
                continue
            if self._fold_bytes > _FOLD_BYTES:
                raise UnsupportedError(
                    f"computing its constant inputs takes more than {_FOLD_BYTES} bytes"
                )
            self._folded[v] = evaluate_op(op, *map(self._array, inputs))[index]
            self._fold_bytes += self._folded[v].nbytes
            waiting.pop()

    def _is_known(self, value: Value) -> bool:
        return value in self._folded or self.is_constant(value)

    def _array(self, value: Value) -> np.ndarray:
        found = self._folded.get(value)
        return self._constants[value].data.array if found is None else found

    def inputs_behind(self, value: Value) -> tuple[str, ...]:
        """Names of the model inputs that a value is computed from."""
        return tuple(
            v.name for v in self._behind(value) if v not in self._origin and not self.is_constant(v)
        )

    def _behind(self, value: Value) -> Iterator[Value]:
        """`value` and what it is computed from, each once; known values are not looked behind."""
        pending, seen = [value], {value}
        while pending:
            v = pending.pop()
            yield v
            if v in self._origin and not self._is_known(v):
                fresh = [i for i in self._origin[v][1] if i not in seen]
                seen.update(fresh)
                pending += fresh
