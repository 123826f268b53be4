"""The simulator that counts cycles."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from tilesmith.accel.clock import Counts, Stall, count_cycles, timeline, trace_of
from tilesmith.accel.errors import Cause, InstructionError
from tilesmith.accel.machine import Machine, Unit
from tilesmith.accel.text import parse

from .streams import MACHINES, Stream

PLAIN = Machine(dma_bytes=16, dma_latency=50, instruction_cycles=3)
"""It fetches an instruction, and moves a tile of inputs, in one cycle."""


def spans_of(text: str, machine: Machine = PLAIN) -> tuple[Counts, list[tuple[int, int]]]:
    counts, spans = timeline(parse(text), machine)
    return counts, [(s.start, s.end) for s in spans]


def test_a_load_takes_its_bytes_and_the_latency():
    counts, spans = spans_of("load inp rows=2 columns=5 stride=9\nfinish")
    assert spans[0] == (1, 1 + 3 + 2 * 5 + 50)
    assert counts.cycles == spans[0][1]
    assert (counts.read_bytes, counts.read_cycles) == (160, 10)
    assert counts.units[Unit.LOAD].busy == 63


def test_padding_takes_a_cycle_for_each_tile():
    _, spans = spans_of("load inp columns=4 top=9 bottom=9 left=9 right=9\nfinish")
    assert spans[0] == (1, 1 + 3 + 19 * 22)  # longer than the latency
    _, spans = spans_of("load inp columns=4 rows=3 stride=9 top=1 left=2 right=3 bottom=1\nfinish")
    assert spans[0] == (1, 1 + 3 + 50 + 3 * 4 + 2 * 5 + 3 + 9)  # what comes before is hidden


def test_steps_of_the_matrix_unit_and_the_alu_take_their_cycles():
    text = "uop\nuop\nload uop columns=2\ngemm end=2 outer=3 inner=5\nalu add end=1 inner=7\nfinish"
    counts, spans = spans_of(text, replace(PLAIN, gemm_cycles=2, alu_cycles=4))
    assert [end - start for start, end in spans] == [3 + 2 + 50, 3 + 60, 3 + 28, 3]
    assert (counts.gemm_cycles, counts.alu_cycles) == (60, 28)
    assert counts.utilisation == 60 / counts.cycles


def test_units_run_in_parallel_until_a_token_orders_them():
    apart, _ = spans_of("uop\nload uop\nload wgt columns=64\ngemm end=1 outer=900\nfinish")
    text = "uop\nload uop\nload wgt columns=64 push_next\ngemm end=1 outer=900 pop_prev\nfinish"
    together, spans = spans_of(text)
    assert spans[2][0] == spans[1][1]  # the product begins when the weights are there
    assert apart.cycles < together.cycles
    assert together.units[Unit.COMPUTE].stalls[Stall.PREV] == spans[2][0] - spans[0][1]


def test_units_that_want_the_read_channel_take_turns():
    text = "load inp columns=64\nload acc columns=16\nfinish"
    alone = [spans_of(f"{line}\nfinish")[0].cycles for line in text.splitlines()[:2]]
    counts, spans = spans_of(text)
    assert spans[0][1] == 1 + 3 + (4 + 3) * 16 + 50  # three bursts of the other one come between
    assert counts.cycles > max(alone)
    waits = [counts.units[u].stalls[Stall.CHANNEL] for u in (Unit.LOAD, Unit.COMPUTE)]
    assert all(waits)
    assert counts.read_cycles == 128


def test_stores_have_a_channel_of_their_own():
    alone, _ = spans_of("load inp columns=900\nfinish")
    both, _ = spans_of("load inp columns=900\nstore columns=900\nfinish")
    assert both.cycles == alone.cycles + 1  # the store was fetched a cycle later
    assert both.written_bytes == 900 * 16


def test_double_buffering_hides_the_loads():
    def text(halves: int) -> str:
        lines = ["uop", "load uop"]
        for n in range(8):
            pop = " pop_next" if n >= halves else ""
            lines.append(f"load inp sram={n % halves * 900} columns=900 push_next{pop}")
            push = " push_prev" if n + halves < 8 else ""
            lines.append(f"gemm end=1 outer=900 src_outer=1 pop_prev{push}")
        return "\n".join((*lines, "finish"))

    one, two = spans_of(text(1))[0], spans_of(text(2))[0]
    assert one.cycles > 8 * 2 * 900
    assert two.cycles < 9 * 1000
    assert two.bound == 7201 and two.utilisation > 0.8


def test_a_full_queue_stops_the_fetch():
    loads = "load inp columns=1\n" * 10
    text = f"uop\n{loads}load uop\nfinish"
    _, wide = spans_of(text)
    _, narrow = spans_of(text, replace(PLAIN, command_depth=2))
    assert narrow[10][0] > wide[10][0]


@pytest.mark.parametrize("seed", range(40))
def test_every_cycle_of_a_unit_has_one_name(seed):
    print("seed", seed)
    rng = random.Random(seed)
    machine = replace(MACHINES[seed % len(MACHINES)], token_depth=rng.choice((2, 512)))
    counts, spans = timeline(Stream(rng, machine, rng.randint(1, 9)).program, machine)
    assert counts.bound <= counts.cycles
    for unit in counts.units.values():
        assert min(unit.busy, unit.idle, *unit.stalls.values()) >= 0
        assert unit.busy + sum(unit.stalls.values()) + unit.idle == counts.cycles
    assert max(s.end for s in spans) == counts.cycles


@pytest.mark.parametrize("seed", range(20))
def test_instructions_of_a_unit_run_one_after_the_other_and_tokens_order_units(seed):
    print("seed", seed)
    rng = random.Random(seed)
    program = Stream(rng, PLAIN, 6).program
    _, spans = timeline(program, PLAIN)
    for unit in Unit:
        own = [s for s, x in zip(spans, program.instructions, strict=True) if x.unit is unit]
        assert all(a.end <= b.start for a, b in pairwise(own))
        for other, pop, push in (
            (unit.neighbour(-1), "pop_prev", "push_next"),
            (unit.neighbour(1), "pop_next", "push_prev"),
        ):
            code = list(zip(spans, program.instructions, strict=True))
            takers = [s.start for s, x in code if x.unit is unit and getattr(x, pop)]
            givers = [s.end for s, x in code if x.unit is other and getattr(x, push)]
            assert len(takers) == len(givers)
            assert all(g <= t for g, t in zip(givers, takers, strict=True))


def test_a_deadlock_names_the_instruction():
    with pytest.raises(InstructionError, match="it waits for a token of the load unit") as caught:
        count_cycles(parse("uop\nload uop\ngemm end=1 pop_prev\nfinish"), PLAIN)
    assert caught.value.number == 1 and caught.value.cause is Cause.DEADLOCK


def test_the_table_has_a_row_for_each_unit():
    counts, _ = spans_of("load inp columns=4\nfinish")
    lines = counts.table().splitlines()
    assert [line.split()[0] for line in lines] == ["unit", "load", "compute", "store"]
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split()[1:3] == ["1", f"{100 * 57 / 58:.1f}%"]


def test_a_trace_has_a_track_for_each_unit_and_an_event_for_each_instruction():
    program = parse("uop\nload uop\nload inp push_next\nalu add end=1 pop_prev\nfinish")
    events = trace_of(program, PLAIN)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names.values()) == ["load", "compute", "store"]
    ran = [(names[e["tid"]], e["name"], e["args"]["text"]) for e in events if e["ph"] == "X"]
    assert ran == [
        ("compute", "load uop", "load uop"),
        ("load", "load inp", "load inp push_next"),
        ("compute", "alu add", "alu add end=1 pop_prev"),
        ("compute", "finish", "finish"),
    ]
