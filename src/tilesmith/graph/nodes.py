"""Graph IR: typed SSA in A-normal form.

A `Graph` has inputs, constants, nodes in order, and outputs.  A `Node` applies an operator instance
to values and defines new ones.  Each `Value` is defined once and compared by identity; its name is
a label, made unique when printed.  Operators speak of logical axes.  A value's `layout` says how
memory holds it (None: row-major).  Control flow and fused groups are nodes whose operator holds a
sub-graph.  Everything is immutable: passes map Graph to Graph and return the same object if nothing
changed.  `loc` names the source model's node; equality ignores it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import symbols_of
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import GraphBuilder, Op
from tilesmith.ops.formula import Formula
from tilesmith.support.mapped import release
from tilesmith.te import tensor as te


def _nothing() -> None:
    """The builder of a value of a finished graph."""


@dataclass(frozen=True, slots=True, eq=False)
class Value(Formula):
    """A tensor in the program.

    name: label for people.
    type: element type and logical shape.
    layout: order in memory; None for row-major.
    made_by: the builder of its graph, until that is finished; formulas are written with it.
    """

    name: str
    type: TensorType
    layout: Layout | None = None
    made_by: Callable[[], GraphBuilder | None] = field(default=_nothing, repr=False)

    @property
    def builder(self) -> GraphBuilder | None:
        """The builder that takes the nodes of formulas of it."""
        return self.made_by()

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"<%{self.name}: {self.type}>"


@dataclass(frozen=True, eq=False)
class Data:
    """The contents of a constant, in its physical layout, read at the first use.

    load: reads or computes them.
    fill: writes them to zeroed memory, for contents that are made only to be stored.
    source: the constant of which they are another layout.
    """

    load: Callable[[], np.ndarray] = field(repr=False)
    fill: Callable[[np.ndarray], object] | None = field(default=None, repr=False)
    source: Constant | None = field(default=None, repr=False)

    @staticmethod
    def of(array: np.ndarray) -> Data:
        data = Data(lambda: array)
        data.__dict__["array"] = array  # fills the cached property
        return data

    @cached_property
    def array(self) -> np.ndarray:
        return self.load()

    @property
    def is_read(self) -> bool:
        """Whether `array` is at hand."""
        return "array" in self.__dict__

    def read(self) -> np.ndarray:
        """The contents for a single use; they are not kept unless they are already."""
        return self.array if self.is_read else self.load()

    def copy_to(self, out: np.ndarray) -> None:
        """Write the contents to `out`, which is zero.  Neither they nor `source`'s contents are
        kept in memory.
        """
        if not self.is_read and self.fill is not None:
            self.fill(out)
        else:
            out[...] = self.read()
        origin = self if self.source is None else self.source.data
        if origin.is_read:
            release(origin.array)

    @cached_property
    def digest(self) -> str:
        """A hash of dtype, shape and contents, 16 hex digits; equal for equal constants."""
        a = np.ascontiguousarray(self.array)  # which makes a scalar rank 1: hash the true shape
        h = hashlib.blake2b(f"{a.dtype}{self.array.shape}".encode(), digest_size=8)
        h.update(a.view(np.uint8).data if a.size and a.ndim else a.tobytes())
        return h.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value known at compile time.

    value: the value.
    data: its contents.
    """

    value: Value
    data: Data


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """`outputs = op(inputs)`.

    op: the operator with its attributes.
    inputs: values read.
    outputs: values defined.
    loc: the source model's node.
    """

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    loc: str = ""

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The symbols in its attributes and the types of its results."""
        return symbols_of(_node_extents(self))


@dataclass(frozen=True, eq=False)
class Graph:
    """A program.

    name: label of the program.
    inputs: parameters, in order.
    constants: values known at compile time.
    nodes: in order of execution.
    outputs: results, in order.
    output_names: the names of the results for users; several may refer to one value.
    in_place: results that live in the memory of an input: pairs of the result's number and the
        input's.  No two live in one input, and their types are equal; a carried value of a loop may
        also become longer in its memory (`passes.append`).  Such a result of a fused group lies
        over the operand; what becomes of one of a whole program, `passes.overwrite` decides.
    defaults: what inputs hold that a caller leaves out: pairs of the input's number and its
        contents.  Types of such inputs are static.
    """

    name: str
    inputs: tuple[Value, ...]
    constants: tuple[Constant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    output_names: tuple[str, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    defaults: tuple[tuple[int, Data], ...] = ()

    @cached_property
    def producer(self) -> dict[Value, Node]:
        """The node that defines each value."""
        return {v: n for n in self.nodes for v in n.outputs}

    @cached_property
    def consumers(self) -> dict[Value, tuple[Node, ...]]:
        """The nodes that read each value, each once, in order (graph outputs are not listed)."""
        found: dict[Value, list[Node]] = {}
        for n in self.nodes:
            for v in dict.fromkeys(n.inputs):
                found.setdefault(v, []).append(n)
        return {v: tuple(ns) for v, ns in found.items()}

    @cached_property
    def symbols(self) -> tuple[Var, ...]:
        """The symbols in types and attributes, measured ones too, in the order of the text."""
        return symbols_of(_extents(self))

    @cached_property
    def constant(self) -> dict[Value, Constant]:
        """The constant behind each constant value."""
        return {c.value: c for c in self.constants}

    @property
    def default_of(self) -> dict[Value, Constant]:
        """The default of each input that has one, as a constant."""
        return {self.inputs[i]: Constant(self.inputs[i], data) for i, data in self.defaults}


def _extents(graph: Graph) -> Iterator[Expr]:
    """The symbolic extents in a program."""
    for v in graph.inputs:
        yield from _symbolic(v.type)
    for n in graph.nodes:
        yield from _node_extents(n)


def _node_extents(node: Node) -> Iterator[Expr]:
    for v in node.outputs:
        yield from _symbolic(v.type)
    yield from _symbolic(tuple(node.op.attributes.values()))


def _symbolic(value: object) -> Iterator[Expr]:
    """The symbolic extents in an attribute."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from _symbolic(v)
    elif isinstance(value, TensorType):
        yield from (d for d in value.shape if isinstance(d, Expr))
    elif isinstance(value, Graph):
        yield from _extents(value)


@dataclass(frozen=True)
class Fused(Op):
    """A group of nodes compiled into one kernel.

    body: the nodes; its inputs and outputs are those of the operator.
    """

    body: Graph

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.body.outputs)


@dataclass(frozen=True)
class InPlace(Fused):
    """A group that needs no code: results and operands are the same memory.  Layouts say how each
    is seen there.

    offsets: offset of each result (of each operand, if `joins`) in elements.
    joins: False for a view, whose results lie in the memory of its one operand.  True for a
        concatenation, whose operands lie in the memory of its one result.
    """

    offsets: tuple[int, ...]
    joins: bool = False


@dataclass(frozen=True)
class Relayout(Op):
    """The same tensor in another layout.

    layout: that of the output value.
    """

    layout: Layout

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return (types[0],)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        (x,) = inputs
        return te.compute(x.shape, lambda *i: x[i], "relayout")

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0]
