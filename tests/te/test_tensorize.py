"""Tensor intrinsics: declared, matched with loops, interpreted, and compiled."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly
from tilesmith.codegen.targets import target
from tilesmith.ir.expr import Load, post_order, rebuilt
from tilesmith.ir.tensor_intrinsics import Operand, TensorIntrinsic, tensor_intrinsic
from tilesmith.loop.compare import structural_equal
from tilesmith.loop.interpret import behaviour, interpret
from tilesmith.loop.nodes import Buffer, Func
from tilesmith.loop.parse import parse_func
from tilesmith.strategy.intrinsics import SHIPPED, available
from tilesmith.support.errors import ExpressionError, ScheduleError
from tilesmith.support.options import Options

SESSION = driver.Session.of(Options(verify_each=True))
HOST = available(SESSION.target)


def dot(lanes: int = 8, depth: int = 2, name: str = "dot") -> TensorIntrinsic:
    """Of two i16 vectors; written with plain instructions, so that every target has it."""
    a = te.placeholder((depth,), "i16", "a")
    w = te.placeholder((lanes, depth), "i16", "w")
    k = te.reduce_axis(depth, "k")
    c = te.compute(
        (lanes,), lambda n: te.sum(a[k].astype("i32") * w[n, k].astype("i32"), axis=k), "c"
    )

    def emit(code: Any, c: Any, a: Any, w: Any) -> Any:
        return code.add(c, code.call("llvm.x86.sse2.pmadd.wd", c.type, code.repeated(a, lanes), w))

    return te.decl_tensor_intrin(name, c, emit, features=["sse2"])


DOT, WIDE = dot(4), dot(8, name="wide_dot")


def product(
    m: int, n: int, k: int, rows: int = 2, lanes: int = 4, depth: int = 2, swapped: bool = False
) -> tuple[te.Schedule, list[te.Tensor]]:
    """`C = A W` with `W` packed for a dot product of `lanes` and `depth`, scheduled up to
    `tensorize`; the loops to give to it begin at `ji`.
    """
    a = te.placeholder((m, k), "i16", "A")
    w = te.placeholder((-(-n // lanes), -(-k // depth), lanes, depth), "i16", "W")
    r = te.reduce_axis(k, "r")

    def term(i: Any, j: Any) -> Any:
        x = a[i, r].astype("i32")
        y = w[j // lanes, r // depth, j % lanes, r % depth].astype("i32")
        return te.sum(y * x if swapped else x * y, axis=r)

    c = te.compute((m, n), term, "C")
    s = te.create_schedule(c)
    acc = s.cache_write(c, "register")
    _, jo, _, _ = s[c].tile("i", "j", rows, lanes)
    s[acc].compute_at(s[c], jo)
    s[c].vectorize("ji")
    s[c].unroll("ii")
    s[acc].split("j", lanes)
    s[acc].split("r", depth)
    inner = ("ri", "ji") if swapped else ("ji", "ri")
    s[acc].reorder("ro", "i", "jo", *inner)
    s[acc].unroll("i")
    return s, [a, w, c]


def shape_of(x: te.Tensor | Buffer) -> tuple[int, ...]:
    """The extents, which are numbers."""
    return tuple(n for n in x.shape if isinstance(n, int))


def run(s: te.Schedule, args: list[te.Tensor], seed: int) -> None:
    """Compares the interpreter before and after the loop passes, and the machine code, with
    NumPy.
    """
    rng = np.random.default_rng(seed)
    a, w = (rng.integers(-(2**15), 2**15, shape_of(t), np.int16) for t in args[:2])
    m, n = shape_of(args[2])
    k = a.shape[1]
    plain = w.transpose(1, 3, 0, 2).reshape(w.shape[1] * w.shape[3], -1)[:k, :n]
    wanted = a.astype(np.int32) @ plain.astype(np.int32)
    func = te.lower(s, args)
    for form in (func, driver.run_loop_passes(func, SESSION)):
        found = np.zeros((m, n), np.int32)
        interpret(form, [x.reshape(shape_of(b)) for x, b in zip((a, w, found), form.buffers)])
        np.testing.assert_array_equal(found.reshape(m, n), wanted)
    found = np.zeros((m, n), np.int32)
    ts.build(s, args)(a, w, found)
    np.testing.assert_array_equal(found, wanted)


def test_golden() -> None:
    s, args = product(4, 8, 6)
    s["C_register"].tensorize("ji", DOT)
    assert "s['C_register'].tensorize('ji', 'dot')" in s.text()
    func = te.lower(s, args)
    assert """\
                    tensor dot:
                        for ji_1 in vectorized(4):
                            for ri in unrolled(2):
                                C_register[i_1, ji_1] = C_register[i_1, ji_1] + \
