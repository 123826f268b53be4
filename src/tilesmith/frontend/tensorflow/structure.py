"""The control flow of TensorFlow 1, which is drawn with nodes in one graph: Switch sends a value
into one of two branches, Merge takes the value of the branch that ran, and a loop is a cycle from
NextIteration back to Merge.

Here each branch, and each loop's condition and body, is found as a `Part` of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilesmith.frontend.tensorflow.model import Function, Node, Ref
from tilesmith.support.errors import ModelError, UnsupportedError

_SWITCH, _MERGE = ("Switch", "RefSwitch", "_SwitchN"), ("Merge", "RefMerge")
_NEXT = ("NextIteration", "RefNextIteration")


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes of a graph as a function: they compute `results` from outputs of other nodes.

    frame: the call of the function that has the nodes.
    given: the outputs that are arguments (node and index), with the number of each argument.
    results: the results.
    """

    frame: object
    given: Mapping[tuple[str, int], int]
    results: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop.

    entries: the carried values before the loop.
    switches: the nodes that send carried values into the body or out of the loop.
    merges: the nodes with the carried values at the start of an iteration.
    going: the condition: whether another iteration follows.
    following: the carried values after an iteration.
    exits: the Exit nodes by name, each with the number of the carried value that it returns.
    """

    entries: tuple[Ref, ...]
    switches: tuple[str, ...]
    merges: tuple[str, ...]
    going: Ref
    following: tuple[Ref, ...]
    exits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice among the values of a Merge.

    condition: the output that decides: a bool, or the number of a value.
    operands: for each Switch before the Merge, its name and its operand.
    sides: the values by number.  For a bool, first the value if it is false.
    """

    condition: Ref
    operands: tuple[tuple[str, Ref], ...]
    sides: tuple[Ref, ...]


@dataclass(slots=True)
class Structure:
    """The loops and choices of a function.

    function: the function.
    """

    function: Function
    _choices: dict[str, Choice] = field(default_factory=dict)

    def node(self, name: str, ops: tuple[str, ...] = ()) -> Node:
        """A node, which must have one of these operators."""
        node = self.function.nodes.get(name)
        if node is None or (ops and node.op not in ops):
            raise ModelError(f"expected {' or '.join(ops) or 'a node'}, found {name!r}")
        return node

    def is_loop(self, merge: Node) -> bool:
        """Whether a Merge has the carried value of a loop."""
        nodes = (self.function.nodes.get(i.node) for i in merge.inputs)
        return any(n is not None and n.op in _NEXT for n in nodes)

    def loop(self, exit_: Node) -> Loop:
        """The loop to which an Exit node belongs."""
        condition = self._switch(exit_.inputs[0].node).inputs[1].node
        going = self.node(condition, ("LoopCond",)).inputs[0]
        nodes = self.function.nodes.values()
        switches = [
            n for n in nodes
            if n.op in _SWITCH and len(n.inputs) == 2 and n.inputs[1].node == condition
        ]  # fmt: skip
        merges = [self.node(s.inputs[0].node, _MERGE) for s in switches]
        entries: list[Ref] = []
        following: list[Ref] = []
        for m in merges:
            if len(m.inputs) != 2:
                raise ModelError(f"node {m.name!r}: expected two values, found {len(m.inputs)}")
            first, second = (self.node(i.node) for i in m.inputs)
            enter, again = (first, second) if second.op in _NEXT else (second, first)
            entries.append(self.node(enter.name, ("Enter", "RefEnter")).inputs[0])
            following.append(self.node(again.name, _NEXT).inputs[0])
        numbers = {s.name: i for i, s in enumerate(switches)}
        exits = {
            n.name: numbers[n.inputs[0].node]
            for n in nodes
            if n.op in ("Exit", "RefExit") and n.inputs and n.inputs[0].node in numbers
        }
        names = tuple(s.name for s in switches), tuple(m.name for m in merges)
        return Loop(tuple(entries), *names, going, tuple(following), exits)

    def choice(self, merge: Node) -> Choice:
        """The choice that a Merge makes."""
        if merge.name not in self._choices:
            self._choices[merge.name] = self._choice(merge)
        return self._choices[merge.name]

    def _choice(self, merge: Node) -> Choice:
        ways = [self._ways(i) for i in merge.inputs]
        for condition, _ in ways[0] if ways else ():
            by_value = [{side for c, side in way if c == condition} for way in ways]
            own = [min(sides) for sides in by_value if len(sides) == 1]
            if sorted(own) == list(range(len(ways))):
                names = set[str]().union(*(w[condition, s] for w, s in zip(ways, own, strict=True)))
                operands = tuple((s, self.node(s).inputs[0]) for s in sorted(names))
                sides = sorted(zip(own, merge.inputs, strict=True), key=lambda pair: pair[0])
                return Choice(condition, operands, tuple(value for _, value in sides))
        raise UnsupportedError("a choice between values that no condition tells apart")

    def _ways(self, ref: Ref) -> dict[tuple[Ref, int], set[str]]:
        """The nearest Switch nodes before a value, by condition and by the output that is used."""
        ways: dict[tuple[Ref, int], set[str]] = {}
        todo, seen = [ref], set[str]()
        while todo:
            ref = todo.pop()
            node = self.function.nodes.get(ref.node)
            if node is None:
                continue
            if node.op in _SWITCH:
                side = 1 if ref.output == "output_true" else ref.index
                ways.setdefault((self._condition(node), side), set()).add(node.name)
            elif node.name not in seen:
                seen.add(node.name)
                if node.op in _MERGE and not self.is_loop(node):
                    inner = self.choice(node)
                    todo += [inner.condition, *(operand for _, operand in inner.operands)]
                else:
                    todo += [*node.inputs, *(Ref(c) for c in node.controls)]
        return ways

    def _switch(self, name: str) -> Node:
        node = self.node(name, _SWITCH)
        if len(node.inputs) != 2:
            raise ModelError(f"node {name!r}: expected a value and a condition")
        return node

    def _condition(self, switch: Node) -> Ref:
        """The output that decides a Switch; Identity nodes after that output are skipped."""
        ref = self._switch(switch.name).inputs[1]
        node = self.function.nodes.get(ref.node)
        while node is not None and node.op == "Identity" and node.inputs:
            ref = node.inputs[0]
            node = self.function.nodes.get(ref.node)
        return ref
