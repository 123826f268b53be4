"""Machine code of products with packed weights: no calls, and few instructions for each weight."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from assembly_loops import innermost_loops

from tilesmith import driver, te
from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly
from tilesmith.codegen.math import expand_math
from tilesmith.codegen.targets import target as named
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused
from tilesmith.ir.dtypes import f32
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.ops.packed import PackedMatMul
from tilesmith.strategy.cpu.scaled_chunks import scaled_chunks, tile_of
from tilesmith.support.options import Options

CALL = re.compile(r"^\t(?:call\w*|bl)\t(\S+)", re.MULTILINE)


def code(target: Target, bits: int, rows: int) -> str:
    """The assembly text of a product of 512 x 768 weights."""
    op = PackedMatMul(bits, 32, 32, 1 << bits - 1)
    b = Builder()
    words = b.constant(np.zeros((16, op.words, 768), np.uint32))
    scales = b.constant(np.ones((16, 768), np.float32))
    x = b.input("x", TensorType(f32, (rows, 512)))
    session = driver.Session.of(Options(use_records=False))
    session = replace(session, target=target)
    (node,) = driver.optimise(b.finish(b.add(op, x, words, scales)), session).nodes
    assert isinstance(node.op, Fused)
    nest = session.group(driver.canonical(node.op.body)).lower("k")
    final = expand_math(driver.run_loop_passes(nest, session), target)
    return assembly(emit(final, target).text, target)


def level(name: str) -> Target:
    if name != "aarch64":
        return named(name)
    base = replace(named("x86-64-v2"), features=frozenset({"neon"}), vector_registers=32)
    return replace(base, triple="aarch64-unknown-linux-gnu", cpu="generic", vector_bits=128)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_no_function_is_called(name, bits):
    for rows in (1, 5):
        found = set(CALL.findall(code(level(name), bits, rows)))
        library = {c for c in found if not c.startswith(("*", "k.", "x"))}
        assert not library, f"{rows} rows"


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("bits", "shifts"), [(2, 1 / 16), (4, 1 / 8), (8, 1 / 4)])
def test_a_vector_of_weights_takes_a_mask_and_a_conversion(name, bits, shifts):
    """The one multiply-add in a loop of one row is that of one vector of weights."""
    loops = innermost_loops(code(level(name), bits, 1))
    main = max(loops, key=lambda text: text.count("vcvtdq2ps"))
    count = Counter(line.split()[0] for line in main.splitlines() if line.startswith("\t"))
    products = sum(n for op, n in count.items() if op.startswith("vfmadd"))
    masks = sum(n for op, n in count.items() if op.startswith(("vpand", "vandps", "vpternlog")))
    assert products == count["vcvtdq2ps"] == masks >= 32
    assert count["vpsrld"] == products * shifts
    arithmetic = products + masks + count["vcvtdq2ps"] + count["vpsrld"]
    assert sum(count.values()) <= 1.5 * arithmetic


def test_tiles_fill_half_of_the_registers():
    narrow = named("x86-64-v3")
    assert [tile_of(n, narrow) for n in (1, 2, 4, 9)] == [(1, 8), (2, 4), (4, 2), (4, 2)]
    assert tile_of(9, named("x86-64-v4")) == (4, 4)


def test_a_sum_that_reads_in_another_order_has_no_chunks():
    """Indices are compared one by one: `==` of two of them is an expression, not an answer."""
    x = te.placeholder((4, 5, 6), "f32", "x")
    partial = te.compute((4, 5, 6), lambda t, k, f: x[t, k, f] * 2.0, "partial")
    k = te.reduce_axis(5, "k")
    total = te.compute((4, 6), lambda t, f: te.sum(partial[t, k, f], axis=k), "total")
    assert scaled_chunks([partial.op, total.op]) is None
