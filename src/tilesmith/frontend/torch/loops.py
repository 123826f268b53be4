"""Conversion of TorchScript's loops to PyTorch's `while_loop` if only a run knows the trip count.

PyTorch's converter unrolls a `prim::Loop` with a constant trip count, and refuses other loops.
Here other loops become a call of `_repeated`, which is traced like other functions.  `to` also
becomes a call of a function, since PyTorch's converter makes every `to` a copy.  `detach` stays a
view.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import Any

_LOCK = Lock()
_DETACH, _ALIAS = "aten::detach", "aten::alias"


@contextmanager
def loops_converted() -> Iterator[None]:
    """A context in which PyTorch's converter converts all loops.  To convert a block, the converter
    looks up its own class by name in its module.  Inside the context, that name refers to our
    class.
    """
    module: Any = import_module("torch._export.converter")
    with _LOCK:
        plain, graph_of = module.TS2FXGraphConverter, module._create_jit_graph

        def graph_with_views(model: Any, args: Any) -> Any:
            with _detached_kept(model):
                return graph_of(model, args)

        module.TS2FXGraphConverter = _converter(plain)
        module._create_jit_graph = graph_with_views
        try:
            yield
        finally:
            module.TS2FXGraphConverter = plain
            module._create_jit_graph = graph_of


@contextmanager
def _detached_kept(model: Any) -> Iterator[None]:
    """A context in which `detach` in a TorchScript module gives an alias.

    PyTorch's freezing replaces `x.detach()` by `x`.  An `unsqueeze_` of the result would then
    change the shape of `x`.  A module that already has aliases is left unchanged.  No public
    function of PyTorch makes such a module.
    """
    parts = model.modules() if hasattr(model, "modules") else (model,)
    graphs = [p.graph for p in parts if _has_graph(p)]
    if any(g.findAllNodes(_ALIAS) for g in graphs):
        yield
        return
    _replace(graphs, _DETACH, _ALIAS)
    try:
        yield
    finally:
        _replace(graphs, _ALIAS, _DETACH)  # also in code that PyTorch has inlined


def _has_graph(part: Any) -> bool:
    """Whether a part of a TorchScript module has code.  Lists of modules, and modules that are
    never called, have a graph that can't be read.
    """
    inner = getattr(part, "_c", None)
    if inner is not None and not inner._has_method("forward"):
        return False
    return hasattr(part, "graph")


def _replace(graphs: Sequence[Any], old: str, new: str) -> None:
    """Replace nodes of kind `old` by nodes of kind `new`.  Both kinds have a single argument."""
    for graph in graphs:
        for node in graph.findAllNodes(old):
            made = graph.create(new, [node.inputsAt(0)], 1)
            made.insertBefore(node)
            made.output().setType(node.output().type())
            node.output().replaceAllUsesWith(made.output())
            node.destroy()


def _converter(plain: Any) -> Any:
    module: Any = import_module("torch._export.converter")

    class Converter(plain):
        """PyTorch's converter of a graph or a block, extended to all loops."""

        def convert_prim_Loop(self, node: Any) -> None:
            try:
                self._check_prim_loop_support(node)
            except RuntimeError:
                self._convert_open_loop(node)
            else:
                super().convert_prim_Loop(node)

        def convert_aten_to(self, node: Any) -> None:
            """Convert `to`.  If the tensor has the wanted type already, `to` returns the tensor
            itself.  PyTorch's own conversion would copy such a tensor if it is written to later.
            """
            target = module.get_op_overload(node)
            args, _ = self.get_args_kwargs(node, target._schema)
            named = target._overloadname in ("dtype", "prim_dtype")
            if not named or not isinstance(args[1], int):
                super().convert_aten_to(node)
                return
            torch = import_module("torch")
            dtype = torch.ops.aten.to.dtype(torch.zeros(()), args[1]).dtype
            copies = len(args) > 3 and args[3]
            made = self.fx_graph.call_function(_cast, (args[0], dtype, copies))
            self.name_to_node[node.output().debugName()] = made

        def _convert_open_loop(self, node: Any) -> None:
            count, going, *carried = (self.get_fx_value_by_ir_value(i) for i in node.inputs())
            (block,) = node.blocks()
            lifted = self.blocks_to_lifted_attrs[block]
            names = sorted(self._identify_inputs_as_arguments(node) | lifted)
            (body,), (inner,) = self._convert_block_to_subgraph(node, names)
            _open_numbers(self.subgraphs[body.target])
            if inner.name_update_from_subblock_to_parent:
                raise RuntimeError("prim::Loop writes to a tensor of the code around it")
            others = tuple(self.get_fx_value_by_fqn(name) for name in names)
            args = (body, count, going, tuple(carried), others)
            made = self.fx_graph.call_function(_repeated, args)
            for i, output in enumerate(node.outputs()):
                result = self.fx_graph.call_function(operator.getitem, (made, i))
                self.name_to_node[output.debugName()] = result

    return Converter


