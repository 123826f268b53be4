"""The engine of the rewriting passes: rules indexed by operator, applied in one walk.

A rule examines a node and the producers of its inputs, which are final.  The rule returns the
replacement of the node's results, or None.  Rules are also applied to the nodes that rules add.  So
one walk reaches the fixed point of rules that examine only producers.  Use counts are exact during
the walk: some rules that combine two nodes pay only if the first has no other reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from weakref import ref

import numpy as np

from tilesmith.graph.builder import array_type, infer
from tilesmith.graph.evaluate import logical_array
from tilesmith.graph.nodes import Constant, Data, Graph, Node, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.perf.limits import SHARED_BYTES

Result: TypeAlias = "Value | tuple[Value, ...] | None"
Rule: TypeAlias = "Callable[[Rewriter, Node], Result]"
Rules: TypeAlias = "Mapping[type[Op], Sequence[Rule]]"


class Rewriter:
    """One walk over `graph`.  For each node it tries the `rules` of the operator in order, then
    `general`.
    """

    def __init__(self, graph: Graph, rules: Rules, general: Sequence[Rule] = ()) -> None:
        self._graph = graph
        self._rules = rules
        self._general = tuple(general)
        self._constants: dict[Value, Constant] = dict(graph.constant)
        self._shared: dict[tuple[Any, bytes], Value] = {}
        self._nodes: list[Node] = []
        self._producer: dict[Value, Node] = {}
        self._replaced: dict[Value, Value] = {}
        self._uses: dict[Value, int] = {}
        self._loc = ""
        self._self = ref(self)
        for v in (*(i for n in graph.nodes for i in n.inputs), *graph.outputs):
            self._uses[v] = self._uses.get(v, 0) + 1

    # For rules

    def producer(self, value: Value, *kinds: type[Op]) -> Node | None:
        """The node that defines `value`, if its operator is one of `kinds` (none given: any
        operator); else None.
        """
        node = self._producer.get(value)
        return node if node is not None and (not kinds or isinstance(node.op, kinds)) else None

    def array(self, value: Value) -> np.ndarray | None:
        """The logical contents of a constant; None for any other value."""
        constant = self._constants.get(value)
        return None if constant is None else logical_array(constant)

    def data(self, value: Value) -> Data:
        """The contents of a constant, which are not read here."""
        return self._constants[value].data

    def is_constant(self, value: Value) -> bool:
        return value in self._constants

    def splat(self, value: Value) -> Any:
        """The number to which all elements of a constant are equal; None if there is no such
        number.

        NaNs count as different from each other, and 0.0 as different from -0.0.
        """
        constant = self._constants.get(value)
        if constant is None or not value.type.is_static or value.type.size == 0:
            return None
        array = constant.data.array
        first = array.reshape(-1)[:1]
        if array.size > 1:
            if not (array == first).all():
                return None
            if value.dtype.is_float and len(set(np.signbit(array).reshape(-1).tolist())) > 1:
                return None
        return first[0].item() if first[0] == first[0] else None

    def is_single_use(self, value: Value) -> bool:
        """Whether only the node being rewritten reads `value`."""
        return self._uses.get(value, 0) == 1

    def constant(self, array: np.ndarray, name: str = "") -> Value:
        """A new constant.  Small unnamed constants of equal content share one value."""
        array = np.asarray(array)
        type_ = array_type(array)
        key = (type_, array.tobytes()) if not name and array.nbytes <= SHARED_BYTES else None
        if key is not None and key in self._shared:
            return self._shared[key]
        value = Value(name, type_, made_by=self._self)
        self._constants[value] = Constant(value, Data.of(array))
        if key is not None:
            self._shared[key] = value
        return value

    def lazy_constant(self, type: TensorType, data: Data) -> Value:
        """A new constant whose contents are computed at the first use."""
        value = Value("", type, made_by=self._self)
        self._constants[value] = Constant(value, data)
        return value

    def add(self, op: Op, *inputs: Value) -> Any:
        """The value of `op` (a tuple if there are several), after the rules have seen it."""
        types = infer(op, tuple(v.type for v in inputs))
        outputs = tuple(Value("", t, made_by=self._self) for t in types)
        node = Node(op, inputs, outputs, self._loc)
        for v in inputs:
            self._uses[v] = self._uses.get(v, 0) + 1
        results = self._place(node)
        return results[0] if len(results) == 1 else results

    # The walk

    def run(self) -> Graph:
        """The rewritten graph without dead code; the same object if no rule applied."""
        graph = self._graph
        for node in graph.nodes:
            self._loc = node.loc
            self._place(node.with_values(self._replaced))
        if not self._replaced:
            return graph
        return dce(
            replace(
                graph,
                constants=tuple(self._constants.values()),
                nodes=tuple(self._nodes),
                outputs=tuple(self._replaced.get(v, v) for v in graph.outputs),
            )
        )

    def _place(self, node: Node) -> tuple[Value, ...]:
        """Add `node`, or its replacement by the rules."""
        replacement = self._rewrite(node)
        if replacement is None:
            self._nodes.append(node)
            for v in node.outputs:
                self._producer[v] = node
            return node.outputs
        for old, new in zip(node.outputs, replacement, strict=True):
            self._replaced[old] = new
            self._uses[new] = self._uses.get(new, 0) + self._uses.pop(old, 0)
        self._release(node)
        return replacement

    def _rewrite(self, node: Node) -> tuple[Value, ...] | None:
        # Rules don't consider layouts, so nodes with layouts stay unchanged.
        if not node.outputs or any(v.layout is not None for v in (*node.inputs, *node.outputs)):
            return None
        for rule in (*self._rules.get(type(node.op), ()), *self._general):
            result = rule(self, node)
            if result is not None:
                return result if isinstance(result, tuple) else (result,)
        return None

    def _release(self, node: Node) -> None:
        """Reduce the use counts of the inputs of a removed node.  Nodes that become dead with it
        release their inputs, too.
        """
        dead = [node]
        while dead:
            for v in dead.pop().inputs:
                self._uses[v] -= 1
                above = self._producer.get(v)
                if above is not None and not any(self._uses.get(o) for o in above.outputs):
                    dead.append(above)
