"""Physical layouts: how the logical axes of a tensor become the dimensions of a dense buffer in memory.

A `Layout` is a list of physical dimensions, outermost first.  Each takes a logical axis whole (`2`), its blocks
(`0/32`) or the position inside its block (`0%32`); an axis that is split appears once as each.  A `halo` keeps extra
zeroed room before and after a whole axis (`2+1:1`), so that a consumer may read past the border.
Text: dims separated by spaces, `0 2 3 1` is NHWC seen from logical NCHW, `0/16 2 3 1 0%16` a packed weight.
When a block size does not divide the extent, the last block is padded (its contents are zero in packed constants).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from .expr import Expr

Index = TypeVar("Index", int, Expr)
Part = Literal["whole", "outer", "inner"]


@dataclass(frozen=True, slots=True)
class LayoutDim:
    """One physical dimension: `part` of logical `axis`; `block` for outer/inner; halo room for whole."""

    axis: int
    part: Part = "whole"
    block: int = 1
    before: int = 0
    after: int = 0

    def __str__(self) -> str:
        if self.part == "outer":
            return f"{self.axis}/{self.block}"
        if self.part == "inner":
            return f"{self.axis}%{self.block}"
        halo = f"+{self.before}:{self.after}" if self.before or self.after else ""
        return f"{self.axis}{halo}"


_DIM = re.compile(r"(\d+)(?:([/%])(\d+)|\+(\d+):(\d+))?$")


@dataclass(frozen=True, slots=True)
class Layout:
    """A bijection from logical indices to physical indices (up to padding)."""

    dims: tuple[LayoutDim, ...]

    def __post_init__(self) -> None:
        by_axis: dict[int, list[LayoutDim]] = {}
        for d in self.dims:
            by_axis.setdefault(d.axis, []).append(d)
        if sorted(by_axis) != list(range(len(by_axis))):
            raise ValueError(f"layout '{self}' must mention each logical axis 0..n-1")
        for axis, parts in by_axis.items():
            kinds = sorted(p.part for p in parts)
            if kinds != ["whole"] and not (kinds == ["inner", "outer"] and parts[0].block == parts[1].block):
                raise ValueError(f"layout '{self}': axis {axis} must be whole, or once outer and once inner")

    @staticmethod
    def parse(text: str) -> Layout:
        """The layout for its text form.  Raises ValueError."""
        dims = []
        for word in text.split():
            m = _DIM.match(word)
            if not m:
                raise ValueError(f"bad layout dimension {word!r} in {text!r}")
            axis, kind, block, before, after = m.groups()
            if kind:
                dims.append(LayoutDim(int(axis), "outer" if kind == "/" else "inner", int(block)))
            else:
                dims.append(LayoutDim(int(axis), before=int(before or 0), after=int(after or 0)))
        return Layout(tuple(dims))

    @staticmethod
    def row_major(rank: int) -> Layout:
        return Layout(tuple(LayoutDim(i) for i in range(rank)))

    @staticmethod
    def permuted(order: tuple[int, ...]) -> Layout:
        """Whole axes, outermost first."""
        return Layout(tuple(LayoutDim(i) for i in order))

    @property
    def rank(self) -> int:
        """Number of logical axes."""
        return len({d.axis for d in self.dims})

    @property
    def is_row_major(self) -> bool:
        return all(d == LayoutDim(i) for i, d in enumerate(self.dims))

    @property
    def has_padding(self) -> bool:
        """True when some physical elements may belong to no logical one."""
        return any(d.part != "whole" or d.before or d.after for d in self.dims)

    def physical_shape(self, shape: tuple[Index, ...]) -> tuple[Index, ...]:
        """Extents of the physical dimensions for a logical shape."""
        out = []
        for d in self.dims:
            n = shape[d.axis]
            if d.part == "outer":
                n = (n + (d.block - 1)) // d.block
            elif d.part == "inner":
                n = d.block
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

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The physical array (contiguous, padding zero) for a logical one."""
        order: list[int] = []
        position: dict[tuple[int, Part], int] = {}
        widths, shape = [], []
        for axis, n in enumerate(array.shape):
            d = next(d for d in self.dims if d.axis == axis)
            if d.part == "whole":
                widths.append((d.before, d.after))
                position[axis, "whole"] = len(shape)
                shape.append(n + d.before + d.after)
            else:
                blocks = -(-n // d.block)
                widths.append((0, blocks * d.block - n))
                position[axis, "outer"] = len(shape)
                position[axis, "inner"] = len(shape) + 1
                shape += [blocks, d.block]
        for d in self.dims:
            order.append(position[d.axis, d.part])
        padded = np.pad(array, widths) if any(w != (0, 0) for w in widths) else array
        return np.ascontiguousarray(padded.reshape(shape).transpose(order))

    def unpack(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The logical array of `shape` held in a physical one."""
        index = np.arange(int(np.prod(self.physical_shape(shape)))).reshape(self.physical_shape(shape))
        grids = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True) if shape else []
        where = index[self.map_indices(tuple(grids))] if shape else index  # type: ignore[type-var]
        return np.ascontiguousarray(array.reshape(-1)[np.broadcast_to(where, shape)])

    def __str__(self) -> str:
        return " ".join(map(str, self.dims))
