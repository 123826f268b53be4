"""The machines of a sweep, as `tilesmith accel` draws them: one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.accel.machine import Machine
from tilesmith.accel.sweep import Point
from tilesmith.tuning.report.page import cell, figure, framed, table
from tilesmith.tuning.report.svg import Axis, Chart


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
