"""Measure how long a model takes.

With --concurrency, --rate or --batcher, many callers ask at once: throughput, latencies, and where
a batcher's requests spend their time.

With --trace, one run is written as a trace of events that https://ui.perfetto.dev opens: one for
each kernel, in the order in which they run.

Example: tilesmith bench resnet50.onnx --threads 2 --seconds 5 --percentiles 50,99 --trace t.json
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith.driver.request import Request
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.profile import KernelTime
from tilesmith.runtime.remote.device import timed_in_turns
from tilesmith.serving.batcher import Batcher
from tilesmith.support.array_files import read_arrays
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import write_text
from tilesmith.support.measure import Samples, count_runs, measure
from tilesmith.support.trace import Event, trace

from .arguments import DeviceOption, InputOption, JsonFlag, ModelArgument, SeedOption, with_options
from .bench_load import measure_load, show_load
from .console import milliseconds, print_json, print_table
from .models import chosen_inputs, open_model
from .outputs import check_output

TURN_SECONDS = 0.2
"""Seconds of runs in a turn on another machine."""


@with_options
def command(
    model: ModelArgument,
    wanted: Request,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 3.0,
    iters: Annotated[
        int | None,
        typer.Option(min=1, help="Measure so many runs in a row, however long it takes."),
    ] = None,
    warmup: Annotated[
        int, typer.Option(min=0, help="With --iters: runs before, which are not counted.")
    ] = 1,
    percentiles: Annotated[
        str | None,
        typer.Option(metavar="50,95,99.9", help="Times that so many percent of the runs keep to."),
    ] = None,
    input: InputOption = None,
    device: DeviceOption = None,
    kernels: Annotated[
        int, typer.Option(min=0, help="Also show the times of this many of the slowest kernels.")
    ] = 0,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="T.json", help="Write a trace that Perfetto and Chrome open."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Number of callers at once.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests a second on average; else each caller asks again at once."),
    ] = None,
    batcher: Annotated[
        bool, typer.Option("--batcher", help="Gather the callers' requests into calls.")
    ] = False,
    max_batch: Annotated[
        int | None, typer.Option(min=1, help="With --batcher: the most rows of a call.")
    ] = None,
    max_wait: Annotated[
        float, typer.Option(min=0, help="With --batcher: seconds that a request waits for others.")
    ] = 0.0,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    if not 0 < seconds <= 3600:
        raise UsageError(f"--seconds must be more than 0 and at most 3600, not {seconds:g}")
    shares = parse_percentiles(percentiles)
    if trace is not None:
        check_output(trace)
    arrays = read_arrays(input) if input else {}
    exe = open_model(model, wanted, arrays, device)
    inputs = chosen_inputs(exe, arrays, input, seed)
    if concurrency is not None or rate is not None or batcher:
        if iters is not None or kernels or trace is not None:
            raise UsageError(
                "--iters, --kernels and --trace measure runs one after the other; leave them out, "
                "or leave out --concurrency, --rate and --batcher"
            )
        with Batcher(exe, max_batch, max_wait) if batcher else nullcontext() as gathering:
            loaded = measure_load(
                exe, inputs, concurrency or 1, seconds, rate, gathering, shares, seed
            )
        loaded = {"model": str(model), "threads": exe.threads, **loaded}
        print_json(loaded) if json else show_load(model.name, exe.threads, loaded)
        return
    if iters is None:
        samples = measured(exe, inputs, seconds)
    else:
        samples = count_runs(lambda: exe.run(inputs), iters, warmup)
    result: dict[str, Any] = {
        "model": str(model),
        "threads": exe.threads,
        **samples.as_dict(),
        "per_second": 1 / samples.median,
    }
    if shares:
        result["percentiles_ms"] = {f"{p:g}": samples.percentile(p) * 1e3 for p in shares}
    times: tuple[KernelTime, ...] = ()
    if kernels > 0 or trace is not None:
        times = tuple(exe.profile(*(inputs[s.name] for s in exe.inputs)))
    if kernels > 0:
        total = sum(t.seconds for t in times)
        slowest = sorted(times, key=lambda t: -t.seconds)[:kernels]
        result["kernels"] = [
            {"label": t.call.label, "ms": t.seconds * 1e3, "share": t.seconds / total}
            for t in slowest
        ]
    if trace is not None:
        write_trace(trace, times, model.name, exe.threads)
        result["trace"] = str(trace)
    if json:
        print_json(result)
        return
    _show(model.name, exe.threads, samples, shares, result)


def measured(exe: Executable, inputs: Mapping[str, Any], seconds: float) -> Samples:
    """Times of about `seconds` of runs.  Times measured on another machine exclude the network."""
    arrays = exe._measured((inputs,))
    rounds = max(int(seconds / TURN_SECONDS), 1)
    there = timed_in_turns([exe.runner], arrays, rounds, TURN_SECONDS)
    if there is not None:
        return there[0]
    return measure(lambda: exe.run(inputs), seconds=seconds)


def parse_percentiles(text: str | None) -> tuple[float, ...]:
    """`50,99.9` as numbers.  Raises UsageError."""
    if text is None:
        return ()
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = (-1.0,)
    if not all(0 <= p <= 100 for p in numbers):
        raise UsageError(
            f"--percentiles wants numbers from 0 to 100, like 50,95,99.9; not {text!r}"
        )
    return numbers


def _show(
    name: str, threads: int, samples: Samples, shares: Sequence[float], result: dict[str, Any]
) -> None:
    print_table(
        (
            "model", ">threads", ">median ms", ">min ms", ">p90 ms",
            *(f">p{p:g} ms" for p in shares), ">runs", ">per second",
        ),
        [
            (
                name,
                threads,
                milliseconds(samples.median),
                milliseconds(samples.minimum),
                milliseconds(samples.p90),
                *(milliseconds(samples.percentile(p)) for p in shares),
                len(samples.times),
                f"{1 / samples.median:.1f}",
            )
        ],
    )  # fmt: skip
    if "kernels" in result:
        print()
        print_table(
            ("kernel", ">ms", ">share"),
            [
                (k["label"], milliseconds(k["ms"] / 1e3), f"{k['share']:.1%}")
                for k in result["kernels"]
            ],
        )
    if "trace" in result:
        print(f"wrote {result['trace']}: open it at https://ui.perfetto.dev or chrome://tracing")


def trace_of(kernels: Iterable[KernelTime], model: str, threads: int) -> dict[str, Any]:
    """The events of a run: kernels one after the other, as they run.

    Times are microseconds.  A kernel's threads begin and end together, so a kernel is one event,
    whose arguments contain the number of threads.  Kernels that did not run have no event.
    """
    events: list[Event] = []
    now = 0.0
    for number, k in enumerate(kernels):
        if not k.runs:
            continue
        about: dict[str, Any] = {"kernel": number, "symbol": k.call.symbol, "runs": k.runs}
        about["threads"] = threads
        if k.info is not None:
            about["operators"] = "+".join(k.info.operators)
        if k.prediction is not None:
            about["GFLOP/s"] = round(k.flops_per_second / 1e9, 2)
            about["GB/s"] = round(k.bytes_per_second / 1e9, 2)
        name = k.call.label or about.get("operators") or k.call.symbol
        events.append(Event(0, name, "kernel", now * 1e6, k.seconds * 1e6, about))
        now += k.seconds
    return trace(model, ("kernels",), events)


def write_trace(path: Path, kernels: Iterable[KernelTime], model: str, threads: int) -> None:
    """Write the result of `trace_of` to a file.  Raises UsageError if it can't be written."""
    text = json.dumps(trace_of(kernels, model, threads), indent=1, allow_nan=False)
    try:
        write_text(path, text)
    except OSError as e:
        raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from None
