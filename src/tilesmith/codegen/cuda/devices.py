"""NVIDIA's GPUs as targets: named by compute capability, or by number in this machine."""

from __future__ import annotations

import re

from tilesmith.ir.device import Device
from tilesmith.ir.target import CpuModel, Target
from tilesmith.support.errors import UsageError

from . import driver

NAME = "cuda"
TRIPLE = "nvptx64-nvidia-cuda"

UNITS = {
    "sm_75": 40, "sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90": 132, "sm_90a": 132,
    "sm_100": 148, "sm_100a": 148, "sm_120": 170, "sm_120a": 170,
}  # fmt: skip
"""The supported architectures, and for each the number of multiprocessors of a large device."""

_UNIT_KIB = {
    "sm_75": 64, "sm_80": 164, "sm_86": 100, "sm_89": 100, "sm_90": 228, "sm_90a": 228,
    "sm_100": 228, "sm_100a": 228, "sm_120": 100, "sm_120a": 100,
}  # fmt: skip
"""Shared memory of a multiprocessor in KiB (CUDA C++ Programming Guide, technical specifications
for each compute capability).
"""

_FIRST_MMA = 80
"""The first architecture with matrix products of f16, bf16 and bytes, and asynchronous copies."""

DEFAULT = "sm_80"
"""The architecture for machines without a device."""

_DESCRIPTION = Device(
    shared_bytes=48 << 10,
    block_threads=1024,
    block_x=1024,
    block_y=1024,
    wave=32,
    shuffle_lanes=32,
)
"""The limits common to all supported devices.  Shared memory is limited to the amount that a kernel
may declare statically; more would need a request to the driver.
"""


def target(spec: str) -> Target:
    """The target called `spec`.  "cuda" is the first device of this machine or, if there is none,
    any device of sm_80 or newer.  "cuda:1" is the second device.  "cuda-sm_90a" is an architecture.

    Raises UsageError for other names, DeviceError if there is no such device.
    """
    name, _, number = spec.partition(":")
    if name == NAME and (number or "0").isdigit():
        if not number and not driver.count():
            return _target(spec, DEFAULT, _of(DEFAULT))
        index = int(number or 0)
        device = driver.description(index)
        architecture = _architecture(device.capability, device.name)
        about = Device(
            number=index,
            shared_bytes=device.shared_bytes,
            block_threads=device.block_threads,
            block_x=device.block[0],
            block_y=device.block[1],
            block_z=device.block[2],
            wave=device.wave,
            shuffle_lanes=device.wave,
            units=device.units,
            unit_shared_bytes=_UNIT_KIB[architecture] << 10,
            memory_bytes=device.memory_bytes,
        )
        return _target(spec, architecture, about)
    name, _, architecture = spec.partition("-")
    if name != NAME or architecture not in UNITS:
        raise UsageError(
            f"unknown target {spec!r}: expected cuda, cuda:N with the number of a device, or cuda- "
            f"with one of {', '.join(UNITS)}"
        )
    return _target(spec, architecture, _of(architecture))


def _target(name: str, architecture: str, device: Device) -> Target:
    is_newer = _number(architecture) >= _FIRST_MMA
    features = frozenset({"mma-float", "mma-int", "async-copy"} if is_newer else ())
    return Target(
        name, TRIPLE, architecture, features, 128, device.registers, CpuModel(), 2, NAME, device
    )


def _number(architecture: str) -> int:
    return int("".join(filter(str.isdigit, architecture)))


def _of(architecture: str) -> Device:
    shown = _DESCRIPTION.to_json() | {
        "units": UNITS[architecture],
        "unit_shared_bytes": _UNIT_KIB[architecture] << 10,
    }
    return Device.from_json(shown)


def _architecture(capability: tuple[int, int], name: str) -> str:
    """The newest architecture whose code the device runs.

    Raises UsageError for a device that is too old.
    """
    known = {
        (int(match[1]), int(match[2])): match[0]
        for match in (re.fullmatch(r"sm_(\d+)(\d)", a) for a in UNITS)
        if match
    }
    fitting = [c for c in known if c <= capability]
    if not fitting:
        major, minor = capability
        raise UsageError(
            f"{name} has compute capability {major}.{minor}; expected 7.5 or newer: "
            "use the target opencl"
        )
    return known[max(fitting)]
