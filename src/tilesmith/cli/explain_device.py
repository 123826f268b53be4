"""What `tilesmith explain` shows of a program on a device: where each kernel runs, and how."""

from __future__ import annotations

from math import prod
from typing import Any

from tilesmith.cli.console import milliseconds, print_json, print_table
from tilesmith.ir.expr import Const
from tilesmith.runtime.device_executable import DeviceExecutable
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.partitioned import PartitionedExecutable
from tilesmith.runtime.profile import Profile


def rows(exe: Executable, found: Profile) -> list[dict[str, Any]]:
    """The kernels in order: where each runs, its time, and its launches."""
    assert isinstance(exe, (DeviceExecutable, PartitionedExecutable))
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
                }
                for x in launches
            ],
        }
        if k.info is not None:
            work = k.info.work
            row |= {"operators": list(k.info.operators), "flops": work.flops, "bytes": work.bytes}
        told.append(row)
    return told


def show(name: str, exe: Executable, found: Profile, kernel: int | None, json: bool) -> None:
    """Print the kernels, or one of them.  Rates are those of the work that the loops describe."""
    told = rows(exe, found)
    told = told if kernel is None else [told[kernel]]
    copies = len(exe.program.transfers)
    if json:
        totals = {"whole_ms": found.whole * 1e3, "kernels_ms": found.seconds * 1e3}
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
                "+".join(row.get("operators", [])) or ", ".join(row["sources"]),
            )
        )
    heads = ("kernel", "on", "ms", "share", "GFLOP/s", "GB/s", "blocks x threads", "computes")
    print_table(heads, table, title=name)
    between = f"; {copies} values are copied to the device or back" if exe.program.parts else ""
    print(f"{len(found)} kernels, {milliseconds(found.whole)} ms as one call{between}")
    for operator, why, count in exe.program.metadata.get("on_cpu", ()):
        print(f"on the CPU: {operator}{f' x{count}' if count > 1 else ''} ({why})")
