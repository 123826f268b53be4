"""Results that are larger than the caches are written past them, where lines are written whole."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import serial

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly, compile_object
from tilesmith.codegen.targets import target
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.expr import Load, Ramp, Var, const
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, For, Func, Stmt, Store, seq
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction

SMALL = target("native").with_model(l3_bytes=1 << 12)
"""A machine whose caches a few rows overflow."""

ROWS = 64
I = Var("i")  # noqa: E741  # as loops are named


def copies(*pieces: tuple[int, int], stride: int, kind: str = "serial") -> tuple[Func, Buffer]:
    """Rows of `stride` elements, copied in vectors: (first element, lanes) each."""
    x, y = (Buffer(n, f32, (ROWS * stride,)) for n in "xy")
    at = [Ramp(I * stride + first, const(1), lanes) for first, lanes in pieces]
    body = seq(*(Store(y, (a,), Load(x, (a,))) for a in at))
    loop = For(I, const(0), const(ROWS), kind, body)  # type: ignore[arg-type]
    return Func("copy", (x, y), (y,), loop), y


def streams(func: Func, machine: Target = SMALL) -> int:
    return emit(func, machine).text.count("!nontemporal !0")


def test_whole_lines_are_streamed() -> None:
    assert streams(copies((0, 16), stride=16)[0]) == 1
    assert streams(copies((0, 8), (8, 8), stride=16)[0]) == 2
    assert streams(copies((0, 16), (16, 8), (24, 8), (32, 32), stride=64)[0]) == 4


def test_parts_of_lines_are_not() -> None:
    assert streams(copies((0, 8), stride=16)[0]) == 0  # half of each line
    assert streams(copies((0, 16), stride=24)[0]) == 0  # lines that start anywhere
    assert streams(copies((8, 16), stride=32)[0]) == 0  # two halves
    assert streams(copies((0, 16), (16, 8), stride=32)[0]) == 1  # the second line only half


def test_backwards_vectors_are_streamed() -> None:
    x, y = (Buffer(n, f32, (ROWS * 16,)) for n in "xy")
    store = Store(y, (Ramp(I * 16 + 15, const(-1), 16),), Load(x, (Ramp(I * 16, const(1), 16),)))
    func = Func("flip", (x, y), (y,), serial(I, ROWS, store))
    assert streams(func) == 1
    values = np.arange(ROWS * 16, dtype=np.float32)
    np.testing.assert_array_equal(run(func, values), values.reshape(ROWS, 16)[:, ::-1].reshape(-1))


def test_what_a_cache_can_hold_is_not_streamed() -> None:
    assert streams(copies((0, 16), stride=16)[0], SMALL.with_model(l3_bytes=1 << 13)) == 0


def test_what_the_kernel_reads_again_is_not_streamed() -> None:
    func, y = copies((0, 16), stride=16)
    again: Stmt = Store(y, (const(0),), Load(y, (const(1),)))
    assert streams(Func("copy", func.params, func.outputs, seq(func.body, again))) == 0


def run(func: Func, values: np.ndarray, offset: int = 0) -> np.ndarray:
    """The result, written `offset` bytes after the start of a cache line."""
    kernel = emit(func, SMALL)
    code = compile_object(kernel.text, SMALL)
    native = NativeFunction(kernel, code, Arguments(func), SMALL, 2)
    memory = np.zeros(values.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    out = memory[start : start + values.nbytes].view(np.float32)
    native(values, out)
    return out


@pytest.mark.parametrize("kind", ("serial", "parallel"))
@pytest.mark.parametrize("offset", (0, 4, 32))
def test_any_result_may_start_anywhere(offset: int, kind: str) -> None:
    func, _ = copies((0, 16), (16, 8), (24, 8), stride=32, kind=kind)
    assert streams(func) == 3
    values = np.arange(ROWS * 32, dtype=np.float32)
    np.testing.assert_array_equal(run(func, values, offset), values)


def test_threads_wait_for_streamed_stores() -> None:
    text = emit(copies((0, 16), stride=16, kind="parallel")[0], SMALL).text
    ranges = text.split("define internal void @copy.loop0")[1].split("ret void")[0]
    assert "!nontemporal" in ranges and "fence seq_cst" in ranges


def test_scalars_reach_both_forms() -> None:
    n = Var("n")
    x, y = (Buffer(name, f32, (ROWS * 16,)) for name in "xy")
    at = Ramp(I * 16, const(1), 16)
    body = serial(I, n, Store(y, (at,), Load(x, (at,))))
    func = Func("some", (x, y, n), (y,), body)
    kernel = emit(func, SMALL)
    native = NativeFunction(kernel, compile_object(kernel.text, SMALL), Arguments(func), SMALL, 1)
    values = np.ones(ROWS * 16, np.float32)
    for start in (0, 1):
        out = np.zeros(ROWS * 16 + 17, np.float32)
        start += -(out.ctypes.data // 4) % 16
        part = out[start : start + ROWS * 16]
        native(values, part, 3)
        assert part.sum() == 48


@pytest.mark.skipif(SMALL.vector_bits < 512, reason="needs 64-byte vectors")
def test_streaming_takes_one_instruction() -> None:
    text = assembly(emit(copies((0, 16), stride=16)[0], SMALL).text, SMALL)
    assert "vmovntps" in text


def test_lanes_of_an_index_with_loads_are_no_run() -> None:
    x, y = (Buffer(n, f32, (ROWS * 16,)) for n in "xy")
    p = Buffer("p", i64, (ROWS * 16,))
    at = Ramp(I * 16, const(1), 16)
    func = Func(
        "scatter", (x, p, y), (y,), serial(I, ROWS, Store(y, (Load(p, (at,)),), Load(x, (at,))))
    )
    assert streams(func) == 0