i32(A[io * 2 + i_1, ro * 2 + ri]) * i32(W[jo, ro, ji_1, ri])
""" in str(func)
    final = driver.run_loop_passes(func, SESSION)
    assert "tensor_dot(C_register[ramp(0, 1, 4)], A[ramp(" in str(final)
    for form in (func, final):
        assert structural_equal(parse_func(str(form)), form)


@pytest.mark.parametrize("seed", range(12))
def test_products(seed: int) -> None:
    """Tails of rows, columns and the reduction; the order of loops and factors."""
    rnd = random.Random(seed)
    m, n, k = rnd.randint(1, 7), rnd.randint(1, 13), rnd.randint(2, 9)
    s, args = product(m, n, k, rnd.randint(1, 3), swapped=bool(seed % 2))
    s["C_register"].tensorize(s["C_register"].leaf_axes[-2], DOT)
    run(s, args, seed)


def test_a_reduction_inside_the_instruction_alone() -> None:
    s, args = product(3, 4, 2)
    s["C_register"].tensorize("ji", DOT)
    run(s, args, 0)


def test_a_declaration_without_a_sum() -> None:
    a, b = te.placeholder((), "f32", "a"), te.placeholder((8,), "f32", "b")
    c = te.compute((8,), lambda n: te.maximum(a[()], b[n]), "c")

    def emit(code: Any, a: Any, b: Any) -> Any:
        return code.call("llvm.maximum.v8f32", b.type, code.repeated(a, 8), b)

    clamp = te.decl_tensor_intrin("clamp_8", c, emit)
    x, low = te.placeholder((16,), "f32", "x"), te.placeholder((2,), "f32", "low")
    y = te.compute((16,), lambda i: te.maximum(x[i], low[i // 8]), "y")
    s = te.create_schedule(y)
    s[y].split("i", 8)
    s[y].tensorize("ii", clamp)
    given = np.arange(16, dtype=np.float32), np.array([3, 12], np.float32)
    found = np.zeros(16, np.float32)
    ts.build(s, [x, low, y])(*given, found)
    np.testing.assert_array_equal(found, np.maximum(given[0], given[1].repeat(8)))


def padded(columns: int) -> tuple[te.Schedule, list[te.Tensor]]:
    """Rows and columns with zeros around them, scheduled up to `tensorize` of a row's columns."""
    x = te.placeholder((3, columns), "f32", "x")
    y = te.compute(
        (5, columns),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < 4), x[i - 1, j], te.const(0, "f32")),
        "y",
    )
    return te.create_schedule(y), [x, y]


def test_a_copy_that_fills_tiles_with_zeros() -> None:
    a = te.placeholder((8,), "f32", "a")
    whole = te.compute((8,), lambda n: a[n], "c")
    copy = te.decl_tensor_intrin("copy_or_fill", whole, lambda code, a: a, fills=True)
    s, args = padded(8)
    s["y"].tensorize("j", copy)
    final = driver.run_loop_passes(te.lower(s, args), SESSION)
    assert "tensor_copy_or_fill" in str(final)
    x, found = np.arange(24, dtype=np.float32).reshape(3, 8), np.ones((5, 8), np.float32)
    ts.build(s, args)(x, found)
    np.testing.assert_array_equal(found, np.pad(x, ((1, 1), (0, 0))))
    plain = te.decl_tensor_intrin("copy_all", whole, lambda code, a: a)
    s, _ = padded(8)
    with pytest.raises(ScheduleError, match="the expressions differ"):
        s["y"].tensorize("j", plain)


