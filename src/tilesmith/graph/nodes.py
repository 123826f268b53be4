"""Graph IR: typed SSA in A-normal form.

A `Graph` has inputs, constants, nodes in order, and outputs.  A `Node` applies an operator instance
to values and defines new ones.  Each `Value` is defined once and compared by identity; its name is
a label, made unique when printed.  Operators speak of logical axes.  A value's `layout` describes
its order in memory (None: row-major).  Control flow and fused groups are nodes whose operator holds
a sub-graph (`Structure`).  All objects are immutable: passes map Graph to Graph and return the same
object if nothing changed.  `loc` names the source model's node; equality ignores it.

Fields declare their roles (`ir.grammar`).  The attributes of an operator that is not a `Structure`
are plain data, which may contain symbolic extents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.grammar import (
    Binder,
    Body,
    Label,
    Reference,
    Result,
    Role,
    fields_with,
    values_of,
)
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import symbols_of
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import GraphBuilder, Op
from tilesmith.ops.formula import Formula
from tilesmith.support.mapped import release
from tilesmith.te import tensor as te


def _nothing() -> None:
    """The default of `Value.made_by`: a value of a finished graph has no builder."""


@dataclass(frozen=True, slots=True, eq=False)
class Value(Formula):
    """A tensor in the program.

    name: label for people.
    type: element type and logical shape.
    layout: order in memory; None for row-major.
    made_by: gives the builder of the value's graph, to which formulas add nodes; None once the
        graph is finished.
    """

    name: str
    type: TensorType
    layout: Layout | None = None
    made_by: Callable[[], GraphBuilder | None] = field(default=_nothing, repr=False)

    @property
    def builder(self) -> GraphBuilder | None:
        """The builder to which formulas on this value add nodes."""
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

    load: reads or computes the contents.
    fill: writes the contents to zeroed memory.  None for contents that only `load` gives.
    source: the constant in another layout from which the contents are made; None if there is none.
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
        """Whether `array` has been read."""
        return "array" in self.__dict__

    def read(self) -> np.ndarray:
        """The contents for a single use.  They are not kept in memory, unless `array` was read
        before.
        """
        return self.array if self.is_read else self.load()

    def copy_to(self, out: np.ndarray) -> None:
        """Write the contents to `out`, which is zeroed.  Neither these contents nor those of
        `source` are kept in memory.
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
        # `ascontiguousarray` gives a scalar rank 1, so the original shape is hashed as well.
        a = np.ascontiguousarray(self.array)
        h = hashlib.blake2b(f"{a.dtype}{self.array.shape}".encode(), digest_size=8)
        h.update(a.view(np.uint8).data if a.size and a.ndim else a.tobytes())
        return h.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value known at compile time.

    value: the value.
    data: its contents.
    """

    value: Result[Value]
    data: Label[Data]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """`outputs = op(inputs)`.

    op: the operator with its attributes.
    inputs: values read.
    outputs: values defined.
    loc: name of the node in the source model.
    """

    op: Label[Op]
    inputs: Reference[tuple[Value, ...]]
    outputs: Result[tuple[Value, ...]]
    loc: Label[str] = ""

    def with_values(self, new: Mapping[Value, Value]) -> Node:
        """The node with its values replaced as in `new`; the same object if no value is
        replaced.
        """
        inputs = tuple([new.get(v, v) for v in self.inputs])
        outputs = tuple([new.get(v, v) for v in self.outputs])
        is_same = inputs == self.inputs and outputs == self.outputs
        return self if is_same else Node(self.op, inputs, outputs, self.loc)

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The symbols in the node's attributes and in the types of its results."""
        return symbols_of(_extents(self))


