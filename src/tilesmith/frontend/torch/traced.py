"""Conversion of a compiler backend's FX graph to a Graph.

Such a graph calls operators of ATen that modify nothing.  Inputs and results are tensors and sizes.
Each node's `meta["val"]` is the traced value: a fake tensor, a number, or a tuple of these.

A call without an import function does not end the walk.  Its result becomes an input of the graph,
so that one walk finds all such calls.  The caller decides how to compute their results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

from tilesmith.frontend.aten.importer import AtenImporter
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.program import Call
from tilesmith.frontend.aten.tensors import contents, element_type
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.problems import Problem, Site
from tilesmith.frontend.common.slots import FAILED, Slot
from tilesmith.frontend.common.symbols import Symbols
from tilesmith.frontend.torch import fx
from tilesmith.frontend.torch.sizes import SymbolicSizes, is_symbolic, memory_order
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.types import TensorType
from tilesmith.ops.rules import UnequalDims
from tilesmith.support.errors import ModelError, UnsupportedError

RANDOM = "it draws random numbers by PyTorch's generator"
"""The reason for refusing all random operators.  A seed gives the numbers of eager mode only if
PyTorch draws them.
"""


@dataclass(frozen=True, slots=True)
class Read:
    """The result of reading an FX graph.

    graph: the graph.  Its inputs are `inputs`, its outputs are the `outputs` passed to `read`.
    inputs: names of the nodes that are the graph's inputs, in order.
    orders: the order of axes in memory of each input or output that is not row-major, by name.
        Such an input or output of `graph` has its axes in this order.
    problems: the reason why a node can't be imported, by the node's name.
    """

    graph: Graph
    inputs: tuple[str, ...]
    orders: Mapping[str, tuple[int, ...]]
    problems: Mapping[str, Problem]


def read(module: Any, constants: Mapping[str, Any], outputs: Sequence[Any]) -> Read:
    """The Graph of a `torch.fx.GraphModule`.

    constants: tensors for some of the module's inputs, by the name of the placeholder.
    outputs: the nodes whose tensors are the graph's outputs.

    Raises UnsupportedError where sizes can't stay open.
    """
    symbols = Symbols()
    while True:
        try:
            return _Reader(module, constants, symbols).read(outputs)
        except UnequalDims as e:
            symbols.restrict(e)


class _Importer(AtenImporter):
    """An importer that records an invalid call as unsupported, since PyTorch accepted the call."""

    def attempt(
        self, site: Site, make: Callable[[], Sequence[Slot] | None]
    ) -> Sequence[Slot] | None:
        try:
            return super().attempt(site, make)
        except UnequalDims:
            raise
        except ModelError as e:
            self.note(site, UnsupportedError(str(e)))
            return None


@dataclass(slots=True)
class _Reader:
    """Reads one FX graph."""

    module: Any
    constants: Mapping[str, Any]
    symbols: Symbols
    builder: FoldingBuilder = field(default_factory=FoldingBuilder)
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    numbers: set[str] = field(default_factory=set)

    def read(self, outputs: Sequence[Any]) -> Read:
        importer, sizes = _Importer(self.builder), SymbolicSizes(self.symbols)
        nodes = {n.name: n for n in self.module.graph.nodes}
        for name, tensor in fx.attributes(self.module).items():
            importer.names[name] = self.builder.constant(contents(tensor, name), name)
        placeholders = [n for n in nodes.values() if n.op == "placeholder"]
        for n in placeholders:
            if hasattr(n.meta.get("val"), "shape"):
                sizes.seen(n.name, n.meta["val"].shape)
        for n in placeholders:
            importer.names[n.name] = self._placeholder(n, sizes)
        for call in fx.calls(self.module.graph):
            self._call(call, nodes[call.name], importer, sizes)
        node = AtenNode(self.builder, "", "", "")
        values = [self._arranged(node, n, importer.names.get(n.name)) for n in outputs]
        named = [n.name for n in outputs]
        graph = self._used(dce(self.builder.finish(values, named)))
        return Read(graph, tuple(self.inputs), self.orders, self.problems)

    def _used(self, graph: Graph) -> Graph:
        """`graph` without inputs that are Python numbers and that nothing reads.  Some of these,
        such as the sizes of nested tensors, have no value in a run.
        """
        kept = [v in graph.consumers or v in graph.outputs or n not in self.numbers
                for v, n in zip(graph.inputs, self.inputs, strict=True)]  # fmt: skip
        if all(kept):
            return graph
        self.inputs = [n for n, keep in zip(self.inputs, kept, strict=True) if keep]
        return replace(graph, inputs=tuple(compress(graph.inputs, kept)))

    def _placeholder(self, node: Any, sizes: SymbolicSizes) -> Any:
        if node.name in self.constants:
            tensor = self.constants[node.name]
            return self.builder.constant(contents(tensor, node.name), node.name)
        held = node.meta.get("val")
        if isinstance(held, (bool, int, float, str)) or held is None:
            return held
        return FAILED if foreign(held) else self._input(node.name, held, sizes)

    def _input(self, name: str, held: Any, sizes: SymbolicSizes) -> Any:
        """The meaning of an input: a size that an axis determines, or else a value of the graph."""
        if is_symbolic(held):
            is_int = isinstance(held, sys.modules["torch"].SymInt)
            dim = sizes.dim(held) if is_int else None
            if dim is not None:
                return dim
            self.inputs.append(name)
            self.numbers.add(name)
            return self.builder.input(name, TensorType(i64 if is_int else f64, ()))
        dims = []
        for axis, size in enumerate(held.shape):
            dim = sizes.dim(size)
            place = (name, axis, len(held.shape))
            dims.append(self.symbols.of(f"{name}.{axis}", place) if dim is None else dim)
        order = memory_order(held) or tuple(range(len(dims)))
        self.inputs.append(name)
        type_ = TensorType(element_type(held.dtype), tuple(dims[a] for a in order))
        value = self.builder.input(name, type_)
        if order == tuple(range(len(dims))):
            return value
        self.orders[name] = order
        return AtenNode(self.builder, "", "", "").permute(value, _inverse(order))

    def _call(self, call: Call, node: Any, importer: _Importer, sizes: SymbolicSizes) -> None:
        reason = _refusal(node)
        before = len(importer.problems)
        if reason is None:
            importer.run([call])
        else:
            site = Site(call.target, "", call.where or call.name)
            importer.note(site, UnsupportedError(reason))
        if len(importer.problems) > before:
            self.problems[call.name] = importer.problems[-1]
            importer.names[call.name] = self._stand_in(call.name, node.meta.get("val"), sizes)

    def _stand_in(self, name: str, held: Any, sizes: SymbolicSizes) -> Any:
        """Inputs that replace a call's results."""
        if isinstance(held, (tuple, list)):
            return [self._stand_in(f"{name}.{i}", h, sizes) for i, h in enumerate(held)]
        is_tensor = isinstance(held, sys.modules["torch"].Tensor)
        if not (is_tensor or is_symbolic(held)) or foreign(held):
            return FAILED
        return self._input(name, held, sizes)

    def _arranged(self, node: AtenNode, of: Any, value: Any) -> Value:
        """An output with the type and order of axes that PyTorch would produce."""
        if value is None or value is FAILED:
            return node.const(0)  # there are `problems`, so the graph is never used
        held = of.meta["val"]
        if is_symbolic(held):
            return node.tensor(value)
        # Users of the output expect the type in PyTorch's trace.  PyTorch's kernel may return
        # another one, as for statistics of batch norms under autocast.
        value = node.cast(node.tensor(value), element_type(held.dtype))
        order = memory_order(held)
        if order is None or order == tuple(range(len(order))):
            return value
        self.orders[of.name] = order
        return node.permute(value, order)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    inverse = [0] * len(order)
    for place, axis in enumerate(order):
        inverse[axis] = place
    return tuple(inverse)


