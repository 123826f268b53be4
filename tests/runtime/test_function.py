from __future__ import annotations

import numpy as np
import pytest

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Load, Var, const
from tilesmith.loop.nodes import Buffer, For, Func, Store
from tilesmith.runtime.function import NativeFunction
from tilesmith.support.errors import ModelError


def doubled() -> NativeFunction:
    """y[n, n + 1] = x * scale, for any n."""
    n, scale, i = Var("n"), Var("scale"), Var("i")
    shape = (n, n + 1)
    x, y = Buffer("x", f32, shape), Buffer("y", f32, shape)
    from tilesmith.ir.expr import Cast

    body = For(i, const(0), n * (n + 1), "serial", Store(y, (i,), Load(x, (i,)) * Cast(scale, f32)))
    func = Func("scaled", (x, y, n, scale), (y,), body)
    kernel = emit(func, host())
    return NativeFunction(
        kernel, compile_object(kernel.text, host()), func.params, func.outputs, host()
    )


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
