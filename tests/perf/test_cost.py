"""The performance model: what it counts in loops of known content, and that it keeps its head."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tilesmith.codegen.math import expand_math
from tilesmith.codegen.targets import target
from tilesmith.ir.byte_lookups import lookup_instructions
from tilesmith.loop.parse import parse_func
from tilesmith.perf.cost import Prediction, Setting, constants_place, predict
from tilesmith.perf.cycles import Instructions
from tilesmith.perf.footprint import miss_rate, touched
from tilesmith.perf.kernel_work import work_of
from tilesmith.perf.machine import Machine, Rates
from tilesmith.perf.work import Work

V3 = target("x86-64-v3")  # 8 lanes, 2 multiply-adds a cycle, 32 KiB of L1, 512 KiB of L2
ONE = Rates(1, 100e9, 200e9, 100e9, 100e9, 80e9, 50e9, 40e9, 20e9, 10e9, 0.0)
TWO = Rates(2, 200e9, 400e9, 200e9, 200e9, 160e9, 80e9, 60e9, 30e9, 15e9, 1e-6)
LANES = "ramp(0, 1, 8)"
ACC = "acc[ramp(0, 1, 8)]"
MACHINE = Machine("a CPU", 32, 32 << 20, (ONE, TWO))


def work(text: str) -> Work:
    return work_of(expand_math(parse_func(text), V3), V3)


def product(rows: int, depth: int) -> Work:
    """A register tile of 1 x 8 over `depth`, for each of `rows` rows."""
    return work(f"""def mm(a: f32[{rows * depth}], b: f32[{depth * 8}], c: f32[{rows * 8}]) -> c:
    for i in parallel({rows}):
        alloc acc: f32[8] register
        {ACC} = broadcast(0.0, 8)
        for k in range({depth}):
            {ACC} = {ACC} + broadcast(a[i * {depth} + k], 8) * b[ramp(k * 8, 1, 8)]
        c[ramp(i * 8, 1, 8)] = {ACC}
