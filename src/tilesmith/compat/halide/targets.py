"""Halide's targets, each as one of Tilesmith's: this machine, or a level such as x86-64-v3."""

from __future__ import annotations

from typing import Any

from tilesmith.codegen.targets import target as native
from tilesmith.support.errors import UsageError

from .element_types import as_type

__all__ = [
    "Target", "get_host_target", "get_jit_target_from_environment", "get_target_from_environment",
]  # fmt: skip

_LEVELS = (
    ("avx512", "x86-64-v4"), ("avx2", "x86-64-v3"), ("sse41", "x86-64-v2"), ("x86", "x86-64"),
    ("arm", "aarch64"),
)  # fmt: skip
"""Tilesmith's levels by the words of Halide's targets, widest first."""


class Target:
    """A target by Halide's text, such as "host" or "x86-64-linux-avx2"."""

    def __init__(self, text: str = "host") -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def check(self) -> None:
        """Raises UsageError for a GPU or an accelerator."""
        words = set(self._text.replace("_", "-").split("-"))
        device = words & {"cuda", "opencl", "metal", "vulkan", "hexagon", "hvx", "d3d12compute"}
        if device:
            raise UsageError(
                f"target {self._text!r}: expected a CPU, found {sorted(device)[0]}; "
                "tilesmith.te binds loops to the threads of a GPU, and tilesmith.build takes its "
                "target"
            )

    @property
    def level(self) -> str | None:
        """Tilesmith's name of the target; None for this machine."""
        self.check()
        if self._text.split("-")[0] in ("host", ""):
            return None
        found = next((level for word, level in _LEVELS if word in self._text), None)
        if found is None:
            known = ", ".join(word for word, _ in _LEVELS)
            raise UsageError(f"target {self._text!r}: expected host, or one of {known}")
        return found

    def has_gpu_feature(self) -> bool:
        return False

    def natural_vector_size(self, type: Any) -> int:
        """The number of elements in a vector register."""
        return native(self.level or "native").vector_lanes(as_type(type).bytes())


def get_host_target() -> Target:
    return Target()


get_target_from_environment = get_jit_target_from_environment = get_host_target
