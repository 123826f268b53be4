"""Lookups of bytes in short lists by permutations of registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from kernels import against_a_wall, lanes_at, run

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly, compile_object
from tilesmith.codegen.targets import covers, host, target
from tilesmith.ir.byte_lookups import lookup_instructions
from tilesmith.ir.dtypes import DType, i8, i64, u8
from tilesmith.ir.expr import Broadcast, Cast, Compare, Load, Var, const
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Buffer, For, Func, Store
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction

SHUFFLES = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def with_permutes() -> Target:
    """A level with AVX-512 VBMI, which no named level has."""
    level = target("x86-64-v4")
    return replace(level, features=level.features | {"avx512vbmi"})


TARGETS = [with_permutes(), *(target(n) for n in (*SHUFFLES, "x86-64", "aarch64"))]


def lookup(entries: int, index: DType, lanes: int, count: int = 256) -> Func:
    """y[i] = list[x[i] - the smallest number of x's type]."""
    x, y = Buffer("x", index, (count,)), Buffer("y", i8, (count,))
    table, i = Buffer("list", i8, (entries,)), Var("i", i64)
    at = lanes_at(i * lanes, lanes)
    place = Cast(Load(x, (at,)), i64)
    if index.min:
        first = const(-int(index.min))
        place = place + (first if lanes == 1 else Broadcast(first, lanes))
    body = Store(y, (at,), Load(table, (place,)))
    loop = For(i, const(0), const(count // lanes), "serial", body)
    return Func("f", (x, table, y), (y,), loop)


@pytest.mark.parametrize(
    "t", TARGETS, ids=lambda t: "vbmi" if "avx512vbmi" in t.features else t.name
)
@pytest.mark.parametrize("lanes", [2, 3, 8, 16, 24, 32, 64, 128])
@pytest.mark.parametrize(
    ("entries", "index"), [(256, i8), (256, u8), (128, u8), (100, u8), (16, u8)]
)
def test_every_entry_is_found(t: Target, lanes: int, entries: int, index: DType) -> None:
    if not covers(host(), t):
        pytest.skip(f"this machine lacks {t.name}")
    rng = np.random.default_rng(0)
    count = 256 // lanes * lanes * 4
    places = rng.permutation(np.resize(np.arange(entries), count))
    table = rng.integers(-128, 128, entries).astype(np.int8)
    x = (places + int(index.min)).astype(index.numpy)
    y = np.zeros(count, np.int8)
    func = lookup(entries, index, lanes, count)
    kernel = emit(func, t)
    NativeFunction(kernel, compile_object(kernel.text, t), Arguments(func), t, 1)(x, table, y)
    np.testing.assert_array_equal(y, table[places])


@pytest.mark.parametrize(
    ("t", "instructions"),
    [
        (with_permutes(), {"2b\t": 2, "vpshufb": 0}),
        (target("x86-64-v4"), {"vpshufb": 4}),
        (target("x86-64-v3"), {"vpshufb": 8}),
        (target("aarch64"), {"tbl\t": 1, "tbx\t": 3}),
        (target("x86-64-v2"), {"pshufb": 0}),
    ],
    ids=["vbmi", "avx512", "avx2", "aarch64", "ssse3"],
)
def test_instructions(t: Target, instructions: dict[str, int]) -> None:
    """Sixteen bytes take one step for each part of the list, and no byte is loaded alone."""
    text = assembly(emit(lookup(256, i8, 16), t).text, t)
    assert {name: text.count(name) for name in instructions} == instructions


def test_the_text_of_a_lookup(golden: Callable[..., None]) -> None:
    golden(emit(lookup(256, i8, 64), with_permutes()).text)


def test_few_lanes_are_loaded_one_by_one() -> None:
    v3 = target("x86-64-v3")
    assert lookup_instructions(v3, 256, 4) is None
    assert lookup_instructions(v3, 256, 16) is not None
    assert lookup_instructions(target("x86-64"), 256, 64) is None


@pytest.mark.parametrize("entries", [256, 100, 7])
def test_nothing_behind_the_list_is_read(entries: int) -> None:
    table = against_a_wall(np.arange(entries).astype(np.int8))
    x, y = (np.arange(256) % entries).astype(np.uint8), np.zeros(256, np.int8)
    run(lookup(entries, u8, 32), [x, table, y])
    np.testing.assert_array_equal(y, table[x])


def test_lanes_that_are_off_give_zero() -> None:
    x, y, table = Buffer("x", u8, (32,)), Buffer("y", i8, (32,)), Buffer("list", i8, (256,))
    at, i = lanes_at(0, 32), Var("i", i64)
    place = Cast(Load(x, (at,)), i64)
    is_on = Compare("lt", at, Broadcast(const(20), 32))
    body = For(i, const(0), const(1), "serial", Store(y, (at,), Load(table, (place,), is_on)))
    found = np.zeros(32, np.int8)
    places, numbers = np.arange(32, dtype=np.uint8), np.arange(1, 257).astype(np.int8)
    run(Func("f", (x, table, y), (y,), body), [places, numbers, found])
    np.testing.assert_array_equal(found, np.where(places < 20, numbers[places], 0))
