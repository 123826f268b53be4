"""The description of a kernel that `explain` shows, kept with its code: operators, schedule, loops,
work.

All of it is text and numbers, written by `describe` when the kernel is made.  So a saved executable
can still be explained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .work import Work


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The description of a compiled kernel.

    operators: operators of the fused group, in order.
    signature: types of inputs and outputs.
    schedule: the loops around most of the work, in one line.
    steps: the schedule's steps.
    loops: the scheduled loop nest, as text.
    work: its instructions and bytes.
    intrinsic: the tensor intrinsic that computes its products; empty if there is none.
    """

    operators: tuple[str, ...]
    signature: str
    schedule: str
    steps: tuple[str, ...]
    loops: str
    work: Work
    intrinsic: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "operators": list(self.operators),
            "signature": self.signature,
            "schedule": self.schedule,
            "steps": list(self.steps),
            "loops": self.loops,
            "work": self.work.to_json(),
            "intrinsic": self.intrinsic,
        }

    @staticmethod
    def from_json(m: Mapping[str, Any]) -> KernelInfo:
        """Raises ValueError, KeyError or TypeError for values that `to_json` does not write."""
        texts = (m[name] for name in ("signature", "schedule", "loops", "intrinsic"))
        texts = (*texts, *m["operators"], *m["steps"])
        if not all(isinstance(t, str) for t in texts):
            raise TypeError("expected text")
        return KernelInfo(
            tuple(m["operators"]),
            m["signature"],
            m["schedule"],
            tuple(m["steps"]),
            m["loops"],
            Work.from_json(m["work"]),
            m["intrinsic"],
        )
