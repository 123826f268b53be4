"""Division of few long lines into many short ones, which the threads of a device share.

A scan, a sort or a scatter is sequential along a line: the elements along one axis.  A device runs
many lines well, with one thread for each.  Few long lines are divided into chunks, which are lines
themselves:

    scan(x)     ->  combine(exclusive scan of the chunks' totals, scan(chunks))
    top_k(x)    ->  top_k(chunks), then merges of neighbouring chunks in pairs
    scatter(..) ->  sorted places of the updates, then a thread for each run of equal places

Sums and products of floats are reordered.  Results of sorts and scatters do not change: sorts are
stable, and a scatter combines the updates of a position in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilesmith.graph.nodes import Graph, Node, Value
from tilesmith.ir.device import Device
from tilesmith.ops import rules
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Add, Cast, Max, Min, Mul
from tilesmith.ops.scan import CumMax, CumMin, CumProd, CumSum, Scan
from tilesmith.ops.scatter import (
    ElementPlaces,
    ScatterElements,
    ScatterNd,
    ScatterSorted,
    SlicePlaces,
)
from tilesmith.ops.shape import Reshape
from tilesmith.ops.slicing import Pad, Slice
from tilesmith.ops.sort import MergeSorted, TopK

from .rewriter import Result, Rewriter, Rules

_COMBINES: Mapping[type[Op], type[Op]] = {CumSum: Add, CumProd: Mul, CumMax: Max, CumMin: Min}
"""Scan -> the operator that combines the results of two chunks."""

_REORDERED = (CumSum, CumProd)
"""Scans whose results depend on the order of the elements if these are floats."""


def divide_lines(
    graph: Graph,
    device: Device,
    longest: int,
    may_divide: Callable[[Node], bool] = lambda node: True,
    is_strict: bool = False,
) -> Graph:
    """`graph` with few long lines divided; the same object if there are none.

    longest: upper bound on the steps of a thread that is fast enough.
    may_divide: whether the device can compute a node, so that its lines may be divided.
    is_strict: whether sums and products of floats keep their order.
    """
    return Rewriter(graph, _Division(device, longest, may_divide, is_strict).rules).run()


@dataclass(frozen=True, slots=True)
class _Division:
    """Rules that divide lines, with the arguments of `divide_lines`."""

    device: Device
    longest: int
    may_divide: Callable[[Node], bool]
    is_strict: bool

    @property
    def rules(self) -> Rules:
        scans = dict.fromkeys(_COMBINES, (self.columns, self.scan))
        return {
            **scans,
            TopK: (self.sort,),
            ScatterElements: (self.scatter_elements,),
            ScatterNd: (self.scatter_slices,),
        }

    def is_worthwhile(self, node: Node, lines: int, steps: int) -> bool:
        """Whether a node has few lines (less than a wave for each unit of the device), each of many
        steps.
        """
        few = lines < self.device.units * self.device.wave
        return few and steps > self.longest and lines > 0 and self.may_divide(node)

    def chunk(self, elements: int) -> int:
        """Lower bound on the length of a chunk.

        There are as many chunks as the device runs threads at a time, but no chunk is shorter than
        a wave.

        elements: number of elements of all lines.
        """
        threads = self.device.units * self.device.unit_threads
        return max(-(-elements // threads), self.device.wave, 2)

    def columns(self, r: Rewriter, node: Node) -> Result:
        """A scan along an axis that is not the innermost.  In the loops of scans, one thread
        computes all elements of the innermost axis.  If an axis of extent 1 is added after that
        axis, each of these elements has its own thread.
        """
        op, x = node.op, node.inputs[0]
        assert isinstance(op, Scan)
        if not x.type.is_static:
            return None
        outer, n, inner = _around(x, op.axis)
        last = inner[-1] if inner else 1
        if last == 1 or not self.is_worthwhile(node, math.prod((*outer, *inner[:-1])), n * last):
            return None
        y = r.add(Reshape((*outer, n, math.prod(inner), 1)), x)
        y = r.add(replace(op, axis=len(outer)), y)
        return r.add(Reshape(x.type.static_shape), y)

    def scan(self, r: Rewriter, node: Node) -> Result:
        """Scan the chunks, then combine each chunk with the total of the chunks before it."""
        op, x = node.op, node.inputs[0]
        assert isinstance(op, Scan)
        is_exact = not (x.dtype.is_float and isinstance(op, _REORDERED))
        if not x.type.is_static or (self.is_strict and not is_exact):
            return None
        outer, n, inner = _around(x, op.axis)
        lines, columns = math.prod((*outer, *inner)), math.prod(inner)
        if not self.is_worthwhile(node, lines, n):
            return None
        length = self.chunk(lines * n)
        count = -(-n // length)
        if count < 2:
            return None
        wide = rules.accumulator(x.dtype)
        y = r.add(Reshape((math.prod(outer), n, columns)), x)
        y = y if wide is x.dtype else r.add(Cast(wide), y)
        # An exclusive scan is the inclusive scan of the elements moved by one position.
        moved = op.exclusive * (-1 if op.reverse else 1)
        missing = count * length - n - moved
        if moved or missing:
            y = r.add(Pad((0, moved, 0, 0, missing, 0), value=type(op).identity(wide)), y)
        y = r.add(Reshape((math.prod(outer), count, length, columns, 1)), y)
        y = r.add(replace(op, axis=2, exclusive=False), y)
        last = 0 if op.reverse else length - 1
        totals = r.add(Slice((last,), (last + 1,), (2,), (1,)), y)
        before = r.add(replace(op, axis=1, exclusive=True), totals)
        y = r.add(_COMBINES[type(op)](), before, y)
        y = r.add(Reshape((math.prod(outer), count * length, columns)), y)
        y = y if count * length == n else r.add(Slice((0,), (n,), (1,), (1,)), y)
        y = y if wide is x.dtype else r.add(Cast(x.dtype), y)
        return r.add(Reshape(x.type.static_shape), y)

    def sort(self, r: Rewriter, node: Node) -> Result:
        """Sort the chunks, then merge them in pairs.  Each chunk keeps its `k` first elements."""
        op, x = node.op, node.inputs[0]
        assert isinstance(op, TopK)
        if not x.type.is_static or not isinstance(op.k, int):
            return None
        outer, n, inner = _around(x, op.axis)
        lines = math.prod((*outer, *inner))
        if not self.is_worthwhile(node, lines, n * op.k.bit_length()):
            return None
        count = _power_of_two(n // self.chunk(lines * n))
        if count < 2:
            return None
        length = -(-n // count)
        y = r.add(Reshape((math.prod(outer), n, math.prod(inner))), x)
        if count * length > n:
            y = r.add(Pad((0, 0, 0, 0, count * length - n, 0), value=op.last(x.dtype)), y)
        y = r.add(Reshape((math.prod(outer), count, length, math.prod(inner))), y)
        k, span = min(op.k, length), length
        values, places = r.add(TopK(k, 2, op.largest), y)
        while count > 1:
            k = min(op.k, 2 * k)
            values, places = r.add(MergeSorted(k, span, 2, op.largest), values, places)
            count, span = count // 2, span * 2
        back = Reshape(node.outputs[0].type.static_shape)
        return r.add(back, values), r.add(back, places)

    def scatter_elements(self, r: Rewriter, node: Node) -> Result:
        """Sort the updates of a `ScatterElements`.  The position of an update is the number of an
        element of the data.
        """
        op, (data, indices, _) = node.op, node.inputs
        assert isinstance(op, ScatterElements)
        if not (data.type.is_static and indices.type.is_static):
            return None
        outer, n, inner = _around(indices, op.axis)
        if not self.is_worthwhile(node, math.prod(outer), math.prod((n, *inner))):
            return None
        positions = r.add(ElementPlaces(data.type.static_shape, op.axis), indices)
        return self.sorted_updates(r, node, positions, data.type.rank, op.reduction)

    def scatter_slices(self, r: Rewriter, node: Node) -> Result:
        """Sort the updates of a `ScatterNd`.  The position of an update is the number of a slice of
        the data, and each element of a slice has a thread.
        """
        op, (data, indices, _) = node.op, node.inputs
        assert isinstance(op, ScatterNd)
        if not (data.type.is_static and indices.type.is_static):
            return None
        *tuples, depth = indices.type.static_shape
        shape = data.type.static_shape
        # In the loops of `scatter_nd`, one thread computes the innermost axis of a slice.
        wide = [d for d in shape[depth:] if d != 1]
        steps = math.prod((*tuples, *wide[-1:]))
        if not self.is_worthwhile(node, math.prod(wide[:-1]), steps):
            return None
        positions = r.add(SlicePlaces(shape[:depth]), indices)
        return self.sorted_updates(r, node, positions, depth, op.reduction)

    def sorted_updates(
        self, r: Rewriter, node: Node, at: Value, depth: int, reduction: str
    ) -> Result:
        """The scatter of a node, with updates sorted by the numbers of their positions.

        at: for each update, the number of an element or slice of the data.
        depth: number of axes of the data that a number enumerates.
        """
        data, _, updates = node.inputs
        count = math.prod(at.type.static_shape)
        order = r.add(TopK(count, 0, largest=False), r.add(Reshape((count,)), at))
        return r.add(ScatterSorted(depth, reduction), data, updates, *order)


def _around(x: Value, axis: int) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """The extents of the axes before `axis`, of `axis` itself, and of the axes after it."""
    shape = x.type.static_shape
    axis %= len(shape)
    return shape[:axis], shape[axis], shape[axis + 1 :]


def _power_of_two(n: int) -> int:
    """The largest power of two up to `n`; 0 for 0."""
    return 1 << n.bit_length() >> 1
