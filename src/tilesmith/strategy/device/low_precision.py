"""Low types on devices: the operands of products that instructions on tiles compute."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.graph.nodes import Node
from tilesmith.graph.passes.factors import PAIRS, Factors
from tilesmith.graph.passes.factors import Choice as FactorChoice
from tilesmith.graph.passes.low_precision import Choice, Form
from tilesmith.ir.dtypes import DType, f32, i8, i32, u8
from tilesmith.ir.target import Target
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.matmul import MatMul
from tilesmith.te.tensor import Compute

from .implicit import implicit_product
from .tensor_tiles import tensor_tile

FACTORS = (Factors(u8, i8), Factors(i8, i8))
"""Candidate factor types for products of bytes; the first with an instruction is taken."""


def low_precision_choice(target: Target) -> Choice:
    """The choice for `graph.passes.low_precision`."""

    def choose(node: Node, constant: int, low: DType, constants: int) -> Form | None:
        assert isinstance(node.op, (MatMul, Conv))
        types = tuple(TensorType(low, v.shape) for v in node.inputs)
        return "operands" if _in_tiles(replace(node.op, to=f32), types, target) else None

    return choose


def factor_choice(target: Target) -> FactorChoice:
    """The choice for `graph.passes.factors`."""

    def choose(op: MatMul | Conv, x: tuple[Dim, ...], w: tuple[Dim, ...]) -> Factors:
        for factors in FACTORS:
            types = TensorType(factors.x, x), TensorType(factors.w, w)
            if _in_tiles(replace(op, to=i32), types, target):
                return factors
        return PAIRS

    return choose


def _in_tiles(op: MatMul | Conv, types: tuple[TensorType, ...], target: Target) -> bool:
    (out,) = op.tensors(*types).outputs
    if not isinstance(out.op, Compute):
        return False
    implicit = implicit_product(out.op)
    return tensor_tile(out.op if implicit is None else implicit.product, target) is not None
