"""Pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tilesmith.frontend.aten.convolutions import spread
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common import pools
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f64
from tilesmith.ir.types import Dim
from tilesmith.ops import elementwise as ew
from tilesmith.ops import pool
from tilesmith.ops.functions import maximum, minimum

Numbers: TypeAlias = "Sequence[int] | int"


def _batched(n: AtenNode, x: Value, rank: int, make: Callable[[Value], Value]) -> Value:
    """The result of `make` for images [N, C, spatial...]; `x` may lack the batch axis."""
    if x.type.rank == rank + 2:
        return make(x)
    y = make(n.reshape(x, (1, *x.type.shape)))
    return n.reshape(y, y.type.shape[1:])


def _max_pool(
    n: AtenNode, self: Value, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
    dilation: Numbers = 1, ceil_mode: bool = False, *, rank: int,
) -> tuple[Value, Value]:  # fmt: skip
    """The maxima, and their positions in the flattened image."""
    kernel = spread(kernel_size, rank)
    strides = spread(stride, rank) or kernel
    pads, dilations = spread(padding, rank), spread(dilation, rank)
    settings = (kernel, strides, (*pads, *pads), dilations, ceil_mode)

    def places(x: Value) -> Value:
        op = pool.MaxPlaces(*settings, in_plane=True)
        return n.add(op, x, n.add(pool.MaxPool(*settings), x))

    best = _batched(n, self, rank, lambda x: n.add(pool.MaxPool(*settings), x))
    return best, _batched(n, self, rank, places)


def _max_pool_alone(n: AtenNode, *args: object, rank: int, **kwargs: object) -> Value:
    return _max_pool(n, *args, rank=rank, **kwargs)[0]  # type: ignore[arg-type]  # as given


for _rank in (1, 2, 3):
    aten_op(f"aten.max_pool{_rank}d_with_indices.default")(partial(_max_pool, rank=_rank))
    aten_op(f"aten.max_pool{_rank}d.default")(partial(_max_pool_alone, rank=_rank))


def _avg_pool(
    n: AtenNode, self: Value, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    rank: int,
) -> Value:  # fmt: skip
    if self.dtype.is_int:  # an integer quotient, rounded toward zero
        settings = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        mean = _avg_pool(n, n.cast(self, f64), *settings, rank=rank)
        return n.cast(n.add(ew.Trunc(), mean), self.dtype)
    kernel = spread(kernel_size, rank)
    strides = spread(stride, rank) or kernel
    pads = spread(padding, rank)
    includes = count_include_pad or divisor_override is not None
    op = pool.AvgPool(kernel, strides, (*pads, *pads), (), ceil_mode, includes)
    if divisor_override is None:
        return _batched(n, self, rank, lambda x: n.add(op, x))
    # `AvgPool` divides by the number of positions in a window, and in ceil mode this number differs
    # at the end of an axis.  So windows are summed by `LpPool`, and the sums divided afterwards.
    # `LpPool` adds magnitudes, so positive and negative elements are summed separately.
    total = pool.LpPool(kernel, strides, (*pads, *pads), (), ceil_mode, 1)
    zero = n.tensor(0, self.dtype)
    parts = [
        _batched(n, part, rank, lambda x: n.add(total, x))
        for part in (maximum(self, zero), minimum(self, zero))
    ]
    return n.add(ew.Sub(), *parts) / float(divisor_override)


for _rank in (1, 2, 3):
    aten_op(f"aten.avg_pool{_rank}d.default")(partial(_avg_pool, rank=_rank))


def _adaptive_avg_pool(
    n: AtenNode, self: Value, output_size: Sequence[int | None] | int, *, rank: int
) -> Value:
    """Adaptive average pooling, with windows whose sizes differ as little as possible."""
    sizes = (output_size,) * rank if isinstance(output_size, int) else tuple(output_size)
    sizes = sizes * rank if len(sizes) == 1 else sizes
    wanted: list[Dim] = [
        d if s is None else s for s, d in zip(sizes, self.type.shape[-rank:], strict=True)
    ]
    return pools.adaptive_averages(n, self, wanted)


for _rank in (1, 2, 3):
    aten_op(f"aten.adaptive_avg_pool{_rank}d.default", f"aten._adaptive_avg_pool{_rank}d.default")(
        partial(_adaptive_avg_pool, rank=_rank)
    )


def _adaptive_max_pool(
    n: AtenNode, self: Value, output_size: Sequence[int] | int, *, rank: int
) -> tuple[Value, Value]:
    """Maxima of the windows of `_adaptive_avg_pool`, and their positions in the flattened image."""
    return pools.adaptive_maxima(n, self, spread(output_size, rank))


for _rank in (1, 2, 3):
    aten_op(f"aten.adaptive_max_pool{_rank}d.default")(partial(_adaptive_max_pool, rank=_rank))
