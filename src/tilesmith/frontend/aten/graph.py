"""Conversion of an exported program to a Graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesmith.frontend.aten import guards
from tilesmith.frontend.aten.exported import Exported, Input
from tilesmith.frontend.aten.importer import AtenImporter
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.tensors import contents, element_type, memory_of
from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.types import Dim, TensorType


def graph_of(program: Exported, given: Given) -> Graph:
    """The graph of an exported program (see `frontend.load`).

    Its inputs are the tensors and sizes among the program's arguments, then the buffers that the
    program writes.  Its outputs are the tensors and sizes among the program's results, then the new
    contents of the written buffers and arguments.
    """
    with errors_name(program.name):
        return _Reader(program, given).graph()


class _Reader:
    """Reads one exported program."""

    def __init__(self, program: Exported, given: Given) -> None:
        self._program, self._given = program, given
        self._builder = FoldingBuilder("main", given.for_training)
        self._importer = AtenImporter(self._builder, may_fall_back=False)
        self._signature = program.signature
        self._weights = self._contents()
        self._shared: dict[Any, Value] = {}
        self._dims: dict[str, str] = {}

    def graph(self) -> Graph:
        program, names = self._program, self._importer.names
        for i in program.inputs:
            if i.weight is not None and i.weight not in self._signature.written:
                names[i.name] = self._constant(i.weight)
        self._arguments([i for i in program.inputs if i.weight is None])
        self._guard()
        self._written()
        self._importer.run(program.calls())
        self._importer.check()
        return self._finished()

    def _contents(self) -> dict[str, Any]:
        """The weights by name, with the caller's new contents.  Tied weights stay tied if the
        caller replaces only one of them, or gives equal contents for all of them.
        """
        held = {i.weight: self._program.weights[i.weight] for i in self._program.inputs if i.weight}
        if not self._given.weights.arrays:
            return held
        tied: dict[Any, list[str]] = {}
        for name, tensor in held.items():
            tied.setdefault(memory_of(tensor), []).append(name)
        contents = dict(held)
        for names in tied.values():
            tensor = held[names[0]]
            type_ = TensorType(element_type(tensor.dtype), tuple(tensor.shape))
            new = {n: self._given.weights.array(n, type_) for n in names}
            arrays = [a for a in new.values() if a is not None]
            if arrays and all(np.array_equal(a, arrays[0]) for a in arrays[1:]):
                contents |= dict.fromkeys(names, arrays[0])
            else:
                contents |= {n: a for n, a in new.items() if a is not None}
        return contents

    def _constant(self, name: str) -> Value:
        """The constant of a weight, in the module's memory.  Tied weights share one constant."""
        tensor = self._weights[name]
        key = memory_of(tensor)
        if key not in self._shared:
            self._shared[key] = self._builder.constant(contents(tensor, name), name)
        return self._shared[key]

    def _arguments(self, inputs: list[Input]) -> None:
        declared = [
            Declared(i.name, i.dtype, tuple(self._dim(d, i, a) for a, d in enumerate(i.dims)))
            for i in inputs
            if i.dtype is not None
        ]
        self._declare_ranges()
        values = fixed(declared, self._given.values)
        types = input_types(declared, self._given, values)
        for i in inputs:
            if i.name in values:
                self._importer.names[i.name] = self._builder.constant(values[i.name])
            elif i.name in types:
                value = self._builder.input(i.name, types[i.name])
                self._importer.names[i.name] = value
                if i.kind == "size":
                    self._builder.numbers.add(value)
            else:
                self._importer.names[i.name] = i.value

    def _dim(self, size: int | str, of: Input, axis: int) -> int | str:
        """The extent `size` of an axis as a number or as the name of a symbol.  A symbol is named
        INPUT.AXIS, after the first axis that has it.
        """
        return size if isinstance(size, int) else self._dims.setdefault(size, f"{of.name}.{axis}")

    def _declare_ranges(self) -> None:
        for text, bounds in self._program.ranges.items():
            name = self._dims.get(text)
            if name is not None:
                high = LARGEST if bounds.high is None else min(bounds.high, LARGEST)
                self._given.symbols.declare(name, bounds.low, high, self._program.hints.get(text))

    def _guard(self) -> None:
        symbols: dict[str, Dim] = {}
        for i in self._program.inputs:
            held = self._importer.names.get(i.name)
            if isinstance(held, Value):
                for size, extent in zip(i.dims, held.type.shape, strict=False):
                    symbols.setdefault(str(size), extent)
        n = AtenNode(self._builder, "", "", "")
        guards.require(n, self._program.guards, self._importer.names, symbols)

    def _written(self) -> None:
        """Turn buffers that the program writes into inputs of the graph."""
        names = {i.weight: i.name for i in self._program.inputs}
        for target in self._signature.written:
            tensor = self._program.weights[target]
            declared = Declared(target, element_type(tensor.dtype), tuple(tensor.shape))
            type_ = input_types([declared], Given(), {})[target]
            self._importer.names[names[target]] = self._builder.input(target, type_)

    def _finished(self) -> Graph:
        results = [o for o in self._program.outputs if o.written is None]
        new = [o for o in self._program.outputs if o.written is not None]
        named = zip(self._program.structure.names(), results, strict=True)
        names = [n for n, o in named if o.kind != "constant"]
        kept = [o for o in results if o.kind != "constant"]
        values = [self._value(self._importer.resolved(o.value)) for o in (*kept, *new)]
        return dce(self._builder.finish(values, [*names, *(f"new.{o.written}" for o in new)]))

    def _value(self, result: Any) -> Value:
        """A result as a tensor.  The result may be a number or a size."""
        return AtenNode(self._builder, "", "", "").tensor(result)
