"""The report of `explain` about a program on a device: place and launches of each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilesmith.backend import backend_of
from tilesmith.cli.console import milliseconds, print_json, print_table
from tilesmith.ir.expr import Const
from tilesmith.ir.target import Target
from tilesmith.loop.launches import launches
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.perf.launch_counts import LaunchCounts, launch_counts
from tilesmith.runtime.device_memory import device_memory
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.profile import KernelTime, Profile


def rows(exe: Executable, found: Profile) -> list[dict[str, Any]]:
    """One row per kernel, in order: the target that runs it, its time and its launches."""
    told: list[dict[str, Any]] = []
    for i, (k, place) in enumerate(zip(found, exe.program.places, strict=True)):
        launches = exe.launches.get(k.call.symbol, ()) if place.device is not None else ()
        row: dict[str, Any] = {
            "kernel": i,
            "place": place.name,
            "sources": list(k.call.sources),
            "ms": k.seconds * 1e3,
            "share": k.seconds / (found.seconds or 1.0),
            "launches": [
                {
                    "blocks": [int(n.value) for n in x.blocks if isinstance(n, Const)],
                    "threads": list(x.threads),
                    "counts": c.to_json() if c is not None else None,
                }
                for x, c in zip(launches, _counts(k, place, len(launches)), strict=True)
            ],
        }
        if k.info is not None:
            work = k.info.work
            row |= {"operators": list(k.info.operators), "flops": work.flops, "bytes": work.bytes}
        told.append(row)
    return told


def _counts(k: KernelTime, place: Target, launches: int) -> Sequence[LaunchCounts | None]:
    """The static counts of each launch of a kernel; None if its loops are not known."""
    if k.info is None or not launches:
        return [None] * launches
    counts = counts_of_loops(k.info.loops, place)
    return counts if len(counts) == launches else [None] * launches


def _counted(row: dict[str, Any], name: str) -> str:
    """The sum of a count over the launches of a kernel, as text; empty if no counts are known."""
    counts = [x["counts"][name] for x in row["launches"] if x["counts"]]
    return str(sum(counts)) if counts else ""


def _occupancy(row: dict[str, Any]) -> str:
    shares = [f"{x['counts']['occupancy']:.0%}" for x in row["launches"] if x["counts"]]
    return ", ".join(shares)


def show(name: str, exe: Executable, found: Profile, kernel: int | None, json: bool) -> None:
    """Print all kernels, or one of them.  Rates refer to the work that the loops describe."""
    told = rows(exe, found)
    told = told if kernel is None else [told[kernel]]
    copies = len(exe.program.transfers)
    if json:
        totals = {"whole_ms": found.whole * 1e3, "kernels_ms": found.seconds * 1e3,
            "memory": device_memory(exe.program).to_json()}  # fmt: skip
        print_json({"model": name, **totals, "copies": copies, "kernels": told})
        return
    table = []
    for row in told:
        seconds = row["ms"] / 1e3 or 1.0
        threads = [f"{prod(x['blocks'])} x {prod(x['threads'])}" for x in row["launches"]]
        table.append(
            (
                str(row["kernel"]),
                row["place"],
                milliseconds(seconds),
                f"{row['share']:.1%}",
                f"{row.get('flops', 0) / seconds / 1e9:.1f}",
                f"{row.get('bytes', 0) / seconds / 1e9:.1f}",
                ", ".join(threads),
                *(_counted(row, n) for n in ("matrix", "uncoalesced", "bank_conflicts")),
                _occupancy(row),
                "+".join(row.get("operators", [])) or ", ".join(row["sources"]),
            )
        )
    heads = ("kernel", "on", "ms", "share", "GFLOP/s", "GB/s", "blocks x threads",
        "tensor", "uncoalesced", "conflicts", "occupancy", "computes")  # fmt: skip
    print_table(heads, table, title=name)
    between = f"; {copies} values are copied to the device or back" if exe.program.parts else ""
    print(f"{len(found)} kernels, {milliseconds(found.whole)} ms as one call{between}")
    print(f"memory of the device: {device_memory(exe.program)}")
    for operator, why, count in exe.program.metadata.get("on_cpu", ()):
        print(f"on the CPU: {operator}{f' x{count}' if count > 1 else ''} ({why})")


def counts_of(func: Func, target: Target) -> tuple[LaunchCounts, ...]:
    """The counts of each launch of a device's loop nest, in order."""
    assert target.device is not None
    for p in backend_of(target).loop_passes:
        func = p.run(func)
    return tuple(launch_counts(x, target.device) for x in launches(func))


def counts_of_loops(text: str, target: Target) -> tuple[LaunchCounts, ...]:
    """Like `counts_of`, from the text of the loop nest in `KernelInfo.loops`."""
    return counts_of(parse_func(text), target)
