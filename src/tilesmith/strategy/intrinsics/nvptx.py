"""Tensor intrinsics of NVIDIA's GPUs: matrix instructions that the 32 threads of a warp run.

| name | result | operands | instruction |
|---|---|---|---|
| `mma_{f16,bf16}` | f32[16, 8] | a[16, 16], b[16, 8] | mma.sync.m16n8k16 |
| `mma_{f16,bf16}_t` | f32[16, 8] | a[16, 16], b[8, 16] | the same |
| `mma_{s8,u8}{s8,u8}` | i32[16, 8] | a[16, 32], b[32, 8] | mma.sync.m16n8k32 |
| `mma_{s8,u8}{s8,u8}_t` | i32[16, 8] | a[16, 32], b[8, 32] | the same |

`c[i, j] += sum over k of a[i, k] * b[k, j]`, or of `b[j, k]`.  Operands are in shared memory, with
a row stride of any multiple of 4 bytes.  Let g = thread // 4 and t = thread % 4.  Each thread holds
words t and t + 4, of the 8 four-byte words along the sum, in rows g and g + 8 of `a` and in column
g of `b`.  Integers are exact modulo 2^32.

Asynchronous copies are `cp.async`, of 4, 8 or 16 bytes.  Copies of 16 bytes bypass the L1 cache.
"""

from __future__ import annotations

from typing import Any

from tilesmith import te
from tilesmith.ir.tensor_intrinsics import AsyncCopies, TensorIntrinsic
from tilesmith.perf.warps import WARP, WORD

ROWS, COLUMNS = 16, 8
_ROW_BYTES = 32
_TOLERANCE = 2.0**-20
"""Relative error of sums of floats.  The hardware aligns 16 products to the largest of them.  It
truncates the bits below the last bit of an f32.
"""

_BYTES = {"s8": "i8", "u8": "u8"}


def _reads(operand: Any, distance: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Sizes and offsets in bytes of the loads of each thread, in the order of `_load`."""
    rows, width = operand.shape
    size = operand.dtype.bytes
    places = [divmod(thread, 4) for thread in range(WARP)]
    if width * size == _ROW_BYTES:
        return tuple(
            (WORD, tuple((g + row) * distance + t * WORD + half for g, t in places))
            for half in (0, _ROW_BYTES // 2)
            for row in range(0, rows, 8)
        )
    each = WORD // size
    return tuple(
        (size, tuple((t * each + half + n) * distance + g * size for g, t in places))
        for half in (0, rows // 2)
        for n in range(each)
    )


def _load(code: Any, operand: Any, pointer: Any, distance: int) -> tuple[Any, ...]:
    """Load the words of a thread.  Neighbours along the sum that are not contiguous are packed into
    words.
    """
    thread = code.thread()
    g, t = code.integer("lshr", thread, 2), code.integer("and", thread, 3)
    reads = _reads(operand, distance)
    size = reads[0][0]
    # Offsets of thread 0; those of other threads differ by a constant.
    offsets = [offset[0] for _, offset in reads]
    of_g, of_t = reads[0][1][4], reads[0][1][1]
    place = code.integer("add", code.integer("mul", g, of_g), code.integer("mul", t, of_t))
    own = code.behind(pointer, place)
    loaded = [code.load(own, f"i{8 * size}", offset, size) for offset in offsets]
    if size == WORD:
        return tuple(loaded)
    each = WORD // size
    words = (loaded[n : n + each] for n in range(0, len(loaded), each))
    return tuple(code.bitcast(code.vector(*parts), "i32") for parts in words)


def _mma(
    name: str, types: tuple[str, str, str], words: str, is_transposed: bool
) -> TensorIntrinsic:
    """Declare a matrix instruction; `words` is LLVM's name of it without the prefix `mma.`."""
    of_a, of_b, of_c = types
    is_float = of_c == "f32"
    depth = _ROW_BYTES // (2 if is_float else 1)
    a = te.placeholder((ROWS, depth), of_a, "a")
    b = te.placeholder((COLUMNS, depth) if is_transposed else (depth, COLUMNS), of_b, "b")
    k = te.reduce_axis(depth, "k")

    def term(i: Any, j: Any) -> Any:
        factor = b[j, k] if is_transposed else b[k, j]
        return te.sum(a[i, k].astype(of_c) * factor.astype(of_c), axis=k)

    element = "float" if is_float else "i32"
    register = "<2 x half>" if of_a == "f16" else "i32"

    def emit(code: Any, old: Any, a: Any, b: Any) -> Any:
        registers = [code.bitcast(x, register) for x in (*a, *b)]
        registers += [code.element(old, n) for n in range(4)]
        four = "{ " + ", ".join([element] * 4) + " }"
        made = code.call(f"llvm.nvvm.mma.{words}", four, *registers)
        return code.vector(*(code.member(made, n, element) for n in range(4)))

    return te.decl_tensor_intrin(
        name, te.compute((ROWS, COLUMNS), term, "c"), emit, load=_load, threads=WARP, reads=_reads,
        features=("mma-float" if is_float else "mma-int",),
        tolerance=_TOLERANCE if is_float else 0.0,
    )  # fmt: skip


def _both(name: str, types: tuple[str, str, str], words: str) -> tuple[TensorIntrinsic, ...]:
    return tuple(_mma(f"{name}{'_t' * t}", types, words, bool(t)) for t in (0, 1))


INTRINSICS: tuple[TensorIntrinsic, ...] = (
    *_both("mma_f16", ("f16", "f16", "f32"), "m16n8k16.row.col.f32.f32"),
    *_both("mma_bf16", ("bf16", "bf16", "f32"), "m16n8k16.row.col.bf16"),
    *(
        made
        for a in _BYTES
        for b in _BYTES
        for made in _both(
            f"mma_{a}{b}", (_BYTES[a], _BYTES[b], "i32"),
            f"m16n8k32.row.col.{a if a == b else f'{a}.{b}'}",
        )
    ),
)  # fmt: skip

_GLOBAL, _SHARED = 1, 3
"""LLVM's address spaces."""


def _copy(code: Any, to: Any, source: Any, size: int, taken: Any) -> None:
    cached = "cg" if size == 16 else "ca"
    arguments = [code.in_space(to, _SHARED), code.in_space(source, _GLOBAL)]
    arguments += [] if taken is None else [taken]
    ending = "" if taken is None else ".s"
    code.run(f"llvm.nvvm.cp.async.{cached}.shared.global.{size}{ending}", *arguments)


COPIES = AsyncCopies(
    sizes=(4, 8, 16),
    features=frozenset({"async-copy"}),
    copy=_copy,
    commit=lambda code: code.run("llvm.nvvm.cp.async.commit.group"),
    wait=lambda code, n: code.run("llvm.nvvm.cp.async.wait.group", code.constant("i32", n)),
)
