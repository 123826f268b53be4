from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Load, Var, const
from tilesmith.loop.nodes import Buffer, For, Func, Store
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction
from tilesmith.support.errors import ModelError, ScheduleError, UsageError


def doubled() -> NativeFunction:
    """y[n, n + 1] = x * scale, for any n."""
    n, scale, i = Var("n"), Var("scale"), Var("i")
    shape = (n, n + 1)
    x, y = Buffer("x", f32, shape), Buffer("y", f32, shape)
    from tilesmith.ir.expr import Cast

    body = For(i, const(0), n * (n + 1), "serial", Store(y, (i,), Load(x, (i,)) * Cast(scale, f32)))
    func = Func("scaled", (x, y, n, scale), (y,), body)
    kernel = emit(func, host())
    return NativeFunction(kernel, compile_object(kernel.text, host()), Arguments(func), host())


def test_symbolic_dimensions_come_from_the_arrays() -> None:
    f = doubled()
    for n in (1, 4, 9):
        x, y = (
            np.random.default_rng(n).random((n, n + 1), np.float32),
            np.empty((n, n + 1), np.float32),
        )
        f(x, y, 3)
        np.testing.assert_array_equal(y, x * 3)
        f(np.asfortranarray(x), y, 2)
        np.testing.assert_array_equal(y, x * 2)


def test_arguments_are_checked() -> None:
    f = doubled()
    x, y = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)
    frozen = y.copy()
    frozen.flags.writeable = False
    cases = (
        ((x, y), r"scaled: expected 3 arguments \(x, y, scale\), found 2"),
        ((x, y[:, :3], 1), "argument 'y' is an output: expected a writable, C-contiguous array"),
        ((x, frozen, 1), "argument 'y' is an output: expected a writable"),
        (
            (x, np.zeros((4, 5), np.float32), 1),
            r"argument 'y': expected shape \(3, 4\), found \(4, 5\)",
        ),
        (
            (np.zeros((3, 3), np.float32), y, 1),
            r"argument 'x': expected shape \(3, 4\), found \(3, 3\)",
        ),
        ((x.astype(np.int32), y, 1), "argument 'x': expected element type f32"),
        ((x[0], y, 1), "argument 'x': expected 2 dimensions"),
    )
    for arguments, message in cases:
        with pytest.raises(ModelError, match=message):
            f(*arguments)


def built(count: int, **options: Any) -> NativeFunction:
    """c[i] = a[i] - 2 b[i] for `count` floats."""
    a, b = (te.placeholder((count,), "f32", name) for name in "ab")
    c = te.compute((count,), lambda i: a[i] - 2.0 * b[i], "c")
    s = te.create_schedule(c.op)
    s[c].vectorize(s[c].split(s[c].axis[0], factor=8)[1])
    in_place = {c: b} if options.pop("in_b", False) else None
    return ts.build(s, [a, b, c], name="minus", in_place=in_place, **options)


@pytest.mark.parametrize("target", [None, "c"])
def test_outputs_overlap_nothing(target: str | None) -> None:
    f = built(16, target=target)
    memory = np.arange(40, dtype=np.float32)
    before = memory.copy()
    a, b, c = memory[:16], memory[16:32], memory[8:24]
    address = memory.ctypes.data
    shown = rf"'c' \(bytes {address + 32:#x} to {address + 96:#x}\) overlaps the argument 'a' "
    with pytest.raises(UsageError, match=shown + rf"\(bytes {address:#x} to {address + 64:#x}\)"):
        f(a, b, c)
    with pytest.raises(UsageError, match=r"the argument 'b' .* twice the same array"):
        f(memory[24:], b, c)
    with pytest.raises(UsageError, match="overlaps"):
        f.bind(a, b, c)
    np.testing.assert_array_equal(memory, before)


@pytest.mark.parametrize("target", [None, "c"])
def test_an_elementwise_output_may_be_an_input(target: str | None) -> None:
    f = built(21, target=target)
    a, b = (np.random.default_rng(i).random(21, np.float32) for i in range(2))
    expected = a - 2 * b
    for place in (0, 1):
        given = [a.copy(), b.copy()]
        f(*given, given[place])
        np.testing.assert_array_equal(given[place], expected)
        given = [a.copy(), b.copy()]
        f.bind(*given, given[place])()
        np.testing.assert_array_equal(given[place], expected)
    both = a.copy()
    f(both, both, both)
    np.testing.assert_array_equal(both, a - 2 * a)


