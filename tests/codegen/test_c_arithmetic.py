"""Operations on every element type in C: each case is one function of one translation unit."""

from __future__ import annotations

import numpy as np
import pytest

from common.arithmetic import same
from common.arithmetic_cases import CASES, SMOOTH
from common.c_library import CLibrary
from tilesmith.ir.dtypes import bool_
from tilesmith.ir.expr import Unary, Var, const
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Buffer, For, Func, Store


@pytest.fixture(scope="module")
def library() -> CLibrary:
    funcs = {f"exact{i}": c.func() for i, c in enumerate(CASES)}
    return CLibrary(funcs | {f"smooth{i}": c.func() for i, c in enumerate(SMOOTH)})


@pytest.mark.parametrize("number", range(len(CASES)), ids=[c.name for c in CASES])
def test_exact(number: int, library: CLibrary) -> None:
    case = CASES[number]
    found = np.empty_like(case.wanted)
    library.call(f"exact{number}", [*case.inputs, found])
    if case.signed_zeros:
        same(found, case.wanted)
    else:  # which zero comes out is not defined
        zero = np.zeros(1, found.dtype)
        same(found + zero, case.wanted + zero)


@pytest.mark.parametrize("number", range(len(SMOOTH)), ids=[c.name for c in SMOOTH])
def test_functions_of_the_mathematics_library(number: int, library: CLibrary) -> None:
    case = SMOOTH[number]
    found = np.empty_like(case.wanted)
    library.call(f"smooth{number}", [*case.inputs, found])
    np.testing.assert_allclose(found, case.wanted, rtol=4 * np.finfo(found.dtype).eps)


def test_bools_are_bytes_that_are_not_zero() -> None:
    x, y, i = Buffer("x", bool_, (3,)), Buffer("y", bool_, (3,)), Var("i")
    body = For(i, const(0), const(3), "serial", Store(y, (i,), Unary("not", x[i])))
    func = Func("f", (x, y), (y,), body)
    given, found, wanted = np.array([True, False, True]), np.empty(3, bool), np.empty(3, bool)
    CLibrary({"f": func}).call("f", [given, found])
    interpret(func, [given, wanted])
    np.testing.assert_array_equal(found, wanted)
