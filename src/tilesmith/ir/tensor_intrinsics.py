"""Tensor intrinsics: instructions on small tiles, declared by what they compute.

A declaration holds the behaviour as an expression, as `te.decl_tensor_intrin` takes it from a
tensor expression.  Schedules that use the instruction, the interpreter and the verifier read this;
`emit` is for the writer of code alone.

    c[l] += sum over k of i32(a[k]) * i32(w[l, k])        for l in 16, k in 4

A tile is a vector: its elements in row-major order are the lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

from tilesmith.support.errors import UsageError

from .cpu_model import CpuModel
from .dtypes import DType
from .expr import Binary, Const, Expr, Load, TensorCall, Var, same_labels

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
        """For each dimension, the distance of neighbours in elements."""
        return tuple(math.prod(self.shape[n + 1 :]) for n in range(len(self.shape)))

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """What keeps a unit of the CPU awake while it is not used.

    emit: writes the code, given a `codegen.tensor_code.TensorCode`.
    fmas: work of calls, in multiply-adds of full vectors, after which it must run again.
    """

    emit: Callable[..., None]
    fmas: float


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrinsic:
    """An instruction, or a short sequence of them.

    name: its name, unique.
    result: the tile that it gives; its dimensions are the first of `axes`.
    operands: the tiles that it reads, besides the old result.
    axes: the variables of its loops, those of the result first.
    extents: for each axis, the number of iterations.
    term: what one iteration gives, over loads of operands.
    accumulates: whether the terms are added to the old result.
    emit: writes the code, given a `codegen.tensor_code.TensorCode` and the operands' values, the
        old result first if it accumulates.
    features: LLVM's names of what a target must have.
    fmas: time of a call in multiply-adds of full vectors: a number, or the name of the field of a
        CPU's model that holds it (see `time`).
    first_fmas: the same for a call whose last operand has just been loaded; None: no more.
    keep_alive: what must run now and then in loops of calls; None: nothing.
    load: how an operand is loaded whose rows, along the first dimension, may be any distance apart:
        given the code, the operand, a pointer and the distance in bytes, the value for `emit`.
        None for operands that are vectors.
    registers: number of registers that hold such tiles; None: those for vectors.
    scratch: number of vector registers that the code needs beside those of operands and result.
    threads: number of neighbouring threads that run a call together, each with an equal part of the
        tiles: `emit` is given the parts of one of them.
    reads: of a call that several threads run, the loads of an operand whose rows are so many bytes
        apart: for each, the bytes that a thread loads, and the offset in bytes of each thread.
    tolerance: relative error against the term computed with the result's type; 0 if there is none.
        Strict accuracy refuses others.
    digest: changes whenever the meaning of the code may.
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
    tolerance: float = 0.0
    digest: str = ""

    @property
    def is_reduced(self) -> tuple[bool, ...]:
        """For each axis, whether terms along it are added."""
        spatial = len(self.result.shape)
        return tuple(n >= spatial for n in range(len(self.axes)))

    def strides(self, operand: Operand) -> tuple[int, ...]:
        """For each axis, the distance in `operand` between neighbouring iterations; 0 for none."""
        if operand is self.result:
            return (*operand.strides(), *(0 for _ in self.axes[len(operand.shape) :]))
        (load,) = {e for e in _loads(self.term) if e.buffer is operand}
        steps = dict(zip(load.indices, operand.strides(), strict=True))
        return tuple(steps.get(axis, 0) for axis in self.axes)

    def time(self, model: CpuModel) -> float:
        """Time of a call on a CPU, in multiply-adds of full vectors."""
        return float(getattr(model, self.fmas) if isinstance(self.fmas, str) else self.fmas)

    def types(self) -> tuple[tuple[DType, int], ...]:
        """Element types and lanes of the arguments of a call."""
        read = (self.result, *self.operands) if self.accumulates else self.operands
        return tuple((o.dtype, o.size) for o in read)

    def call(self, args: Sequence[Expr]) -> TensorCall:
        """The expression that calls it."""
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
    """Make an intrinsic known by its name.  An equal declaration gives the existing one; another
    one of the same name replaces it.
    """
    found = _declared.get(intrinsic.name)
    if found is not None and found.digest == intrinsic.digest:
        return found
    _declared[intrinsic.name] = intrinsic
    return intrinsic


def declare_family(name: str, make: Callable[..., TensorIntrinsic | None]) -> None:
    """Make intrinsics for tiles of N rows known as `name_N`, and those that add S steps as
    `name_N_S`, if the family has them.

    `make(N)` or `make(N, S)` declares one when it is first named; it gives None if there is none of
    this size.
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
    """The intrinsic of that name.  Raises UsageError."""
    if name not in _declared:
        family, sizes = _in_family(name)
        if family in _families and len(sizes) in (1, 2):
            _families[family](*sizes)
    found = _declared.get(name)
    if found is None:
        raise UsageError(
            f"no tensor intrinsic is called {name!r}; declared are "
            f"{', '.join(sorted(_declared)) or 'none'}: see te.decl_tensor_intrin"
        )
    return found


def called(e: Expr) -> TensorIntrinsic | None:
    """The intrinsic that an expression calls; None if it is another expression."""
    return tensor_intrinsic(e.name) if type(e) is TensorCall else None


def of_rows(intrinsic: TensorIntrinsic, rows: int) -> TensorIntrinsic | None:
    """The intrinsic for tiles of so many rows in the place of the declared number; None if there is
    none.
    """
    if rows == intrinsic.extents[0]:
        return intrinsic
    family, sizes = _in_family(intrinsic.name)
    return _families[family](rows, *sizes[1:]) if family in _families else None


def of_steps(intrinsic: TensorIntrinsic, steps: int) -> TensorIntrinsic | None:
    """The intrinsic that adds so many steps (the extent of its first reduced axis) in the place of
    the declared number; None if there is none.
    """
    at = intrinsic.is_reduced.index(True)
    if steps == intrinsic.extents[at]:
        return intrinsic
    family, _ = _in_family(intrinsic.name)
    return _families[family](intrinsic.extents[0], steps) if family in _families else None


def _loads(e: Expr) -> Iterator[Load]:
    if isinstance(e, Load):
        yield e
    for child in e.children:
        yield from _loads(child)


Binding = dict[Operand, Load]


def matches(intrinsic: TensorIntrinsic, e: Expr) -> Iterator[Binding]:
    """The ways in which `e` is the term of an intrinsic: for each operand, what is read in its
    place.  Indices are not compared.
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
    """The ways in which loops, given as (extent, whether reduced), are the axes of an intrinsic:
    for each axis, the number of its loop.
    """
    wanted = list(zip(intrinsic.extents, intrinsic.is_reduced, strict=True))
    for order in permutations(range(len(loops))):
        if [loops[n] for n in order] == wanted:
            yield order
