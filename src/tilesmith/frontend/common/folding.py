"""A builder that knows values: what does not depend on a model's inputs is computed on the way.

Source models compute shapes with operators (shape, gather, concat, reshape).  Results of small
constants are computed when their operator is added, larger ones when an importer asks for their
contents (`known`), so that such shapes are numbers by the time an operator needs them.  Where a
dimension is symbolic, small tensors hold extents (`contents`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate_op
from tilesmith.graph.nodes import Value
from tilesmith.ops.base import Op
from tilesmith.ops.sizes import Extents
from tilesmith.support.errors import ModelError, UnsupportedError

from .contents import Contents, is_small, known_contents, results
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
        self._contents: dict[Value, Contents] = {}
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
        if isinstance(op, Extents):
            self._contents[outputs[0]] = np.array(op.elements, object).reshape(op.shape)
        for i, v in enumerate(outputs):
            if v.type.is_static and v.type.size > MAX_ELEMENTS:
                raise ModelError(
                    f"{op.name} gives {v.type}: more than {MAX_ELEMENTS} elements, the most allowed"
                )
            self._origin[v] = (op, inputs, i)
        if not op.heavy_reference:
            outputs = self._computed(op, inputs, outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _computed(
        self, op: Op, inputs: tuple[Value, ...], outputs: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """The outputs; constants or extents where they are small and their contents are known."""
        values = (*inputs, *outputs)
        if any(v in self._contents for v in inputs) or not op.is_static:
            return self._symbolic(op, inputs, outputs) if all(map(_is_small, values)) else outputs
        small = all(v.type.is_static and v.type.size <= _FOLD_ELEMENTS for v in values)
        if small and self._fold_bytes < _FOLD_BYTES and all(map(self.is_constant, inputs)):
            arrays = evaluate_op(op, *map(self._array, inputs))
            self._fold_bytes += sum(a.nbytes for a in arrays)
            return tuple(map(self.constant, arrays))
        return outputs

    def _symbolic(
        self, op: Op, inputs: tuple[Value, ...], outputs: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """The outputs of an operator on tensors whose contents depend on symbolic dimensions."""
        held = [self.contents(v) for v in inputs]
        given = [c for c in held if c is not None]
        if isinstance(op, Extents) or len(given) < len(held):
            return outputs
        found = results(op, tuple(v.type for v in inputs), given)
        if found is None:
            return outputs
        return tuple(map(self._holding, outputs, found))

    def _holding(self, value: Value, contents: Contents) -> Value:
        """`value`, which holds `contents`, as a constant or as extents where it may be."""
        array = known_contents(contents, value.type)
        if array is not None:
            return self.constant(array)
        if value.dtype.is_int:
            made = Extents(tuple(contents.flat), value.type.static_shape, value.dtype)
            return self.add(made, name=value.name)
        self._contents[value] = contents
        return value

    def contents(self, value: Value) -> Contents | None:
        """What a small tensor holds, numbers or symbolic; None if that is not known."""
        found = self._contents.get(value)
        if found is None and _is_small(value):
            array = self.known(value)
            found = None if array is None else array.astype(object)
        return found

    @property
    def open_inputs(self) -> tuple[str, ...]:
        """The names of the inputs with symbolic dimensions."""
        return tuple(v.name for v in self._inputs if not v.type.is_static)

    def known(self, value: Value) -> np.ndarray | None:
        """The contents of a value that does not depend on inputs, computed now if need be; None
        where it does, or where computing it takes too much.
        """
        order: list[Value] = []
        for v in self._behind(value):
            if self._is_known(v):
                continue
            made = self._origin.get(v)
            if made is None or made[0].heavy_reference or not made[0].is_static:
                return None
            if not v.type.is_static or v.type.bytes > _KNOWN_BYTES:
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


def _is_small(value: Value) -> bool:
    return is_small(value.type)
