"""Charts as SVG text.

Colours come from the page's style sheet by class, so charts follow its light and dark themes.
Shapes repeat every distinction of colours.  All text is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, TypeAlias

Point: TypeAlias = tuple[float, float]
Mark: TypeAlias = Literal["circle", "square"]

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 46
LABEL = 34
"""Largest number of characters in a bar's label."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a chart.

    label: its text.
    low, high: its ends.
    log: whether it is logarithmic.
    """

    label: str
    low: float
    high: float
    log: bool = False

    @staticmethod
    def around(label: str, values: Iterable[float], log: bool = False) -> Axis:
        """An axis that contains all finite values; with `log`, all positive finite values."""
        known = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = min(known), max(known)
        if log:
            return Axis(label, low / 1.3, high * 1.3, True)
        room = (high - low or abs(high) or 1.0) * 0.05
        return Axis(label, low - room, high + room)

    def place(self, value: float) -> float:
        """Position of a value, from 0 to 1."""
        low, high = (math.log(v) if self.log else v for v in (self.low, self.high))
        scaled = math.log(max(value, 1e-300)) if self.log else value
        return (scaled - low) / ((high - low) or 1.0)

    @property
    def ticks(self) -> list[float]:
        """Round numbers on the axis, two to ten of them."""
        if self.log and self.high / self.low > 10:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            factors = (1.0, 2.0, 5.0) if last - first < 2 else (1.0,)
            marks = [f * 10.0**e for e in range(first - 1, last + 1) for f in factors]
        else:
            step = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
            step *= next(f for f in (1, 2, 5, 10) if (self.high - self.low) / (f * step) <= 8)
            marks = [step * n for n in range(math.ceil(self.low / step), 10_000)
                     if step * n <= self.high]  # fmt: skip
        return [t for t in marks if self.low <= t <= self.high]


@dataclass
class Chart:
    """Lines and points over two axes.

    title: describes the chart for screen readers.
    x, y: the axes.
    """

    title: str
    x: Axis
    y: Axis
    _parts: list[str] = field(default_factory=list)

    def line(self, points: Sequence[Point], name: str, steps: bool = False) -> None:
        """A line through points; with `steps` it goes horizontally first, then vertically."""
        path: list[str] = []
        for i, (x, y) in enumerate(points):
            across, up = self._at(x, y)
            path.append(f"{'M' if i == 0 else 'H' if steps else 'L'}{across}")
            path.append(f"V{up}" if steps and i else f" {up}")
        self._parts.append(f'<path class="{name}" d="{"".join(path)}"/>')

    def point(self, x: float, y: float, name: str, mark: Mark, tip: str) -> None:
        """A point; `tip` appears when the pointer is on it."""
        across, up = self._at(x, y)
        if mark == "circle":
            tag, shape = "circle", f'cx="{across}" cy="{up}" r="4"'
        else:
            tag, shape = "rect", f'x="{across - 3:.1f}" y="{up - 3:.1f}" width="6" height="6"'
        words = f"<title>{escape(tip)}</title>"
        self._parts.append(f'<{tag} class="{name}" {shape}>{words}</{tag}>')

    def note(self, x: float, y: float, text: str) -> None:
        """Text above a point."""
        across, up = self._at(x, y)
        self._parts.append(
            f'<text class="across note" x="{across}" y="{up + 4:.1f}">{escape(text)}</text>'
        )

    def svg(self) -> str:
        """The chart."""
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        lines = [
            f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}"><title>{escape(self.title)}</title>',
            f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{right - LEFT}" '
            f'height="{bottom - TOP}"/>',
        ]
        for t in self.x.ticks:
            mark = self._at(t, self.y.low)[0]
            lines.append(f'<path class="grid" d="M{mark} {TOP}V{bottom}"/>')
            lines.append(f'<text class="across" x="{mark}" y="{bottom + 16}">{number(t)}</text>')
        for t in self.y.ticks:
            mark = self._at(self.x.low, t)[1]
            lines.append(f'<path class="grid" d="M{LEFT} {mark}H{right}"/>')
            lines.append(f'<text class="up" x="{LEFT - 6}" y="{mark + 4:.1f}">{number(t)}</text>')
        middle = (TOP + bottom) / 2
        lines += [
            f'<text class="across" x="{(LEFT + right) / 2}" y="{HEIGHT - 8}">'
            f"{escape(self.x.label)}</text>",
            f'<text class="across" transform="rotate(-90 14 {middle})" x="14" y="{middle}">'
            f"{escape(self.y.label)}</text>",
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines)

    def _at(self, x: float, y: float) -> Point:
        across = LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM)
        return round(across, 1), round(up, 1)


@dataclass(frozen=True, slots=True)
class Bar:
    """Two lengths to compare.

    label: its text.
    before, after: the lengths.
    """

    label: str
    before: float
    after: float


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Pairs of horizontal bars, in the order given, with their lengths as numbers."""
    left, right, pitch = 200, 56, 30
    longest = max((max(b.before, b.after) for b in rows), default=0.0) or 1.0
    height = max(pitch * len(rows), pitch)
    lines = [
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}"><title>{escape(title)}</title>',
    ]
    for i, b in enumerate(rows):
        top = i * pitch
        label = b.label if len(b.label) <= LABEL else f"\u2026{b.label[1 - LABEL :]}"
        lines.append(
            f'<text class="up" x="{left - 8}" y="{top + 17}">{escape(label)}'
            f"<title>{escape(b.label)}</title></text>"
        )
        for name, value, down in (("before", b.before, 4), ("after", b.after, 15)):
            width = value / longest * (WIDTH - left - right)
            lines.append(
                f'<rect class="mark-{name}" x="{left}" y="{top + down}" '
                f'width="{width:.1f}" height="8"/>'
                f'<text x="{left + width + 5:.1f}" y="{top + down + 8}">{number(value)}</text>'
            )
    return "\n".join([*lines, "</svg>"])


def spark(values: Sequence[float], title: str) -> str:
    """A small curve of falling values in steps, from 1.0 at the top, without axes."""
    low = min([*values, 0.999])
    width, height = 120, 24
    span = max(len(values) - 1, 1)
    parts = []
    for i, v in enumerate(values):
        across, up = i / span * width, 2 + (1 - v) / (1 - low) * (height - 4)
        parts.append(f"M{across:.1f} {up:.1f}" if i == 0 else f"H{across:.1f}V{up:.1f}")
    return (
        f'<svg class="spark" role="img" viewBox="0 0 {width} {height}">'
        f'<title>{escape(title)}</title><path class="after" d="{"".join(parts)}"/></svg>'
    )


def number(value: float) -> str:
    """A number to read, in three digits or so."""
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
