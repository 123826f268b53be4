"""The tables that `run.py` writes, and the bars that its numbers have to meet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

BARS = {
    "mean": 1.0,  # geometric mean over models of the best other engine's time over ours
    "model": 0.8,  # the same of each model
    "kernels": 0.25,  # median error of the performance model
    "call": 2.0,  # microseconds of a call beside its kernel
    "odd operators": 2.0,  # geometric mean over operators of the best other's time over ours
    "gemm": 0.85,  # our speed over NumPy's
    "features": 200_000,  # candidates featurised and scored per second on one core
    "compile resnet50, cold": 5.0,  # seconds
    "compile resnet50, cached": 0.5,
    "compile bert_base, cold": 5.0,
    "compile densenet121, cold": 10.0,
    "import tilesmith": 0.3,
}
"""What must hold; the other rows are for information."""

MORE_MEMORY = 150
"""Megabytes that compiling and running a model may take beyond ONNX Runtime's peak."""

OURS = "tilesmith"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"### {title}", "", f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(r)} |" for r in rows)]) + "\n"


def verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "**missed**"


def failed(rows: Any) -> bool:
    """A part that did not work is a dictionary that says why."""
    return isinstance(rows, dict) and "failed" in rows and "what" in rows


def best_ratio(row: dict[str, Any]) -> float | None:
    """The fastest other engine's time over ours, None without others."""
    others = [e["ratio"] for name, e in row["engines"].items() if name != OURS]
    return min(others, default=None)


def models_tables(results: dict[str, Any]) -> str:
    """Whole models, a table for each number of threads."""
    rows = [r for name, r in results["parts"].items() if name.startswith("latency ")]
    texts = [f"{machine_line(results['machine'])}\n"]
    for threads in sorted({r["threads"] for r in rows}):
        mine = [r for r in rows if r["threads"] == threads]
        engines = list(dict.fromkeys(e for r in mine for e in r.get("engines", {})))
        lines, ratios = [], []
        for r in mine:
            if failed(r):
                lines.append([r["model"], *[""] * len(engines), f"{r['failed']}: **missed**"])
                continue
            found = r["engines"]
            ratio = best_ratio(r)
            times = [f"{found[e]['min_ms']:.2f}" if e in found else "-" for e in engines]
            said = ""
            if ratio is not None:
                ratios.append(ratio)
                said = f"{ratio:.2f}" + ("" if ratio >= BARS["model"] else " **missed**")
            lines.append([r["model"], *times, said])
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            said = f"{mean:.2f} (>= {BARS['mean']:g} {verdict(mean >= BARS['mean'])})"
            lines.append(["geometric mean", *[""] * len(engines), said])
        title = f"{threads} thread{'s' if threads > 1 else ''}, float32, best of many runs in ms"
        texts.append(table(title, ("model", *engines, "best other / ours"), lines))
    return "\n".join(texts)


def machine_line(m: dict[str, Any]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in m["versions"].items())
    return f"{m['cpu']}, {m['cores']} cores; Python {m['python']}, {versions}"


def kernel_table(results: dict[str, Any]) -> str:
    lines = []
    for name, rows in results["parts"].items():
        if not name.startswith("kernels "):
            continue
        threads = name.split()[1]
        if failed(rows):
            lines.append([threads, rows["failed"], "", "", "**missed**"])
            continue
        for model in [*dict.fromkeys(r["model"] for r in rows), "all"]:
            mine = [r for r in rows if model in ("all", r["model"])]
            error = statistics.median(abs(r["error"]) for r in mine)
            bar = f"<= {BARS['kernels']:.0%} {verdict(error <= BARS['kernels'])}"
            said = bar if model == "all" else ""
            lines.append([threads, model, str(len(mine)), f"{error:.1%}", said])
    columns = ("threads", "model", "kernels", "median error", "bar")
    return table("The performance model against measurement", columns, lines)


def call_table(rows: Any) -> str:
    lines = []
    for r in [rows] if failed(rows) else rows:
        if "failed" in r:
            lines.append([r["what"], r["failed"], "", "", "**missed**"])
            continue
        us = r["us"]
        share = us["call"] - us["kernel"]
        other = f"{us['onnxruntime']:.2f}" if "onnxruntime" in us else "-"
        said = f"<= {BARS['call']:g} {verdict(share <= BARS['call'])}"
        lines.append([r["what"], f"{us['call']:.2f}", f"{us['kernel']:.2f}", other, said])
    columns = ("what", "tilesmith", "of that the kernel", "onnxruntime", "bar")
    return table("A call from Python (microseconds)", columns, lines)


