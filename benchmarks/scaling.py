"""How a model's time divides among threads: serial share, load imbalance, expected efficiency.

    python benchmarks/scaling.py MODEL... --threads 4 16 64          # trip counts, expected times
    python benchmarks/scaling.py MODEL... --threads 16 --measured    # trip counts, measured times
    python benchmarks/scaling.py MODEL... --threads 2 --check        # beside a measurement
    python benchmarks/scaling.py MODEL... --threads 16 --streams     # a call on each core instead

Without `--measured` nothing is run, so that any target will do: `--target server-64`.  With it, the
time of each kernel with one thread is measured here, in a program scheduled for that many threads.
`--check` measures that program with all of its threads, too.  Kernels that lose most come first.

`--streams` expects calls with one thread side by side, one on each core (`ts.Streams`).  They share
the weights, the last-level cache and memory, whose rates are divided among them.  As elsewhere, a
kernel's inputs that the kernel before it wrote are expected in its core's cache.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from tilesmith import driver
from tilesmith.perf.cost import Place, Setting, constants_place, predict
from tilesmith.perf.machine import Machine, nominal
from tilesmith.perf.scaling import Division, Scaling, division, scaling
from tilesmith.program.nodes import KernelCall
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.program import Program
from tilesmith.support.options import Options

SHOWN = 8
"""Kernels that are listed for a model."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--target", default="native")
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--streams", action="store_true")
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    for model in arguments.models:
        for threads in arguments.threads:
            if arguments.streams:
                show_streams(model, arguments.target, threads)
                continue
            options = Options.from_environment(
                target=arguments.target, threads=threads, use_records=False
            )
            program = driver.compile_model(driver.Request(model, options))
            seconds = None
            if arguments.measured or arguments.check:
                seconds = measured(program, 1, arguments.repeats)
            found, rows = divided(program, threads, seconds)
            print(line(model.stem, found))
            if arguments.check:
                whole = measured(program, threads, arguments.repeats).sum()
                print(
                    f"    measured {whole * 1e3:.2f} ms, {found.seconds / whole:.2f} of it expected"
                )
            for label, d, t in rows[:SHOWN]:
                lost = (d.serial * (1 - 1 / threads) + d.imbalance) * t / (found.one or 1)
                if lost > 0.002:
                    print(
                        f"    {lost:6.1%} of the time lost: serial {d.serial:.0%}, imbalance "
                        f"{d.imbalance * threads:.0%} of a fair part, {d.forks:.0f} forks: {label}"
                    )


def show_streams(model: Path, target: str, streams: int) -> None:
    """Print the expected efficiency of calls on each core, and the kernels that lose most."""
    options = Options.from_environment(target=target, threads=1, use_records=False)
    program = driver.compile_model(driver.Request(model, options))
    alone = nominal(program.target)
    shared = beside(alone, streams)
    arenas = program.constants.nbytes + np.array([1, streams]) * program.arena_bytes
    kept = [constants_place(float(size), program.target) for size in arenas]
    rows = []
    for call in program.calls:
        work = program.kernels[call.symbol].work
        one, each = (
            predict(work, m, program.target, setting(call, place)).seconds
            for m, place in zip((alone, shared), kept, strict=True)
        )
        rows.append((call.label, one, each))
    before, after = sum(r[1] for r in rows), sum(r[2] for r in rows)
    print(f"{model.stem}, {streams} streams: efficiency {before / after:.0%}")
    for label, one, each in sorted(rows, key=lambda r: r[1] - r[2])[:SHOWN]:
        if each - one > 0.002 * after:
            print(f"    {(each - one) / after:6.1%} of the time lost to shared memory: {label}")


def setting(call: KernelCall, constants: Place) -> Setting:
    """One thread, with the constants at a level of memory and other arguments in the cache."""
    return Setting(1, [constants if a.kind == "constant" else "l1" for a in call.args])


def beside(machine: Machine, streams: int) -> Machine:
    """The rates of one thread while as many streams of one thread run."""
    one, all_ = machine.at(1), machine.at(streams)
    names = ("l3", "l3_write", "dram", "dram_write")
    parts = {n: min(getattr(one, n), getattr(all_, n) / streams) for n in names}
    return replace(machine, rates=(replace(one, **parts),))


def divided(
    program: Program, threads: int, seconds: np.ndarray | None = None
) -> tuple[Scaling, list[tuple[str, Division, float]]]:
    """The program's scaling and its kernels, those that lose most first.

    `seconds`: of each call with one thread; by default what the performance model expects.
    """
    target, machine = program.target, nominal(program.target)
    rows = []
    for i, call in enumerate(program.calls):
        work = program.kernels[call.symbol].work
        expected = predict(work, machine, target, Setting(1)).seconds
        taken = expected if seconds is None else float(seconds[i])
        rows.append((call.label, division(work, target, machine, threads), taken))
    found = scaling(((d, t) for _, d, t in rows), threads, machine.at(threads).fork_join)
    return found, sorted(rows, key=lambda r: -(r[1].busiest - 1 / threads) * r[2])


def measured(program: Program, threads: int, repeats: int) -> np.ndarray:
    """Seconds of each call of a program, the least of `repeats` runs."""
    exe = Executable(program, threads)
    rng = np.random.default_rng(0)
    given = [
        rng.standard_normal(s.shape).astype(s.dtype.numpy)
        if s.dtype.is_float
        else rng.integers(0, 2, s.shape).astype(s.dtype.numpy)
        for s in exe.inputs
    ]
    return exe.kernel_seconds(*given, repeats=repeats)


def line(name: str, s: Scaling) -> str:
    return (
        f"{name}, {s.threads} threads: efficiency {s.efficiency:.0%}, serial {s.serial:.1%}, "
        f"imbalance {s.imbalance * s.threads:.1%}, {s.one * 1e3:.2f} ms on one core"
    )


if __name__ == "__main__":
    main()
