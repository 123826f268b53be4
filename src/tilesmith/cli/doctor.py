"""Show what was detected: CPU, caches, threads, devices, tools, packages, cached kernels, records.

Each CPU's line shows its best and its average speed.  If they differ much, other programs run on
that CPU, and measurements are less reliable.

Example: tilesmith doctor --json
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from typing import Annotated, Any

import typer

from tilesmith import __version__
from tilesmith.cli.arguments import JsonFlag, with_options
from tilesmith.cli.console import note, print_json, print_table, size_text
from tilesmith.cli.devices import (
    device_lines,
    extra_lines,
    found_devices,
    missing_extras,
    version,
)
from tilesmith.codegen import targets
from tilesmith.codegen.tiles import tile_permission
from tilesmith.runtime.machine import core_rates
from tilesmith.runtime.peaks import TYPES, type_peaks
from tilesmith.runtime.rates import Kept, kept_rates
from tilesmith.runtime.threads import thread_count
from tilesmith.search_space.records import MARGIN, SOUND, Key, Records
from tilesmith.support.cache import STORES, Cache, CacheStats, total
from tilesmith.support.errors import ModelError
from tilesmith.support.options import Options, records_path
from tilesmith.tuning.measure import is_locked

_PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "onnx", "onnxruntime", "openvino", "torch",
             "lightgbm", "ray")  # fmt: skip
QUIET = 0.9
"""Fraction of its best rate that a CPU reaches on average if no other program runs there."""
_TOOLS = ("cc", "gcc", "clang", "ld")
_SHOWN_FEATURES = ("avx", "avx2", "fma", "avx512", "amx", "avxvnni", "f16c", "bf16", "neon", "sve")


@with_options
def command(
    options: Options,
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove every kernel and program from the cache.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the machine's rates again.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    assert options.cache_dir is not None  # Options.from_environment always names a folder
    caches = [Cache(options.cache_dir, options.cache_bytes, store) for store in STORES]
    if clear_cache:
        removed = total(c.clear() for c in caches)
        note(f"removed {removed.entries} kernels and programs, {size_text(removed.bytes)}")
    findings = _findings(options, total(c.stats() for c in caches))
    kept = kept_rates(options.cache_dir, measure)
    findings |= {
        "rates": _rates(kept),
        "rates_doubted": kept.doubts,
        "peaks": _peaks(),
        "cores": _cores(),
    }
    if json:
        print_json(findings)
    else:
        print_table(("", ""), [(k, v) for k, v in _lines(findings)])


def _findings(options: Options, stats: CacheStats) -> dict[str, Any]:
    target = targets.target(options.target)
    return {
        "tilesmith": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "target": {
            "name": target.name,
            "triple": target.triple,
            "cpu": target.cpu,
            "features": sorted(target.features),
            "vector_bits": target.vector_bits,
            "vector_registers": target.vector_registers,
            "model": target.model.to_json(),
        },
        "threads": {
            "default": thread_count(options.threads),
            "allowed_cpus": len(os.sched_getaffinity(0)),
            "cpus": os.cpu_count(),
        },
        "amx": _amx(),
        "tools": {tool: shutil.which(tool) for tool in _TOOLS},
        "devices": found_devices(),
        "packages": {name: version(name) for name in _PACKAGES},
        "missing_extras": missing_extras(),
        "cache": {
            "folder": str(options.cache_dir),
            "used": options.use_cache,
            "entries": stats.entries,
            "bytes": stats.bytes,
            "limit_bytes": options.cache_bytes,
        },
        "records": _records(options),
        "measuring": is_locked(),
    }


def _records(options: Options) -> dict[str, Any]:
    """Statistics of the tuning records; for a file that can't be read, the reason."""
    path = records_path(options)
    summary: dict[str, Any] = {"file": str(path), "used": options.use_records}
    if not path.exists():
        return summary | {"bytes": 0, "trials": 0, "workloads": 0, "failed": 0, "helpful": 0}
    try:
        with Records(path, read_only=True) as records:
            trials = records.trials()
            size = sum(p.stat().st_size for p in path.parent.glob(f"{path.name}*"))
    except (ModelError, OSError) as e:
        return summary | {"error": str(e)}
    best: dict[Key, float] = {}
    for t in trials:
        if t.key.is_current:
            best[t.key] = min(best.get(t.key, float("inf")), t.ratio)
    return summary | {
        "bytes": size,
        "trials": len(trials),
        "workloads": len({t.key for t in trials}),
        "failed": sum(t.status not in SOUND for t in trials),
        "helpful": sum(ratio <= 1 - MARGIN for ratio in best.values()),
    }


def _records_line(r: dict[str, Any]) -> str:
    if "error" in r:
        return f"can't be read: {r['error']}"
    unused = "" if r["used"] else " (not used)"
    return (
        f"{r['file']}: {r['trials']} trials ({r['failed']} failed) of {r['workloads']} workloads, "
        f"{r['helpful']} of which got faster; {size_text(r['bytes'])}{unused}"
    )


def _cores() -> list[dict[str, Any]]:
    return [
        {"cpu": r.cpu, "gflops": r.best / 1e9, "mean_gflops": r.mean / 1e9}
        for r in core_rates(targets.host())
    ]


