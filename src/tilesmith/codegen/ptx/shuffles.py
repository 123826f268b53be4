"""Values that the threads of a warp exchange.

A `WaveReduce` of n lanes takes log2(n) rounds.  In each round, a thread combines its value with the
value of the thread whose number differs in one bit: bit n / 2 in the first round, bit 1 in the
last.  In the end each thread has the result.
"""

from __future__ import annotations

from tilesmith.codegen.llvm_text import value_type
from tilesmith.codegen.statements import Statements
from tilesmith.ir.dtypes import DType
from tilesmith.ir.expr import Binary, Var
from tilesmith.loop.nodes import WaveReduce
from tilesmith.perf.warps import WARP

_SHUFFLE = "@llvm.nvvm.shfl.sync.bfly.i32"
_LANE = "@llvm.nvvm.read.ptx.sreg.laneid"
_WORD = 32
"""Number of bits that one shuffle moves."""

_FLOATS = {"float": 32, "double": 64}
"""Bits of the value types of floats; 16-bit floats are computed as `float`."""

_ANY_LANE = WARP - 1
"""The operand of a shuffle that lets threads read from every lane of their warp."""


def reduce_wave(f: Statements, s: WaveReduce) -> str:
    """The combined value of a group of threads.  All threads of the group get this value."""
    dtype = s.value.dtype
    value = f.value(s.value)
    members = _members(f, s.lanes)
    distance = s.lanes // 2
    while distance:
        own, other = Var("own", dtype), Var("other", dtype)
        f.env.bind(own, value)
        f.env.bind(other, _shuffled(f, value, dtype, members, distance))
        value = f.value(Binary(s.op, own, other))
        distance //= 2
    return value


def _members(f: Statements, lanes: int) -> str:
    """The mask of the threads of a warp that take part in a shuffle: the bits of this thread's
    group.
    """
    if lanes == WARP:
        return "-1"
    lane = f.emit(f"call i32 {_LANE}()")
    first = f.emit(f"and i32 {lane}, {WARP - lanes}")
    return f.emit(f"shl i32 {(1 << lanes) - 1}, {first}")


def _shuffled(f: Statements, value: str, dtype: DType, members: str, distance: int) -> str:
    """The value of another thread: the one whose number differs from this thread's number in the
    bit `distance`.  The value is moved as 32-bit words.
    """
    type_ = value_type(dtype)
    bits = _FLOATS.get(type_, dtype.bits)
    whole = f"i{bits}"
    word = value if type_ == whole else f.emit(f"bitcast {type_} {value} to {whole}")
    moved: list[str] = []
    for start in range(0, bits, _WORD):
        part = f.emit(f"lshr {whole} {word}, {start}") if start else word
        if bits != _WORD:
            change = "zext" if bits < _WORD else "trunc"
            part = f.emit(f"{change} {whole} {part} to i{_WORD}")
        operands = f"i32 {members}, i32 {part}, i32 {distance}, i32 {_ANY_LANE}"
        moved.append(f.emit(f"call i32 {_SHUFFLE}({operands})"))
    if bits == _WORD:
        (value_bits,) = moved
    elif bits < _WORD:
        value_bits = f.emit(f"trunc i{_WORD} {moved[0]} to {whole}")
    else:
        low, high = (f.emit(f"zext i{_WORD} {m} to {whole}") for m in moved)
        high = f.emit(f"shl {whole} {high}, {_WORD}")
        value_bits = f.emit(f"or {whole} {low}, {high}")
    return value_bits if type_ == whole else f.emit(f"bitcast {whole} {value_bits} to {type_}")