def _cast(x: Any, dtype: Any, copies: Any) -> Any:
    """A tensor converted to a type.  As in `Tensor.to`, `x` itself if it has that type."""
    if not isinstance(x, import_module("torch").Tensor):  # PyTorch also accepts a number
        return import_module("torch").ops.aten.to.dtype(x, dtype)
    return x.to(dtype, copy=True) if copies or x.dtype != dtype else x


_ON_NUMBERS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "remainder": operator.mod, "pow": operator.pow,
    "neg": operator.neg, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "eq": operator.eq, "ne": operator.ne, "__and__": operator.and_,
    "__or__": operator.or_,
}  # fmt: skip
"""Python's functions, by the names of ATen's operators on numbers that they replace.  The operators
refuse symbolic numbers.
"""


def _open_numbers(module: Any) -> None:
    """Let a block and its inner blocks accept symbolic numbers where they expect numbers."""
    for part in module.modules():
        for node in part.graph.nodes if hasattr(part, "graph") else ():
            packet, _, overload = str(node.target).removeprefix("aten.").partition(".")
            is_number = overload in ("int", "float", "int_float", "float_int", "bool")
            if node.op == "call_function" and is_number and packet in _ON_NUMBERS:
                node.target = _ON_NUMBERS[packet]
        if hasattr(part, "recompile"):
            part.recompile()


def _repeated(
    body: Callable[..., Any],
    count: Any,
    going: Any,
    carried: tuple[Any, ...],
    others: tuple[Any, ...],
) -> tuple[Any, ...]:
    """The carried values after the last iteration.

    body: maps `others`, the iteration number and the carried values to the condition for another
        iteration and the next carried values.
    count: maximum number of iterations.
    going: whether the first iteration runs.
    """
    torch = import_module("torch")
    while_loop = import_module("torch._higher_order_ops").while_loop
    kinds = [_kind(torch, c) for c in carried]

    def goes_on(i: Any, most: Any, going: Any, *_: Any) -> Any:
        return torch.logical_and(going, i < most)

    def step(i: Any, most: Any, going: Any, *carried: Any) -> Any:
        state = [_number(c, k) for c, k in zip(carried, kinds, strict=True)]
        results = body(*others, i.item(), *state)
        again, *after = results if isinstance(results, (tuple, list)) else (results,)
        return (
            i + 1, most.clone(), _tensor(torch, again, torch.bool),
            *(_tensor(torch, a, k) for a, k in zip(after, kinds, strict=True)),
        )  # fmt: skip

    start = [torch.zeros((), dtype=torch.int64), _tensor(torch, count, torch.int64)]
    start += [_tensor(torch, going, torch.bool)]
    start += [_tensor(torch, c, k) for c, k in zip(carried, kinds, strict=True)]
    results = while_loop(goes_on, step, tuple(start))
    return tuple(_number(f, k) for f, k in zip(results[3:], kinds, strict=True))


def _kind(torch: Any, x: Any) -> Any:
    """The element type in which a number of Python is carried; None for a tensor."""
    if isinstance(x, torch.Tensor):
        return None
    if isinstance(x, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(x, (int, torch.SymInt)):
        return torch.int64
    if isinstance(x, (float, torch.SymFloat)):
        return torch.float64
    raise RuntimeError(f"prim::Loop carries a {type(x).__name__}")


def _tensor(torch: Any, x: Any, kind: Any) -> Any:
    """A tensor or a number as a tensor in new memory."""
    if isinstance(x, torch.Tensor):
        return x.clone() if kind is None else x.to(kind, copy=True).reshape(())
    return torch.scalar_tensor(x, dtype=kind)


def _number(x: Any, kind: Any) -> Any:
    """The Python number that a carried tensor stands for; the tensor itself if `kind` is None."""
    return x if kind is None else x.item()
