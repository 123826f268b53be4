"""Tensor intrinsics: instructions on small tiles, declared by their computation.

A declaration holds the behaviour as an expression, as `te.decl_tensor_intrin` takes it from a
tensor expression.  Schedules, the interpreter and the verifier read it; only the writer of code
calls `emit`.

    c[l] += sum over k of i32(a[k]) * i32(w[l, k])        for l in 16, k in 4

A tile is a vector: its elements in row-major order are the lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations
from typing import Any

from tilesmith.support.errors import UsageError

from .cpu_model import CpuModel
from .dtypes import DType
from .expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    TensorCall,
    Var,
    const,
    post_order,
    same_labels,
)

_COMMUTATIVE = ("add", "mul", "min", "max", "and", "or", "xor")


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A tile that an instruction reads or writes.

    name: label for people.
    dtype: element type.
    shape: extents; none for a scalar.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def strides(self) -> tuple[int, ...]:
        """For each dimension, the distance between neighbours in elements."""
        return tuple(math.prod(self.shape[n + 1 :]) for n in range(len(self.shape)))

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Code that keeps a unit of the CPU from sleeping.

    emit: writes the code, given a `codegen.tensor_code.TensorCode`.
    fmas: the amount of work of calls, in multiply-adds of full vectors, after which the code must
        run again.
    """

    emit: Callable[..., None]
    fmas: float


