"""Calls of native code on tensors of PyTorch, without copies: the code receives addresses.

Dynamo's guards ensure the ranks of inputs.  Types and strides are checked here, since Dynamo itself
converts numbers to tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx import Node

from tilesmith.frontend.torch.traced import Read
from tilesmith.runtime.arrays import to_torch
from tilesmith.runtime.host_runner import HostRunner

from .fakes import torch_type

_address = torch.Tensor.data_ptr
_empty: Callable[..., torch.Tensor] = attrgetter("_dynamo.guards._empty_strided_cpu")(torch._C)
"""A function that allocates a tensor in a third of the time of `torch.empty`; PyTorch's stubs don't
declare it.
"""
_is_row_major = torch.Tensor.is_contiguous


def has_memory(x: torch.Tensor) -> bool:
    """Whether the elements of a tensor are in memory; false for fake tensors."""
    return not isinstance(x, FakeTensor) and (_address(x) != 0 or x.numel() == 0)


class Native:
    """Native code as a function of the inputs of an FX graph."""

    def __init__(
        self, exe: HostRunner, read: Read, names: Sequence[str], outputs: Sequence[Node]
    ) -> None:
        """exe: the compiled code of `read.graph`.

        names: names of the inputs of the FX graph, in order.
        outputs: the nodes whose tensors the code computes.
        """
        self.exe = exe
        place = {name: i for i, name in enumerate(names)}
        self.inputs = [place[name] for name in read.inputs]
        self._orders = [
            (i, read.orders[name]) for i, name in enumerate(read.inputs) if name in read.orders
        ]
        self._returned = [
            (i, _inverse(read.orders[n.name]))
            for i, n in enumerate(outputs)
            if n.name in read.orders
        ]
        self.allocators = [_allocator(s) for s in exe.program.outputs]
        self._is_open = bool(exe.program.symbols)
        self._by_address = exe.takes_addresses
        self._scalars = [i for i, s in enumerate(exe.program.inputs) if not s.shape]
        changed = self._scalars or self._orders or self._returned
        self.is_plain = self._by_address and not self._is_open and not changed
        """Whether the code needs only addresses of inputs and results: all are row-major, with
        constant sizes.
        """
        self._types = [torch_type(s.dtype) for s in exe.program.inputs]

    def are_fit(self, tensors: Sequence[Any]) -> bool:
        """Whether tensors for the code's inputs have the expected element types and real memory,
        and whether PyTorch's negative bit (a pending negation) is unset.  Python numbers are
        accepted.
        """
        for t, dtype in zip(tensors, self._types, strict=True):
            if isinstance(t, torch.Tensor) and (
                t.dtype is not dtype or t.is_neg() or not has_memory(t)
            ):
                return False
        return True

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """New tensors for `outputs`.  Raises ModelError if the run fails."""
        tensors = [args[i] for i in self.inputs]
        for i in self._scalars:
            if not isinstance(tensors[i], torch.Tensor):
                dtype = torch.float64 if isinstance(tensors[i], float) else torch.int64
                tensors[i] = torch.tensor(tensors[i], dtype=dtype)
        for i, order in self._orders:
            tensors[i] = tensors[i].permute(order)
        if not all(map(_is_row_major, tensors)):
            tensors = [t.contiguous() for t in tensors]
        results = self._computed(tensors)
        for i, order in self._returned:
            results[i] = _permuted(results[i], order)
        return results

    def _computed(self, tensors: list[Any]) -> list[Any]:
        if not self._by_address:
            results = self.exe.call(tuple(t.detach() for t in tensors), None)
            several = results if isinstance(results, tuple) else (results,)
            return [r if isinstance(r, torch.Tensor) else to_torch(r) for r in several]
        sizes = self.exe.sizes_of(tensors) if self._is_open else None
        if sizes is None:
            made = [make() for make in self.allocators]
        else:
            made = [make(shape) for make, shape in zip(self.allocators, sizes.outputs, strict=True)]
        addresses = tuple(map(_address, tensors)), tuple(map(_address, made))
        self.exe.run_at(*addresses, sizes)
        return made


def _permuted(x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """`x` with its axes in another order, as a tensor of its own and not a view.  PyTorch refuses
    later writes to a view that a compiled function with gradients returns.
    """
    shape, strides = [x.shape[a] for a in order], [x.stride(a) for a in order]
    storage = x.untyped_storage()
    return torch.empty(0, dtype=x.dtype).set_(storage, x.storage_offset(), shape, strides)


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _allocator(spec: Any) -> Callable[..., Any]:
    """A function that makes a row-major tensor for a result.  It takes the shape if that is
    symbolic.
    """
    dtype = torch_type(spec.dtype)
    if not spec.is_static:
        return lambda shape: torch.empty(shape, dtype=dtype)
    shape, strides = spec.static_shape, torch.empty(spec.static_shape, device="meta").stride()
    return lambda _=None: _empty(shape, strides, dtype)
