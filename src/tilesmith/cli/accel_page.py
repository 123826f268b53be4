"""The pages that `tilesmith accel` draws: the machines of a sweep, and the layers of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from tilesmith.accel.clock import Counts
from tilesmith.accel.machine import Machine
from tilesmith.accel.report import HiddenLatency
from tilesmith.accel.report import described as shapes
from tilesmith.accel.sweep import Point
from tilesmith.tuning.report.page import cell, figure, framed, table
from tilesmith.tuning.report.svg import Axis, Bar, Chart, bars


def sweep_page(
    title: str, points: Sequence[Point], front: Sequence[Point], varied: Sequence[str]
) -> str:
    """The page of a sweep: cycles against both areas, and the table.

    front: those points that no other one beats.
    varied: the parameters in which the machines differ.
    """
    drawn = (
        ("multipliers", lambda p: p.multipliers),
        ("bits of memory on the chip", lambda p: p.memory_bits),
    )
    figures = "".join(
        figure(
            _chart(points, front, varied, label, area),
            f"Cycles of all layers against {label}. Filled squares: no other machine is as good in "
            "cycles, multipliers, memory and width of the channels, and better in one of them. "
            "The line joins those that no machine of less such area is faster than.",
        )
        for label, area in drawn
    )
    columns = (*(f"*{name}" for name in varied), "*multipliers", "*bits of memory", "*cycles",
               "on the front")  # fmt: skip
    rows = [
        [
            *(cell(getattr(p.machine, name)) for name in varied),
            cell(p.multipliers),
            cell(p.memory_bits),
            cell("no tiles fit" if p.cycles is None else p.cycles),
            f"<td>{'yes' if p in front else ''}</td>",
        ]
        for p in points
    ]
    charts = f'<section><h2>Cycles against area</h2><div class="charts">{figures}</div></section>'
    return framed(
        title, (charts, f"<section><h2>Machines</h2>{table(columns, rows)}</section>")
    )  # fmt: skip


def described(machine: Machine, varied: Sequence[str]) -> str:
    """The parameters in which the machine differs from others, as text."""
    return ", ".join(f"{name} {getattr(machine, name)}" for name in varied)


def _chart(
    points: Sequence[Point],
    front: Sequence[Point],
    varied: Sequence[str],
    label: str,
    area: Callable[[Point], int],
) -> str:
    """Cycles of all points against an area."""
    known = [(float(area(p)), float(p.cycles), p) for p in points if p.cycles is not None]
    x = Axis.around(label, [a for a, _, _ in known], log=True)
    y = Axis.around("cycles", [n for _, n, _ in known], log=True)
    chart = Chart(f"Cycles against {label}", x, y)
    edge: list[tuple[float, float]] = []
    for a, n, _ in sorted(known, key=lambda row: row[:2]):
        if not edge or n < edge[-1][1]:
            edge.append((a, n))
    chart.line(edge, "after", steps=True)
    for a, n, p in known:
        name, mark = ("mark-after", "square") if p in front else ("mark-before", "circle")
        chart.point(a, n, name, mark, f"{described(p.machine, varied)}: {n:.0f} cycles")
    return chart.svg()


def layers_page(title: str, layers: Sequence[HiddenLatency], machine: Machine) -> str:
    """The page of a model's layers: the roofline, and the utilisation of the matrix unit."""
    lengths = [
        Bar(shapes(x.conv), 100 * x.alone.utilisation, 100 * x.together.utilisation) for x in layers
    ]
    figures = figure(
        _roofline(layers, machine),
        "Roofline: multiplications in a cycle against multiplications for each byte that is read. "
        "The line is the bound of the read channel, then of the matrix unit. Circles: one virtual "
        "thread; squares: as many as the table says.",
    ) + figure(
        bars("Utilisation of the matrix unit", lengths),
        "Percent of the cycles in which the matrix unit works: outlined with one virtual thread, "
        "filled with as many as the table says.",
    )
    columns = ("layer", "*count", "*cycles, 1 thread", "*threads", "*cycles together", "*bound")
    rows = [
        [
            f'<td class="name">{escape(shapes(x.conv))}</td>',
            *map(cell, (x.count, x.alone.cycles, x.threads, x.together.cycles, x.together.bound)),
        ]
        for x in layers
    ]
    charts = f'<section><h2>Hidden latency</h2><div class="charts">{figures}</div></section>'
    return framed(title, (charts, f"<section><h2>Layers</h2>{table(columns, rows)}</section>"))


def _roofline(layers: Sequence[HiddenLatency], machine: Machine) -> str:
    """The speed of each layer, and its bounds."""

    def place(counts: Counts) -> tuple[float, float]:
        """Multiplications for each byte, and in each cycle."""
        products = counts.gemm_cycles // machine.gemm_cycles * machine.products
        return products / counts.read_bytes, products / counts.cycles

    points = [(x, place(x.alone), place(x.together)) for x in layers]
    speeds = [p for _, *both in points for p in both]
    peak = machine.products / machine.gemm_cycles
    ridge = peak / machine.dma_bytes
    loads, rates = zip((ridge, peak), *speeds, strict=True)
    across = Axis.around("multiplications for each byte", loads, log=True)
    up = Axis.around("multiplications in a cycle", rates, log=True)
    chart = Chart("Roofline", across, up)
    first = max(across.low, up.low / machine.dma_bytes)
    chart.line([(first, first * machine.dma_bytes), (ridge, peak), (across.high, peak)], "after")
    for x, alone, together in points:
        tips = [f"{shapes(x.conv)}: {c.utilisation:.0%}" for c in (x.alone, x.together)]
        chart.point(*alone, "mark-before", "circle", tips[0])
        chart.point(*together, "mark-after", "square", tips[1])
    return chart.svg()
