"""Weights of few bits: their form in graphs, and a packed form for products that are memory-bound.

The form in a graph, whatever the source of the model:

    matmul(x, dequantize(q, scale, zero_point))

`q` [K, N] (or [N, K], read transposed) holds numbers of 2, 4 or 8 bits: `i8`, `u8`, or a storage
type such as `uint4`.  `dequantize {axis, block}` has one scale and zero point for each index of an
axis, or for each block of indices.  With blocks it is decomposed into `dequantize_blocks`.  If q
and its scales are constants, the pass `packed_weights` decides whether the product reads them
packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilesmith.ir import extents
from tilesmith.ir.dtypes import dtype, f32, i32, u32
from tilesmith.ir.expr import Expr, all_of, as_expr, cast, compare, const
from tilesmith.ir.intrinsics import call
from tilesmith.ir.symbols import as_dim
from tilesmith.ir.types import Dim, same_dim
from tilesmith.te import tensor as te

from . import rules
from .base import Op


@dataclass(frozen=True)
class DequantizeBlocks(Op):
    """The numbers that quantised numbers represent: (q - zero_point) * scale, in the scale's type.

    q: integers of any type, storage types included.  scale and zero_point (optional; any numbers)
    have q's rank.  Along `axis` their extent is ceil(extent / block), one index for each block.
    Along other axes it is q's extent.  Extents of 1 broadcast.

    axis: the axis that is divided into blocks.
    block: elements of a block along it; the last block may be shorter.
    """

    axis: int
    block: int

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        rules.check_count(self.name, inputs, 2, 3)
        q, *factors = inputs
        axis = rules.normalize_axis(self.name, self.axis, q.rank)
        if self.block < 1:
            rules.reject(self.name, "a block of 1 element or more", self.block)
        if q.dtype.kind not in rules.INTEGERS:
            rules.reject(self.name, "integers", q.dtype)
        rules.check_kind(self.name, factors[0], rules.FLOATS, "a scale")
        for v in factors:
            self._check_shape(v, q, axis)

        def at(v: te.Tensor, index: Sequence[Expr]) -> Expr:
            place = [i // self.block if n == axis else i for n, i in enumerate(index)]
            return v[tuple(const(0) if same_dim(d, 1) else i for d, i in zip(v.shape, place))]

        def value(*index: Expr) -> Expr:
            number = cast(q[index], i32)
            for zero in factors[1:]:
                exact = f32 if zero.dtype.is_float else i32
                number = cast(number, exact) - cast(at(zero, index), exact)
            return cast(cast(number, f32) * cast(at(factors[0], index), f32), factors[0].dtype)

        return te.compute(q.shape, value, self.name)

    def _check_shape(self, v: te.Tensor, q: te.Tensor, axis: int) -> None:
        wanted = list(q.shape)
        wanted[axis] = blocks_of(q.shape[axis], self.block)
        if v.rank != q.rank or not all(
            same_dim(d, w) or same_dim(d, 1) for d, w in zip(v.shape, wanted, strict=True)
        ):
            rules.reject(
                self.name,
                f"scales and zero points that broadcast to {rules.shape_text(wanted)}",
                rules.shape_text(v.shape),
            )

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        q, scale, *zero = (self._spread(x, inputs[0]) for x in inputs)
        number = q.astype(np.int32)
        for z in zero:
            exact = np.float32 if dtype(z.dtype).is_float else np.int32
            number = number.astype(exact) - z.astype(exact)
        return (number.astype(np.float32) * scale.astype(np.float32)).astype(scale.dtype)

    def _spread(self, x: np.ndarray, q: np.ndarray) -> np.ndarray:
        """Scales or zero points repeated for each element of a block along `axis`."""
        if x is q or x.shape[self.axis] == 1:
            return x
        return x.take(np.arange(q.shape[self.axis]) // self.block, self.axis)


def blocks_of(extent: Dim, block: int) -> Dim:
    """The number of blocks; the last block may be shorter."""
    return as_dim(as_expr(extents.total((extent, block - 1))) // block)


WORD = 32
"""Bits of a word of packed numbers."""


@dataclass(frozen=True)
class PackedMatMul(Op):
    """x [..., K] times a matrix [K, N] of numbers of few bits, which are packed in words.

    codes: u32 [chunks, words, N].  Chunk c holds `chunk` rows of the matrix from row c * chunk on.
    `32 / bits` rows share a word, the first one in the lowest bits.  Numbers past the chunk or past
    row K are arbitrary.
    scales: floats [blocks, N].  zero_points (optional): numbers [blocks, N].  The matrix holds
    (code - zero_point) * scale.

    Each chunk is multiplied as integers and scaled once:

        y[n] = sum over chunks of scale * (sum of x * code - zero_point * sum of x)

    in f32, which is then rounded to the type of x.

    bits: 2, 4 or 8.
    block: rows that share a scale.
    chunk: rows that are added before the sum is scaled; with several blocks a divisor of `block`.
    zero_point: zero point of all blocks, unless there is an operand with one per block.
    """

    bits: int
    block: int
    chunk: int
    zero_point: int = 0

    @cached_property
    def per_word(self) -> int:
        return WORD // self.bits

    @cached_property
    def words(self) -> int:
        """Number of words in which a chunk stores a column."""
        return -(-self.chunk // self.per_word)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        x, codes, scales, zeros = self._checked(inputs)
        *rows, inner = x.shape
        chunks, words, columns = codes.shape
        per, half = self.per_word, self.per_word // 2
        is_whole = isinstance(inner, int) and inner % self.chunk == 0

        def row(index: Sequence[Expr], c: Expr, k: Expr) -> Expr:
            """Element k of chunk c of a row of x; zero past the end."""
            tests = [] if is_whole else [compare("lt", c * self.chunk + k, as_expr(inner))]
            tests += [compare("lt", k, const(self.chunk))] if self.chunk % per else []
            value = cast(x[(*index, c * self.chunk + k)], f32)
            return te.if_then_else(all_of(*tests), value, const(0.0, f32)) if tests else value

        def factor(*index: Expr) -> Expr:
            *lead, c, w, j = index
            # `code` does not shift the bits of a code down, so its value is too large by a power of
            # two.  Here x is divided by that power, which is exact.
            exponent = const(127, i32) - cast(j % half, i32) * self.bits
            return row(lead, c, w * per + j) * call("bitcast", exponent << 23, dtype=f32)

        def code(c: Expr, w: Expr, j: Expr, n: Expr) -> Expr:
            upper = codes[c, w, n] >> cast(j // half * (WORD // 2), u32)
            mask = const((1 << self.bits) - 1, u32) << cast(j % half * self.bits, u32)
            return cast(cast(upper & mask, i32), f32)

        names = [f"m{i}" for i in range(len(rows))]
        scaled = te.compute(
            (*rows, chunks, words, per), factor, "scaled_x", [*names, "c", "w", "j"]
        )
        wide = te.compute((chunks, words, per, columns), code, "code", ["c", "w", "j", "n"])
        w, j = te.reduce_axis(words, "w"), te.reduce_axis(per, "j")

        def partial(*index: Expr) -> Expr:
            *lead, n, c = index
            terms = scaled[(*lead, c, w.var, j.var)] * wide[c, w.var, j.var, n]
            return te.sum(terms, axis=[w, j])

        products = te.compute((*rows, columns, chunks), partial, "chunk", [*names, "n", "c"])
        k = te.reduce_axis(self.chunk, "k")
        sums = te.compute(
            (*rows, chunks), lambda *i: te.sum(row(i[:-1], i[-1], k.var), axis=k), "row_sum",
            [*names, "c"],
        )  # fmt: skip
        c = te.reduce_axis(chunks, "c")

        def total(*index: Expr) -> Expr:
            *lead, n = index
            is_one = same_dim(scales.shape[0], 1)
            block = const(0) if is_one else c.var * self.chunk // self.block
            chunk = products[(*index, c.var)]
            zero = const(float(self.zero_point), f32)
            if zeros is not None:
                zero = cast(zeros[block, n], f32)
            if zeros is not None or self.zero_point:
                chunk = chunk - zero * sums[(*lead, c.var)]
            return te.sum(cast(scales[block, n], f32) * chunk, axis=c)

        y = te.compute((*rows, columns), total, self.name, [*names, "n"])
        return rules.narrow(y, x.dtype)

    def _checked(
        self, inputs: Sequence[te.Tensor]
    ) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor | None]:
        rules.check_count(self.name, inputs, 3, 4)
        x, codes, scales, *zeros = inputs
        rules.check_kind(self.name, x, rules.FLOATS)
        if self.bits not in (2, 4, 8):
            rules.reject(self.name, "numbers of 2, 4 or 8 bits", self.bits)
        if x.rank < 2 or x.dtype.bits > 32:
            rules.reject(self.name, "rows of f32, f16 or bf16", _text(x))
        if codes.dtype is not u32 or codes.rank != 3:
            rules.reject(self.name, "codes u32 [chunks, words, N]", _text(codes))
        blocks, chunks = (blocks_of(x.shape[-1], n) for n in (self.block, self.chunk))
        columns = codes.shape[2]
        if not (same_dim(codes.shape[0], chunks) and same_dim(codes.shape[1], self.words)):
            rules.reject(
                self.name, f"codes {rules.shape_text((chunks, self.words, columns))}",
                rules.shape_text(codes.shape),
            )  # fmt: skip
        if self.block % self.chunk and not same_dim(blocks, 1):
            rules.reject(self.name, f"a chunk that divides the block of {self.block}", self.chunk)
        for v in (scales, *zeros):
            if not (v.rank == 2 and same_dim(v.shape[0], blocks) and same_dim(v.shape[1], columns)):
                rules.reject(
                    self.name, f"scales and zero points {rules.shape_text((blocks, columns))}",
                    rules.shape_text(v.shape),
                )  # fmt: skip
        return x, codes, scales, zeros[0] if zeros else None

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """The meaning in float64, so that a difference from it is the whole error of a kernel."""
        x, codes, scales, *zeros = inputs
        inner = x.shape[-1]
        numbers = unpacked_words(codes, self.bits)[:, : self.chunk].astype(np.float64)
        numbers = numbers.reshape(-1, codes.shape[2])[:inner]
        block = np.minimum(np.arange(inner) // self.block, scales.shape[0] - 1)
        zero = zeros[0][block].astype(np.float64) if zeros else np.float64(self.zero_point)
        w = (numbers - zero) * scales[block].astype(np.float64)
        return (x.astype(np.float64) @ w).astype(x.dtype)


def _text(x: te.Tensor) -> str:
    return f"{x.dtype}{rules.shape_text(x.shape)}"


def packed_words(q: np.ndarray, bits: int, chunk: int) -> np.ndarray:
    """Numbers q [K, N], from 0 to 2^bits - 1, in `PackedMatMul`'s words: u32 [chunks, words, N]."""
    inner, columns = q.shape
    per = WORD // bits
    chunks, words = -(-inner // chunk), -(-chunk // per)
    rows = np.zeros((chunks * chunk, columns), np.uint8)
    rows[:inner] = q
    whole = np.zeros((chunks, words * per, columns), np.uint8)
    whole[:, :chunk] = rows.reshape(chunks, chunk, columns)
    parts = whole.reshape(chunks, words, per, columns)
    out = np.zeros((chunks, words, columns), np.uint32)
    for j in range(per):
        out |= parts[:, :, j].astype(np.uint32) << np.uint32(bits * j)
    return out


def unpacked_words(codes: np.ndarray, bits: int) -> np.ndarray:
    """The numbers in words [chunks, words, N]: u8 [chunks, words * 32 / bits, N]."""
    shifts = np.arange(0, WORD, bits, dtype=np.uint32)[:, None]
    parts = (codes[:, :, None, :] >> shifts) & np.uint32((1 << bits) - 1)
    return parts.astype(np.uint8).reshape(codes.shape[0], -1, codes.shape[2])
