"""Show where a model's time goes, kernel by kernel, and why.

Each kernel is listed with the source nodes that it computes, the loops around most of its work, and
the time that the performance model predicts on this machine.  `--kernel N` shows one kernel in
full.

Example: tilesmith explain resnet50.onnx --threads 1 --kernel 3
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Annotated, Any

import typer

from tilesmith.driver.request import Request
from tilesmith.ir.target import Target
from tilesmith.perf.machine import Rates
from tilesmith.perf.scaling import Scaling, division, scaling
from tilesmith.runtime.peaks import Peak, peak_of
from tilesmith.runtime.profile import KernelTime, Profile
from tilesmith.support.array_files import read_arrays
from tilesmith.support.errors import UsageError

from .arguments import InputOption, JsonFlag, ModelArgument, SeedOption, with_options
from .console import milliseconds, print_json, print_table, progress, size_text
from .explain_layers import layer_rows, show_layers
from .models import chosen_inputs, open_model


@with_options
def command(
    model: ModelArgument,
    wanted: Request,
    kernel: Annotated[
        int | None,
        typer.Option("--kernel", "-k", help="Show this kernel with its schedule and loops."),
    ] = None,
    top: Annotated[
        int, typer.Option(help="Show only this many of the slowest kernels (0: all, in order).")
    ] = 0,
    repeats: Annotated[int, typer.Option(help="Runs; the least time of each kernel counts.")] = 20,
    input: InputOption = None,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    if not 1 <= repeats <= 100_000:
        raise UsageError(f"--repeats must be from 1 to 100000, not {repeats}")
    if top < 0:
        raise UsageError(f"--top must not be negative, found {top}")
    arrays = read_arrays(input) if input else {}
    exe = open_model(model, wanted, arrays)
    count = len(exe.program.calls)
    if kernel is not None and not 0 <= kernel < count:
        raise UsageError(f"--kernel must be from 0 to {count - 1}, not {kernel}")
    inputs = chosen_inputs(exe, arrays, input, seed)
    with progress(f"running {model.name}"):
        profile = exe.profile(*(inputs[s.name] for s in exe.inputs), repeats=repeats)
    if exe.program.target.device is not None:
        from .explain_device import show

        show(model.name, exe, profile, kernel, json)
    elif json:
        chosen = range(count) if kernel is None else (kernel,)
        rows = [_row(i, profile, full=kernel is not None) for i in chosen]
        totals = _totals(profile, exe.program.target)
        chosen_types = exe.program.metadata.get("precision")
        told = {"precision": chosen_types} if chosen_types else {}
        told["arena_bytes"] = exe.program.arena_bytes
        told["computed_again"] = exe.program.metadata.get("computed_again", 0)
        told |= {"layers": layers} if (layers := layer_rows(exe.program)) else {}
        print_json({"model": str(model), **totals, **told, "kernels": rows})
    elif kernel is not None:
        _show_one(kernel, profile)
    else:
        _show_table(model.name, profile, exe.program.target, top)
        show_layers(layer_rows(exe.program))
        if again := exe.program.metadata.get("computed_again"):
            arena = size_text(exe.program.arena_bytes)
            print(f"arena {arena}: {again} kernels compute values again")
        if "precision" in exe.program.metadata:
            _show_precision(exe.program.metadata["precision"])


def _row(i: int, profile: Profile, full: bool = False) -> dict[str, Any]:
    k = profile[i]
    row: dict[str, Any] = {
        "kernel": i,
        "sources": list(k.call.sources),
        "ms": k.seconds * 1e3,
        "share": k.seconds / (profile.seconds or 1.0),
    }
    if k.info is not None and k.prediction is not None:
        row |= {
            "operators": list(k.info.operators),
            "signature": k.info.signature,
            "schedule": k.info.schedule,
            "flops": k.info.work.flops,
            "bytes": k.info.work.bytes,
            "gflops": k.flops_per_second / 1e9,
            "gbytes": k.bytes_per_second / 1e9,
            "predicted_ms": k.prediction.seconds * k.runs * 1e3,
            "ratio": k.ratio,
            "bound": k.prediction.bound,
        }
        share = _share_of_peak(k, profile.threads)
        if share is not None:
            peak, part = share
            row |= {"intrinsic": k.info.intrinsic, "type": peak.type, "peak_share": part}
        if full:
            row |= {"steps": list(k.info.steps), "loops": k.info.loops}
    return row


def _totals(profile: Profile, target: Target) -> dict[str, Any]:
    assert profile.machine is not None
    rates = profile.machine.at(profile.threads)
    known = [k for k in profile if k.info is not None and k.prediction is not None]
    s = _scaling(profile, target)
    return {
        "threads": profile.threads,
        "scheduled_threads": target.threads,
        "scaling": {"efficiency": s.efficiency, "serial": s.serial, "imbalance": s.imbalance},
        "whole_ms": profile.whole * 1e3,
        "kernels_ms": profile.seconds * 1e3,
        "predicted_ms": sum(k.prediction.seconds * k.runs for k in known if k.prediction) * 1e3,
        "gflops": sum(k.info.work.flops for k in known if k.info) / (profile.seconds or 1.0) / 1e9,
        "peak": {
            "gflops": rates.flops / 1e9,
            "l2_gbytes": rates.l2 / 1e9,
            "l3_gbytes": rates.l3 / 1e9,
            "dram_gbytes": rates.dram / 1e9,
            "fork_join_us": rates.fork_join * 1e6,
        },
    }


def _show_table(name: str, profile: Profile, target: Target, top: int) -> None:
    order = list(range(len(profile)))
    if top:
        order = sorted(order, key=lambda i: -profile[i].seconds)[:top]
    totals = _totals(profile, target)
    assert profile.machine is not None
    rates = profile.machine.at(profile.threads)
    threads = f"{profile.threads} thread{'s' if profile.threads > 1 else ''}"
    if target.for_threads(profile.threads).threads != target.threads:
        threads += f" (kernels are scheduled for {target.threads})"
    s = _scaling(profile, target)
    print(f"{name}, {threads}, {profile.machine.cpu}")
    print(_columns("kernel", "ms", "share", "GFLOP/s", "GB/s", "predicted", "predicted/", "bound"))
    print(_columns("", "", "", "", "", "ms", "measured", "by"))
    for i in order:
        _show_row(_line(i, profile[i], profile.seconds), _details(profile[i], profile.threads))
    sums = milliseconds(totals["predicted_ms"] / 1e3), _share(totals)
    _show_row(
        ("all", milliseconds(profile.seconds), "", f"{totals['gflops']:.1f}", "", *sums, ""),
        (f"{len(profile)} kernels; {milliseconds(profile.whole)} ms as one call",),
    )
    peak = f"{rates.flops / 1e9:.0f}", f"{rates.dram / 1e9:.0f}"
    _show_row(("peak", "", "", *peak, "", "", ""), (_peaks(rates),))
    _show_row(
        ("threads", *[""] * 7),
        (
            f"efficiency {s.efficiency:.2f} of {threads} by trip counts: serial {s.serial:.1%}, "
            f"imbalance {s.imbalance * s.threads:.1%}",
        ),
    )


def _show_precision(chosen: dict[str, Any]) -> None:
    """Print the choice of precision="auto" for each product, and the reason."""
    error, bound = chosen["error"], chosen["bound"]
    print(f"\nprecision {chosen['precision']}")
    print(f"outputs differ from those of f32 by {error:.1e}; the policy allows {bound:.0e}")
    rows = []
    for layer in chosen["layers"]:
        low = layer["form"] or "nothing: f32 is as fast"
        off = "" if layer["error"] is None else f"{layer['error']:.1e}"
        rows.append((layer["name"], layer["type"], low, off))
    print_table(("product", "type", "can be low", "error"), rows)


def _columns(*cells: str) -> str:
    """The column headings of the table of kernels, less than 80 characters wide."""
    widths = (7, 9, 7, 8, 7, 10, 11)
    return "".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=False)) + f"  {cells[-1]}"


def _show_row(cells: tuple[str, ...], details: tuple[str, ...]) -> None:
    """Print a line of numbers, with their description below it."""
    print(_columns(*cells).rstrip())
    width = max(shutil.get_terminal_size().columns, 40) if sys.stdout.isatty() else 80
    for text in filter(None, details):
        print(textwrap.fill(text, width, initial_indent=" " * 8, subsequent_indent=" " * 10))


def _share(totals: dict[str, Any]) -> str:
    return f"{totals['predicted_ms'] / (totals['kernels_ms'] or 1):.2f}"


def _scaling(profile: Profile, target: Target) -> Scaling:
    """The scaling of the model's time with threads, computed from each kernel's trip counts and
    time.
    """
    rows = []
    assert profile.machine is not None
    for k in profile:
        if k.info is not None:
            d = division(k.info.work, target, profile.machine, profile.threads)
            rows.append((d, k.seconds / d.busiest))
    return scaling(rows, profile.threads, 0.0)


def _line(i: int, k: KernelTime, total: float) -> tuple[str, ...]:
    head = (str(i), milliseconds(k.seconds), f"{k.seconds / (total or 1):.1%}")
    if k.info is None or k.prediction is None or k.ratio is None:
        return (*head, "", "", "", "", "")
    return (
        *head,
        f"{k.flops_per_second / 1e9:.1f}",
        f"{k.bytes_per_second / 1e9:.1f}",
        milliseconds(k.prediction.seconds * k.runs),
        f"{k.ratio:.2f}",
        k.prediction.bound,
    )


def _share_of_peak(k: KernelTime, threads: int) -> tuple[Peak, float] | None:
    """The peak rate of a kernel's tensor intrinsic, and the fraction of the peak that the kernel
    reaches. None without an intrinsic.
    """
    peak = peak_of(k.info.intrinsic, threads) if k.info and k.info.intrinsic else None
    return None if peak is None else (peak, k.flops_per_second / peak.rate)


def _intrinsic_text(k: KernelTime, threads: int) -> str:
    share_of_peak = _share_of_peak(k, threads)
    if share_of_peak is None or k.info is None:
        return "" if k.info is None else k.info.intrinsic
    peak, share = share_of_peak
    return (
        f"{k.info.intrinsic}, {share:.0%} of {peak.rate / 1e9:.0f} GOP/s, the peak of {peak.type}"
    )


def _details(k: KernelTime, threads: int) -> tuple[str, ...]:
    """A kernel's operators, its source nodes, its instruction, and its loops."""
    source = f"from {_shortened(k.call.sources, ', ')}" if k.call.sources else "from unnamed nodes"
    if k.info is None:
        return (source,)
    what = f"{_shortened(k.info.operators, '+')} {source}"
    return (what, _intrinsic_text(k, threads), k.info.schedule)


