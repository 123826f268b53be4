"""Kernels of registered operators for calls in eager mode, compiled on demand.

The first call is compiled for its sizes.  If a later call has other sizes, the sizes that differ
become symbolic in a second program, which serves all such calls.  Sizes with the same two values in
both calls share a symbol.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from tilesmith.driver.entry import program_of
from tilesmith.driver.request import Request
from tilesmith.frontend.aten.tensors import element_type
from tilesmith.frontend.common.expressions import Definition
from tilesmith.graph.builder import Builder
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.base import Op
from tilesmith.runtime.host_runner import HostRunner
from tilesmith.runtime.sizes import RunSizes
from tilesmith.support.errors import TilesmithError
from tilesmith.support.forks import renew_in_children
from tilesmith.support.options import Options

from .fakes import torch_type

Shapes: TypeAlias = tuple[tuple[int, ...], ...]

_KEPT = 4096
"""Upper bound on the cached calls, one for each combination of types and sizes."""

_address = torch.Tensor.data_ptr


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A call with inputs of fixed types and shapes.

    exe: the program.
    sizes: the sizes of the run; None if the program has no symbols.
    shapes: shapes of the results.
    dtypes: element types of the results.
    """

    exe: HostRunner
    sizes: RunSizes | None
    shapes: Sequence[Sequence[int]]
    dtypes: Sequence[torch.dtype]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        contiguous = [t.contiguous() for t in tensors]
        results = tuple(map(_empty, self.shapes, self.dtypes))
        self.exe.run_at(tuple(map(_address, contiguous)), tuple(map(_address, results)), self.sizes)
        return results


class Kernels:
    """The CPU kernel of an operator, as PyTorch calls it."""

    def __init__(self, cls: type[Op], definition: Definition, options: Options) -> None:
        self._cls, self._definition, self._options = cls, definition, options
        self._calls: dict[Any, _Call] = {}
        self._families: dict[Any, _Family] = {}
        self._lock = threading.Lock()
        renew_in_children(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors, attributes = self._definition.arguments(args, kwargs)
        key = (_key(attributes), *[(t.dtype, t.shape) for t in tensors])
        call = self._calls.get(key)
        if call is None:
            with self._lock:
                call = self._new(tensors, attributes)
                if len(self._calls) >= _KEPT:
                    self._calls.clear()
                self._calls[key] = call
        results = call(tensors)
        return results[0] if len(results) == 1 else results

    def _new(self, tensors: Sequence[torch.Tensor], attributes: dict[str, Any]) -> _Call:
        key = (_key(attributes), *[(t.dtype, t.ndim) for t in tensors])
        if key not in self._families:
            dtypes = [element_type(t.dtype) for t in tensors]
            self._families[key] = _Family(self._cls(**attributes), dtypes, self._options)
        exe = self._families[key].program(tuple(tuple(t.shape) for t in tensors))
        sizes = exe.sizes_of(tensors)
        shapes = [s.static_shape for s in exe.program.outputs] if sizes is None else sizes.outputs
        # All shapes are known, since no extent depends on data.
        known = [s for s in shapes if s is not None]
        return _Call(exe, sizes, known, [torch_type(s.dtype) for s in exe.program.outputs])


class _Family:
    """The programs of an operator for inputs of fixed types and ranks."""

    def __init__(self, op: Op, dtypes: Sequence[Any], options: Options) -> None:
        self._op, self._dtypes, self._options = op, dtypes, options
        self._seen: Shapes | None = None
        self._open: list[tuple[list[tuple[Dim, ...]], HostRunner]] = []

    def program(self, shapes: Shapes) -> HostRunner:
        """A program for inputs of these shapes.  Raises TilesmithError."""
        for pattern, exe in self._open:
            if _fits(pattern, shapes):
                return exe
        seen, self._seen = self._seen, shapes
        if seen is not None:
            pattern = _opened(seen, shapes)
            try:
                exe = self._compiled(pattern)
            except TilesmithError:  # the operator needs constant sizes: the next line reports it
                return self._compiled(shapes)
            self._open.append((pattern, exe))
            return exe
        return self._compiled(shapes)

    def _compiled(self, shapes: Sequence[tuple[Dim, ...]]) -> HostRunner:
        b = Builder("main")
        types = map(TensorType, self._dtypes, shapes)
        inputs = [b.input(f"x{i}", t) for i, t in enumerate(types)]
        results = b.add(self._op, *inputs)
        graph = b.finish(results if isinstance(results, tuple) else (results,))
        return HostRunner(program_of(Request(graph, self._options)), self._options.threads)


def _key(attributes: dict[str, Any]) -> str:
    """A key for attributes.  It is equal for identical numbers: 0.0 and -0.0 differ, NaN equals
    itself.
    """
    return repr([*attributes.values()])


def _empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _opened(seen: Shapes, shapes: Shapes) -> list[tuple[Dim, ...]]:
    """The shapes of a call with a symbol for each size that differs from the earlier call `seen`.
    Sizes with the same two values in both calls share a symbol.  Sizes of 0 and 1 stay numbers.
    """
    symbols: dict[tuple[int, int], Dim] = {}

    def dim(before: int, now: int) -> Dim:
        if before == now or now < 2:
            return now
        made = symbol(f"n{len(symbols)}", low=2, expected=now)
        return symbols.setdefault((before, now), made)

    return [
        tuple(dim(*d) for d in zip(a, b, strict=True)) for a, b in zip(seen, shapes, strict=True)
    ]


def _fits(pattern: Sequence[tuple[Dim, ...]], shapes: Shapes) -> bool:
    sizes: dict[Dim, int] = {}
    return all(
        d == n if isinstance(d, int) else n > 1 and sizes.setdefault(d, n) == n
        for dims, shape in zip(pattern, shapes, strict=True)
        for d, n in zip(dims, shape, strict=True)
    )