def test_an_output_lives_in_an_input() -> None:
    f = built(21, in_b=True)
    a, b = (np.random.default_rng(i).random(21, np.float32) for i in range(2))
    expected = a - 2 * b
    f(a, b)
    np.testing.assert_array_equal(b, expected)
    with pytest.raises(ModelError, match="argument 'b' is an output: expected a writable"):
        f(a, np.frombuffer(bytes(84), np.float32))
    memory = np.zeros(40, np.float32)
    with pytest.raises(UsageError, match=r"'b' .* overlaps the argument 'a'"):
        f(memory[:21], memory[10:31])


def test_an_output_that_can_not_live_in_an_input() -> None:
    a = te.placeholder((8,), "f32", "a")
    c = te.compute((8,), lambda i: a[7 - i], "c")
    with pytest.raises(ScheduleError, match="c can't be written into a: expected one loop nest"):
        ts.build(te.create_schedule(c.op), [a, c], in_place={c: a})
    with pytest.raises(UsageError, match="expected an output and an input among the arguments"):
        ts.build(te.create_schedule(c.op), [a, c], in_place={a: c})
    d, e = te.compute((8,), lambda i: (a[i], a[i] + 1.0), "d")
    with pytest.raises(UsageError, match="two outputs are to live in a"):
        ts.build(te.create_schedule(d.op), [a, d, e], in_place={e: a, d: a})


def test_a_strided_input_may_look_into_the_output() -> None:
    """It is copied before anything is written."""
    memory = np.arange(32, dtype=np.float32)
    a, b = memory[::2].copy(), np.ones(16, np.float32)
    built(16)(memory[::2], b, memory[:16])
    np.testing.assert_array_equal(memory[:16], a - 2)


def test_arguments_of_many_kinds() -> None:
    """More than eight arguments, a scalar between dimensions, bools, and types without a buffer."""
    arrays = [te.placeholder((4,), "f32", f"x{i}") for i in range(19)]
    flags = te.placeholder((4,), "bool", "flags")
    half = te.placeholder((4,), "bf16", "half")
    y = te.compute(
        (4,),
        lambda i: te.select(flags[i], sum((x[i] for x in arrays), te.cast(half[i], f32)), 0.0),
        "y",
    )
    f = ts.build(te.create_schedule(y.op), [*arrays, flags, half, y])
    given = [np.full(4, i, np.float32) for i in range(19)]
    mask = np.array([True, False, True, True])
    out = np.full(4, -1, np.float32)
    f(*given, mask, np.full(4, 0.5, f.arguments.buffers[20].dtype.numpy), out)
    np.testing.assert_array_equal(out, np.where(mask, 171.5, 0))
    with pytest.raises(ModelError, match="argument 'half': expected element type bf16"):
        f(*given, mask, np.zeros(4, np.uint16), out)


def test_misaligned_inputs_are_copied() -> None:
    raw = np.zeros(65, np.uint8)
    a = raw[1:].view(np.float32)
    a[:] = 3
    out = np.empty(16, np.float32)
    built(16)(a, np.ones(16, np.float32), out)
    assert (out == 1).all()
    with pytest.raises(ModelError, match="argument 'c' is an output"):
        built(16)(out, out, a)


def test_workspaces_of_calls_at_the_same_time() -> None:
    x = te.placeholder((64, 64), "f32", "x")
    t = te.compute((64, 64), lambda i, j: x[j, i] + 1.0, "t")
    y = te.compute((64, 64), lambda i, j: t[i, 63 - j], "y")
    f = ts.build(te.create_schedule(y.op), [x, y], threads=1)
    assert f.kernel.workspace_bytes_shared

    def wrong(seed: int) -> int:
        data = np.full((64, 64), seed, np.float32)
        out = np.empty_like(data)
        again = f.bind(data, out)
        count = 0
        for call in (lambda: f(data, out), again) * 50:
            call()
            count += int((out != seed + 1).sum())
        return count

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(wrong, range(4))) == 0


def test_a_bound_call_keeps_its_arrays() -> None:
    y = np.zeros((2, 3), np.float32)
    again = doubled().bind(np.ones((2, 3), np.float32), y, 5)
    again()
    y[:] = 0
    again()
    assert (y == 5).all()


def test_text_and_assembly_can_be_read() -> None:
    f = doubled()
    assert "define i32 @scaled(" in f.source
    assert "scaled:" in f.assembly