@dataclass(frozen=True, slots=True, eq=False)
class AsyncCopies:
    """Asynchronous copies of a thread, in groups.  The first argument of each function is a
    `codegen.tensor_code.TensorCode`.

    sizes: possible sizes of a copy, in bytes.  Both addresses of a copy are multiples of its size.
    features: LLVM's names of the features that a target needs.
    copy: writes a copy.  Arguments: the pointer to shared memory; the other pointer; the size in
        bytes; and the number of bytes to read, an i32 (the other bytes become zeros), or None to
        read all.
    commit: ends a group: the copies since the end of the last group.
    wait: waits for all groups except the latest ones.  Argument: the number of groups to except.
    """

    sizes: tuple[int, ...]
    features: frozenset[str]
    copy: Callable[..., None]
    commit: Callable[..., None]
    wait: Callable[..., None]


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrinsic:
    """An instruction, or a short sequence of them.

    name: its name, unique.
    result: the tile of results; its dimensions are the first of `axes`.
    operands: the tiles that it reads, besides the old result.
    axes: the variables of its loops, those of the result first.
    extents: for each axis, the number of iterations.
    term: the value of one iteration, an expression over loads of operands.
    accumulates: whether the terms are added to the old result.
    emit: writes the code, given a `codegen.tensor_code.TensorCode` and the operands' values, the
        old result first if it accumulates.
    features: LLVM's names of the features that a target needs.
    fmas: time of a call in multiply-adds of full vectors: a number, or the name of the field of a
        CPU's model that holds it (see `time`).
    first_fmas: the time of a call whose last operand has just been loaded; None: no more than
        `fmas`.
    keep_alive: code that a loop of calls must run at intervals; None if there is none.
    load: loads an operand whose rows, along the first dimension, may have any distance.  Arguments:
        the code, the operand, a pointer and the distance in bytes; the result is the value for
        `emit`.  None for operands that are vectors.
    registers: number of the registers for its tiles; None if vector registers hold the tiles.
    scratch: number of vector registers that the code needs beyond those of operands and result.
    threads: number of neighbouring threads that run a call together, each with an equal part of the
        tiles.  `emit` gets the parts of one thread.
    reads: for a call that several threads run, a function that gives the loads of an operand.
        Arguments: the operand, and the distance of its rows in bytes.  The result has for each
        load the bytes that a thread loads, and the offset in bytes of each thread.
    fills: whether a call may be left out where a condition on the place of the whole tile is
        false, so that the tile becomes zeros: the value is `select(condition, term, 0)`.
    tolerance: relative error against the term computed with the result's type; 0 if there is none.
        Strict accuracy refuses intrinsics with a tolerance.
    digest: a hash that changes when the meaning of the code may have changed.
    """

    name: str
    result: Operand
    operands: tuple[Operand, ...]
    axes: tuple[Var, ...]
    extents: tuple[int, ...]
    term: Expr
    accumulates: bool
    emit: Callable[..., Any]
    features: frozenset[str] = frozenset()
    fmas: float | str = 1.0
    first_fmas: float | None = None
    keep_alive: KeepAlive | None = None
    load: Callable[..., Any] | None = None
    registers: int | None = None
    scratch: int = 0
    threads: int = 1
    reads: Callable[[Operand, int], tuple[tuple[int, tuple[int, ...]], ...]] | None = None
    fills: bool = False
    tolerance: float = 0.0
    digest: str = ""

    @property
    def is_reduced(self) -> tuple[bool, ...]:
        """For each axis, whether terms are added along it."""
        spatial = len(self.result.shape)
        return tuple(n >= spatial for n in range(len(self.axes)))

    def strides(self, operand: Operand) -> tuple[int, ...]:
        """For each axis, the distance in elements of `operand` between neighbouring iterations; 0
        if `operand` does not vary along the axis.
        """
        if operand is self.result:
            return (*operand.strides(), *(0 for _ in self.axes[len(operand.shape) :]))
        (load,) = {e for e in _loads(self.term) if e.buffer is operand}
        steps = dict(zip(load.indices, operand.strides(), strict=True))
        return tuple(steps.get(axis, 0) for axis in self.axes)

    def unfilled(self, value: Expr) -> tuple[Expr, Expr]:
        """The condition under which a tile is computed, and the value that it then has: the two
        parts of `select(condition, value, 0)` if the intrinsic fills, else true and `value`.
        """
        if self.fills and isinstance(value, Select) and value.if_false is const(0, value.dtype):
            return value.cond, value.if_true
        return const(True), value

    def time(self, model: CpuModel) -> float:
        """Time of a call on a CPU, in multiply-adds of full vectors."""
        return float(getattr(model, self.fmas) if isinstance(self.fmas, str) else self.fmas)

    def types(self) -> tuple[tuple[DType, int], ...]:
        """Element types and lanes of the arguments of a call."""
        read = (self.result, *self.operands) if self.accumulates else self.operands
        return tuple((o.dtype, o.size) for o in read)

    def call(self, args: Sequence[Expr]) -> TensorCall:
        """The expression that calls the intrinsic."""
        return TensorCall(self.name, tuple(args), self.result.dtype, self.result.size)

    def __str__(self) -> str:
        """The behaviour: `c[l] += i32(a[k]) * i32(w[l, k]) for l in 16, k in 4`."""
        indices = ", ".join(a.name for a in self.axes[: len(self.result.shape)])
        loops = ", ".join(f"{a.name} in {n}" for a, n in zip(self.axes, self.extents, strict=True))
        sign = "+=" if self.accumulates else "="
        return f"{self.result.name}[{indices}] {sign} {self.term} for {loops}"


_declared: dict[str, TensorIntrinsic] = {}
_families: dict[str, Callable[..., TensorIntrinsic | None]] = {}


def declare(intrinsic: TensorIntrinsic) -> TensorIntrinsic:
    """Register an intrinsic by its name.  An equal declaration gives the existing one; a different
    one of the same name replaces it.
    """
    known = _declared.get(intrinsic.name)
    if known is not None and known.digest == intrinsic.digest:
        return known
    _declared[intrinsic.name] = intrinsic
    return intrinsic


def declare_family(name: str, make: Callable[..., TensorIntrinsic | None]) -> None:
    """Register a family of intrinsics: `name_N` for tiles of N rows and, if the family has them,
    `name_N_S` for tiles of N rows that add S steps.

    `make(N)` or `make(N, S)` declares an intrinsic at its first use.  `make` gives None for a size
    that the family lacks.
    """
    _families[name] = lru_cache(maxsize=256)(make)


