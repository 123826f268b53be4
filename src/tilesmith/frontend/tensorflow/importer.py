"""The walk over a TensorFlow model, in which outputs of nodes become values.

A node is imported when something needs one of its outputs.  Nodes that only check or print are
left out.  Calls of functions are inlined.  Parts of a graph (see `structure`) are imported like
functions, with values for their arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.branches import branched, selected
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.slots import FAILED, Failed, Resource, Result, Slot
from tilesmith.frontend.common.states import States
from tilesmith.frontend.common.weights import NewWeights
from tilesmith.frontend.common.whiles import repeated
from tilesmith.frontend.tensorflow.model import Function, Model, Node, Ref
from tilesmith.frontend.tensorflow.node import TfNode
from tilesmith.frontend.tensorflow.registry import OPERATORS, OUTPUTS
from tilesmith.frontend.tensorflow.restoring import stored_keys
from tilesmith.frontend.tensorflow.structure import Part, Structure
from tilesmith.graph.builder import array_type
from tilesmith.graph.nodes import Data, Value
from tilesmith.ir.dtypes import bool_
from tilesmith.support.errors import ModelError, UnsupportedError

_EXIT, _MERGE = ("Exit", "RefExit"), ("Merge", "RefMerge")

CONTROL = (*_MERGE, *_EXIT, "Switch", "RefSwitch", "_SwitchN", "NextIteration", "RefNextIteration")
"""Operators of control flow that have no import function."""

IDLE = ("Assert", "Print", "PrintV2", "CheckNumericsV2")
"""Operators that only check values or print them."""


@dataclass(slots=True, eq=False)
class Frame:
    """A call of a function, or of a part of one.

    function: the function.
    structure: its control flow of TensorFlow 1.
    depth: number of calls around this one.
    prefix: put in front of the names of nodes, for messages.
    builder: makes the graph of the values.
    parent: for a part, the call of the function around it, which has the values of other nodes.
    given: for a part, the values of its arguments.  These are outputs of nodes: node and index.
    values: the values of nodes' outputs so far; None for a node that failed.
    """

    function: Function
    structure: Structure
    depth: int
    prefix: str
    builder: FoldingBuilder
    parent: Frame | None = None
    given: dict[tuple[str, int], Slot] = field(default_factory=dict)
    values: dict[str, Sequence[Slot] | None] = field(default_factory=dict)

    def is_given(self, name: str) -> bool:
        """Whether an output of the node is an argument of the part."""
        return any(node == name for node, _ in self.given)


class TfImporter(Importer):
    """Imports one model."""

    def __init__(self, builder: FoldingBuilder, model: Model, new_weights: NewWeights) -> None:
        super().__init__(builder)
        self.model = model
        self.states = States(builder)
        self.changed: set[str] = set()
        """Names of the nodes of those variables that a run changes."""
        self._new_weights = new_weights
        self._keys = stored_keys(model)
        self._read: dict[tuple[FoldingBuilder, str], Value] = {}

    def frame(self, function: Function, depth: int = 0, prefix: str = "") -> Frame:
        """A new call of a function."""
        if depth > MAX_DEPTH:
            raise ModelError(f"functions call one another more than {MAX_DEPTH} deep")
        return Frame(function, Structure(function), depth, prefix, self.builder)

    def outputs(self, frame: Frame, refs: Sequence[Ref], effects: Sequence[str] = ()) -> list[Slot]:
        """Import all nodes that `refs` and `effects` need; returns the values of `refs`."""
        order, outside = self._order(frame, [*(Ref(e) for e in effects), *refs])
        if frame.parent is not None:
            self._prepare(frame.parent, outside)
        for node in order:
            self._node(node, frame)
        return [self._slot(frame, r) for r in refs]

    def call(self, target: Any, frame: Frame, arguments: Sequence[Slot], loc: str) -> list[Slot]:
        """The outputs of a function for `arguments`; its nodes are inlined.

        target: the function's name, a `Part`, or a callable that makes the outputs from a builder
            and the arguments.
        """
        if callable(target):
            made: Any = target(self.builder, arguments)
            return list(made)
        if isinstance(target, Part):
            outer = target.frame
            assert isinstance(outer, Frame)
            bound = {key: arguments[number] for key, number in target.given.items()}
            inner = Frame(
                outer.function,
                outer.structure,
                outer.depth,
                outer.prefix,
                self.builder,
                outer,
                bound,
            )
            return self.outputs(inner, target.results)
        function = self.model.function(target)
        if len(arguments) != len(function.arguments):
            raise ModelError(
                f"function {function.name!r}: expected {len(function.arguments)} arguments, found "
                f"{len(arguments)}"
            )
        inner = self.frame(function, frame.depth + 1, f"{loc}/")
        inner.values |= {n: (a,) for n, a in zip(function.arguments, arguments, strict=True)}
        return self.outputs(inner, function.results, function.effects)

    # Order

    def _order(self, frame: Frame, targets: Sequence[Ref]) -> tuple[list[Node], list[Ref]]:
        """The nodes to import for `targets`, and the outputs to read from an enclosing call."""
        inside: dict[str, bool] = {}
        order: list[Node] = []
        todo = [(t.node, False) for t in reversed(targets)]
        entered: set[str] = set()
        while todo:
            name, is_left = todo.pop()
            if name in inside:
                continue
            if is_left:
                node = frame.structure.node(name)
                needs = self._needs(frame, node)
                inside[name] = frame.parent is None or any(inside[r.node] for r in needs)
                if inside[name]:
                    order.append(node)
            elif name in frame.values or frame.is_given(name):
                inside[name] = True
            elif _is_evaluated(frame.parent, name):
                inside[name] = False
            elif name in entered:
                raise ModelError(f"node {name!r} is an operand of its own operands")
            else:
                entered.add(name)
                todo.append((name, True))
                needs = self._needs(frame, frame.structure.node(name))
                todo += [(r.node, False) for r in reversed(needs) if r.node not in inside]
        used = chain(targets, *(self._needs(frame, n) for n in order))
        return order, [r for r in used if not inside[r.node]]

    def _needs(self, frame: Frame, node: Node) -> Sequence[Ref]:
        """The outputs that a node reads, and its control dependencies."""
        if node.op in IDLE:
            return ()
        if node.op in _EXIT:
            return frame.structure.loop(node).entries
        if node.op in _MERGE:
            if frame.structure.is_loop(node):
                raise UnsupportedError(f"node {node.name!r}: a value inside a loop is used outside")
            choice = frame.structure.choice(node)
            return (choice.condition, *(operand for _, operand in choice.operands))
        return (*node.inputs, *(Ref(c) for c in node.controls))

    def _prepare(self, frame: Frame, refs: Sequence[Ref]) -> None:
        """Import nodes of an enclosing call."""
        outer, self.builder = self.builder, frame.builder
        try:
            self.outputs(frame, refs)
        finally:
            self.builder = outer

    # Values

    def _slot(self, frame: Frame, ref: Ref) -> Slot:
        """The value of an output whose node was imported."""
        if ref.node not in frame.values and not frame.is_given(ref.node):
            parent = frame.parent
            assert parent is not None
            slot = self._slot(parent, ref)
            if frame.builder is parent.builder:
                return slot
            assert isinstance(frame.builder, Body)
            return frame.builder.slot(slot)
        node = frame.function.nodes.get(ref.node)
        index = ref.index
        if node is not None and ref.output in OUTPUTS.get(node.op, ()):
            index += OUTPUTS[node.op].index(ref.output)
        if (ref.node, index) in frame.given:
            return frame.given[ref.node, index]
        slots = frame.values.get(ref.node, ())
        if slots is None:
            return FAILED
        if index >= len(slots):
            raise ModelError(f"output number {index + 1} of node {ref.node!r} is not supported")
        return slots[index]

    def _variable(self, resource: Resource) -> Value:
        """The value of a variable.  A variable that no run changes is a constant."""
        name = resource.name
        if name in self.changed:
            first = self._first(name).read()
            return self.states.read(self.builder, name, self._label(name), first)
        if (self.builder, name) not in self._read:
            data = self._first(name)
            value = self.builder.lazy_constant(array_type(data.array), data, self._label(name))
            self._read[self.builder, name] = value
        return self._read[self.builder, name]

    def _first(self, name: str) -> Data:
        """The stored contents of a variable, or new contents from the caller."""
        bundle, key = self.model.bundle, self._keys.get(name)
        if bundle is None or key is None:
            raise ModelError(f"variable {name!r} has no stored value; load the whole SavedModel")
        array = bundle.array(key)
        return self._new_weights.data(self._label(name), array_type(array), Data.of(array))

    def _label(self, name: str) -> str:
        return self.model.graph.nodes[name].text("shared_name") or name

    def _assign(self, resource: Resource, value: Value) -> None:
        first = self._first(resource.name).read() if resource.name in self._keys else None
        label = self._label(resource.name)
        if first is not None:
            self.states.read(self.builder, resource.name, label, first)
        self.states.write(self.builder, resource.name, label, value)

    # Nodes

    def _node(self, node: Node, frame: Frame) -> None:
        self.builder.count()
        site = Site(node.op, "", f"{frame.prefix}{node.name}")
        frame.values[node.name] = self.attempt(site, lambda: self._results(node, frame))

    def _results(self, node: Node, frame: Frame) -> Sequence[Slot] | None:
        """A node's outputs; None where an input failed.  Raises UnsupportedError."""
        if node.op in IDLE:
            return ()
        if node.op in _EXIT:
            return self._left(node, frame)
        loc = f"{frame.prefix}{node.name}"
        is_merge = node.op in _MERGE
        function = None if is_merge else OPERATORS.find("", node.op)
        if function is None and not is_merge:
            raise UnsupportedError("the operator is not supported")
        refs = (frame.structure.choice(node).condition,) if is_merge else node.inputs
        slots = tuple(self._slot(frame, r) for r in refs)
        if any(isinstance(s, Failed) for s in slots):
            return None
        n = self._context(node, frame, slots)
        with self.builder.at(loc, node.name):
            made = self._chosen(n, node, frame) if function is None else function(n)
        return made if isinstance(made, tuple) else (made,)

    def _context(self, node: Node, frame: Frame, slots: tuple[Slot, ...]) -> TfNode:
        def nested(
            body: Body, target: Any, arguments: Sequence[Slot], loc: str
        ) -> list[Slot] | None:
            return self.within(body, lambda: self.call(target, frame, arguments, loc))

        return TfNode(
            self.builder,
            f"{frame.prefix}{node.name}",
            node.name,
            lambda target, arguments, loc: self.call(target, frame, arguments, loc),
            nested,
            slots,
            node,
            self._variable,
            self._assign,
        )

    def _part(self, frame: Frame, given: Mapping[tuple[str, int], int], *results: Ref) -> Part:
        """A part of the graph.  Values outside the part that it reads are imported first."""
        part = Part(frame, given, results)
        probe = Frame(
            frame.function, frame.structure, frame.depth, frame.prefix, self.builder, frame,
            dict.fromkeys(given),
        )  # fmt: skip
        self._prepare(frame, self._order(probe, results)[1])
        return part

    def _chosen(self, n: TfNode, node: Node, frame: Frame) -> Result:
        """The result of a Merge, as a branch over the parts that compute its operands."""
        choice = frame.structure.choice(node)
        arguments = [self._slot(frame, operand) for _, operand in choice.operands]
        parts = [
            self._part(frame, {(s, side): i for i, (s, _) in enumerate(choice.operands)}, value)
            for side, value in enumerate(choice.sides)
        ]
        if n.input(0).dtype is bool_:
            return branched(n, n.input(0), (parts[1], parts[0]), arguments)
        return selected(n, n.input(0), parts, arguments)

    def _left(self, node: Node, frame: Frame) -> Sequence[Slot] | None:
        """The value of an Exit, from the whole loop.  Also sets the loop's other Exits."""
        loop = frame.structure.loop(node)
        before = [self._slot(frame, r) for r in loop.entries]
        if any(isinstance(s, Failed) for s in before):
            return None
        merged = {(name, 0): i for i, name in enumerate(loop.merges)}
        entered = {(name, 1): i for i, name in enumerate(loop.switches)}
        n = self._context(node, frame, tuple(before))
        with self.builder.at(n.loc, n.label):
            condition = self._part(frame, merged, loop.going)
            step = self._part(frame, merged | entered, *loop.following)
            made = repeated(n, condition, step, before)
        after = made if isinstance(made, tuple) else (made,)
        for name, number in loop.exits.items():
            frame.values[name] = (after[number],)
        return frame.values[node.name]


def _is_evaluated(frame: Frame | None, name: str) -> bool:
    """Whether a call, or a call around it, already has a node's outputs."""
    while frame is not None:
        if name in frame.values:
            return True
        frame = frame.parent
    return False
