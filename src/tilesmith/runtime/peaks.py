"""The peak multiplication rate of this CPU for each element type, measured with the fastest tensor
intrinsic on tiles of sums in registers.

    for k in range(repeats):                       # rows x columns tiles
        acc[r, n] = intrinsic(acc[r, n], x[r], w[k % 4, n])

The operands stay in the L1 cache.  `w` changes with k, so that the compiler can't hoist a product
out of the loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import DType
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic, tensor_intrinsic
from tilesmith.loop.parse import parse_func
from tilesmith.strategy.intrinsics import available
from tilesmith.support.errors import UsageError

from .arguments import Arguments
from .function import NativeFunction
from .native import aligned_bytes

TYPES = ("f32", "bf16", "f16", "int16", "int8")
"""Element types for which a CPU may have multiply instructions."""

ROUNDS = 50
_REPEATS = 40_000
_VARIANTS = 4


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak rate of an element type.

    type: one of `TYPES`.
    intrinsic: name of the fastest tensor intrinsic.
    rate: multiplications and additions per second of all threads together.
    """

    type: str
    intrinsic: str
    rate: float


def type_of(intrinsic: TensorIntrinsic) -> str:
    """The element type that an intrinsic multiplies: one of `TYPES` for the shipped intrinsics."""
    widest: DType = max((o.dtype for o in intrinsic.operands), key=lambda d: d.bits)
    return f"int{widest.bits}" if widest.is_int else widest.name


def fastest(target: Target) -> dict[str, TensorIntrinsic]:
    """The intrinsic with the most products per unit of time, for each type with an instruction on
    the target.  int8 uses the int16 intrinsic if that is faster, or if int8 has no instruction.
    """
    fastest_of: dict[str, TensorIntrinsic] = {}

    def products(i: TensorIntrinsic) -> float:
        return math.prod(i.extents) / i.time(target.model)

    for i in sorted(available(target).values(), key=products, reverse=True):
        if i.accumulates:
            fastest_of.setdefault(type_of(i), i)
    words, bytes_ = fastest_of.get("int16"), fastest_of.get("int8")
    if words is not None and (bytes_ is None or products(bytes_) < products(words)):
        fastest_of["int8"] = words
    return {t: fastest_of[t] for t in TYPES if t in fastest_of}


def type_peaks(threads: int = 1, rounds: int = ROUNDS) -> tuple[Peak, ...]:
    """The measured peak of each type with an instruction on the host.  This takes about 50 ms."""
    target = host()
    return tuple(
        Peak(name, i.name, rate(i, target, threads, rounds)) for name, i in fastest(target).items()
    )


@lru_cache(maxsize=16)
def peak_of(intrinsic: str, threads: int) -> Peak | None:
    """The measured peak, on `threads` threads, of the element type of an intrinsic.  None if this
    process does not know the intrinsic, or if the host has no instruction for the type.
    """
    try:
        name = type_of(tensor_intrinsic(intrinsic))
    except UsageError:
        return None
    target = host()
    best = fastest(target).get(name)
    return None if best is None else Peak(name, best.name, rate(best, target, threads))


def rate(intrinsic: TensorIntrinsic, target: Target, threads: int, rounds: int = ROUNDS) -> float:
    """Multiplications and additions per second in the fastest of `rounds` runs."""
    run, operations = register_loop(intrinsic, target, threads)
    best = math.inf
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return operations / best


def register_loop(
    intrinsic: TensorIntrinsic, target: Target, threads: int
) -> tuple[Callable[[], None], float]:
    """The loop as a function, and the number of multiplications and additions of a call."""
    repeats = max(int(_REPEATS / intrinsic.time(target.model)), 1)
    func = parse_func(loop_text(intrinsic, target, repeats, threads))
    kernel = emit(func, target)
    code = compile_object(kernel.text, target)
    function = NativeFunction(kernel, code, Arguments(func), target, threads)
    arrays = []
    for b in func.buffers:
        size = math.prod(n for n in b.shape if isinstance(n, int))
        array = aligned_bytes(size * b.dtype.bytes).view(b.dtype.numpy)
        array[:] = np.ones(1).astype(b.dtype.numpy)
        arrays.append(array)
    rows, columns = _tiles(intrinsic, target)
    calls = rows * columns * repeats * threads
    return function.bind(*arrays), 2.0 * math.prod(intrinsic.extents) * calls


def _tiles(intrinsic: TensorIntrinsic, target: Target) -> tuple[int, int]:
    """Rows and columns of tiles that fit the registers.  There are enough sums to hide the latency
    of any CPU.
    """
    registers = intrinsic.registers or target.vector_registers
    return 2, 2 if registers < 16 else 4 if registers < 32 else 10


def loop_text(i: TensorIntrinsic, target: Target, repeats: int, threads: int) -> str:
    """The loop that measures an intrinsic, as a function for each of `threads` threads."""
    rows, columns = _tiles(i, target)
    x, w, c = *i.operands, i.result
    count, zero = rows * columns, "0.0" if c.dtype.is_float else f"{c.dtype}(0)"

    def tile(name: str, first: str, size: int) -> str:
        return f"{name}[{first}]" if size == 1 else f"{name}[ramp({first}, 1, {size})]"

    def sums(number: int) -> str:
        return f"acc[ramp({number * c.size}, 1, {c.size})]"

    changing = f"k % {_VARIANTS} * {columns * w.size}"
    steps = [
        f"            {sums(r * columns + n)} = tensor_{i.name}({sums(r * columns + n)}, "
        f"{tile('x', str(r * x.size), x.size)}, {tile('w', f'{changing} + {n * w.size}', w.size)})"
        # With columns outermost, a tile of w occupies a register only for a short time.
        for n in range(columns)
        for r in range(rows)
    ]
    return "\n".join(
        [
            f"def peak(x: {x.dtype}[{rows * x.size}], "
            f"w: {w.dtype}[{_VARIANTS * columns * w.size}], "
            f"y: {c.dtype}[{threads * count * c.size}]) -> y:",
            f"    for t in parallel({threads}):",
            f"        alloc acc: {c.dtype}[{count * c.size}] register",
            *(f"        {sums(n)} = broadcast({zero}, {c.size})" for n in range(count)),
            f"        for k in range({repeats}):",
            *steps,
            *(
                f"        y[ramp(t * {count * c.size} + {n * c.size}, 1, {c.size})] = {sums(n)}"
                for n in range(count)
            ),
            "",
        ]
    )
