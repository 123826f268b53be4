"""Physical layouts: how the logical axes of a tensor become the dimensions of a dense buffer.

A `Layout` is a list of physical dimensions, outermost first.  In its text they are separated by
spaces:

- `2`: the whole logical axis 2.
- `0/32` and `0%32`: blocks of 32 of axis 0, and the position inside the block.  A split axis
  appears once in each form.
- `2+1:1`: a whole axis with a *halo*: zeros at 1 position before and after, so that a consumer may
  read past the border.
- `1:256`: a whole axis with a *span*: in memory the axis has 256 positions, and those past its
  extent belong to other tensors.  This describes a slice of a larger tensor.  The other elements of
  that tensor are never touched.

`0 2 3 1` is NHWC seen from logical NCHW; `0/16 2 3 1 0%16` is a packed weight.  If a block size
does not divide the extent, the last block is padded (with zeros in packed constants).
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar, overload

import numpy as np

from .expr import Expr
from .types import Dim, same_dim

Index = TypeVar("Index", int, Expr)
Part = Literal["whole", "outer", "inner"]


@dataclass(frozen=True, slots=True)
class LayoutDim:
    """One physical dimension.

    axis: the logical axis.
    part: the whole axis, its blocks, or the position inside the block.
    block: elements of a block (outer and inner parts).
    before, after: halo of a whole axis, in positions.
    span: number of positions of a whole axis in memory; 0 stands for its extent.
    """

    axis: int
    part: Part = "whole"
    block: int = 1
    before: int = 0
    after: int = 0
    span: int = 0

    def __str__(self) -> str:
        if self.part == "outer":
            return f"{self.axis}/{self.block}"
        if self.part == "inner":
            return f"{self.axis}%{self.block}"
        if self.span:
            return f"{self.axis}:{self.span}"
        halo = f"+{self.before}:{self.after}" if self.before or self.after else ""
        return f"{self.axis}{halo}"


_DIM = re.compile(r"(\d+)(?:([/%])(\d+)|\+(\d+):(\d+)|:(\d+))?$")


class _Piece(NamedTuple):
    """A part of a logical axis: its extents after splitting, and its destination."""

    source: slice
    shape: tuple[int, ...]
    target: tuple[slice | int, ...]


def _pieces(dim: LayoutDim, n: int) -> list[_Piece]:
    """The parts of an axis of extent `n`, each copied at once: all whole blocks, and the tail."""
    if dim.part == "whole":
        return [_Piece(slice(n), (n,), (slice(dim.before, dim.before + n),))]
    blocks, rest = divmod(n, dim.block)
    end = blocks * dim.block
    pieces = [_Piece(slice(end), (blocks, dim.block), (slice(blocks), slice(dim.block)))]
    return pieces + [_Piece(slice(end, n), (rest,), (blocks, slice(rest)))] * (rest > 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """A bijection from logical indices to physical indices (up to padding).

    dims: outermost first.
    has_padding: whether some physical elements may have no logical element.
    """

    dims: tuple[LayoutDim, ...]
    has_padding: bool = field(init=False, compare=False, repr=False)
    """Whether some physical elements may have no logical element."""
    _hash: int = field(init=False, compare=False, repr=False)  # layouts are keys of many tables

    def __post_init__(self) -> None:
        padded = any(d.part != "whole" or d.before or d.after for d in self.dims)
        object.__setattr__(self, "has_padding", padded)
        object.__setattr__(self, "_hash", hash(self.dims))
        by_axis: dict[int, list[LayoutDim]] = {}
        for d in self.dims:
            by_axis.setdefault(d.axis, []).append(d)
        if sorted(by_axis) != list(range(len(by_axis))):
            raise ValueError(f"layout '{self}' must mention each logical axis 0..n-1")
        for axis, parts in by_axis.items():
            kinds = sorted(p.part for p in parts)
            if kinds != ["whole"] and not (
                kinds == ["inner", "outer"] and same_dim(parts[0].block, parts[1].block)
            ):
                raise ValueError(
                    f"layout '{self}': axis {axis} must be whole, or once outer and once inner"
                )

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def parse(text: str) -> Layout:
        """The layout that a text describes.  Raises ValueError for other text."""
        dims = []
        for word in text.split():
            m = _DIM.match(word)
            if not m:
                raise ValueError(f"bad layout dimension {word!r} in {text!r}")
            axis, kind, block, before, after, span = m.groups()
            if kind:
                dims.append(LayoutDim(int(axis), "outer" if kind == "/" else "inner", int(block)))
            else:
                room = (int(n or 0) for n in (before, after, span))
                dims.append(LayoutDim(int(axis), "whole", 1, *room))
        return Layout(tuple(dims))

    @staticmethod
    @lru_cache(maxsize=64)
    def row_major(rank: int) -> Layout:
        return Layout(tuple(LayoutDim(i) for i in range(rank)))

    @staticmethod
    def with_innermost(rank: int, axis: int, block: int | None = None) -> Layout:
        """The row-major layout with one axis moved innermost.  If `block` is given, the axis
        becomes two dimensions: its blocks, then the position inside a block.
        """
        others = (LayoutDim(i) for i in range(rank) if i != axis)
        if block is None:
            return Layout((*others, LayoutDim(axis)))
        return Layout((*others, LayoutDim(axis, "outer", block), LayoutDim(axis, "inner", block)))

    @staticmethod
    def permuted(order: tuple[int, ...]) -> Layout:
        """A layout of whole axes, outermost first."""
        return Layout(tuple(LayoutDim(i) for i in order))

    @property
    def rank(self) -> int:
        """Number of logical axes."""
        return len({d.axis for d in self.dims})

    @property
    def is_row_major(self) -> bool:
        return all(d == LayoutDim(i) for i, d in enumerate(self.dims))

    @property
    def dense(self) -> Layout:
        """The same order of elements without spans, for separate memory."""
        return self.spanning((0,) * len(self.dims))

    def spanning(self, spans: tuple[int, ...]) -> Layout:
        """The same order of elements with `spans`, one for each physical dimension.  0 stands for
        no span.
        """
        if all(d.span == n for d, n in zip(self.dims, spans, strict=True)):
            return self
        return Layout(tuple(replace(d, span=n) for d, n in zip(self.dims, spans, strict=True)))

    @overload
    def physical_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    @overload
    def physical_shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]: ...
    def physical_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Extents of the physical dimensions for a logical shape."""
        out = []
        for d in self.dims:
            n = shape[d.axis]
            if d.part == "outer":
                n = (n + (d.block - 1)) // d.block
            elif d.part == "inner":
                n = d.block
            elif d.span:
                n = d.span
            elif d.before or d.after:
                n = n + (d.before + d.after)
            out.append(n)
        return tuple(out)

    def map_indices(self, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        """Physical indices of the element at the logical `indices`."""
        out = []
        for d in self.dims:
            i = indices[d.axis]
            if d.part == "outer":
                i = i // d.block
            elif d.part == "inner":
                i = i % d.block
            elif d.before:
                i = i + d.before
            out.append(i)
        return tuple(out)

    def pack(self, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The physical array of a logical array, contiguous, with zeros in the padding.

        out: an array of the physical shape, zero in the padding, to write to.
        """
        shape = self.physical_shape(array.shape)
        if out is None:
            is_full = math.prod(shape) == array.size
            out = np.empty(shape, array.dtype) if is_full else np.zeros(shape, array.dtype)
        order: list[int] = []
        pieces: list[list[_Piece]] = []
        for axis, n in enumerate(array.shape):
            parts = {d.part: k for k, d in enumerate(self.dims) if d.axis == axis}
            order += [parts[p] for p in ("whole", "outer", "inner") if p in parts]
            pieces.append(_pieces(self.dims[order[-1]], n))
        logical = out.transpose(order)  # a split axis is two axes: block, position in the block
        for piece in itertools.product(*pieces):
            source = array[tuple(p.source for p in piece)]
            target = logical[(*(i for p in piece for i in p.target), ...)]
            target[...] = source.reshape(tuple(n for p in piece for n in p.shape))
        return out

    def unpack(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The logical array of `shape` held in a physical one."""
        index = np.arange(int(np.prod(self.physical_shape(shape)))).reshape(
            self.physical_shape(shape)
        )
        grids = (
            np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True) if shape else []
        )
        where = index[self.map_indices(tuple(grids))] if shape else index  # type: ignore[type-var]
        return np.ascontiguousarray(array.reshape(-1)[np.broadcast_to(where, shape)])

    def __str__(self) -> str:
        return " ".join(map(str, self.dims))
