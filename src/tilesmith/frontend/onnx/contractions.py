"""ONNX's matrix products (MatMul, Gemm, Einsum, and the integer ones) and determinants."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op, same_operator
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import f64, i32
from tilesmith.ir.types import same_dim
from tilesmith.ops import einsum, linalg
from tilesmith.ops import matmul as mm


@onnx_op("MatMul", since=1)
def matmul(n: OnnxNode) -> Result:
    return n.add(mm.MatMul(), n.input(0), n.input(1))


@onnx_op("Gemm", since=1)
def gemm(n: OnnxNode) -> Result:
    if n.version < 7:
        # C broadcasts as in later versions, whatever the attribute says.  In models that don't set
        # the attribute, C has the shape of the result, so that broadcasting changes nothing.
        n.ignore("broadcast")
    alpha, beta = n.attr_float("alpha", 1.0), n.attr_float("beta", 1.0)
    turned = n.attr_flag("transA"), n.attr_flag("transB")
    if n.version < 11:
        n.input(2)  # C became optional in opset 11
    a, b, c = n.input(0), n.input(1), n.optional(2)
    if a.dtype.is_int and not (alpha.is_integer() and beta.is_integer()):
        y = _fractions(n, n.add(mm.Gemm(1.0, 1.0, *turned), a, b), alpha, c, beta)
    else:
        y = n.add(mm.Gemm(alpha, beta, *turned), a, b, *(() if c is None else (c,)))
    if c is not None and y.type.rank != 2:
        n.bad(f"C: expected a shape that broadcasts to the product, found {c.type}")
    return y


def _fractions(n: OnnxNode, y: Value, alpha: float, c: Value | None, beta: float) -> Value:
    """alpha y + beta c for integers, computed in f64 and truncated to an integer at the end."""
    wide = y.cast(f64) * alpha
    if c is not None:
        term = c.cast(f64) * beta
        wide = wide + term
    return wide.cast(y.dtype)


@onnx_op("MatMulInteger", since=10)
def matmul_integer(n: OnnxNode) -> Result:
    a = without_zero_point(n, n.input(0), n.optional(2), -2)
    return n.add(mm.MatMul(), a, without_zero_point(n, n.input(1), n.optional(3)))


def without_zero_point(n: OnnxNode, x: Value, zero: Value | None, axis: int = -1) -> Value:
    """`x - zero` in i32.  `zero` is a single zero point, or has one for each index of `axis`."""
    wide = x.cast(i32)
    if zero is None:
        return wide
    after = (-axis if axis < 0 else x.type.rank - axis) - 1
    if after and zero.type.rank == 1 and not same_dim(zero.type.shape[0], 1):
        zero = n.reshape(zero, (*zero.type.shape, *[1] * after))
    return wide - zero.cast(i32)


same_operator(linalg.Det, "Det", since=11)


@onnx_op("Einsum", since=12)
def einsum_of(n: OnnxNode) -> Result:
    return n.add(einsum.Einsum(n.attr_string("equation")), *n.inputs)
