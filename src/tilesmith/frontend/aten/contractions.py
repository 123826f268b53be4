"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.promotion import Number
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import linalg, rules
from tilesmith.ops import matmul as mm
from tilesmith.ops.sizes import Iota


@aten_op("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default",
         "aten.dot.default")  # fmt: skip
def matmul(n: AtenNode, self: Value, other: Value) -> Value:
    return n.add(mm.MatMul(), self, other)


@aten_op("aten.addmm.default", "aten.addmv.default")
def addmm(
    n: AtenNode, self: Value, mat1: Value, mat2: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    return _scaled_sum(n, self, n.add(mm.MatMul(), mat1, mat2), beta, alpha)


@aten_op("aten.baddbmm.default")
def baddbmm(
    n: AtenNode, self: Value, batch1: Value, batch2: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    return _scaled_sum(n, self, n.add(mm.MatMul(), batch1, batch2), beta, alpha)


@aten_op("aten.addbmm.default")
def addbmm(
    n: AtenNode, self: Value, batch1: Value, batch2: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    products = n.add(mm.MatMul(), batch1, batch2)
    return _scaled_sum(n, self, products.sum((0,)), beta, alpha)


def _scaled_sum(n: AtenNode, x: Value, product: Value, beta: Number, alpha: Number) -> Value:
    """beta * x + alpha * product.  If beta is 0, `x` is not used, so its NaNs have no effect."""
    by, factor = n.number(beta, "beta"), n.number(alpha, "alpha")
    if factor != 1:
        product = product * factor
    if by == 0:
        return product
    if by != 1:
        x = x * by
    return product + x


@aten_op("aten.linear.default")
def linear(n: AtenNode, input: Value, weight: Value, bias: Value | None = None) -> Value:
    y = n.add(mm.MatMul(transpose_b=weight.type.rank == 2), input, weight)
    return y if bias is None else y + bias


@aten_op("aten._trilinear.default")
def trilinear(
    n: AtenNode,
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Value:
    """i1 * i2 * i3 summed over `sumdim`.  `expand1` to `expand3` are new axes of the factors."""
    factors = []
    for x, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        dims = list(x.type.shape)
        for axis in sorted(axes):
            dims.insert(axis, 1)
        factors.append(n.reshape(x, dims))
    product = factors[0] * factors[1] * factors[2]
    return product.sum(tuple(sumdim))


@aten_op("aten.linalg_solve.default")
def solve(n: AtenNode, A: Value, B: Value, left: bool = True) -> Value:
    """The solution x of A @ x = B; without `left`, of x @ A = B.  Batches broadcast."""
    is_vector = B.type.rank == 1 or (
        A.type.rank == B.type.rank + 1
        and rules.equal_shapes("linalg_solve", B.type.shape, A.type.shape[:-1])
    )
    if is_vector:
        B = n.reshape(B, (*B.type.shape, 1))
    if not left:
        A, B = _transposed(n, A), _transposed(n, B)
    batch = rules.broadcast_shapes("linalg_solve", A.type.shape[:-2], B.type.shape[:-2])
    a, b = (n.expand(v, (*batch, *v.type.shape[-2:])) for v in (A, B))
    x = n.add(linalg.Solve(), a, b)
    if is_vector:
        return n.reshape(x, x.type.shape[:-1])
    return x if left else _transposed(n, x)


@aten_op("aten.linalg_inv.default", "aten.inverse.default")
def inverse(n: AtenNode, A: Value) -> Value:
    """The inverses of matrices.  A run refuses a singular matrix."""
    rows = n.add(Iota(A.type.shape[-1]))
    is_one = n.reshape(rows, (-1, 1)).equals(rows)
    return n.add(linalg.Solve(), A, n.expand(n.cast(is_one, A.dtype), A.type.shape))


@aten_op("aten._linalg_det.default")
def determinant_alone(n: AtenNode, A: Value) -> tuple[Value]:
    """The determinant alone.  PyTorch's call also returns factors, which only gradients need."""
    return (determinant(n, A),)


@aten_op("aten.linalg_det.default", "aten.det.default")
def determinant(n: AtenNode, A: Value) -> Value:
    return n.add(linalg.Det(), A)


def _transposed(n: AtenNode, x: Value) -> Value:
    rank = x.type.rank
    return n.permute(x, (*range(rank - 2), rank - 1, rank - 2))
