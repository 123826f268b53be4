"""Shapes and types of registered operators for fake tensors, whose sizes may be symbolic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.frontend.aten.tensors import element_type, torch_name
from tilesmith.frontend.common.expressions import Definition
from tilesmith.graph.builder import infer
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Var
from tilesmith.ir.symbols import symbol, value_of
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op
from tilesmith.support.errors import TilesmithError


def fake_of(cls: type[Op], definition: Definition) -> Callable[..., Any]:
    """A function that makes fake tensors with the types and shapes of the operator's results."""

    def fake(*args: Any, **kwargs: Any) -> Any:
        tensors, attributes = definition.arguments(args, kwargs)
        types, sizes = _results(cls(**attributes), tensors)
        results = [
            tensors[0].new_empty([sizes.size(d) for d in t.shape], dtype=torch_type(t.dtype))
            for t in types
        ]
        return results[0] if len(results) == 1 else tuple(results)

    return fake


def torch_type(dtype: DType) -> torch.dtype:
    return getattr(torch, torch_name(dtype))


def _results(op: Op, tensors: list[torch.Tensor]) -> tuple[tuple[TensorType, ...], _Sizes]:
    """The types of the results, and the sizes that their symbols stand for."""
    for sizes in (_Sizes(), _Equal()):
        try:
            return infer(op, sizes.types(tensors)), sizes
        except TilesmithError:
            if all(isinstance(d, int) for t in tensors for d in t.shape):
                raise
    sizes = _Numbers()
    return infer(op, sizes.types(tensors)), sizes


class _Sizes:
    """Conversion of PyTorch's symbolic sizes to symbols, and back."""

    def __init__(self) -> None:
        self._symbols: dict[Any, Var] = {}
        self._sizes: dict[Var, Any] = {}

    def types(self, tensors: list[torch.Tensor]) -> tuple[TensorType, ...]:
        return tuple(
            TensorType(element_type(t.dtype), tuple(map(self.dim, t.shape))) for t in tensors
        )

    def dim(self, size: Any) -> Dim:
        return size if isinstance(size, int) else self._symbol(size.node.expr, size)

    def size(self, dim: Dim) -> Any:
        """A size of a result in PyTorch's form."""
        return value_of(dim, self._sizes)

    def _symbol(self, key: Any, size: Any) -> Var:
        if key not in self._symbols:
            made = self._symbols[key] = symbol(f"s{len(self._symbols)}", low=0)
            self._sizes[made] = size
        return self._symbols[key]


class _Equal(_Sizes):
    """A conversion in which sizes that are equal in the example share a symbol.  PyTorch adds a
    guard that they are equal.
    """

    def dim(self, size: Any) -> Dim:
        if isinstance(size, int) or not size.node.has_hint():
            return super().dim(size)
        symbol = self._symbol(size.node.hint, size)
        torch._check(size == self._sizes[symbol])
        return symbol


class _Numbers(_Sizes):
    """A conversion of sizes to numbers.  PyTorch adds a guard, so that other sizes get another
    graph.
    """

    def dim(self, size: Any) -> Dim:
        return int(size)