def _shortened(names: tuple[str, ...], between: str) -> str:
    return between.join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _peaks(rates: Rates) -> str:
    return (
        f"GB/s from DRAM; {rates.l3 / 1e9:.0f} from L3, {rates.l2 / 1e9:.0f} from L2; "
        f"{rates.fork_join * 1e6:.1f} us to start threads"
    )


def _show_one(i: int, profile: Profile) -> None:
    k = profile[i]
    row = _row(i, profile)
    lines = [("source nodes", " ".join(k.call.sources) or "none"), ("ms", milliseconds(k.seconds)),
             ("share", f"{row['share']:.1%}")]  # fmt: skip
    if k.runs != 1:
        lines.append(("runs", str(k.runs)))
    if k.info is None or k.prediction is None or not k.runs or profile.machine is None:
        print_table(("", ""), lines, title=f"kernel {i}")
        return
    p = k.prediction
    rates = profile.machine.at(profile.threads)
    lines += [
        ("operators", ", ".join(k.info.operators)),
        ("types", k.info.signature),
        ("GFLOP/s", f"{row['gflops']:.1f} of {rates.flops / 1e9:.0f}"),
        ("GB/s", f"{row['gbytes']:.1f}"),
        (
            "model",
            f"{milliseconds(p.seconds)} ms ({k.ratio:.2f} of measured): computing "
            f"{milliseconds(p.compute)}, moving data {milliseconds(p.memory)}, starting "
            f"{milliseconds(p.overhead)}",
        ),
        ("loops", k.info.schedule),
    ]
    if k.info.intrinsic:
        lines.append(("intrinsic", _intrinsic_text(k, profile.threads)))
    print_table(("", ""), lines, title=f"kernel {i}")
    print("\nschedule:\n" + ("\n".join(f"  {s}" for s in k.info.steps) or "  none: made directly"))
    print(f"\nloops:\n{k.info.loops}")