def test_a_condition_inside_a_tile_is_refused() -> None:
    a = te.placeholder((8,), "f32", "a")
    copy = te.decl_tensor_intrin(
        "copy_or_fill", te.compute((8,), lambda n: a[n], "c"), lambda code, a: a, fills=True
    )
    x = te.placeholder((8,), "f32", "x")
    y = te.compute((8,), lambda i: te.if_then_else(i < 4, x[i], te.const(0, "f32")), "y")
    s = te.create_schedule(y)
    with pytest.raises(ScheduleError, match="differs inside the tile"):
        s["y"].tensorize("i", copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.tensorize("ri", DOT), "expected an axis of the result among ri"),
        (lambda s: s.tensorize("i", DOT), "i is unrolled"),
        (lambda s: s.tensorize("ji", WIDE), "the loops have other extents"),
        (lambda s: s.tensorize("ji", "fma_f32_4"), "the loops have other extents"),
        (lambda s: s.tensorize("ji", "nothing"), "no tensor intrinsic is called 'nothing'"),
        (lambda s: (s.unroll("ri"), s.tensorize("ji", DOT)), "ri is unrolled"),
        (lambda s: (s.tensorize("ji", DOT), s.split("ri", 2)), "tensorize last"),
        (lambda s: (s.tensorize("ji", DOT), s.vectorize("ji")), "tensorize last"),
        (lambda s: (s.tensorize("ji", DOT), s.reorder("ri", "ji")), "tensorize last"),
    ],
)
def test_refused(change: Any, message: str) -> None:
    s, _ = product(4, 8, 8)
    with pytest.raises(ScheduleError, match=message):
        change(s["C_register"])
    assert str(s.text()).count("tensorize") == (message == "tensorize last")


def test_another_expression_is_shown_beside_the_behaviour() -> None:
    a, b = te.placeholder((8, 2), "i16", "A"), te.placeholder((8, 2), "i16", "B")
    k = te.reduce_axis(2, "k")
    c = te.compute(
        (4,), lambda i: te.sum(a[i, k].astype("i32") - b[i, k].astype("i32"), axis=k), "C"
    )
    s = te.create_schedule(c)
    with pytest.raises(ScheduleError) as e:
        s[c].tensorize("i", DOT)
    said = "the intrinsic dot computes c[n] += i32(a[k]) * i32(w[n, k]) for n in 4, k in 2"
    assert said in str(e.value)
    shown = "the loops compute C += i32(A[i, k]) - i32(B[i, k]) for i in 4, k in 2"
    assert shown in str(e.value)


def test_operands_that_move_otherwise() -> None:
    """`a` of the intrinsic is shared by all lanes."""
    a, b = te.placeholder((4, 2), "i16", "A"), te.placeholder((4, 2), "i16", "B")
    k = te.reduce_axis(2, "k")
    c = te.compute(
        (4,), lambda i: te.sum(a[i, k].astype("i32") * b[i, k].astype("i32"), axis=k), "C"
    )
    s = te.create_schedule(c)
    with pytest.raises(ScheduleError, match="the expressions differ"):
        s[c].tensorize("i", DOT)


def test_an_intrinsic_that_was_declared_again() -> None:
    old, new = dot(4, name="again"), dot(8, name="again")
    s, _ = product(4, 8, 8)
    with pytest.raises(ScheduleError, match="again was declared once more since"):
        s["C_register"].tensorize("ji", old)
    assert tensor_intrinsic("again") is new
    assert dot(8, name="again") is new