def _cores_line(cores: list[dict[str, Any]]) -> str:
    """The range of speeds over all cores, and the names of the busy ones."""
    if not cores:
        return "threads can't be pinned here"
    best = [c["gflops"] for c in cores]
    busy = [c for c in cores if c["mean_gflops"] < QUIET * c["gflops"]]
    names = ", ".join(f"{c['cpu']} ({c['mean_gflops'] / c['gflops']:.0%} of it left)" for c in busy)
    return f"{min(best):.0f} to {max(best):.0f} GFLOP/s each; " + (
        f"something else runs on CPU {names}" if busy else "all are quiet"
    )


def _rates(kept: Kept) -> list[dict[str, Any]]:
    """The rates of the machine by number of threads, measured now if they never were before."""
    machine = kept.machine
    return [
        {
            "threads": r.threads,
            "gflops": r.flops / 1e9,
            "l1_gbytes": r.l1_load / 1e9,
            "l2_gbytes": r.l2 / 1e9,
            "l3_gbytes": r.l3 / 1e9,
            "l3_mbytes": machine.l3_bytes / 1e6,
            "dram_gbytes": r.dram / 1e9,
            "dram_write_gbytes": r.dram_write / 1e9,
            "fork_join_us": r.fork_join * 1e6,
        }
        for r in machine.rates
    ]


def _peaks() -> list[dict[str, Any]]:
    """The peak rate of products on one thread, for each element type with an instruction for it."""
    return [{"type": p.type, "intrinsic": p.intrinsic, "gops": p.rate / 1e9} for p in type_peaks()]


def _peaks_line(peaks: list[dict[str, Any]]) -> str:
    known = {p["type"] for p in peaks}
    parts = [f"{p['type']} {p['gops']:.0f} ({p['intrinsic']})" for p in peaks]
    missing = [t for t in TYPES if t not in known]
    lacking = f"; no instruction for {', '.join(missing)}" if missing else ""
    return ", ".join(parts) + lacking


def _rate_line(r: dict[str, Any]) -> tuple[str, str]:
    text = (
        f"{r['gflops']:.0f} GFLOP/s in f32; GB/s from L1 {r['l1_gbytes']:.0f}, "
        f"L2 {r['l2_gbytes']:.0f}, L3 {r['l3_gbytes']:.0f} (holds {r['l3_mbytes']:.0f} MB), "
        f"DRAM {r['dram_gbytes']:.0f}, to DRAM {r['dram_write_gbytes']:.0f}"
    )
    if r["threads"] == 1:
        return "1 thread does", text
    return f"{r['threads']} threads do", f"{text}; {r['fork_join_us']:.1f} us to start them"


def _doubts(why: str) -> list[tuple[str, str]]:
    again = "later processes measure again, as `doctor --measure` does now"
    return [("doubted", f"{why}; {again}")] if why else []


def _lines(findings: dict[str, Any]) -> list[tuple[str, str]]:
    t, threads, cache = findings["target"], findings["threads"], findings["cache"]
    features = [f for f in t["features"] if f.startswith(_SHOWN_FEATURES)]
    m = t["model"]
    caches = (f"L{i} {size_text(m[f'l{i}_bytes'])}" for i in (1, 2, 3))
    return [
        ("tilesmith", f"{findings['tilesmith']} (Python {findings['python']}, {sys.executable})"),
        ("platform", findings["platform"]),
        ("target", f"{t['name']}: {t['cpu']}, {t['triple']}"),
        ("vectors", f"{t['vector_registers']} registers of {t['vector_bits']} bits"),
        ("features", " ".join(features) or "none of note"),
        (
            "cores",
            f"{m['cores']} with {m['smt']} hardware threads each, {m['ghz']:.1f} GHz assumed",
        ),
        (
            "caches",
            f"{', '.join(caches)}; {m['l1_ways']} and {m['l2_ways']} ways, "
            f"{m['l3_cores']} cores share an L3",
        ),
        (
            "ports",
            f"{m['fma_ports']} FMAs (latency {m['fma_latency']}), {m['vector_ports']} vector "
            f"instructions, {m['load_ports']} loads, {m['issue_width']} of any kind a cycle",
        ),
        (
            "threads",
            f"{threads['default']} by default; {threads['allowed_cpus']} of "
            f"{threads['cpus']} logical CPUs allowed",
        ),
        *map(_rate_line, findings["rates"]),
        *_doubts(findings["rates_doubted"]),
        ("GOP/s by type", _peaks_line(findings["peaks"])),
        ("CPUs", _cores_line(findings["cores"])),
        ("AMX", findings["amx"]),
        ("tools", ", ".join(f"{k} {v or 'not found'}" for k, v in findings["tools"].items())),
        *device_lines(findings["devices"]),
        ("packages", ", ".join(f"{k} {v or 'absent'}" for k, v in findings["packages"].items())),
        *extra_lines(findings["missing_extras"]),
        (
            "kernel cache",
            f"{cache['folder']}: {cache['entries']} kernels and programs, "
            f"{size_text(cache['bytes'])} "
            f"of at most {size_text(cache['limit_bytes'])}{'' if cache['used'] else ' (not used)'}",
        ),
        ("tuning records", _records_line(findings["records"])),
        ("measuring now", "yes: a tuner holds the lock" if findings["measuring"] else "no"),
    ]


def _amx() -> str:
    """Text that says whether kernels may use AMX tiles."""
    return {
        "granted": "permission granted to this process",
        "refused": "known to the system, which refused permission: kernels don't use it",
        "none": "no",
    }[tile_permission()]
