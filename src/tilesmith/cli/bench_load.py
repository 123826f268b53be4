"""The part of `bench` that measures many callers at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilesmith.runtime.executable import Executable
from tilesmith.serving.batcher import Batcher
from tilesmith.serving.load import load
from tilesmith.serving.stats import STAGES
from tilesmith.support.errors import UsageError

from .console import milliseconds, print_table

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def measure_load(
    exe: Executable,
    inputs: Mapping[str, Any],
    concurrency: int,
    seconds: float,
    rate: float | None,
    batcher: Batcher | None,
    shares: Sequence[float],
    seed: int,
) -> dict[str, Any]:
    """Throughput, latencies, and with a batcher the mean time of a request in each stage.  The rest
    of a latency is `other`: the time in which callers' threads wait for a core.

    shares: percentiles of the latencies; empty: the usual ones.

    Raises UsageError for a rate out of range.
    """
    if rate is not None and not 0 < rate <= 1e6:
        raise UsageError(f"--rate must be more than 0 and at most 1000000, not {rate:g}")

    def call() -> object:
        return exe.run(inputs) if batcher is None else batcher(**inputs)

    call()
    before = None if batcher is None else batcher.stats()
    samples, whole = load(call, concurrency, seconds, rate, seed)
    after = None if batcher is None else batcher.stats()
    result: dict[str, Any] = {
        "concurrency": concurrency,
        "rate": rate,
        "requests": len(samples.times),
        "per_second": len(samples.times) / whole,
        "latency_ms": {f"{p:g}": samples.percentile(p) * 1e3 for p in shares or PERCENTILES},
    }
    if before is not None and after is not None:
        mean = sum(samples.times) / len(samples.times)
        stages = {
            s: (after.seconds[s] - before.seconds[s]) / len(samples.times) * 1e3 for s in STAGES
        }
        result["stages_ms"] = {**stages, "other": mean * 1e3 - sum(stages.values())}
        result["mean_batch"] = after.mean_batch
    return result


def show_load(model: str, threads: int, result: Mapping[str, Any]) -> None:
    """Print a result of `measure_load`."""
    latencies = result["latency_ms"]
    print_table(
        (
            "model", ">threads", ">callers", ">per second", *(f">p{p} ms" for p in latencies),
            ">requests",
        ),
        [
            (
                model,
                threads,
                result["concurrency"],
                f"{result['per_second']:.1f}",
                *(milliseconds(ms / 1e3) for ms in latencies.values()),
                result["requests"],
            )
        ],
    )  # fmt: skip
    if "stages_ms" in result:
        stages = result["stages_ms"]
        print()
        print_table(
            (*(f">{s} ms" for s in stages), ">rows a call"),
            [(*(milliseconds(ms / 1e3) for ms in stages.values()), f"{result['mean_batch']:.1f}")],
        )