def foreign(held: Any) -> str:
    """The reason why a traced value can't be in a graph; empty if it can."""
    if isinstance(held, (tuple, list)):
        return next(filter(None, map(foreign, held)), "")
    if not isinstance(held, sys.modules["torch"].Tensor):
        return ""
    if held.device.type != "cpu":
        return f"it has a tensor on {held.device}; Tilesmith compiles for the CPU"
    if str(held.layout) != "torch.strided":
        return f"it has a tensor of layout {held.layout}"
    try:
        element_type(held.dtype)
    except UnsupportedError as e:
        return str(e)
    return ""


def _refusal(node: Any) -> str | None:
    """The reason for leaving a call to PyTorch even if its operator is known, or None."""
    target = fx.target_name(node.target)
    tags = getattr(node.target, "tags", ())
    is_random = sys.modules["torch"].Tag.nondeterministic_seeded in tags
    if is_random and target not in _RANDOM_IF_TOLD:
        return RANDOM
    if target in _MEASURING:
        return "its result is a number of Python, which depends on data"
    traced = [n.meta.get("val") for n in node.all_input_nodes]
    return foreign([*traced, node.meta.get("val")]) or None


_RANDOM_IF_TOLD = (
    "aten.scaled_dot_product_attention.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten.rrelu_with_noise_functional.default",
)
"""Operators that draw random numbers only for some arguments.  Their importers refuse these."""

_MEASURING = ("aten._local_scalar_dense.default", "aten.item.default", "aten.nonzero.default")
"""Operators that turn tensors into numbers or into data-dependent shapes, for PyTorch's guards."""