def _in_family(name: str) -> tuple[str, tuple[int, ...]]:
    """The name without sizes, and the sizes."""
    sizes: tuple[int, ...] = ()
    while name not in _families:
        rest, _, number = name.rpartition("_")
        if not rest or not number.isdecimal():
            break
        name, sizes = rest, (int(number), *sizes)
    return name, sizes


def tensor_intrinsic(name: str) -> TensorIntrinsic:
    """The intrinsic of that name.  Raises UsageError if there is none."""
    if name not in _declared:
        family, sizes = _in_family(name)
        if family in _families and len(sizes) in (1, 2):
            _families[family](*sizes)
    declared = _declared.get(name)
    if declared is None:
        raise UsageError(
            f"no tensor intrinsic is called {name!r}; declared are "
            f"{', '.join(sorted(_declared)) or 'none'}: see te.decl_tensor_intrin"
        )
    return declared


def called(e: Expr) -> TensorIntrinsic | None:
    """The intrinsic that an expression calls; None if it is another expression."""
    return tensor_intrinsic(e.name) if type(e) is TensorCall else None


def of_rows(intrinsic: TensorIntrinsic, rows: int) -> TensorIntrinsic | None:
    """The intrinsic for tiles of that many rows; None if there is none."""
    if rows == intrinsic.extents[0]:
        return intrinsic
    family, sizes = _in_family(intrinsic.name)
    return _families[family](rows, *sizes[1:]) if family in _families else None


def of_steps(intrinsic: TensorIntrinsic, steps: int) -> TensorIntrinsic | None:
    """The intrinsic with that extent of its first reduced axis; None if there is none."""
    if steps == intrinsic.extents[intrinsic.is_reduced.index(True)]:
        return intrinsic
    family, _ = _in_family(intrinsic.name)
    return _families[family](intrinsic.extents[0], steps) if family in _families else None


@cache
def _loads(term: Expr) -> tuple[Load, ...]:
    return tuple(e for e in post_order(term) if isinstance(e, Load))


Binding = dict[Operand, Load]


def matches(intrinsic: TensorIntrinsic, e: Expr) -> Iterator[Binding]:
    """The ways in which `e` matches the term of an intrinsic.  A way maps each operand to the load
    in `e` that takes its place.  Indices are not compared.
    """
    return _unified(intrinsic.term, e, {})


def _unified(p: Expr, e: Expr, found: Binding) -> Iterator[Binding]:
    if isinstance(p, Load) and isinstance(p.buffer, Operand):
        if isinstance(e, Load) and e.dtype is p.dtype and e.mask is None:
            known = found.get(p.buffer)
            if known is None or known is e:
                yield found | {p.buffer: e}
        return
    if type(p) is not type(e) or p.dtype is not e.dtype or len(p.children) != len(e.children):
        return
    if isinstance(p, Const):
        if p is e:
            yield found
        return
    if isinstance(p, Var) or p.references or p.binders or not same_labels(p, e):
        return
    orders = [e.children]
    if isinstance(p, Binary) and p.op in _COMMUTATIVE:
        orders.append(e.children[::-1])
    for order in orders:
        yield from _all_unified(p.children, order, found)


def _all_unified(ps: Sequence[Expr], es: Sequence[Expr], found: Binding) -> Iterator[Binding]:
    if not ps:
        yield found
        return
    for first in _unified(ps[0], es[0], found):
        yield from _all_unified(ps[1:], es[1:], first)


def assignments(
    intrinsic: TensorIntrinsic, loops: Sequence[tuple[int, bool]]
) -> Iterator[tuple[int, ...]]:
    """The ways to map the axes of an intrinsic to `loops`.  A loop is given as (extent, whether
    reduced).  A way is a tuple that holds, for each axis, the number of its loop.
    """
    wanted = list(zip(intrinsic.extents, intrinsic.is_reduced, strict=True))
    for order in permutations(range(len(loops))):
        if [loops[n] for n in order] == wanted:
            yield order
