"""The main function of a program as loop IR, which the emitters of kernels write (decision 118).

    def tilesmith_main(context: u8[0]) -> context:

It checks the version and the size of the context (`runtime/csrc/tilesmith.h`) and runs the steps.
It returns the code of the first failure, which is recorded in the context, or 0.  Sizes that only a
run knows are computed first (`codegen.sizes`).  Sizes that depend on data are computed as soon as
the data exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.dtypes import i32, i64, u8, u32
from tilesmith.ir.expr import Binary, Compare, Expr, Var, const
from tilesmith.loop.nodes import (
    Allocate,
    Buffer,
    CallFunction,
    Func,
    Has,
    If,
    Locate,
    Reinterpret,
    Return,
    Stmt,
    Store,
    seq,
)
from tilesmith.program.functions import ARENA, ENTRY, SCRATCH, SIZES
from tilesmith.program.nodes import Step
from tilesmith.program.visit import host_calls_of, measurements_of, slots_of

from .context import ABI, SIZE, Code
from .lower_steps import CONTEXT, FAILURE, Steps, called, failure, field, noted, unless_there


def lower_main(
    steps: Sequence[Step],
    symbol: str = ENTRY,
    times: int | None = None,
    clock: int = 0,
    *,
    arena_bytes: int = 0,
    scratch_bytes: int = 0,
    sizes: int = 0,
) -> Func:
    """The main function for `steps`.

    times: number of the output that receives times, two i64 for each kernel call.  Each run of a
        call adds nanoseconds to the first number and 1 to the second.  None: no times.
    clock: number of the C library's clock that measures these times.
    arena_bytes: bytes of the arena that the steps need.
    scratch_bytes: bytes of scratch memory that each thread needs.
    sizes: number of values that `codegen.sizes` computes; 0 if all sizes are numbers.  The first
        two values replace `arena_bytes` and `scratch_bytes`.
    """
    lowering = Steps.of(steps, sizes, None if times is None else (times, clock))
    measured = list(measurements_of(steps))
    known = min((m.first for m in measured), default=-1)  # number of extents known from the inputs
    needed: dict[str, Expr] = {
        "arena_bytes": const(arena_bytes), "scratch_bytes": const(scratch_bytes)
    }  # fmt: skip
    parts: list[Stmt] = [noted("code", Code.OK), noted("call", 0)]
    if any(host_calls_of(steps)):
        hostless = seq(noted("code", Code.HOST), Return(const(Code.HOST, i32)))
        parts.append(_unless_there("host", hostless))
    if sizes and known != 0:
        parts.append(_sized(lowering))
        values = lowering.values
        needed = {"arena_bytes": values[const(ARENA)], "scratch_bytes": values[const(SCRATCH)]}
    if known > 0:
        parts.append(_extents_of_inputs(lowering, known))
    if slots_of(steps):
        parts.append(_unless_there("grow", failure(Code.GROWTH, 0, (const(0), const(0)))))
    parts += [_enough(name, least) for name, least in needed.items() if least is not const(0)]
    parts.append(lowering.whole(steps))
    body = seq(*parts)
    for room in lowering.rooms:
        body = Allocate(room, body)
    body = seq(_version(), Reinterpret(FAILURE, field("failure_code"), body))
    return Func(symbol, (CONTEXT,), (CONTEXT,), body)


def _version() -> Stmt:
    """The statement that refuses a context that has another version or is too short."""
    head = Buffer("version", u32, (2,), "heap")
    other = Compare("ne", head[const(0)], const(ABI, u32))
    short = Compare("lt", head[const(1)], const(SIZE, u32))
    refused = Return(const(Code.VERSION, i32))
    return Reinterpret(head, field("abi"), If(Binary("or", other, short), refused))


def _unless_there(name: str, failed: Stmt) -> Stmt:
    """Run `failed` if a field of the context holds no address."""
    return unless_there(failed, Has, field(name), 0)


def _sized(lowering: Steps) -> Stmt:
    """The call that computes the sizes.  If the sizes are refused, the main function returns."""
    extents = Buffer("extents", u8, (0,), "heap")
    places = extents[const(0)], lowering.values[const(0)]

    def refused(code: Var) -> Stmt:
        return seq(Store(FAILURE, (const(0),), code), Return(code))

    call = called(refused, CallFunction, SIZES, places, "")
    return Locate(extents, field("extents"), 0, call)


def _extents_of_inputs(lowering: Steps, count: int) -> Stmt:
    """Copy the inputs' extents to the table of measured extents."""
    extents = Buffer("extents", u8, (0,), "heap")
    numbers = Buffer("numbers", i64, (count,), "heap")
    kept = (Store(lowering.measured, (const(i),), numbers[const(i)]) for i in range(count))
    inside = Reinterpret(numbers, extents[const(0)], seq(*kept))
    return Locate(extents, field("extents"), 0, inside)


def _enough(name: str, needed: Expr) -> Stmt:
    """Fail if the field `name` of the context, a size of memory, is less than `needed` bytes."""
    size = Buffer(name, i64, (1,), "heap")
    failed = failure(Code.MEMORY, 0, (needed, size[const(0)]))
    return Reinterpret(size, field(name), If(size[const(0)] < needed, failed))
