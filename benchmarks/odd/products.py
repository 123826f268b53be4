"""Products of matrices and of what resembles them, in shapes that a BLAS is not made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from tilesmith import te
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Expr
from tilesmith.support.arrays import difference

from .operator import Model, Operator, Way, normal


@dataclass(frozen=True)
class Capsules(Operator):
    """A small matrix for each pair of capsules: votes[b, i, j, :] = u[b, i, :] @ w[i, :, j, :]."""

    name: ClassVar[str] = "capsule votes"
    about: ClassVar[str] = "CapsNet: 1152 capsules of 8 to 10 of 16"
    batch: int = 16
    lower: int = 1152
    upper: int = 10
    length: int = 8
    longer: int = 16

    def define(self) -> list[te.Tensor]:
        u = te.placeholder((self.batch, self.lower, self.length), name="u")
        w = te.placeholder((self.lower, self.length, self.upper, self.longer), name="w")
        k = te.reduce_axis(self.length, "k")
        votes = te.compute(
            (self.batch, self.lower, self.upper, self.longer),
            lambda b, i, j, o: te.sum(u[b, i, k] * w[i, k, j, o], axis=k),
            "votes",
        )
        return [u, w, votes]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        return [
            normal(rng, self.batch, self.lower, self.length),
            normal(rng, self.lower, self.length, self.upper, self.longer),
        ]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        u, w = (a.astype(np.float64) for a in arrays)
        return [np.einsum("bik,ikjo->bijo", u, w)]

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch

        u, w = map(torch.from_numpy, arrays)
        lower, upper, longer = self.lower, self.upper, self.longer
        flat = w.reshape(lower, self.length, upper * longer)

        def batched(u: Any) -> Any:
            return torch.bmm(u.transpose(0, 1), flat).transpose(0, 1).unflatten(2, (upper, longer))

        def rows(u: Any) -> Any:
            return torch.matmul(u[:, :, None], flat).view(-1, lower, upper, longer)

        def products(u: Any) -> Any:
            return (u[..., None, None] * w).sum(2)

        return [
            Way("bmm", batched, [u]),
            Way("matmul", rows, [u]),
            Way("products and sum", products, [u]),
        ]

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        u, w = arrays
        flat = w.reshape(self.lower, self.length, -1)
        batched = Model()
        # the transposed result is a view for PyTorch; so may it be here
        y = batched.add("MatMul", batched.input(u.transpose(1, 0, 2)), batched.weight(flat))
        shape = batched.weight(np.array([self.lower, -1, self.upper, self.longer]))
        return [batched.way(batched.add("Reshape", y, shape), name="batched", order=(1, 0, 2, 3))]

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.lower * self.upper * self.length * self.longer


@dataclass(frozen=True)
class Correlation(Operator):
    """How alike each position of one image is to the positions near it in another."""

    name: ClassVar[str] = "correlation layer"
    about: ClassVar[str] = "FlowNetC: displacements up to 20, each second one"
    inputs: ClassVar[int] = 2
    channels: int = 256
    height: int = 48
    width: int = 64
    reach: int = 10
    step: int = 2

    def define(self) -> list[te.Tensor]:
        c, h, w, s = self.channels, self.height, self.width, self.step
        count, far = 2 * self.reach + 1, self.reach * self.step
        a = te.placeholder((c, h, w), name="a")
        b = te.placeholder((c, h, w), name="b")
        # rows of all channels: what a sum over channels reads lies together
        left = te.compute((h, c, w), lambda i, k, j: a[k, i, j] * (1.0 / c), "left")

        def inside(i: Expr, k: Expr, j: Expr) -> Expr:
            within = te.all(i >= far, i < h + far, j >= far, j < w + far)
            return te.if_then_else(within, b[k, i - far, j - far], 0.0)

        right = te.compute((h + 2 * far, c, w + 2 * far), inside, "right")
        k = te.reduce_axis(c, "k")
        y = te.compute(
            (count, count, h, w),
            lambda p, q, i, j: te.sum(left[i, k, j] * right[i + p * s, k, j + q * s], axis=k),
            "y",
        )
        return [a, b, y]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        return [normal(rng, self.channels, self.height, self.width) for _ in range(2)]

    def _shifts(self) -> list[tuple[int, int]]:
        near = range(0, (2 * self.reach + 1) * self.step, self.step)
        return [(i, j) for i in near for j in near]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        a, b = (x.astype(np.float64) for x in arrays)
        far, h, w = self.reach * self.step, self.height, self.width
        wide = np.pad(b, ((0, 0), (far, far), (far, far)))
        found = [
            np.einsum("kij,kij->ij", a, wide[:, i : i + h, j : j + w]) for i, j in self._shifts()
        ]
        count = 2 * self.reach + 1
        return [np.stack(found).reshape(count, count, h, w) / self.channels]

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch
        import torch.nn.functional as f

        a, b = map(torch.from_numpy, arrays)
        far, h, w, s = self.reach * self.step, self.height, self.width, self.step
        count, shifts = 2 * self.reach + 1, self._shifts()

        def one_by_one(a: Any, b: Any) -> Any:
            wide = f.pad(b, (far,) * 4)
            found = [(a * wide[:, i : i + h, j : j + w]).mean(0) for i, j in shifts]
            return torch.stack(found).view(count, count, h, w)

        def fused(a: Any, b: Any) -> Any:
            """All products at once, which only a compiler need not keep."""
            wide = f.pad(b, (far,) * 4).unfold(1, h, s).unfold(2, w, s)
            return (a[:, None, None] * wide).mean(0)

        def rows(a: Any, b: Any) -> Any:
            """All products of two rows by a batched product, of which a band is kept."""
            wide = f.pad(b, (far,) * 4).permute(1, 0, 2)  # rows, channels, columns
            left = (a * (1.0 / self.channels)).permute(1, 2, 0)  # rows, columns, channels
            found = []
            for i in range(0, count * s, s):
                full = torch.bmm(left, wide[i : i + h])  # rows, columns, wide columns
                band = full.as_strided(
                    (count, h, w), (s, w * (w + 2 * far), w + 2 * far + 1)
                )  # [q, i, j] = full[i, j, j + q s]
                found.append(band)
            return torch.stack(found)

        return [
            Way("rows", rows, [a, b]),
            Way("one by one", one_by_one, [a, b], engines=("torch",)),
            Way("fused", fused, [a, b], engines=("torch.compile",)),
        ]

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        """As `rows` in PyTorch."""
        m = Model()
        a, b = map(m.input, arrays)
        far, h, w, s = self.reach * self.step, self.height, self.width, self.step
        count = 2 * self.reach + 1
        wide = m.add("Pad", b, m.weight(np.array([0, far, far] * 2)))
        wide = m.add("Transpose", wide, perm=[1, 0, 2])
        left = m.add("Transpose", m.add("Mul", a, m.weight(np.float32(1 / self.channels))),
                     perm=[1, 2, 0])  # fmt: skip
        band = np.arange(w)[:, None] + s * np.arange(count)
        where, zero = m.weight(np.tile(band, (h, 1, 1))), m.weight(np.array([0]))
        found = []
        for i in range(0, count * s, s):
            ends = (m.weight(np.array([v])) for v in (i, i + h))
            full = m.add("MatMul", left, m.add("Slice", wide, *ends, zero))
            found.append(m.add("Unsqueeze", m.add("GatherElements", full, where, axis=2), zero))
        y = m.add("Concat", *found, axis=0)  # p i j q
        return [m.way(m.add("Transpose", y, perm=[0, 3, 1, 2]))]

    @property
    def flops(self) -> int:
        return 2 * (2 * self.reach + 1) ** 2 * self.channels * self.height * self.width


@dataclass(frozen=True)
class Nearest(Operator):
    """The number of the codeword that is nearest to each vector."""

    name: ClassVar[str] = "pairwise distance + argmin"
    about: ClassVar[str] = "VQ-VAE: 4096 vectors of 64, 512 codewords"
    vectors: int = 4096
    words: int = 512
    length: int = 64

    def define(self) -> list[te.Tensor]:
        """|x|^2 is the same for all words, which leaves |code|^2 - 2 x code."""
        x = te.placeholder((self.vectors, self.length), name="x")
        code = te.placeholder((self.length, self.words), name="code")
        norms = te.placeholder((self.words,), name="norms")
        k, j = te.reduce_axis(self.length, "k"), te.reduce_axis(self.words, "j")
        shape = (self.vectors, self.words)
        product = te.compute(shape, lambda i, j: te.sum(x[i, k] * code[k, j], axis=k), "product")
        distance = te.compute(shape, lambda i, j: norms[j] - 2.0 * product[i, j], "distance")
        nearer = te.comm_reducer(
            lambda a, b: (te.select(a[0] <= b[0], a[0], b[0]), te.select(a[0] <= b[0], a[1], b[1])),
            lambda d, i: (te.const(f32.max, d), te.const(0, i)),
            "argmin",
        )
        _, found = te.compute(
            (self.vectors,),
            lambda i: nearer((distance[i, j], te.cast(j, i64)), axis=j),
            "nearest",
        )
        return [x, code, norms, found]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        code = normal(rng, self.length, self.words)
        return [normal(rng, self.vectors, self.length), code, (code * code).sum(0)]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        x, code, _ = (a.astype(np.float64) for a in arrays)
        return [((x**2).sum(1)[:, None] - 2 * x @ code + (code**2).sum(0)).argmin(1)]

    def difference(
        self,
        found: Sequence[np.ndarray],
        expected: Sequence[np.ndarray],
        arrays: Sequence[np.ndarray],
    ) -> float:
        """Of two words that are all but equally near either may be found: distances count."""
        x, code = (a.astype(np.float64) for a in arrays[:2])
        near, nearest = (((x - code[:, i[0]].T) ** 2).sum(1) for i in (found, expected))
        return difference(near, nearest)

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch

        x, code, norms = map(torch.from_numpy, arrays)
        rows = code.t().contiguous()
        return [
            Way("product", lambda x: torch.addmm(norms, x, code, alpha=-2).argmin(1), [x]),
            Way("cdist", lambda x: torch.cdist(x, rows).argmin(1), [x]),
        ]

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        x, code, norms = arrays
        m = Model()
        y = m.add("Gemm", m.input(x), m.weight(-2 * code), m.weight(norms))
        return [m.way(m.add("ArgMin", y, axis=1, keepdims=0), kind=TensorProto.INT64)]

    @property
    def flops(self) -> int:
        return 2 * self.vectors * self.words * self.length


@dataclass(frozen=True)
class Triangular(Operator):
    """A product of which only the lower triangle of the left matrix counts."""

    name: ClassVar[str] = "triangular product"
    about: ClassVar[str] = "causal mixing of 1024 tokens of 512 channels"
    inputs: ClassVar[int] = 2
    rows: int = 1024
    columns: int = 512

    def define(self) -> list[te.Tensor]:
        a = te.placeholder((self.rows, self.rows), name="a")
        b = te.placeholder((self.rows, self.columns), name="b")
        k = te.reduce_axis(self.rows, "k")
        y = te.compute(
            (self.rows, self.columns),
            lambda i, j: te.sum(
                te.if_then_else(k.var <= i, a[i, k] * b[k, j], 0.0),
                axis=k,
            ),
            "y",
        )
        return [a, b, y]

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        return [normal(rng, self.rows, self.rows), normal(rng, self.rows, self.columns)]

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        a, b = (x.astype(np.float64) for x in arrays)
        return [np.tril(a) @ b]

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        import torch

        a, b = map(torch.from_numpy, arrays)
        blocks = 4
        size = -(-self.rows // blocks)

        def in_blocks(a: Any, b: Any) -> Any:
            found = []
            for start in range(0, len(a), size):
                end = min(start + size, len(a))
                corner = torch.tril(a[start:end, start:end]) @ b[start:end]
                found.append(corner if not start else
                             torch.addmm(corner, a[start:end, :start], b[:start]))  # fmt: skip
            return torch.cat(found)

        return [
            Way("whole", lambda a, b: torch.tril(a) @ b, [a, b]),
            Way("blocks", in_blocks, [a, b]),
        ]

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        m = Model()
        a, b = map(m.input, arrays)
        return [m.way(m.add("MatMul", m.add("Trilu", a, upper=0), b))]

    @property
    def flops(self) -> int:
        return self.rows * (self.rows + 1) * self.columns
