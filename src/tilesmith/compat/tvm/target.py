"""TVM's targets, by their text: `llvm -mcpu=skylake-avx512`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, ClassVar

from tilesmith.support.errors import UsageError

_CPUS = {
    "x86-64-v2": ("nehalem", "westmere", "corei7", "sandybridge", "ivybridge", "corei7-avx",
                  "core-avx-i"),
    "x86-64-v3": ("haswell", "core-avx2", "broadwell", "skylake", "znver1", "znver2", "znver3",
                  "alderlake"),
    "x86-64-v4": ("skylake-avx512", "cascadelake", "cooperlake", "icelake-server",
                  "icelake-client", "tigerlake", "rocketlake", "sapphirerapids", "znver4",
                  "znver5"),
}  # fmt: skip
"""LLVM's names of processors with each level of x86-64."""

_ARCHITECTURES = ("aarch64", "armv7", "riscv64", "wasm32")


class Target:
    """A target of TVM.

    kind: "llvm", "c", "cuda" or "opencl".
    attrs: its options, such as "mcpu".
    host: the target of the code that calls kernels; it is kept for scripts that read it.
    """

    _entered: ClassVar[list[Target]] = []

    def __init__(self, target: Any, host: Any = None) -> None:
        if isinstance(target, Target):
            self.kind, self.attrs = target.kind, target.attrs
        elif isinstance(target, Mapping):
            rest = dict(target)
            self.kind, self.attrs = str(rest.pop("kind", "")), {k: str(v) for k, v in rest.items()}
        elif isinstance(target, str) and target.lstrip().startswith("{"):
            self.__init__(json.loads(target), host)
            return
        elif isinstance(target, str):
            self.kind, *words = shlex.split(target) or [""]
            options = (w.lstrip("-").partition("=") for w in words)
            self.attrs = {key: value for key, _, value in options}
        else:
            raise UsageError(f"expected TVM's text of a target or a dict, found {target!r}")
        self.host = host
        if self.kind not in ("llvm", "c", "cuda", "opencl"):
            raise UsageError(f"expected the target llvm, c, cuda or opencl, found {self.kind!r}")

    @property
    def mcpu(self) -> str:
        return self.attrs.get("mcpu", "")

    @property
    def native(self) -> str | None:
        """Tilesmith's name of the target; None for this machine."""
        if self.kind != "llvm":
            return self.kind
        triple = self.attrs.get("mtriple", self.attrs.get("target", ""))
        for architecture in _ARCHITECTURES:
            if triple.startswith(architecture):
                return architecture
        if not self.mcpu or self.mcpu == "native":
            return None
        if self.mcpu in _CPUS:
            return self.mcpu
        for level, cpus in _CPUS.items():
            if self.mcpu in cpus:
                return level
        known = ", ".join(c for cpus in _CPUS.values() for c in cpus)
        raise UsageError(f"-mcpu: expected one of {known}, found {self.mcpu!r}; leave it out")

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The target of the innermost `with`."""
        if not Target._entered and not allow_none:
            raise UsageError("expected a target, found none: write `with tvm.target.Target(...)`")
        return Target._entered[-1] if Target._entered else None

    def __enter__(self) -> Target:
        Target._entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Target._entered.pop()

    def __str__(self) -> str:
        return " ".join(
            (self.kind, *(f"-{k}={v}" if v else f"-{k}" for k, v in self.attrs.items()))
        )


def create(target: Any) -> Target:
    """The older name of `Target`."""
    return Target(target)


def cuda() -> Target:
    return Target("cuda")


def arm_cpu(model: str = "unknown") -> Target:
    """A 64-bit Arm processor of any model."""
    return Target("llvm -mtriple=aarch64-linux-gnu")