""")


def stream(n: int) -> Work:
    return work(
        f"""def double(x: f32[{n}], y: f32[{n}]) -> y:
    for i in parallel({n // 8}):
        y[ramp(i * 8, 1, 8)] = x[ramp(i * 8, 1, 8)] * 2.0
""".replace("* 2.0", "* broadcast(2.0, 8)")
    )


def expected(w: Work, threads: int = 1, **changes: float) -> Prediction:
    rates = tuple(replace(r, **changes) for r in MACHINE.rates)
    return predict(w, replace(MACHINE, rates=rates), V3, Setting(threads))


def test_a_lookup_in_registers_is_counted_by_its_instructions():
    def each(entries: int) -> Instructions:
        w = work(f"""def f(x: u8[1024], list: i8[{entries}], y: i8[1024]) -> y:
    for i in range(32):
        y[ramp(i * 32, 1, 32)] = list[i64(x[ramp(i * 32, 1, 32)])]
""")
        return w.regions[0].bodies[-1].each

    registers, separate = each(256), each(257)
    assert registers.alu - separate.alu == lookup_instructions(V3, 256, 32)
    assert separate.load - registers.load == 32


def test_a_register_tile_is_counted_exactly():
    w = product(64, 100)
    assert w.flops == 2 * 64 * 100 * 8
    assert w.bytes == (64 * 100 + 100 * 8 + 64 * 8) * 4
    (region,) = (r for r in w.regions if r.extent > 1)
    assert (region.extent, region.entries) == (64, 1)
    inner = max(region.bodies, key=lambda b: b.trips)
    assert (inner.trips, inner.entries, inner.each.fma, inner.each.alu) == (6400, 64, 1, 0)
    assert (
        inner.each.store == 0 and inner.each.chain == V3.model.fma_latency
    )  # one accumulator: each trip waits
    stored = next(b for b in region.bodies if b.each.store)
    assert (stored.trips, stored.each.store) == (64, 1)


def test_what_does_not_change_in_a_loop_is_counted_outside():
    w = work("""def f(x: f32[8], y: f32[800]) -> y:
    for i in range(100):
        y[ramp(i * 8, 1, 8)] = exp(x[ramp(0, 1, 8)])
""")
    body = max(w.regions[0].bodies, key=lambda b: b.trips)
    assert body.trips == 100 and body.each.fma == 0 and body.each.load == 0 and body.each.store == 1


def test_the_parts_of_exp_are_counted_in_the_loop_that_changes_them():
    w = work("""def f(x: f32[800], y: f32[800]) -> y:
    for i in range(100):
        y[ramp(i * 8, 1, 8)] = exp(x[ramp(i * 8, 1, 8)])
""")
    body = max(w.regions[0].bodies, key=lambda b: b.trips)
    assert body.trips == 100 and body.each.fma >= 4


@pytest.mark.parametrize(
    ("lanes", "vectors"),
    [
        (f"{LANES} // broadcast(4, 8)", 1),  # two groups of four lanes: one vector and a shuffle
        (f"{LANES} // broadcast(4, 8) * broadcast(4, 8)", 1),
        (f"{LANES} % broadcast(2, 8) * broadcast(58, 8) + {LANES} // broadcast(2, 8)", 2),
        (f"{LANES} % broadcast(3, 8) * broadcast(7, 8)", 2),
        ("ramp(0, 3, 8)", 3),
    ],
)
def test_lanes_at_known_distances_are_whole_vectors_and_shuffles(lanes, vectors):
    w = work(f"""def f(x: f32[1000], y: f32[800]) -> y:
    for i in range(100):
        y[ramp(i * 8, 1, 8)] = x[{lanes} + broadcast(i, 8)]
""")
    body = max(w.regions[0].bodies, key=lambda b: b.trips)
    assert (body.each.load, body.each.alu, body.each.issued) == (vectors, vectors, 2 * vectors + 1)


def test_lanes_that_memory_scatters_are_counted_one_by_one():
    w = work(f"""def f(x: f32[1000], y: f32[800]) -> y:
    for i in range(100):
        y[ramp(i * 8, 1, 8)] = x[{LANES} * {LANES} * broadcast(11, 8) + broadcast(i, 8)]
""")
    assert max(w.regions[0].bodies, key=lambda b: b.trips).each.load == 8


@pytest.mark.parametrize(
    ("run", "dims", "offsets", "size"),
    [
        (32, [], [0], 64),  # never less than a line
        (32, [(32, 8)], [0], 256),  # neighbours join
        (32, [(4096, 8)], [0], 8 * 64),  # a line for each row
        (256, [(1024, 3), (1024, 4)], [0], 6 * 256),  # 3 rows of a window, at 4 places: 6 rows
        (32, [], [0, 32, 64, 96], 128),  # unrolled
        (32, [], [0, 32, 4096, 4128], 128),  # unrolled twice
        (4, [(4, 1000)], [0], 4032),
    ],
)
def test_footprints(run, dims, offsets, size):
    assert touched(run, dims, offsets) == size


def test_a_cache_keeps_what_fits():
    assert miss_rate(100, 100) == 0 and miss_rate(0, 1) == 0
    rates = [miss_rate(size, 100) for size in (101, 120, 150, 200, 400, 10_000)]
    assert rates == sorted(rates) and rates[0] < 0.1 and rates[-1] == pytest.approx(1)


def test_weights_that_fit_a_cache_are_fetched_once():
    small, large = product(64, 256), product(64, 1 << 16)  # 8 KiB and 2 MiB of b

    def traffic(w: Work, level: str) -> float:
        region = max(w.regions, key=lambda r: r.extent)
        return next(getattr(s, level)[0] for s in region.streams if s.argument == 1)

    assert traffic(small, "l1") == traffic(small, "l2") == 256 * 32
    assert traffic(large, "l2") > 32 * (1 << 21)  # nearly all of it again for each row
    assert traffic(large, "l3") == 1 << 21


def test_predictions_grow_with_work():
    times = [expected(product(rows, 64)).seconds for rows in (8, 64, 512, 4096)]
    assert times == sorted(times) and times[-1] > 100 * times[0]
    times = [expected(stream(1 << n)).seconds for n in range(8, 24, 2)]
    assert times == sorted(times)


def test_predictions_shrink_on_a_faster_machine():
    compute, memory = product(4096, 64), stream(1 << 24)
    assert expected(compute).bound == "compute" and expected(memory).bound == "memory"
    assert expected(compute, flops=200e9).seconds < expected(compute).seconds
    assert expected(memory, dram=40e9, dram_write=20e9).seconds < expected(memory).seconds
    assert expected(memory, flops=400e9).seconds == pytest.approx(expected(memory).seconds, rel=0.1)


def test_threads_help_large_kernels_and_not_small_ones():
    assert expected(product(4096, 64), 2).seconds < 0.6 * expected(product(4096, 64)).seconds
    assert expected(stream(64), 2).seconds > expected(stream(64)).seconds
    assert expected(stream(64), 2).bound == "threads"


def test_constants_far_away_cost_more():
    w = product(4, 1024)
    far = predict(w, MACHINE, V3, Setting(1, ("l1", "dram", "l1")))
    assert far.memory > predict(w, MACHINE, V3, Setting(1, ("l1", "l2", "l1"))).memory
    assert constants_place(1000, V3) == "l1" and constants_place(1e9, V3) == "dram"


def product_and_copy(rows: int, depth: int, ahead: bool = False) -> Work:
    """Rows of a times b, each followed by 64 KiB that are filled; `ahead`: with a prefetch of b."""
    prefetch = f"            eval prefetch(b[{depth - 1} * 8])\n" if ahead else ""
    types = {"a": rows * depth, "b": depth * 8, "c": depth * 8, "d": rows << 14}
    factor = f"broadcast(a[i * {depth} + k], 8)"
    return work(f"""def mm({", ".join(f"{n}: f32[{size}]" for n, size in types.items())}) -> c, d:
    for i in parallel({rows}):
        for k in range({depth}):
{prefetch}            c[ramp(k * 8, 1, 8)] = {factor} * b[ramp(k * 8, 1, 8)]
        for j in range(2048):
            d[ramp(i * 16384 + j * 8, 1, 8)] = broadcast(a[i * {depth}], 8)
""")  # fmt: skip


def test_what_all_iterations_read_is_waited_for_in_the_first():
    """64 rows read 256 KiB of b; a 64th of the computing hides nearly nothing of it."""

    def waited(w: Work) -> float:
        near, far = (predict(w, MACHINE, V3, Setting(1, ("l1", p))) for p in ("l2", "dram"))
        return far.seconds - near.seconds

    plain, ahead = (product_and_copy(64, 8192, given) for given in (False, True))
    of_b = [next(s for s in w.regions[0].streams if s.argument == 1) for w in (plain, ahead)]
    assert [s.during for s in of_b] == [1 / 64, 1.0]
    seconds = 8192 * 32 * (1 / ONE.l3 + 1 / ONE.dram)
    assert 0.8 * seconds < waited(plain) < 1.2 * seconds and waited(ahead) < 0.3 * seconds


def test_loops_that_follow_one_another_are_parts():
    """Each has its own bodies and bytes; threads start once."""
    first, second = product_and_copy(64, 8192).regions
    assert (first.extent, first.entries, second.extent, second.entries) == (64, 1, 64, 0)
    assert {s.argument for s in first.streams} == {0, 1, 2}
    assert {s.argument for s in second.streams} >= {3}
    assert max(b.each.fma for b in first.bodies) == 1 and not any(b.each.fma for b in second.bodies)
    (alone,) = (r for r in product(64, 100).regions if r.extent > 1)
    assert alone.entries == 1


def test_values_that_another_core_wrote_are_farther_away():
    w = stream(1 << 12)
    one, two = (expected(w, n, fork_join=0.0) for n in (1, 2))
    assert two.seconds > 0.75 * one.seconds  # half of them, through L3


def test_work_is_data():
    w = product(64, 100)
    again = Work.from_json(json.loads(json.dumps(w.to_json())))
    assert expected(again) == expected(w) and again.flops == w.flops
    for damaged in (
        None,
        [],
        [1, 2],
        ["x", 1, []],
        [1, 1, [[1]]],
        [math.nan, 1, []],
        [1, True, []],
    ):
        with pytest.raises((ValueError, TypeError)):
            Work.from_json(damaged)


def test_machine_is_data():
    assert Machine.from_json(json.loads(json.dumps(MACHINE.to_json()))) == MACHINE
    assert MACHINE.at(1) == ONE and MACHINE.at(2) == TWO and MACHINE.at(9) == TWO
    between = Machine("", 32, 1, (ONE, replace(TWO, threads=3))).at(2)
    assert ONE.flops < between.flops < TWO.flops and between.threads == 2
    for change in ({"rates": []}, {"vector_bytes": 0}, {"rates": [{}]}):
        with pytest.raises((ValueError, KeyError)):
            Machine.from_json(MACHINE.to_json() | change)
