"""Show what was detected: CPU, caches, threads, tools, packages, the cache of compiled kernels.

Example: tilesmith doctor --json
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import sys
from typing import Annotated, Any

import typer

from tilesmith import __version__
from tilesmith.cli.arguments import JsonFlag, with_options
from tilesmith.cli.console import note, print_json, print_table, size_text
from tilesmith.codegen import targets
from tilesmith.runtime.machine import machine
from tilesmith.runtime.threads import thread_count
from tilesmith.support.cache import Cache
from tilesmith.support.options import Options

_PACKAGES = ("numpy", "ml_dtypes", "llvmlite", "onnx", "onnxruntime", "openvino", "torch")
_TOOLS = ("cc", "gcc", "clang", "ld")
_SHOWN_FEATURES = ("avx", "avx2", "fma", "avx512", "amx", "avxvnni", "f16c", "bf16", "neon", "sve")


@with_options
def command(
    options: Options,
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove every kernel from the cache.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the machine's rates again.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    assert options.cache_dir is not None  # Options.from_environment always names a folder
    cache = Cache(options.cache_dir, options.cache_bytes)
    if clear_cache:
        removed = cache.clear()
        note(f"removed {removed.entries} kernels, {size_text(removed.bytes)}")
    found = _findings(options, cache) | {"rates": _rates(options, measure)}
    if json:
        print_json(found)
    else:
        print_table(("", ""), [(k, v) for k, v in _lines(found)])


def _findings(options: Options, cache: Cache) -> dict[str, Any]:
    target = targets.target(options.target)
    stats = cache.stats()
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
            "l1_bytes": target.l1_bytes,
            "l2_bytes": target.l2_bytes,
            "l3_bytes": target.l3_bytes,
        },
        "threads": {
            "default": thread_count(options.threads),
            "allowed_cpus": len(os.sched_getaffinity(0)),
            "cpus": os.cpu_count(),
        },
        "amx": _amx(),
        "tools": {tool: shutil.which(tool) for tool in _TOOLS},
        "packages": {name: _version(name) for name in _PACKAGES},
        "cache": {
            "folder": str(cache.directory),
            "used": options.use_cache,
            "entries": stats.entries,
            "bytes": stats.bytes,
            "limit_bytes": cache.max_bytes,
        },
    }


def _rates(options: Options, again: bool) -> list[dict[str, Any]]:
    """What the machine was measured to do (now, if never before), by number of threads."""
    return [
        {
            "threads": r.threads,
            "gflops": r.flops / 1e9,
            "l1_gbytes": r.l1_load / 1e9,
            "l2_gbytes": r.l2 / 1e9,
            "l3_gbytes": r.l3 / 1e9,
            "dram_gbytes": r.dram / 1e9,
            "dram_write_gbytes": r.dram_write / 1e9,
            "fork_join_us": r.fork_join * 1e6,
        }
        for r in machine(options.cache_dir, again).rates
    ]


def _rate_line(r: dict[str, Any]) -> tuple[str, str]:
    text = (
        f"{r['gflops']:.0f} GFLOP/s in f32; GB/s from L1 {r['l1_gbytes']:.0f}, "
        f"L2 {r['l2_gbytes']:.0f}, L3 {r['l3_gbytes']:.0f}, DRAM {r['dram_gbytes']:.0f}, "
        f"to DRAM {r['dram_write_gbytes']:.0f}"
    )
    if r["threads"] == 1:
        return "1 thread does", text
    return f"{r['threads']} threads do", f"{text}; {r['fork_join_us']:.1f} us to start them"


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    t, threads, cache = found["target"], found["threads"], found["cache"]
    features = [f for f in t["features"] if f.startswith(_SHOWN_FEATURES)]
    caches = (f"L{i} {size_text(t[f'l{i}_bytes'])}" for i in (1, 2, 3))
    return [
        ("tilesmith", f"{found['tilesmith']} (Python {found['python']}, {sys.executable})"),
        ("platform", found["platform"]),
        ("target", f"{t['name']}: {t['cpu']}, {t['triple']}"),
        ("vectors", f"{t['vector_registers']} registers of {t['vector_bits']} bits"),
        ("features", " ".join(features) or "none of note"),
        ("caches", ", ".join(caches)),
        (
            "threads",
            f"{threads['default']} by default; {threads['allowed_cpus']} of "
            f"{threads['cpus']} logical CPUs allowed",
        ),
        *map(_rate_line, found["rates"]),
        ("AMX", found["amx"]),
        ("tools", ", ".join(f"{k} {v or 'not found'}" for k, v in found["tools"].items())),
        ("packages", ", ".join(f"{k} {v or 'absent'}" for k, v in found["packages"].items())),
        (
            "kernel cache",
            f"{cache['folder']}: {cache['entries']} kernels, {size_text(cache['bytes'])} "
            f"of at most {size_text(cache['limit_bytes'])}{'' if cache['used'] else ' (not used)'}",
        ),
    ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _amx() -> str:
    """Whether the kernel offers AMX tiles (arch_prctl ARCH_GET_XCOMP_SUPP, feature bit 18)."""
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        return "no"
    sys_arch_prctl, get_supported, tile_data = 158, 0x1021, 1 << 18
    mask = ctypes.c_uint64()
    failed = ctypes.CDLL(None, use_errno=True).syscall(
        sys_arch_prctl, get_supported, ctypes.byref(mask)
    )
    if failed or not mask.value & tile_data:
        return "no"
    return "offered by the kernel; a process asks for it before its first use"
