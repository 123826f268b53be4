"""The report's charts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilesmith.perf.machine import Rates

from .facts import KernelFacts, Report, TaskFacts
from .svg import Axis, Bar, Chart, bars, number

BARS = 12
"""Kernels in the chart of times: the slowest ones."""


def progress(r: Report) -> str:
    """The whole model's time over the seconds of tuning."""
    points = r.progress
    last = points[-1][0] or 1.0
    low = min(0.9, *(y for _, y in points))
    chart = Chart(
        "Share of the untuned time over the seconds of tuning",
        Axis("seconds", 0.0, last),
        Axis("share of untuned time", low - (1 - low) * 0.08, 1.0 + (1 - low) * 0.08),
    )
    chart.line([*points, (last, points[-1][1])], "after", steps=True)
    return chart.svg()


def times(kernels: Sequence[KernelFacts]) -> str:
    """Times, before and after, of the slowest kernels, which are numbered by rank."""
    slowest = sorted(enumerate(kernels, 1), key=lambda k: -k[1].before.seconds)[:BARS]
    return bars(
        "Times of the slowest kernels before and after tuning",
        [
            Bar(f"{k.title} ({i})", k.before.seconds * 1e3, k.after.seconds * 1e3)
            for i, k in slowest
        ],
    )


def scatter(tasks: Sequence[TaskFacts]) -> str:
    """Predicted against measured ratios of candidates."""
    pairs = [
        (a.predicted, a.ratio, t.label)
        for t in tasks
        for a in t.attempts
        if a.predicted is not None and a.predicted > 0 and math.isfinite(a.ratio)
    ]
    x = Axis.around("predicted ratio", [*(p for p, _, _ in pairs), 1.0], log=True)
    y = Axis.around("measured ratio", [*(m for _, m, _ in pairs), 1.0], log=True)
    chart = Chart("Predicted against measured ratios of candidates", x, y)
    low, high = max(x.low, y.low), min(x.high, y.high)
    chart.line([(low, low), (high, high)], "even")
    for predicted, measured, label in pairs:
        tip = f"{label}: predicted {predicted:.3f}, measured {measured:.3f}"
        chart.point(predicted, measured, "mark-after", "square", tip)
    return chart.svg()


def order(tasks: Sequence[TaskFacts]) -> str:
    """Ranks in the cost model's order against measured ratios; nothing if there are no scores."""
    placed = [(place, ratio, t.label) for t in tasks for place, ratio in t.placed]
    if not placed:
        return ""
    chart = Chart(
        "The cost model's order against measured ratios",
        Axis("place by score, from the fastest (0) to the slowest (1)", 0.0, 1.0),
        Axis.around("measured ratio", [*(m for _, m, _ in placed), 1.0], log=True),
    )
    for place, measured, label in placed:
        tip = f"{label}: place {place:.2f}, measured {measured:.3f}"
        chart.point(place, measured, "mark-after", "square", tip)
    return chart.svg()


def roofline(kernels: Sequence[KernelFacts], rates: Rates) -> str:
    """The kernels under the machine's limits."""
    timed = [
        (k, side, t)
        for k in kernels
        for side, t in (("before", k.before), ("after", k.after))
        if t.intensity and t.gflops
    ]
    peak = rates.flops / 1e9
    x = Axis.around("operations per byte", [*(t.intensity for _, _, t in timed), 1.0], log=True)
    y = Axis.around("GFLOP/s", [*(t.gflops for _, _, t in timed), peak], log=True)
    chart = Chart("Roofline of the kernels before and after tuning", x, y)
    chart.line([(x.low, peak), (x.high, peak)], "roof")
    for k, side, t in timed:
        tip = f"{k.title} ({k.name}), {side}: {t.gflops:.1f} GFLOP/s, {t.gbytes:.1f} GB/s"
        mark = "circle" if side == "before" else "square"
        chart.point(t.intensity, t.gflops, f"mark-{side}", mark, tip)
    chart.note(math.sqrt(x.low * x.high), peak, f"{number(peak)} GFLOP/s")
    for name, rate in (("DRAM", rates.dram), ("L3", rates.l3), ("L2", rates.l2)):
        if not rate:
            continue
        low, high = max(x.low, y.low * 1e9 / rate), min(x.high, rates.flops / rate)
        if low < high:
            chart.line([(low, low * rate / 1e9), (high, high * rate / 1e9)], "roof")
            middle = math.sqrt(low * high)
            chart.note(middle, middle * rate / 1e9, f"{name} {number(rate / 1e9)} GB/s")
    return chart.svg()


def trials(t: TaskFacts) -> str:
    """The measured ratio of each trial of a workload, and the best so far."""
    known = [(i, a) for i, a in enumerate(t.attempts, 1) if math.isfinite(a.ratio)]
    curve = list(enumerate(t.curve))
    shown = [*(a.ratio for _, a in known), *t.curve]
    chart = Chart(
        f"Trials of {t.label}",
        Axis("trial", 0.0, max(len(t.attempts), 1)),
        Axis.around("ratio to the analytic schedule", shown, log=True),
    )
    for i, a in known:
        chart.point(i, a.ratio, "mark-before", "circle", f"{a.ratio:.3f}: {a.decisions}")
    chart.line(curve, "after", steps=True)
    return chart.svg()
