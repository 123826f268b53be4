"""The fate of each node of a source model, known before any code is generated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tilesmith.driver.assembly.steps import sources
from tilesmith.driver.compiler import load_graph
from tilesmith.driver.passes import optimise
from tilesmith.driver.request import Request
from tilesmith.driver.session import Session
from tilesmith.frontend.load import source_nodes
from tilesmith.graph.control import Control, Host, If, graphs_in, kernels_in
from tilesmith.graph.measure import Measure, stages_in
from tilesmith.graph.nodes import Fused, Graph, Node
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.text import Names

NATIVE, VIEW, FOLDED, FALLBACK, HOST = "native", "view", "folded", "fallback", "host"
BRANCH, LOOP = "branch", "loop"
FATES = {
    NATIVE: "kernels compute it, alone or together with the nodes it is fused with",
    VIEW: "its result is its operand's memory, seen otherwise",
    FOLDED: "known before the run, computed by another node, or not needed",
    FALLBACK: "ONNX's reference evaluator runs it on the host: there is no native code for it",
    HOST: "it runs on the host, where its strings and lists are",
    BRANCH: "a native branch, of which one side runs",
    LOOP: "a native loop",
}


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """The fate of one node of the source model.

    name: the node's name.
    operator: the operator's name in the source model; empty if the source doesn't tell.
    fate: one of `FATES`.
    kernels: the numbers of the kernels that compute the node or a part of it, in the program's
        order.
    fused_with: the other nodes that these kernels compute.
    """

    name: str
    operator: str
    fate: str
    kernels: tuple[int, ...] = ()
    fused_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenDimension:
    """A dimension whose size is known only at run time.

    name: its name in the types of the graph.
    low, high: the smallest and the largest size that a run may have.
    expected: the size for which the program is made fast.
    is_measured: whether a run computes the size from values, instead of taking it from an input's
        shape.
    """

    name: str
    low: int
    high: int
    expected: int
    is_measured: bool


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The program that a compilation will make from a model.

    nodes: the nodes of the source model, in its order.
    kernels: number of kernels in the program.
    dimensions: the open dimensions.
    grows: whether a run may need memory whose size has no upper bound before the run.
    """

    nodes: tuple[PlannedNode, ...]
    kernels: int
    dimensions: tuple[OpenDimension, ...]
    grows: bool


def plan_of(request: Request) -> ModelPlan:
    """The fate of each node of the request's model; nothing is compiled.

    Raises the errors of `compile` for a model that can't be compiled.
    """
    session = Session.of_request(request)
    graph = optimise(load_graph(request, session), session)
    fates = _Fates(graph)
    listed = source_nodes(request.model) or [(name, "") for name in fates.names]
    nodes = tuple(fates.of(name, operator) for name, operator in listed)
    return ModelPlan(nodes, fates.kernels, tuple(_dimensions(graph)), _grows(graph))


class _Fates:
    """Fates of the source's nodes, read from an optimised graph."""

    def __init__(self, graph: Graph) -> None:
        numbers = {n: i for i, (_, n) in enumerate(kernels_in(graph))}
        self.kernels = len(numbers)
        self._groups: list[tuple[tuple[str, ...], int | None]] = []
        self._steps: dict[str, str] = {}
        for g in graphs_in(graph):
            for n in g.nodes:
                if isinstance(n.op, Fused):
                    self._groups.append((sources(n), numbers.get(n)))
                elif isinstance(n.op, Control) and not isinstance(n.op, Measure):
                    self._steps[n.loc] = _fate_of(n)
        inside = (name for names, _ in self._groups for name in names)
        self.names = tuple(dict.fromkeys((*inside, *self._steps)))

    def of(self, name: str, operator: str) -> PlannedNode:
        """The fate of the node with this name.  Nodes inside a called function or a branch count as
        parts of the node.
        """
        mine = [(names, i) for names, i in self._groups if any(_in(n, name) for n in names)]
        kernels = tuple(sorted(i for _, i in mine if i is not None))
        step = self._steps.get(name)
        if step is not None:
            return PlannedNode(name, operator, step, kernels)
        within = [s for n, s in self._steps.items() if _in(n, name)]
        fate = NATIVE if kernels else within[0] if within else VIEW if mine else FOLDED
        others = (n for names, i in mine if i is not None for n in names if not _in(n, name))
        return PlannedNode(name, operator, fate, kernels, tuple(dict.fromkeys(others)))


def _in(name: str, node: str) -> bool:
    """Whether `name` is the node's name, or the name of a node inside it: `loop/add`, or
    `loop.3/add` in an unrolled iteration.
    """
    if not name.startswith(node):
        return False
    inside = name[len(node) :]
    return not inside or re.match(r"(\.\d+)?/", inside) is not None


def _fate_of(node: Node) -> str:
    if isinstance(node.op, Host):
        return FALLBACK if node.op.is_fallback else HOST
    return BRANCH if isinstance(node.op, If) else LOOP


def _dimensions(graph: Graph) -> Iterator[OpenDimension]:
    names = Names()
    measured = {s for stage in stages_in(graph) for s in stage.symbols}
    for s in dict.fromkeys((*graph.symbols, *measured)):
        if s.sizes is not None:
            sizes = s.sizes
            yield OpenDimension(names(s), sizes.low, sizes.high, sizes.expected, s in measured)


def _grows(graph: Graph) -> bool:
    limits = (limit for stage in stages_in(graph) for limit in stage.bounds)
    return any(isinstance(limit, int) and limit >= LARGEST for limit in limits)
