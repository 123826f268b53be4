"""What schedules name of the accelerator: its buffers as scopes, its instructions as intrinsics.

Each intrinsic is one step of an instruction, on one tile.  A schedule tensorises the loops of a
tile; `writer.write` folds the loops around it into instructions.  The behaviour of an operation of
the ALU is the expression in `alu`, so a tensor expression made by `alu_value` always matches.

A tile's axes of extent 1 are left out: with a batch of 1, a tile of inputs is a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilesmith import te
from tilesmith.ir.dtypes import DType, i32
from tilesmith.ir.expr import (
    Expr,
    ExprLike,
    as_expr,
    cast,
    const,
    maximum,
    minimum,
    substitute,
)
from tilesmith.ir.loop_tables import BufferScope, Scope, declare_scope
from tilesmith.ir.simplify import simplify
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic
from tilesmith.support.errors import UnsupportedError

from .alu import LOW, A, AluOp, B, C
from .machine import Machine, Memory


def _scope(memory: Memory) -> Scope:
    name: Any = f"{memory.value}_buffer"  # the literal type of scopes has the shared ones only
    row = BufferScope(name, is_allocated=True, is_sized=True, is_addressed=True)
    return declare_scope(row).name


SCOPES: dict[Memory, Scope] = {m: _scope(m) for m in Memory if m is not Memory.UOP}
"""The scope of each buffer with tiles of numbers."""

MEMORIES: dict[Scope, Memory] = {scope: memory for memory, scope in SCOPES.items()}


@dataclass(frozen=True, slots=True)
class Step:
    """What an intrinsic is of: a copy, the matrix unit, or the ALU.

    op: the operation of the ALU; None for a product or a copy.
    imm: its immediate number; None if `b` is a tile.
    to_out: whether the result goes to the buffer of results.
    is_copy: whether it is a copy between DRAM and a buffer.
    """

    op: AluOp | None = None
    imm: int | None = None
    to_out: bool = False
    is_copy: bool = False


STEPS: dict[str, Step] = {}
"""For each declared intrinsic by name, what it is."""


def _no_code(*_: Any) -> None:
    """No intrinsic of the accelerator is code of a CPU: `writer.write` makes instructions."""
    raise UnsupportedError(
        "instructions of the accelerator have no code on another machine: expected "
        "`accel.kernel.build` to compile the schedule"
    )


def tile(machine: Machine, memory: Memory) -> tuple[int, ...]:
    """Extents of the axes of a tile that have more than one element."""
    return tuple(n for n in machine.tile_shape(memory) if n > 1)


def _declared(step: Step, name: str, result: te.Tensor, **more: Any) -> TensorIntrinsic:
    STEPS[name] = step
    return te.decl_tensor_intrin(name, result, _no_code, **more)


def _label(machine: Machine, memory: Memory) -> str:
    return f"{machine.element(memory).name}_{'x'.join(map(str, tile(machine, memory)))}"


@cache
def copy(machine: Machine, memory: Memory, widen: bool = False) -> TensorIntrinsic:
    """A copy of a tile between DRAM and a buffer, which may fill with zeros (padding).

    widen: of accumulators: elements in DRAM are operands, and their signs are extended.
    """
    element = machine.operand if widen else machine.element(memory)
    x = te.placeholder(tile(machine, memory), element, "x")
    to = machine.element(memory)
    copied = te.compute(x.shape, lambda *at: x[at].astype(to) if widen else x[at], "copied")
    name = f"copy_{'widened_' * widen}{_label(machine, memory)}"
    return _declared(Step(is_copy=True), name, copied, fills=True)


@cache
def gemm(machine: Machine) -> TensorIntrinsic:
    """A step of the matrix unit: the product of a tile of inputs and the transpose of one of
    weights, added to one of accumulators.
    """
    a = te.placeholder(tile(machine, Memory.INP), machine.operand, "a")
    w = te.placeholder(tile(machine, Memory.WGT), machine.operand, "w")
    k = te.reduce_axis(machine.block_in, "k")

    def term(*at: Any) -> Any:
        *row, n = at
        return te.sum(a[(*row, k)].astype("i32") * w[n, k].astype("i32"), axis=k)

    product = te.compute(tile(machine, Memory.ACC), term, "product")
    name = f"gemm_{machine.batch}x{machine.block_in}x{machine.block_out}_{machine.operand.name}"
    return _declared(Step(), name, product)


@cache
def alu(
    machine: Machine, op: AluOp, imm: int | None = None, *, to_out: bool = False
) -> TensorIntrinsic:
    """A step of the ALU, whose expression is `alu_value` of as many tiles as `op` reads.

    imm: the immediate number: `low` of an operation that reads a pair, else `b`.
    to_out: whether the result is limited to the range of an operand, for the buffer of results.
    """
    count = op.reads_dst + (imm is None or op.reads_pair) + op.reads_pair
    xs = [te.placeholder(tile(machine, Memory.ACC), "i32", name) for name in "abc"[:count]]
    to = machine.operand if to_out else None

    def element(*at: Any) -> Expr:
        return alu_value(op, [x[at] for x in xs], imm=imm, to=to)

    result = te.compute(tile(machine, Memory.ACC), element, "result")
    number = "" if imm is None else f"_{'m' * (imm < 0)}{abs(imm)}"
    name = f"alu_{op.value}{number}{f'_to_{to}' * to_out}_{_label(machine, Memory.ACC)}"
    return _declared(Step(op, imm, to_out), name, result)


def alu_value(
    op: AluOp, tiles: Sequence[ExprLike], *, imm: int | None = None, to: DType | None = None
) -> Expr:
    """An element of the result of a step of the ALU.

    tiles: the elements that it reads, i32: `a` unless `op` is a move, `b` without an immediate
        number, and `c` of an operation that reads a pair.
    imm: the immediate number: `low` of an operation that reads a pair, else `b`.
    to: the type of an operand, for the buffer of results; None for accumulators.
    """
    number = const(0 if imm is None else imm, i32)
    operands = [as_expr(x) for x in tiles]
    if not op.reads_dst:
        operands.insert(0, number)
    operands += [number] * (3 - len(operands))
    named: dict[Expr, Expr] = dict(zip((A, B, C), operands, strict=True))
    value = substitute(op.meaning, named | {LOW: number})
    if to is not None:
        most = (1 << to.bits - 1) - 1
        value = cast(minimum(maximum(value, -most - 1), most), to)
    return simplify(value)