def test_a_tile_that_lies_otherwise_in_memory() -> None:
    a, w = te.placeholder((2,), "i16", "A"), te.placeholder((2, 4), "i16", "W")
    k = te.reduce_axis(2, "k")
    c = te.compute((4,), lambda i: te.sum(a[k].astype("i32") * w[k, i].astype("i32"), axis=k), "C")
    s = te.create_schedule(c)
    s[c].tensorize("i", DOT)
    with pytest.raises(ScheduleError, match=r"w: i16\[4, 2\] must lie in memory with strides 2, 1"):
        ts.build(s, [a, w, c])


@pytest.mark.parametrize(
    ("shape", "body", "message"),
    [
        ((4,), lambda a, i: a[i] * 2.0 + a[0], "reads each operand once"),
        ((4,), lambda a, i: a[i] * i.astype("f32"), "uses axes other than as indices"),
        ((4,), lambda a, i: a[i + 1], "at axes"),
        ((1,), lambda a, i: a[i], "numbers from 2 on"),
    ],
)
def test_declarations_that_are_refused(shape: Any, body: Any, message: str) -> None:
    a = te.placeholder((8,), "f32", "a")
    c = te.compute(shape, lambda i: body(a, i), "c")
    with pytest.raises(ExpressionError, match=message):
        te.decl_tensor_intrin("bad", c, lambda code, a: a)


def test_an_emitter_of_another_type() -> None:
    a = te.placeholder((4,), "f32", "a")
    c = te.compute((4,), lambda i: a[i] * 2.0, "c")
    wrong = te.decl_tensor_intrin("wrong_type", c, lambda code, a: code.bitcast(a, "<4 x i32>"))
    s = te.create_schedule(c)
    s[c].tensorize("i", wrong)
    with pytest.raises(ScheduleError, match="returns a value of type <4 x float>"):
        ts.build(s, [a, c])


def alone(intrinsic: TensorIntrinsic) -> tuple[te.Schedule, list[te.Tensor]]:
    """A kernel that is one call of an intrinsic."""
    inputs = {o: te.placeholder(o.shape, o.dtype, o.name) for o in intrinsic.operands}
    names = [a.name for a in intrinsic.axes]
    spatial = len(intrinsic.result.shape)
    reduced = [
        te.reduce_axis(n, a)
        for n, a in zip(intrinsic.extents[spatial:], names[spatial:], strict=True)
    ]
    if intrinsic.accumulates and not reduced:
        reduced = [te.reduce_axis(3, "again")]  # it adds without a sum of its own

    def body(*spatial_axes: Any) -> Any:
        at = dict(zip(names, (*spatial_axes, *reduced), strict=False))
        term: dict[Any, Any] = {}
        for e in post_order(intrinsic.term):
            if isinstance(e, Load) and isinstance(e.buffer, Operand):
                place = tuple(at[str(i)] for i in _indices(intrinsic, e.buffer))
                term[e] = inputs[e.buffer][place]
            else:
                term[e] = rebuilt(e, term)
        return te.sum(term[intrinsic.term], axis=reduced)

    c = te.compute(intrinsic.result.shape, body, "c")
    s = te.create_schedule(c)
    axes = s[c].leaf_axes
    if len(axes) > len(names):
        s[c].reorder(axes[-1], *axes[:-1])
    s[c].tensorize(axes[0], intrinsic)
    return s, [*inputs.values(), c]


def _indices(intrinsic: TensorIntrinsic, operand: Any) -> tuple[Any, ...]:
    strides = intrinsic.strides(operand)
    used = [(s, a) for s, a in zip(strides, intrinsic.axes, strict=True) if s]
    return tuple(a for _, a in sorted(used, key=lambda u: -u[0]))


def final(intrinsic: TensorIntrinsic) -> tuple[Func, list[te.Tensor]]:
    s, args = alone(intrinsic)
    return driver.run_loop_passes(te.lower(s, args), SESSION), args


ALONE = [i for i in SHIPPED if i.threads == 1]  # tests/backend/cuda has those of several threads

