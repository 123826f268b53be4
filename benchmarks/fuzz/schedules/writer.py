"""A random computation in `te` while it is written: its text, its tensors, and reads of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from .values import EXACT, FLOATS, INTEGERS, Value

MOST_ITERATIONS = 3000
"""Of one stage: the interpreter takes some microseconds for each."""


class Unfit(Exception):
    """What was drawn does not go together; draw again."""


@dataclass(frozen=True)
class Known:
    """A tensor of a program.

    dims: its extents as text, numbers or symbols.
    value: what is known of its elements; the text is the tensor's name.
    is_last: whether only the caller may read it.
    """

    dims: tuple[str, ...]
    value: Value
    is_last: bool = False

    @property
    def name(self) -> str:
        return self.value.text


@dataclass
class Program:
    """A program and what judges need of it.

    lines: Python; `te` is in scope.
    inputs: placeholders, in order, with the range from which their elements are drawn.
    outputs: tensors that are returned, in order.
    sizes: values of symbols.
    """

    lines: list[str] = field(default_factory=list)
    inputs: dict[str, tuple[Known, int, int]] = field(default_factory=dict)
    outputs: list[Known] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return "\n".join(self.lines)

    def number(self, dim: str) -> int:
        """The value of an extent."""
        return int(eval(dim, {}, dict(self.sizes)))

    def shape(self, t: Known) -> tuple[int, ...]:
        return tuple(map(self.number, t.dims))


class Writer:
    """A program that grows.

    dims: extents that its tensors have, so that stages fit together.
    """

    def __init__(self, r: Random) -> None:
        self.random = r
        self.program = Program()
        self.tensors: list[Known] = []
        self.made: list[list[Known]] = []  # by stage
        self.read: set[str] = set()
        self.count = 0
        self.dims = [self._dim() for _ in range(r.choice([2, 3, 3, 4]))]

    def _dim(self) -> str:
        u = self.random.random()
        if u < 0.12:
            name = self.name("n")
            self.line(f'{name} = te.var("{name}")')
            self.program.sizes[name] = self.random.choice([0, 1, 2, 5, 9, 17])
            return name
        if u < 0.17:
            return "0"
        if u < 0.27:
            return "1"
        return str(self.random.choice([self.random.randint(2, 9), self.random.randint(2, 33)]))

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def line(self, text: str) -> None:
        self.program.lines.append(text)

    def number(self, dim: str) -> int:
        return self.program.number(dim)

    def checkpoint(self) -> tuple[Any, ...]:
        """What `restore` needs to return to this point."""
        p = self.program
        return list(p.lines), dict(p.inputs), list(self.tensors), list(self.made), set(self.read)

    def restore(self, point: tuple[Any, ...]) -> None:
        p = self.program
        p.lines, p.inputs, self.tensors, self.made, self.read = point

    def work(self, dims: tuple[str, ...]) -> int:
        return math.prod(map(self.number, dims))

    def shape(self, most: int = 3) -> tuple[str, ...]:
        """Extents of a new tensor."""
        for _ in range(20):
            rank = self.random.choice([0, 1, 1, 2, 2, 2, 3])
            dims = tuple(self.random.choice(self.dims) for _ in range(min(rank, most)))
            if self.work(dims) <= MOST_ITERATIONS:
                return dims
        raise Unfit

    def placeholder(
        self, dims: tuple[str, ...], dtype: str = "", low: int = 0, high: int = 0
    ) -> Known:
        r = self.random
        dtype = dtype or r.choice([*FLOATS, *INTEGERS, "f32", "f32", "bool"])
        if low == high:
            low, high = (
                r.choice([(-4, 4), (-1, 2), (-100, 100)])
                if dtype[0] != "u"
                else (0, r.choice([4, 255]))
            )
        if dtype == "bool":
            low, high = 0, 1
        t = Known(
            dims, Value(self.name("X"), dtype, float(max(-low, high)) if dtype in EXACT else 0.0)
        )
        self.line(f"{t.name} = te.placeholder({_tuple(dims)}, {dtype!r}, {t.name!r})")
        self.program.inputs[t.name] = t, low, high
        self.tensors.append(t)
        return t

    def compute(
        self,
        dims: tuple[str, ...],
        axes: tuple[str, ...],
        *bodies: Value,
        is_last: bool = False,
        text: str = "",
    ) -> list[Known]:
        """A compute; `text` is its body where that is no single expression."""
        name = self.name("T")
        names = [name] if len(bodies) == 1 else [f"{name}_{n}" for n in range(len(bodies))]
        made = [
            Known(dims, replace(b, text=n), is_last) for n, b in zip(names, bodies, strict=True)
        ]
        left = ", ".join(t.name for t in made)
        head = f"lambda {', '.join(axes)}" if axes else "lambda"
        self.line(
            f"{left} = te.compute({_tuple(dims)}, {head}: {text or bodies[0].text}, {name!r})"
        )
        return self.add(made)

    def add(self, made: list[Known]) -> list[Known]:
        self.tensors += made
        self.made.append(made)
        return made

    def reduce_axis(self, dim: str) -> str:
        name = self.name("r")
        self.line(f"{name} = te.reduce_axis({dim}, {name!r})")
        return name

    def source(self, exact: bool = False, axes: dict[str, str] | None = None) -> Known:
        """A tensor to read, made if there is none.

        exact: without rounding errors.
        axes: loops; a tensor without elements needs one along each empty dimension.
        """
        empty = {d for d in (axes or {}).values() if self.number(d) == 0}
        usable = (t for t in self.tensors if not t.is_last and not (exact and t.value.error))
        able = [t for t in usable
                if axes is None or all(d in empty or self.number(d) for d in t.dims)]  # fmt: skip
        if not able or self.random.random() < 0.2:
            some = [d for d in self.dims if self.number(d) or d in empty] or ["1"]
            dims = tuple(self.random.choices(some, k=self.random.choice([1, 2, 2])))
            return self.placeholder(dims if self.work(dims) <= MOST_ITERATIONS else dims[:1])
        return self.random.choice(able[-6:] if self.random.random() < 0.7 else able)

    def element(self, axes: dict[str, str], exact: bool = False) -> Value:
        """A random element of a random tensor, in the loops `axes` (extents by name)."""
        return self.read_of(self.source(exact, axes), axes)

    def read_of(self, t: Known, axes: dict[str, str]) -> Value:
        """A random element of a tensor."""
        self.read.add(t.name)
        indices, guards = [], []
        unused = dict(axes)
        for d in t.dims:
            text, guard = self._index(d, axes, unused)
            indices.append(text)
            guards += guard
        v = Value(f"{t.name}[{', '.join(indices)}]" if indices else f"{t.name}[()]", t.value.dtype,
                  t.value.largest, t.value.error)  # fmt: skip
        if guards:
            zero = "False" if v.dtype == "bool" else "0.0" if v.is_float else "0"
            cond = guards[0] if len(guards) == 1 else f"te.all({', '.join(guards)})"
            v = Value(f"te.if_then_else({cond}, {v.text}, {zero})", v.dtype, v.largest, v.error)
        return v

    def _index(self, d: str, axes: dict[str, str], unused: dict[str, str]) -> tuple[str, list[str]]:
        r = self.random
        same = [a for a, e in axes.items() if e == d]
        fresh = [a for a in same if a in unused]
        if same:
            a = r.choice(fresh or same)
            unused.pop(a, None)
            u = r.random()
            if u < 0.6:
                return a, []
            c = r.choice([1, 1, 2, 3])
            if u < 0.7:
                return f"{d} - 1 - {a}", []
            if u < 0.8:
                return r.choice(
                    [(f"te.maximum({a} - {c}, 0)", []), (f"te.minimum({a} + {c}, {d} - 1)", [])]
                )
            if u < 0.92:
                return r.choice(
                    [(f"{a} - {c}", [f"{a} >= {c}"]), (f"{a} + {c}", [f"{a} + {c} < {d}"])]
                )
            return r.choice([f"{a} // {c}", f"te.minimum({a} * {c}, {d} - 1)"]), []
        n = self.number(d)
        if n == 0:
            raise Unfit
        if not d.isdigit():  # a symbol may be 0
            raise Unfit
        gathered = [t for t in self.tensors
                    if not t.is_last and t.value.dtype in INTEGERS and len(t.dims) == 1
                    and t.dims[0] in axes.values()]  # fmt: skip
        if gathered and r.random() < 0.5:
            t = r.choice(gathered)
            self.read.add(t.name)
            a = next(a for a, e in axes.items() if e == t.dims[0])
            at = f'{t.name}[{a}].astype("i64")'
            return f"te.minimum(te.maximum({at}, 0), {n - 1})", []
        if axes and r.random() < 0.7:
            a = r.choice(list(axes))
            return r.choice([f"{a} % {n}", f"te.minimum({a}, {n - 1})"]), []
        return str(r.randrange(n)), []


def _tuple(parts: tuple[str, ...]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