def gemm_table(rows: Any) -> str:
    lines = []
    rows = [rows] if failed(rows) else rows
    engines = list(dict.fromkeys(e for r in rows for e in r.get("gflops", ())))
    for r in rows:
        if "failed" in r:
            blank = [""] * max(len(engines), 1)
            lines.append([r["what"], str(r["failed"]), *blank, "**missed**"])
            continue
        bar = f">= {BARS['gemm']:.0%} {verdict(r['share'] >= BARS['gemm'])}"
        speeds = (f"{r['gflops'][e]:.0f}" if e in r["gflops"] else "" for e in engines)
        lines.append([r["what"], *speeds, f"{r['share']:.0%}", bar])
    columns = ("what", *(engines or ["tilesmith"]), "share of NumPy", "bar")
    return table("Matrix product (GFLOP/s)", columns, lines)


def features_table(rows: Any) -> str:
    lines = []
    for r in [rows] if failed(rows) else rows:
        if "failed" in r:
            lines.append([r["what"], str(r["failed"]), "", "", "", "**missed**"])
            continue
        bar = f">= {BARS['features']:,} {verdict(r['rate'] >= BARS['features'])}"
        learned = "-" if r["pretrained_rate"] is None else f"{r['pretrained_rate']:,.0f}"
        made = f"{1e3 * r['make_seconds']:.0f} ms"
        rates = (f"{r['rate']:,.0f}", learned, f"{r['dictionary_rate']:,.0f}")
        lines.append([r["what"], made, *rates, bar])
    columns = ("what", "made in", "with the prior", "with LightGBM", "as dictionaries", "bar")
    return table("Candidates featurised and scored per second on one core", columns, lines)


def compile_table(rows: Any) -> str:
    lines = []
    for r in [rows] if failed(rows) else rows:
        if "failed" in r:
            lines.append([r["what"], str(r["failed"]), "**missed**"])
            continue
        if "megabytes" in r:
            more = r["megabytes"] - r["onnxruntime"]
            said = f"<= ONNX Runtime's {r['onnxruntime']:.0f} MB + {MORE_MEMORY} MB"
            found = f"{r['megabytes']:.0f} MB"
            lines.append([r["what"], found, f"{said} {verdict(more <= MORE_MEMORY)}"])
            continue
        bar = BARS.get(r["what"])
        said = "" if bar is None else f"<= {bar:g} s {verdict(r['seconds'] <= bar)}"
        lines.append([r["what"], f"{r['seconds']:.2f} s", said])
    return table("Compile and import time, memory", ("what", "measured", "bar"), lines)


def odd_tables(results: dict[str, Any]) -> str:
    """Odd operators, a table for each number of threads."""
    found = {n: r for n, r in results["parts"].items() if n.startswith("odd ")}
    texts = []
    for threads in sorted({int(n.split()[1]) for n in found}):
        lines, ratios = [], []
        for name, rows in found.items():
            _, count, operator = name.split(" ", 2)
            if int(count) != threads:
                continue
            if failed(rows):
                lines.append([operator, "", "", "", f"{rows['failed']}: **missed**"])
                continue
            for r in rows:
                others = {n: e for n, e in r["engines"].items() if not n.startswith(OURS)}
                best = min(others, key=lambda n: others[n]["ratio"])
                ratios.append(others[best]["ratio"])
                times = (r["engines"][n]["min_ms"] for n in (r["ours"], f"{OURS}, untuned", best))
                mine, untuned, other = (f"{t:.3f}" for t in times)
                lines.append([operator, mine, untuned, f"{other} ({best})", f"{ratios[-1]:.2f}"])
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            met = mean >= BARS["odd operators"]
            said = f"{mean:.2f} (>= {BARS['odd operators']:g} {verdict(met)})"
            lines.append(["geometric mean", "", "", "", said])
        title = f"Odd operators, {threads} thread{'s' if threads > 1 else ''}, best of runs in ms"
        columns = ("operator", OURS, "untuned", "best other", "best other / ours")
        texts.append(table(title, columns, lines))
    return "\n".join(texts)


def markdown(results: dict[str, Any]) -> str:
    """All results as Markdown."""
    parts = results["parts"]
    texts = [models_tables(results)]
    if any(name.startswith("kernels ") for name in parts):
        texts.append(kernel_table(results))
    if any(name.startswith("odd ") for name in parts):
        texts.append(odd_tables(results))
    made = (("call", call_table), ("gemm", gemm_table))
    made += (("features", features_table), ("compile_time", compile_table))
    texts += [make(parts[name]) for name, make in made if name in parts]
    return "\n".join(texts)
