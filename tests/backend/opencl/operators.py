"""Operators on an OpenCL device: kernels as rules schedule them, against the references."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import numpy as np
from library import library

from common.op_cases import CASES, Case, assert_close
from tilesmith.driver.session import Session
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Func
from tilesmith.loop.passes.workspace import constant_extent
from tilesmith.ops.structure import stages
from tilesmith.runtime.device_function import DeviceFunction


def _is_kernel(case: Case) -> bool:
    """True for an operator that is a kernel of its own: composite ones are made of others, and
    before kernels are made, nodes lose operands that they do not read.
    """
    if case.op.is_irregular() or case.op.is_composite():
        return case.op.is_irregular()
    types = [TensorType(to_dtype(a.dtype), a.shape) for a in case.arrays()]
    tensors = case.op.tensors(*types)
    return {*tensors.inputs} <= {t for s in stages(tensors.outputs) for t in s.inputs}


OWN = [c for c in CASES if _is_kernel(c)]

TOGETHER = 12
"""Kernels of one program."""


def group(case: Case) -> Graph:
    """An operator as a graph."""
    b = Builder("g")
    inputs = [
        b.input(f"in{i}", TensorType(to_dtype(a.dtype), a.shape))
        for i, a in enumerate(case.arrays())
    ]
    made = b.add(case.op, *inputs)
    return b.finish(made if isinstance(made, tuple) else (made,))


def check(case: Case, func: Func, function: DeviceFunction) -> None:
    """Compare a run on the device with the operator's reference."""
    arrays = case.arrays()
    wanted = case.op.reference(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    found = [np.zeros(w.shape, w.dtype) for w in map(np.asarray, wanted)]
    given = [
        np.ascontiguousarray(a).reshape([constant_extent(d, b) for d in b.shape])
        for a, b in zip([*arrays, *found], func.buffers, strict=True)
    ]
    function(*given)
    for got, w in zip(given[len(arrays) :], wanted, strict=True):
        assert_close(got.reshape(np.shape(w)), np.asarray(w))


def operators(numbers: Sequence[int], optimise: bool = True) -> dict[str, str | None]:
    """What is wrong with each of these operators by name and number; None where nothing is.

    optimise: whether the driver's compiler does.
    """
    session = Session.of(None, target="opencl")
    found: dict[str, str | None] = {}
    for first in range(0, len(numbers), TOGETHER):
        nests: dict[int, Func] = {}
        for n in numbers[first : first + TOGETHER]:
            try:
                nests[n] = session.group(group(OWN[n])).lower(f"op{n}")
            except Exception:  # whatever it is, the parent shows it
                found[f"{n}: {OWN[n]}"] = traceback.format_exc()
        try:
            built = library({f"op{n}": f for n, f in nests.items()}, optimise)
        except Exception:
            built = {}
            for n, f in nests.items():  # which of them it is
                try:
                    built |= library({f"op{n}": f}, optimise)
                except Exception:
                    found[f"{n}: {OWN[n]}"] = traceback.format_exc()
        for n, f in nests.items():
            if f"op{n}" in built:
                try:
                    check(OWN[n], f, built[f"op{n}"])
                    found[f"{n}: {OWN[n]}"] = None
                except Exception:
                    found[f"{n}: {OWN[n]}"] = traceback.format_exc()
    return found