@dataclass(frozen=True, eq=False)
class Graph:
    """A program.

    name: label of the program.
    inputs: parameters, in order.
    constants: values known at compile time.
    nodes: in order of execution.
    outputs: results, in order.
    output_names: the names of the results for users; several results may be one value.
    in_place: results that live in the memory of an input, as pairs (result number, input number).
        Each input holds at most one result.  Input and result have the same type, except that a
        carried value of a loop may become longer in its memory (`passes.append`).  A fused group
        writes the result over the input.  For a whole program, `passes.overwrite` decides how the
        result gets into the input's memory.
    defaults: the inputs that a caller may leave out, as pairs (input number, contents).  Their
        types are static.
    """

    name: Label[str]
    inputs: Binder[tuple[Value, ...]]
    constants: Body[tuple[Constant, ...]]
    nodes: Body[tuple[Node, ...]]
    outputs: Reference[tuple[Value, ...]]
    output_names: Label[tuple[str, ...]]
    in_place: Label[tuple[tuple[int, int], ...]] = ()
    defaults: Label[tuple[tuple[int, Data], ...]] = ()

    @cached_property
    def producer(self) -> dict[Value, Node]:
        """The node that defines each value."""
        return {v: n for n in self.nodes for v in n.outputs}

    @cached_property
    def consumers(self) -> dict[Value, tuple[Node, ...]]:
        """Value -> the nodes that read it, each once, in order.  Outputs of the graph do not count
        as reads.
        """
        readers: dict[Value, list[Node]] = {}
        for n in self.nodes:
            for v in dict.fromkeys(n.inputs):
                readers.setdefault(v, []).append(n)
        return {v: tuple(ns) for v, ns in readers.items()}

    @cached_property
    def symbols(self) -> tuple[Var, ...]:
        """The symbols in types and attributes, including measured ones, in the order of the
        text.
        """
        return symbols_of(_extents(self))

    @cached_property
    def constant(self) -> dict[Value, Constant]:
        """Constant value -> the constant that defines it."""
        return {c.value: c for c in self.constants}

    @property
    def default_of(self) -> dict[Value, Constant]:
        """Input with a default -> the default, as a constant."""
        return {self.inputs[i]: Constant(self.inputs[i], data) for i, data in self.defaults}


def with_values(graph: Graph, new: Mapping[Value, Value]) -> Graph:
    """The graph with inputs and results replaced as in `new`; constants stay."""
    inputs, outputs = (tuple([new.get(v, v) for v in vs]) for vs in (graph.inputs, graph.outputs))
    nodes = tuple([n.with_values(new) for n in graph.nodes])
    return replace(graph, inputs=inputs, nodes=nodes, outputs=outputs)


def _extents(part: object) -> Iterator[Expr]:
    """The symbolic extents in a part of a program, in the order of its text."""
    match part:
        case tuple():
            for item in part:
                if type(item) is not int:  # most items are numbers
                    yield from _extents(item)
        case Expr():
            yield part
        case Value():
            yield from _extents(part.type.shape)
        case TensorType():
            yield from _extents(part.shape)
        case Node():
            yield from _extents((part.outputs, part.op))
        case Op():
            yield from _extents(tuple(part.attributes.values()))
        case Graph():
            yield from _extents((part.inputs, part.nodes))
        case _:
            pass


@dataclass(frozen=True)
class Structure(Op, abstract=True):
    """Base of the operators whose fields have roles (`ir.grammar`).

    Roles: a body is a graph inside the operator.  A binder is a symbol of the bodies.  A result is
    a symbol for the nodes after the operator.  An operand is the upper bound of a result.
    """

    @property
    def bodies(self) -> tuple[Graph, ...]:
        return self.with_role(Role.BODY)

    def with_role(self, role: Role) -> tuple[Any, ...]:
        """The values of the fields with a role, in order."""
        return values_of(self, fields_with(type(self), role))

    def with_bodies(self, change: Callable[[Graph], Graph]) -> Self:
        """The operator with `change` applied to its bodies; the same object if none changes."""
        bodies = {f.name: getattr(self, f.name) for f in fields_with(type(self), Role.BODY)}
        new = {name: change(body) for name, body in bodies.items()}
        return self if all(new[k] is bodies[k] for k in new) else replace(self, **new)


@dataclass(frozen=True)
class Fused(Structure):
    """A group of nodes compiled into one kernel.

    body: the nodes; its inputs and outputs are those of the operator.
    """

    body: Body[Graph]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.body.outputs)


@dataclass(frozen=True)
class InPlace(Fused):
    """A group that needs no code, because results and operands share memory.  Their layouts say how
    each is read.

    offsets: offset of each result (of each operand, if `joins`) in elements.
    joins: False for a view, whose results lie in the memory of its one operand.  True for a
        concatenation, whose operands lie in the memory of its one result.
    """

    offsets: Label[tuple[int, ...]]
    joins: Label[bool] = False


@dataclass(frozen=True)
class Relayout(Op):
    """The same tensor in another layout.

    layout: the layout of the result.
    """

    layout: Layout

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return (types[0],)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        (x,) = inputs
        return te.compute(x.shape, lambda *i: x[i], "relayout")

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0]
