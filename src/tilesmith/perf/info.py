"""The description of a kernel, which is stored with its code and which `explain` shows.

`describe` writes it as text and numbers when the kernel is compiled.  So a saved executable can be
explained, too.
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
    work: the kernel's instructions and bytes.
    intrinsic: the tensor intrinsic that computes products; empty if there is none.
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
        """Read `to_json` output.  Raises ValueError, KeyError or TypeError for other values."""
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
