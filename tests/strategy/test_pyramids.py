"""Chains of stencils: what is inlined, stored or computed in strips by the default schedule."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from expressions import Arguments, arrays, outputs

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.ir.expr import Expr, Load, post_order
from tilesmith.loop.nodes import Allocate, Func
from tilesmith.loop.visit import own_exprs, walk
from tilesmith.strategy.sketch import default_schedule
from tilesmith.strategy.sketch.recompute import MAX_NODES
from tilesmith.strategy.sketch.work import element_cycles, lane_strides
from tilesmith.te.tensor import Placeholder, Tensor

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "local_laplacian.py"
HOST = target("x86-64-v3")


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("local_laplacian", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def stencil(a: Tensor, name: str, radius: int = 1) -> Tensor:
    """Sums over squares, borders repeated."""
    h, w = (int(n) for n in a.shape)  # type: ignore[arg-type]  # numbers
    reach = range(-radius, radius + 1)

    def body(y: Expr, x: Expr) -> Expr:
        rows = [te.maximum(te.minimum(y + d, h - 1), 0) for d in reach]
        columns = [te.maximum(te.minimum(x + d, w - 1), 0) for d in reach]
        total = a[y, x]
        for row in rows:
            for column in columns:
                total = total + a[row, column] * 0.1
        return total

    return te.compute((h, w), body, name)


def chain(h: int, w: int, stages: int, radius: int = 1) -> Arguments:
    t = a = te.placeholder((h, w), "f32", "A")
    for n in range(stages):
        t = stencil(t, f"s{n}", radius)
    return [a, t]


def pyramid(h: int, w: int, levels: int) -> Arguments:
    """Each level of a Laplacian pyramid is a result."""
    module = example()
    levels_ = [te.placeholder((h, w), "f32", "A")]
    for n in range(1, levels):
        levels_.append(module.downsampled(levels_[-1], f"g{n}"))
    details = []
    for n, (fine, coarse) in enumerate(itertools.pairwise(levels_)):
        wide = module.upsampled(coarse, *fine.shape, f"u{n}")
        details.append(_difference(fine, wide, f"l{n}"))
    return [levels_[0], *details]


def _difference(a: Tensor, b: Tensor, name: str) -> Tensor:
    return te.compute(a.shape, lambda y, x: a[y, x] - b[y, x], name)


def local_laplacian(h: int, w: int, levels: int) -> Arguments:
    return example().local_laplacian(h, w, levels)


PROGRAMS: dict[str, Callable[..., Arguments]] = {
    "chain": chain, "pyramid": pyramid, "local_laplacian": local_laplacian,
}  # fmt: skip


def run(s: te.Schedule | str, args: Arguments, name: str = "native") -> list[np.ndarray]:
    """The outputs for inputs between 0 and 1."""
    given = arrays(args, seed=2)
    rng = np.random.default_rng(2)
    given = [
        rng.random(a.shape, np.float32) if isinstance(t.op, Placeholder) else a
        for a, t in zip(given, args, strict=True)
    ]
    ts.build(s, args, target=name, threads=2)(*given)  # type: ignore[arg-type]  # "auto"
    return [a for a, t in zip(given, args, strict=True) if not isinstance(t.op, Placeholder)]


@pytest.mark.parametrize(("h", "w"), [(64, 96), (37, 51), (5, 9)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_default_schedule_gives_the_unscheduled_answer(program: str, h: int, w: int) -> None:
    args = PROGRAMS[program](h, w, 3)
    expected = run(te.create_schedule(outputs(args)), args)
    for found, want in zip(run("auto", args), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_strips_give_the_same_answer_as_c() -> None:
    args = chain(150, 64, 4)
    expected = run(te.create_schedule(outputs(args)), args)
    (found,) = run("auto", args, "c")
    np.testing.assert_allclose(found, expected[0], rtol=1e-4, atol=1e-5)


def test_schedule_of_the_example_by_hand_gives_the_same_answer() -> None:
    module = example()
    args = module.local_laplacian(40, 56, 3)
    expected = run(te.create_schedule(outputs(args)), args)
    (found,) = run(module.by_hand(args), args)
    np.testing.assert_allclose(found, expected[0], rtol=1e-4, atol=1e-5)


def reads(func: Func) -> int:
    """The distinct reads of a kernel."""
    exprs = [e for s in walk(func.body) for e in own_exprs(s)]
    return len({n for e in exprs for n in post_order(e) if isinstance(n, Load)})


@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        ("chain", (1080, 1920, 10)),
        ("chain", (1080, 1920, 10, 2)),
        ("pyramid", (1024, 1536, 8)),
        ("local_laplacian", (768, 1280, 5)),
    ],
)
def test_code_of_deep_chains_is_small(program: str, sizes: tuple[int, ...]) -> None:
    """Inlined, the reads grow exponentially with the number of stages."""
    args = PROGRAMS[program](*sizes)
    plain = reads(te.lower(te.create_schedule(outputs(args)), args))
    assert reads(te.lower(default_schedule(args, HOST), args)) < 12 * plain
    s = default_schedule(args, HOST)
    computed = [st.state.compute for st in s.stages if not st.state.is_placeholder]
    largest = max(len({n for b in op.body for n in post_order(b)}) for op in computed)
    assert largest <= MAX_NODES


def test_a_reduction_in_blocks_is_not_copied_whole_by_its_reader() -> None:
    h, w, radius = 512, 1024, 3
    x = te.placeholder((h, w), "f32", "x")
    dy, dx = (te.reduce_axis(2 * radius + 1, n) for n in ("dy", "dx"))

    def edge(i: Expr, n: int) -> Expr:
        return te.maximum(te.minimum(i - radius, n - 1), 0)

    down = te.compute((h, w), lambda i, j: te.max(x[edge(i + dy, h), j], axis=dy), "down")
    out = te.compute((h, w), lambda i, j: te.max(down[i, edge(j + dx, w)], axis=dx), "out")
    given = np.random.default_rng(0).random((h, w), np.float32)
    wanted = given
    for axis in (0, 1):
        ends = [(radius, radius) if a == axis else (0, 0) for a in (0, 1)]
        padded = np.pad(wanted, ends, "edge")
        wanted = np.lib.stride_tricks.sliding_window_view(padded, 2 * radius + 1, axis).max(-1)
    found = np.empty_like(given)
    ts.build("auto", [x, out], target="x86-64-v3")(given, found)
    np.testing.assert_array_equal(found, wanted)


def test_cheap_stages_are_inlined() -> None:
    a = te.placeholder((2000, 2000), "f32", "A")
    b = te.compute(a.shape, lambda y, x: a[y, x] * 2.0, "B")
    c = te.compute(a.shape, lambda y, x: b[y, x] + b[y, te.minimum(x + 1, 1999)], "C")
    assert default_schedule([a, c], HOST)[b].attach == "inline"


def test_a_stage_is_copied_for_the_reader_that_repeats_it() -> None:
    """Two elements of g0 for each of out0 are cheaper computed again than stored."""
    args = local_laplacian(768, 1280, 2)
    s = default_schedule(args, HOST)
    assert s["g0"].attach == "inline"
    copies = [st for st in s.stages if st.name.startswith("g0_")]
    assert [st.state.attach for st in copies] != ["root"]


def test_regions_of_clamped_reads_of_clamped_reads_are_strips() -> None:
    args = chain(1080, 1920, 3)
    s = te.create_schedule(args[1].op)
    last = s["s2"]
    outer, _ = last.split(last.axis[0], factor=30)
    s["s1"].compute_at(last, outer)
    s["s0"].compute_at(last, outer)
    func = te.lower(s, args)
    shapes = {n.buffer.name: n.buffer.shape for n in walk(func.body) if isinstance(n, Allocate)}
    assert shapes == {"s1": (32, 1920), "s0": (34, 1920)}


def test_steps_between_lanes() -> None:
    a, table = te.placeholder((64, 64), "f32", "A"), te.placeholder((64,), "i64", "T")
    y, x = te.reduce_axis(64, "y").var, te.reduce_axis(64, "x").var
    indices = {
        "unit": x + y, "clamped": te.maximum(te.minimum(2 * x - 1, 62), 0), "half": x // 2,
        "same": y * 3 + 1, "taken": table[x], "taken for a row": table[y],
    }  # fmt: skip
    found = lane_strides(list(indices.values()), x)
    steps = [1, 2, 0.5, 0, None, 0]
    assert {n: found[e] for n, e in indices.items()} == dict(zip(indices, steps, strict=True))
    near, far = a[y, x], a[y, te.maximum(te.minimum(table[x], 63), 0)]
    assert 4 * element_cycles([near], x, HOST) < element_cycles([far], x, HOST)
