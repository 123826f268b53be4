"""Variables of models: values that a run leaves for the next run.

A variable becomes an input and an output of the graph.  The input's default is the first value.
The output shares the input's memory, which the executable keeps between runs (see
`Program.states`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.graph.builder import array_type
from tilesmith.graph.nodes import Constant, Data, Graph, Value
from tilesmith.support.errors import ModelError, UnsupportedError


@dataclass(slots=True)
class _Variable:
    """A variable of the main function.

    first: its value before the first run.
    before: its value at the beginning of a run, an input of the graph.
    now: its value after the operators imported so far.
    """

    first: np.ndarray
    before: Value
    now: Value


class States:
    """The variables of a model, by a key."""

    def __init__(self, builder: FoldingBuilder) -> None:
        self._builder = builder
        self._variables: dict[Hashable, _Variable] = {}
        self._first: dict[Hashable, np.ndarray] = {}
        self.taken: set[str] = set()
        """Names of the graph's inputs."""
        self.shared: frozenset[str] = frozenset()
        """Keys of the variables that other functions of the model write."""
        self.is_beginning = False
        """Whether the operators being imported run only once, before the first run."""

    def read(self, builder: FoldingBuilder, key: Hashable, name: str, zeros: np.ndarray) -> Value:
        """A variable's value.

        builder: makes the graph that reads it.
        zeros: its first value if `write` set none.  Its type is the variable's type.

        Raises UnsupportedError in a body.
        """
        self._check_main(builder)
        if key not in self._variables:
            first = self._first.get(key, zeros)
            if array_type(first) != array_type(zeros):
                raise ModelError(
                    f"variable {name!r}: expected {array_type(first)} as its first value, found "
                    f"{array_type(zeros)}"
                )
            value = builder.input(self._unused(name), array_type(first))
            self._variables[key] = _Variable(first, value, value)
        return self._variables[key].now

    def write(self, builder: FoldingBuilder, key: Hashable, name: str, value: Value) -> None:
        """Set the value of a variable.

        Raises UnsupportedError in a body, for a value of another type, and if the first value is
        not known.
        """
        self._check_main(builder)
        if self.is_beginning:
            known = builder.known(value)
            if known is None:
                raise UnsupportedError(f"variable {name!r} begins with a value that is not known")
            self._first[key] = known
            return
        if not value.type.is_static:
            raise UnsupportedError(
                f"variable {name!r} of type {value.type}, with an open dimension"
            )
        zeros = np.zeros(value.type.static_shape, value.dtype.numpy)
        now = self.read(builder, key, name, zeros)
        if now.type != value.type:
            raise UnsupportedError(f"variable {name!r} of type {now.type} becomes {value.type}")
        self._variables[key].now = value

    def finished(self, graph: Graph) -> Graph:
        """`graph` with the variables as additional inputs and outputs.  Variables that no function
        writes become constants.
        """
        written, fixed = [], []
        for key, v in self._variables.items():
            (written if v.now is not v.before or key in self.shared else fixed).append(v)
        inputs = tuple(v for v in graph.inputs if all(v is not f.before for f in fixed))
        count = len(graph.outputs)
        pairs = [(count + o, inputs.index(v.before)) for o, v in enumerate(written)]
        return replace(
            graph,
            inputs=inputs,
            constants=(*graph.constants, *(Constant(v.before, Data.of(v.first)) for v in fixed)),
            outputs=(*graph.outputs, *(v.now for v in written)),
            output_names=(*graph.output_names, *self._names(graph, written)),
            in_place=tuple(pairs),
            defaults=tuple((i, Data.of(v.first)) for (_, i), v in zip(pairs, written, strict=True)),
        )

    def _names(self, graph: Graph, written: list[_Variable]) -> list[str]:
        """Names for the outputs of variables, different from all other inputs and outputs."""
        taken = {*graph.output_names, *self.taken}
        names = []
        for v in written:
            name = f"{v.before.name}_next"
            while name in taken:
                name += "_next"
            taken.add(name)
            names.append(name)
        return names

    def _unused(self, name: str) -> str:
        """A name for an input, different from all other inputs; `name` if it is free."""
        while name in self.taken:
            name += "_state"
        self.taken.add(name)
        return name

    def _check_main(self, builder: FoldingBuilder) -> None:
        if builder is not self._builder:
            raise UnsupportedError("a variable inside a branch or a loop that a run decides")
