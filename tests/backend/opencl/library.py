"""Kernels as one OpenCL program: a driver builds it once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesmith.backend.opencl import OPENCL
from tilesmith.codegen.opencl.emit import kernel_of, translation_unit, write
from tilesmith.codegen.targets import target
from tilesmith.loop.nodes import Func
from tilesmith.loop.verify import verify
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.device_function import DeviceFunction
from tilesmith.runtime.opencl import opened


def final(nest: Func) -> Func:
    """A kernel (stage "nest" or "flat") as code is written from it."""
    for p in OPENCL.loop_passes:
        nest = p.run(nest)
        verify(nest, p.stage, after=p.name)
    return nest


def library(nests: Mapping[str, Func], optimise: bool = True) -> dict[str, DeviceFunction]:
    """The kernels by name, strict, as functions of arrays.

    optimise: whether the driver's compiler does.
    """
    machine = target("opencl")
    assert machine.device is not None
    device = machine.device
    programs = {
        name: replace(write(final(f), device, name), is_strict=True) for name, f in nests.items()
    }
    text = translation_unit(programs.values())
    built = opened(machine.device.number).build(text, optimise)
    return {
        name: DeviceFunction(kernel_of(p, text), Arguments(nests[name]), machine, built)
        for name, p in programs.items()
    }
