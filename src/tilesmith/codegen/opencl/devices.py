"""The OpenCL devices of this machine, described as targets.

Only this module imports pyopencl, and only when a device is requested.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tilesmith.ir.device import Device
from tilesmith.ir.target import CpuModel, Target
from tilesmith.support.errors import DeviceError, UsageError

if TYPE_CHECKING:
    import pyopencl

NAME = "opencl"
GENERIC = "opencl-gpu"
"""The name of a target for a device with the limits of nearly every GPU."""


def target_of(device: Device, name: str, model: str) -> Target:
    """The target that describes a device.

    model: the maker's name for the device.
    """
    return Target(
        name, "opencl", model, frozenset(), 128, device.registers, CpuModel(), 2, NAME, device
    )


def target(spec: str) -> Target:
    """The target called `spec`: "opencl" for the best device of this machine, "opencl:1" for the
    second one, or "opencl-gpu".

    Raises UsageError for other names, DeviceError if there is no such device.
    """
    if spec == GENERIC:
        return target_of(Device(), spec, "any")
    name, _, number = spec.partition(":")
    if name != NAME or not (number or "0").isdigit():
        raise UsageError(
            f"unknown target {spec!r}: expected opencl, opencl:N with the number of a device, or "
            f"{GENERIC}"
        )
    index = int(number or 0)
    chosen = device(index)
    return target_of(description(chosen, index), spec, chosen.name)


@lru_cache(maxsize=1)
def package() -> Any:
    """The module pyopencl.  Raises DeviceError if it is not installed."""
    try:
        import pyopencl
    except ImportError as e:
        raise DeviceError(
            f"OpenCL needs the package pyopencl: pip install 'tilesmith[opencl]' ({e})"
        ) from None
    return pyopencl


@lru_cache(maxsize=1)
def devices() -> tuple[pyopencl.Device, ...]:
    """All devices of this machine: GPUs first, then accelerators, then CPUs.

    Raises DeviceError if pyopencl is not installed.  Returns an empty tuple without any driver.
    """
    cl = package()
    order = (cl.device_type.GPU, cl.device_type.ACCELERATOR, cl.device_type.CPU)
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # no driver
        return ()
    listed = []
    for platform in platforms:
        try:
            listed += platform.get_devices()
        except cl.Error:  # a driver without a device
            continue

    def rank(d: pyopencl.Device) -> int:
        return next((n for n, kind in enumerate(order) if d.type & kind), len(order))

    return tuple(sorted(listed, key=rank))


def device(number: int = 0) -> pyopencl.Device:
    """A device by its index in `devices()`.  Raises DeviceError if it doesn't exist."""
    known = devices()
    if number >= len(known):
        names = ", ".join(f"{n}: {d.name}" for n, d in enumerate(known)) or "none"
        raise DeviceError(
            f"expected an OpenCL device number {number}, found {names}; install a driver, such as "
            "the package pocl-opencl-icd, which runs kernels on the CPU"
        )
    return known[number]


def description(found: pyopencl.Device, number: int = 0) -> Device:
    """The limits that a device reports; where it reports none, the limits of nearly every GPU."""
    x, y, z = (*found.max_work_item_sizes, 1, 1)[:3]
    return Device(
        number=number,
        shared_bytes=int(found.local_mem_size),
        block_threads=int(found.max_work_group_size),
        block_x=int(x),
        block_y=int(y),
        block_z=int(z),
        wave=_wave(found),
        shuffle_lanes=_shuffle_lanes(found),
        units=int(found.max_compute_units),
        memory_bytes=int(found.global_mem_size),
        has_f64=bool(found.double_fp_config),
    )


_SHUFFLES = "cl_khr_subgroup_shuffle"


def _shuffle_lanes(found: pyopencl.Device) -> int:
    """The number of lanes among which values can be shuffled; 1 if the width of a wave is not
    fixed.
    """
    return _told_wave(found) or 1 if _SHUFFLES in found.extensions.split() else 1


def _told_wave(found: pyopencl.Device) -> int:
    """The width of a wave, as a vendor's extension reports it; 0 if no extension does."""
    cl = package()
    for name in ("warp_size_nv", "wavefront_width_amd"):
        try:
            return int(getattr(found, name))
        except (cl.Error, AttributeError):  # a device of another vendor
            continue
    return 0


def _wave(found: pyopencl.Device) -> int:
    cl = package()
    told = _told_wave(found)
    if told:
        return told
    if found.type & cl.device_type.CPU:
        return max(int(found.native_vector_width_float), 1)
    return Device().wave
