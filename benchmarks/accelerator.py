#!/usr/bin/env python3
"""Utilisation of the accelerator by ResNet-18: `python -m benchmarks.accelerator`.

All convolutions except for the first one are compiled for the default machine, with one virtual
thread and with two, and their cycles are counted.  `bound` is the time of the busiest of matrix
unit, read channel and write channel; `with ALU` counts the ALU's steps as work of the compute unit,
which runs both.  Means are over all 19 layers.  Exit status 1 where a bar is missed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

from tables import table, verdict
from tilesmith.accel.clock import Counts, count_cycles
from tilesmith.accel.convolution import Convolution, compiled
from tilesmith.accel.machine import Machine

WITHOUT, WITH = 0.75, 0.9
"""Upper bound on the mean utilisation with one virtual thread, and lower bound with two."""

LAYERS = (
    (56, 64, 64, 3, 1, 4), (56, 64, 128, 3, 2, 1), (56, 64, 128, 1, 2, 1), (28, 128, 128, 3, 1, 3),
    (28, 128, 256, 3, 2, 1), (28, 128, 256, 1, 2, 1), (14, 256, 256, 3, 1, 3),
    (14, 256, 512, 3, 2, 1), (14, 256, 512, 1, 2, 1), (7, 512, 512, 3, 1, 3),
)  # fmt: skip
"""Pixels along an axis of the input, channels in and out, kernel, stride, number of such layers."""


def counted(layer: Convolution, threads: int) -> Counts:
    machine = Machine()
    return count_cycles(compiled(layer, machine, threads=threads).program, machine)


def busiest(counts: Counts) -> int:
    """The bound if the ALU's steps are work of the unit that also multiplies."""
    return max(counts.bound, counts.gemm_cycles + counts.alu_cycles)


def main() -> int:
    rows: list[list[str]] = []
    weighted: list[tuple[int, Counts, Counts]] = []
    for size, inputs, outputs, kernel, stride, count in LAYERS:
        layer = Convolution(
            inputs=inputs, outputs=outputs, height=size, width=size, kernel=(kernel, kernel),
            stride=stride, padding=(kernel // 2,) * 4,
        )  # fmt: skip
        one, two = counted(layer, 1), counted(layer, 2)
        weighted.append((count, one, two))
        rows.append(
            [
                f"{size} x {size}, {inputs} to {outputs}, {kernel} x {kernel} / {stride}",
                str(count), f"{one.utilisation:.0%}", f"{two.utilisation:.0%}", str(two.cycles),
                f"{two.cycles / two.bound:.2f}", f"{two.cycles / busiest(two):.2f}",
            ]
        )  # fmt: skip
    heads = ["layer", "count", "1 thread", "2 threads", "cycles", "of bound", "with ALU"]
    print(table("Convolutions of ResNet-18 but the first", heads, rows))
    total = sum(n for n, *_ in weighted)
    before = sum(n * one.utilisation for n, one, _ in weighted) / total
    after = sum(n * two.utilisation for n, _, two in weighted) / total
    bound = sum(n * two.cycles / two.bound for n, _, two in weighted) / total
    alu = sum(n * two.cycles / busiest(two) for n, _, two in weighted) / total
    print(f"mean utilisation: {before:.1%} with one virtual thread, {after:.1%} with two")
    print(f"mean of cycles over the bound: {bound:.3f}, with the ALU's work {alu:.3f}")
    passed = before <= WITHOUT and after >= WITH
    print(verdict(passed))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
