"""What a person wants to know about a kernel, kept with its code: operators, schedule, loops, work.

All of it is text and numbers, written down when the kernel is made, so that an executable that was
saved and loaded elsewhere can still say what it does and why it takes the time it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilesmith.graph.nodes import Graph
from tilesmith.ir.expr import Const
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import For, Func, Stmt
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import children

from .cpu.work import Work, work_of
from .group import STEP


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """`operators`: of the fused group, in order.  `signature`: types of inputs and outputs.
    `schedule`: the loops around most of the work, in one line.  `steps`: the schedule's steps.
    `loops`: the loop nest they lead to, as text.
    """

    operators: tuple[str, ...]
    signature: str
    schedule: str
    steps: tuple[str, ...]
    loops: str
    work: Work

    def to_json(self) -> dict[str, Any]:
        return {
            "operators": list(self.operators),
            "signature": self.signature,
            "schedule": self.schedule,
            "steps": list(self.steps),
            "loops": self.loops,
            "work": self.work.to_json(),
        }

    @staticmethod
    def from_json(m: Mapping[str, Any]) -> KernelInfo:
        """Raises ValueError, KeyError or TypeError for what `to_json` does not write."""
        texts = (m["signature"], m["schedule"], m["loops"], *m["operators"], *m["steps"])
        if not all(isinstance(t, str) for t in texts):
            raise TypeError("expected text")
        return KernelInfo(
            tuple(m["operators"]),
            m["signature"],
            m["schedule"],
            tuple(m["steps"]),
            m["loops"],
            Work.from_json(m["work"]),
        )


def describe(body: Graph, nest: Func, final: Func, target: Target) -> KernelInfo:
    """About the kernel of a fused body: `nest` is its function as lowered, `final` as generated."""
    inputs = ", ".join(str(v.type) for v in body.inputs)
    outputs = ", ".join(str(v.type) for v in body.outputs)
    others = tuple(a for a in nest.attrs if a[0] != STEP)
    return KernelInfo(
        tuple(n.op.name for n in body.nodes),
        f"{inputs} -> {outputs}",
        one_line(nest),
        tuple(value for key, value in nest.attrs if key == STEP),
        print_func(replace(nest, attrs=others)),
        work_of(final, target),
    )


def one_line(func: Func) -> str:
    """The loops around the statement that runs most often: `parallel oh:56 > ow:10 > ic:64 >
    unroll ow:6 x oc:4 > vector 16`.
    """
    parts: list[str] = []
    unrolled: list[str] = []
    for loop in _busiest(func.body)[1]:
        size = f"{loop.var.name}:{_extent(loop):g}"
        if loop.kind == "unrolled":
            unrolled.append(size)
            continue
        if unrolled:
            parts.append(f"unroll {' x '.join(unrolled)}")
            unrolled = []
        words = {"serial": size, "parallel": f"parallel {size}"}
        parts.append(words.get(loop.kind, f"vector {_extent(loop):g}"))
    if unrolled:
        parts.append(f"unroll {' x '.join(unrolled)}")
    return " > ".join(parts) or "no loops"


def _busiest(s: Stmt) -> tuple[float, tuple[For, ...]]:
    """How often the statement inside `s` that runs most often runs, and the loops around it."""
    times, loops = max((_busiest(c) for c in children(s)), key=lambda f: f[0], default=(1.0, ()))
    if isinstance(s, For):
        return times * _extent(s), (s, *loops)
    return times, loops


def _extent(loop: For) -> float:
    return float(loop.extent.value) if isinstance(loop.extent, Const) else 1.0
