"""Choice of low-precision types on CPUs.  Such types are faster if dot-product instructions exist,
or if a kernel waits for weights from memory.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilesmith.graph.nodes import Node
from tilesmith.graph.passes.factors import PAIRS, Factors
from tilesmith.graph.passes.factors import Choice as FactorChoice
from tilesmith.graph.passes.low_precision import Choice, Form
from tilesmith.ir.dtypes import DType, f32, i8, i16, i32, u8
from tilesmith.ir.symbols import expected_size
from tilesmith.ir.target import Target
from tilesmith.ir.types import Dim, TensorType
from tilesmith.ops.conv import Conv
from tilesmith.ops.matmul import MatMul
from tilesmith.perf.cost import constants_place
from tilesmith.perf.cycles import dram_rate

from .contraction import contraction_of, row_extent
from .dot_instructions import dot_for, joinable, joined_axis, products_per_time
from .tile_dots import tile_block

SOFTWARE_HALF = 12
"""Instructions that convert a vector of f16 on a CPU without instructions for it."""

GAIN = 0.9
"""Weights are stored in a low type if that cuts a product's time to this fraction or less."""


def low_precision_choice(target: Target) -> Choice:
    """The choice for `graph.passes.low_precision`."""

    def choose(node: Node, constant: int, low: DType, constants: int) -> Form | None:
        assert isinstance(node.op, (MatMul, Conv))
        op = replace(node.op, to=f32)
        shapes = (v.shape for v in node.inputs)
        if isinstance(op, Conv):  # channels of zeros may be appended
            shapes = ((n[0], joinable(n[1], low), *n[2:]) for n in shapes)
        tensors = op.tensors(*(TensorType(low, n) for n in shapes))
        c = contraction_of(tensors, frozenset((constant,)))
        if c is None or c.vector is None:
            return None
        if dot_for(c, target) is not None or tile_block(c, target, row_extent(c)) is not None:
            return "operands"
        weights = node.inputs[constant].type
        products = expected_size((*c.op.shape, *(k.extent for k in c.op.reduce_axis)))
        uses = products / max(expected_size(weights.shape), 1)
        return "weights" if waits_less(uses, low, constants, target) else None

    return choose


FACTORS = (Factors(i8, i8), Factors(u8, i8), Factors(i16, i8, joined=2), PAIRS)
"""Candidate factor types for products of bytes.  Of equally fast candidates, the first is taken."""


def factor_choice(target: Target) -> FactorChoice:
    """The choice for `graph.passes.factors`: the factor types whose products the target's
    instructions add fastest.
    """

    def choose(op: MatMul | Conv, x: tuple[Dim, ...], w: tuple[Dim, ...]) -> Factors:
        best, most = PAIRS, 0.0
        if isinstance(op, Conv) and op.groups > 1:
            return best  # no instruction adds products of several groups
        for factors in FACTORS:
            rates = _products(op, x, w, factors, target)
            if rates is not None and rates[0] > most:
                best, most = replace(factors, joined=rates[1]), rates[0]
        return best

    return choose


def _products(
    op: MatMul | Conv, x: tuple[Dim, ...], w: tuple[Dim, ...], factors: Factors, target: Target
) -> tuple[float, int] | None:
    """Products that a lane adds in the time of an f32 FMA, and products that a lane adds in one
    instruction.  None if there is no dot-product instruction for the factors.
    """
    channel = None
    if isinstance(op, Conv):  # channels of zeros may be appended
        channel = x[1]
        if not isinstance(channel, int) or channel == 1:
            return None
        x, w = ((n[0], joinable(channel, i8), *n[2:]) for n in (x, w))
    op = replace(op, to=i32)
    tensors = op.tensors(TensorType(factors.x, x), TensorType(factors.w, w))
    c = contraction_of(tensors, frozenset((1,)))
    dot = None if c is None or c.vector is None else dot_for(c, target)
    if c is None or dot is None:
        return None
    joined = joined_axis(c)
    if joined is None or not isinstance(joined.extent, int) or joined.extent % dot.extents[-1]:
        return None
    return products_per_time(dot, target), dot.extents[-1]


def waits_less(uses: float, low: DType, constants: int, target: Target) -> bool:
    """Whether a product is faster with weights of type `low`.  Each weight takes part in `uses` f32
    multiply-adds.

    constants: bytes of all constants of the program, which compete for the caches.
    """
    model = target.model
    place = constants_place(constants, target)
    rates = {"l2": model.l2_bytes_per_cycle, "l3": model.l3_bytes_per_cycle}
    rate = rates.get(place, dram_rate(target)) if place != "l1" else math.inf
    lanes = target.vector_lanes(f32.bytes)
    products = uses / (lanes * model.fma_ports)
    converting = conversion_instructions(low, target) / (lanes * model.vector_ports)
    now = max(products, f32.bytes / rate)
    return max(products + converting, low.bytes / rate) <= GAIN * now


def conversion_instructions(low: DType, target: Target) -> int:
    """Instructions that convert a vector of type `low` to f32."""
    if low.name == "bf16":
        return 2  # one instruction widens, another shifts left
    return 1 if target.has_half else SOFTWARE_HALF
