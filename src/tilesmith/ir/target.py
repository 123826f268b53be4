"""The machine for which code is made: its instructions, the model of its CPU, the number of
threads.

Pure data: detection of the host and the named targets live in `codegen.targets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from tilesmith.support.arguments import check_fields, checked_methods, shown
from tilesmith.support.errors import UsageError

from .cpu_model import DESKTOP, LINE_BYTES, CpuModel
from .device import Device

__all__ = ["LINE_BYTES", "CpuModel", "Target"]

SHARES = 8
"""Iterations per thread that are enough for load balance: the busiest thread takes at most 1/8
longer than an equal share.
"""


FUSING = {"x86_64": "fma", "wasm32": "relaxed-simd"}
"""Architecture -> the feature with which a multiply-add is one instruction.  On other architectures
a multiply-add always is one instruction.
"""
HALF_CONVERTING = {"x86_64": "f16c", "wasm32": "fp16"}
"""Architecture -> the feature with which an instruction converts f16."""


@checked_methods(UsageError)
@dataclass(frozen=True, slots=True)
class Target:
    """A CPU, or a device that runs parts of a program on this machine.

    name: the user's name for it (`native`, `x86-64-v3`, a description).
    triple, cpu, features: LLVM's names.  Code may use the features; `cpu` only steers tuning.
    vector_bits: SIMD width in bits.
    vector_registers: number of architectural vector registers.
    model: speed and resources of the CPU.
    threads: number of threads for which schedules are made (see `for_threads`).
    backend: the kind of target (see `backend.backend_of`): "cpu" (LLVM), "c" (C text), "opencl",
        "cuda".
    device: the device; None for a CPU.
    """

    name: str
    triple: str
    cpu: str
    features: frozenset[str]
    vector_bits: int
    vector_registers: int
    model: CpuModel = DESKTOP
    threads: int = 2
    backend: str = "cpu"
    device: Device | None = None

    def __post_init__(self) -> None:
        check_fields(self, UsageError)

    @property
    def architecture(self) -> str:
        """LLVM's name of the kind of processor, such as `x86_64`."""
        return self.triple.split("-")[0]

    @property
    def system(self) -> str:
        """The operating system: `linux`, `windows`, `macos`, or LLVM's name of another."""
        name = self.triple.split("-")[2].rstrip("0123456789.")
        return {"macosx": "macos"}.get(name, name)

    @property
    def has_fma(self) -> bool:
        """Whether a multiply-add is one instruction, rounded once."""
        return FUSING.get(self.architecture) in {None, *self.features}

    @property
    def has_half(self) -> bool:
        """Whether an instruction converts f16."""
        return HALF_CONVERTING.get(self.architecture) in {None, *self.features}

    def vector_lanes(self, element_bytes: int) -> int:
        """Elements of that size in one vector register, at least 1: scalars have registers, too.

        Raises UsageError for a size below 1.
        """
        if element_bytes < 1:
            raise UsageError(f"vector_lanes: expected at least 1 byte, found {element_bytes}")
        return max(self.vector_bits // 8 // element_bytes, 1)

    def for_threads(self, threads: int) -> Target:
        """This target with schedules for `threads` threads.  The number is rounded up to a power of
        two.  One thread counts as two.

        So numbers that round to the same power share schedules and kernels.

        Raises UsageError unless threads are from 1 to 4096.
        """
        if not 1 <= threads <= 4096:
            raise UsageError(f"for_threads: expected 1 to 4096, found {shown(threads)}")
        return replace(self, threads=max(1 << (threads - 1).bit_length(), 2))

    def with_model(self, **changes: Any) -> Target:
        """This target with some fields of its model changed.

        Raises UsageError for unknown fields and for impossible values.
        """
        unknown = changes.keys() - {f.name for f in fields(self.model)}
        if unknown:
            raise UsageError(f"with_model: there is no {', '.join(sorted(unknown))} in a model")
        model = replace(self.model, **changes)
        check_fields(model, UsageError)
        return replace(self, model=model)

    @property
    def shared_trips(self) -> int:
        """Iterations of a parallel loop that are enough for load balance among the threads."""
        return SHARES * self.threads

    @property
    def parallel_fmas(self) -> int:
        """The smallest number of float32 multiply-adds that is worth sharing among threads.
        Vectors of 8 lanes are assumed, since kernels of this size do not fill wider ones.
        """
        return self.model.parallel_cycles * self.model.fma_ports * 8

    @property
    def parallel_elements(self) -> int:
        """The smallest number of float32 elements to move that is worth sharing among threads."""
        return self.model.parallel_bytes // 4

    def overflows(self, result_bytes: int) -> bool:
        """True if a result is too large to stay in cache until all of it is written.  Such a result
        fills at least three quarters of the last-level caches of the cores that run the target's
        threads.  The C library's `memcpy` has the same limit.
        """
        caches = -(-self.threads // self.model.l3_cores)
        return 4 * result_bytes >= 3 * self.model.l3_bytes * caches

    @property
    def feature_string(self) -> str:
        """The features in LLVM's form, sorted: `+avx,+fma`."""
        return ",".join(f"+{f}" for f in sorted(self.features))

    @property
    @lru_cache(maxsize=16)  # noqa: B019 - few targets in a process, and each kernel asks for this
    def text(self) -> str:
        """The text of all fields except `threads` for cache keys, the same in every process."""
        plain = (f.name for f in fields(self) if f.name not in ("threads", "device"))
        shown = {name: getattr(self, name) for name in plain} | {
            "features": self.feature_string,
            "model": self.model.text,
        }
        if self.device is not None:
            shown["device"] = self.device.text
        return " ".join(f"{k}={v}" for k, v in shown.items())

    def to_json(self) -> dict[str, Any]:
        shown = {f.name: getattr(self, f.name) for f in fields(self)}
        device = self.device and self.device.to_json()
        return shown | {
            "features": sorted(self.features), "model": self.model.to_json(), "device": device
        }  # fmt: skip

    @staticmethod
    def from_json(m: Mapping[str, Any]) -> Target:
        """The target that `to_json` wrote.  Raises ValueError, KeyError or TypeError."""
        texts = (m["name"], m["triple"], m["cpu"], m["backend"], *m["features"])
        if not all(isinstance(t, str) for t in texts):
            raise TypeError("expected text")
        numbers = (m["vector_bits"], m["vector_registers"], m["threads"])
        if not all(type(n) is int and 1 <= n <= 1 << 16 for n in numbers):
            raise ValueError(f"a number of the target is not from 1 to 2^16: {numbers}")
        bits, registers, threads = numbers
        model = CpuModel.from_json(m["model"])
        name, triple, cpu, backend, *features = texts
        device = Device.from_json(m["device"]) if m.get("device") is not None else None
        return Target(
            name, triple, cpu, frozenset(features), bits, registers, model, threads, backend, device
        )