INSTRUCTIONS = {
    "fma_f32": "vfmadd", "pmaddwd": "pmaddwd", "pmaddwd_i8": "pmaddwd", "vpdpwssd": "vpdpwssd",
    "vpdpwssd_lanes": "vpdpwssd", "vpdpbusd": "vpdpbusd", "vdpbf16ps": "vdpbf16ps",
    "smlad_u8_i": "smlad", "dot_i": "i32x4.dot_i16x8_s", "dot_i16_i": "i32x4.dot_i16x8_s",
}  # fmt: skip


@pytest.mark.parametrize("intrinsic", ALONE, ids=lambda i: i.name)
def test_the_instruction_is_made(intrinsic: TensorIntrinsic) -> None:
    arm = intrinsic.features & {"dotprod", "i8mm", "bf16"}
    t = target("x86-64-v3")
    if arm:
        t = replace(t, triple="aarch64-unknown-linux-gnu", cpu="generic", vector_bits=128)
    own = frozenset({"neon"}) if arm else t.features
    if "simd128" in intrinsic.features:
        t, own = target("wasm32"), frozenset[str]()
    if "dsp" in intrinsic.features:
        t, own = replace(target("armv7"), triple="thumbv7em-none-eabi"), frozenset[str]()
    t = replace(t, features=intrinsic.features | own)
    func, _ = final(intrinsic)
    text = assembly(emit(func, t).text, t)
    family = intrinsic.name.rstrip("0123456789").rstrip("_")
    assert INSTRUCTIONS.get(family, family) in text


@pytest.mark.parametrize("intrinsic", ALONE, ids=lambda i: i.name)
@pytest.mark.parametrize("seed", range(2))
def test_the_instruction_is_its_behaviour(intrinsic: TensorIntrinsic, seed: int) -> None:
    """The interpreter against NumPy for all; machine code where this machine has the features."""
    rng = np.random.default_rng(seed)
    func, args = final(intrinsic)
    arrays = [_random(rng, t) for t in args[:-1]]
    kind = intrinsic.result.dtype.numpy
    found = np.zeros(intrinsic.result.size, kind)
    interpret(func, [*(a.reshape(shape_of(b)) for a, b in zip(arrays, func.buffers)), found])
    wanted = np.zeros(intrinsic.result.shape, kind)
    interpret(behaviour(intrinsic), [*arrays, wanted])
    if intrinsic.accumulates and not any(intrinsic.is_reduced):
        wanted = wanted * 3
    bound = max(intrinsic.tolerance * 8, 1e-30)
    np.testing.assert_allclose(found, wanted.reshape(-1), rtol=bound)
    if intrinsic.name in HOST:
        s, args = alone(intrinsic)
        made = np.zeros(intrinsic.result.shape, kind)
        ts.build(s, args)(*arrays, made)
        np.testing.assert_allclose(made, wanted, rtol=bound)


def _random(rng: np.random.Generator, t: te.Tensor) -> np.ndarray:
    kind = t.dtype
    if kind.is_float:
        return np.asarray(rng.integers(-8, 9, shape_of(t))).astype(kind.numpy)
    return rng.integers(int(kind.min), int(kind.max) + 1, shape_of(t)).astype(kind.numpy)


def test_a_target_without_the_feature() -> None:
    s, args = alone(tensor_intrinsic("vpdpbusd_16"))
    with pytest.raises(ScheduleError, match="vpdpbusd_16 needs avx512vnni; the target x86-64-v3"):
        ts.build(s, args, target="x86-64-v3")


def test_strict_accuracy_refuses_other_roundings() -> None:
    s, args = alone(tensor_intrinsic("fma_f32_4"))
    with pytest.raises(ScheduleError, match="which strict accuracy does not allow"):
        ts.build(s, args, target="x86-64-v3", accuracy="strict")


def test_the_c_writer_has_the_loops() -> None:
    s, args = product(3, 5, 4)
    s["C_register"].tensorize("ji", DOT)
    func = te.lower(s, args)
    session = driver.Session.of(Options(target="c"))
    assert "tensor" not in str(driver.run_loop_passes(func, session))
