"""Measuring on devices whose agents have no Python.

A static program holds a candidate and the baseline.  The agent starts it, and it gives the
candidate's results and the times of turns (`csrc/library/templates/measure.c`).  This process
judges both, as `runner` does on other devices.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tilesmith.ir.target import Target
from tilesmith.runtime.remote.device import MARGIN_SECONDS, RemoteDevice
from tilesmith.runtime.remote.frames import Kind
from tilesmith.runtime.remote.link import EndedError
from tilesmith.runtime.standalone.elf import private
from tilesmith.runtime.standalone.objects import runtime_objects
from tilesmith.runtime.standalone.program import STATIC_FLAGS, static_tools
from tilesmith.runtime.standalone.tables import template
from tilesmith.runtime.standalone.toolchain import SOURCES
from tilesmith.support.errors import DeviceError
from tilesmith.support.folders import scratch_folder

from .jobs import Answer, Argument, MeasurePlan, Runnable, load_inputs, load_references
from .runner import copies, fault_of, judged, least_times

_NAMES = ("candidate", "baseline")


def measured_statically(
    device: RemoteDevice,
    arrays: bytes,
    baseline: Runnable,
    candidate: Runnable,
    plan: MeasurePlan,
    seconds: float,
) -> Answer:
    """The answer about a candidate.  Raises LostError, AbsentError, DeviceError, UsageError.

    arrays: file of inputs and expected outputs (`save_arrays`).
    seconds: the longest time of the program.
    """
    kernels = (candidate, baseline)
    digest = device.upload(measuring_program(kernels, device.target))
    fields = {
        "program": digest,
        "seconds": str(math.ceil(seconds)),
        "words": f"measure {plan.threads} {plan.seconds:.6f} {plan.flush_bytes}",
    }
    body = b"".join(_packed(arrays, k.inputs) for k in kernels)
    limit = seconds + MARGIN_SECONDS
    try:
        told = bytes(device.link.ask(Kind.EXEC, fields, body, limit).body)
    except EndedError as e:
        return Answer(e.cause, text=str(e))
    size = _size(candidate)
    before, times, after = told[:size], told[size : len(told) - size], told[len(told) - size :]
    turns = _turns(times)
    if not turns:
        raise DeviceError(f"device {device.address}: its answer about a candidate is malformed")
    references = load_references(io.BytesIO(arrays), candidate.outputs)
    if fault := fault_of(candidate.outputs, _results(candidate, before), references, plan.bounds):
        return Answer("wrong", text=fault)
    if after != before:
        fault = fault_of(candidate.outputs, _results(candidate, after), references, plan.bounds)
        if fault:
            return Answer("wrong", text=f"{fault}, not always")
    ours, theirs, _ = least_times(turns)
    return judged(ours, theirs, plan)


def _turns(content: bytes) -> list[tuple[float, float]]:
    """Seconds of the candidate and of the baseline in each turn, which their number precedes, all
    as f64; none if the content is malformed.
    """
    if len(content) % 16 != 8:
        return []
    count, *seconds = np.frombuffer(content, np.float64).tolist()
    is_whole = 2 * count == len(seconds) and all(0 <= s < math.inf for s in seconds)
    return list(zip(seconds[::2], seconds[1::2], strict=True)) if is_whole else []


def measuring_program(kernels: Sequence[Runnable], target: Target) -> bytes:
    """The static program that measures a candidate and a baseline.

    Raises UsageError without a compiler for the target.
    """
    tools = static_tools(target)
    text = template("measure.c", "", KERNELS=_tables(kernels), ARGUMENTS=str(_most(kernels)))
    with scratch_folder() as scratch:
        main, made, pool = (scratch / name for name in ("measure.c", "measure.o", "pool.o"))
        main.write_text(text, encoding="utf-8")
        tools.compile(main, made, f"-I{SOURCES}")
        pool.write_bytes(_pool(target))
        objects = [made, pool]
        for name, kernel in zip(_NAMES, kernels, strict=True):
            path = scratch / f"{name}.o"
            symbol = kernel.symbol
            path.write_bytes(private(kernel.code, lambda s, n=name, k=symbol: n if s == k else s))
            objects.append(path)
        tools.link(objects, scratch / "measure", *STATIC_FLAGS)
        return (scratch / "measure").read_bytes()


@lru_cache(maxsize=8)
def _pool(target: Target) -> bytes:
    """The object code of the pool of threads."""
    with scratch_folder() as scratch:
        (made,) = runtime_objects(("pool.c",), scratch, static_tools(target))
        return made.read_bytes()


def _tables(kernels: Sequence[Runnable]) -> str:
    """The C text that describes the kernels."""
    parts, rows = [], []
    for name, k in zip(_NAMES, kernels, strict=True):
        count = len(k.inputs) + len(k.outputs)
        passed = ", ".join(f"arguments[{i}]" for i in range(count))
        sizes = [f"{{{a.physical_bytes}, {copies(a)}}}" for a in k.inputs]
        sizes += [f"{{{a.physical_bytes}, 1}}" for a in k.outputs]
        parts.append(
            f"int32_t {name}({'void *, ' * (count + 1)}struct tilesmith_context *);\n"
            f"static int32_t run_{name}(void *const *arguments, void *workspace, "
            "struct tilesmith_context *context) {\n"
            f"    return {name}({passed}, workspace, context);\n}}\n"
            f"static const struct argument {name}_arguments[] = {{{', '.join(sizes)}}};\n"
        )
        rows.append(
            f"    {{.run = run_{name}, .inputs = {len(k.inputs)}, .count = {count}, "
            f".arguments = {name}_arguments, .workspace = {k.workspace}, "
            f".scratch = {k.workspace_per_thread}}},\n"
        )
    return "".join(parts) + f"static struct kernel kernels[] = {{\n{''.join(rows)}}};"


def _most(kernels: Sequence[Runnable]) -> int:
    return max(len(k.inputs) + len(k.outputs) for k in kernels)


def _packed(arrays: bytes, arguments: Sequence[Argument]) -> bytes:
    """The physical arrays of inputs, one after the other."""
    logical = load_inputs(io.BytesIO(arrays), arguments)
    return b"".join(a.pack(x).tobytes() for a, x in zip(arguments, logical, strict=True))


def _size(kernel: Runnable) -> int:
    """Bytes of a kernel's results."""
    return sum(a.physical_bytes for a in kernel.outputs)


def _results(kernel: Runnable, content: bytes) -> list[np.ndarray]:
    """The physical results of a kernel."""
    results, offset = [], 0
    for a in kernel.outputs:
        part = np.frombuffer(content[offset : offset + a.physical_bytes], np.uint8)
        results.append(part.view(a.type.numpy).reshape(a.physical_shape))
        offset += a.physical_bytes
    return results
