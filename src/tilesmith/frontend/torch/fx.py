"""Conversion of FX graphs, of `torch.export` and of compiler backends, to calls of operators."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tilesmith.frontend.aten.program import PLACED, Block, Call, Memory, Ref, line_of
from tilesmith.frontend.aten.tensors import element_type
from tilesmith.frontend.torch.sizes import memory_order
from tilesmith.support.errors import UnsupportedError


def calls(graph: Any) -> Iterator[Call]:
    """The calls of a `torch.fx.Graph`, in its order."""
    for node in graph.nodes:
        if node.op == "call_function":
            target = target_name(node.target)
            kwargs = {name: argument(a) for name, a in node.kwargs.items()}
            if target in PLACED and (memory := _memory(node.args[0])) is not None:
                kwargs["memory"] = memory
            yield Call(
                target,
                argument(node.args),
                kwargs,
                node.name,
                where(node),
                _several(node),
            )
        elif node.op not in ("placeholder", "output", "get_attr"):
            raise UnsupportedError(
                f"the graph has a node {node.name!r} of kind {node.op!r}; expected a graph of "
                "operators, as torch.export makes it"
            )


def outputs(graph: Any) -> Any:
    """The results of the graph, in the form of arguments of a `Call`."""
    return argument(next(n for n in reversed(graph.nodes) if n.op == "output").args[0])


def attributes(module: Any) -> Mapping[str, Any]:
    """The tensors that a `torch.fx.GraphModule` reads as attributes, by the node's name."""
    held_by_name = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            held = operator.attrgetter(node.target)(module)
            if isinstance(held, sys.modules["torch"].Tensor):
                held_by_name[node.name] = held
    return held_by_name


def target_name(target: Any) -> str:
    """The name of an overload or a function of Python: "aten.add.Tensor", "operator.mul"."""
    torch = sys.modules["torch"]
    if isinstance(target, torch._ops.OperatorBase):
        return str(target)
    module = getattr(target, "__module__", None) or "builtins"
    name = getattr(target, "__name__", str(target))
    return f"{module.removeprefix('_') if module == '_operator' else module}.{name}"


def argument(given: Any) -> Any:
    """An argument of a node, with our types in place of PyTorch's."""
    torch = sys.modules["torch"]
    if isinstance(given, torch.fx.Node):
        held = _block(given)
        return Ref(given.name) if held is None else held
    if isinstance(given, (list, tuple)):
        return [argument(a) for a in given]
    if isinstance(given, slice):
        return slice(*(argument(a) for a in (given.start, given.stop, given.step)))
    if isinstance(given, torch.dtype):
        return element_type(given)
    if isinstance(given, (torch.device, torch.layout, torch.memory_format)):
        return str(given)
    return given


def _memory(node: Any) -> Memory | None:
    """The traced layout of a tensor.  None if it is unknown, or row-major with open sizes."""
    held = node.meta.get("val")
    if held is None:
        return None
    known = [*held.shape, *held.stride(), held.storage_offset()]
    if all(isinstance(n, int) for n in known):
        return held.stride(), held.storage_offset()
    is_plain = memory_order(held) == tuple(range(held.dim())) and held.storage_offset() == 0
    return None if is_plain else ((), 0)


def _block(node: Any) -> Block | None:
    """The graph that a `get_attr` node reads; None for other nodes."""
    if node.op != "get_attr":
        return None
    held = operator.attrgetter(node.target)(node.graph.owning_module)
    if not isinstance(held, sys.modules["torch"].fx.GraphModule):
        return None
    names = tuple(n.name for n in held.graph.nodes if n.op == "placeholder")
    return Block(names, tuple(calls(held.graph)), outputs(held.graph))


def _several(node: Any) -> int | None:
    """The number of results of a node whose result is a list; else None."""
    value = node.meta.get("val")
    return len(value) if isinstance(value, (list, tuple)) else None


def where(node: Any) -> str:
    """The line of the model that made a node: "model.py:7 in forward: h = self.conv(x)"."""
    return line_of(node.meta.get("stack_trace") or "") or node.name
