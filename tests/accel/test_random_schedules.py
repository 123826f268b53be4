"""Random convolutions, tiles and machines: programs without deadlock or hazard, and exact results.

The simulator finds deadlocks, hazards, tokens that are left, and reads of what nothing wrote.
`python -m tests.accel.test_random_schedules COUNT [FIRST]` runs more seeds.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

from tilesmith.accel.convolution import Convolution, Tiles, candidates, packed, scheduled, unpacked
from tilesmith.accel.kernel import build
from tilesmith.accel.machine import Machine
from tilesmith.accel.simulate import simulate

from .convolution_cases import inputs, wanted


def drawn_machine(rng: random.Random) -> Machine:
    """A machine with small buffers, so that tiles are reused and micro-operations replaced."""
    return Machine(
        block_in=rng.choice((4, 8, 16)),
        block_out=rng.choice((4, 8, 16)),
        inp_bytes=rng.choice((1 << 10, 1 << 12, 1 << 14)),
        wgt_bytes=rng.choice((1 << 13, 1 << 14, 1 << 15)),
        acc_bytes=rng.choice((1 << 13, 1 << 14)),
        out_bytes=rng.choice((1 << 11, 1 << 12)),
        uop_bytes=rng.choice((1 << 8, 1 << 10, 1 << 12)),
        token_depth=rng.choice((8, 64, 512)),
        command_depth=rng.choice((8, 64, 512)),
    )


def drawn_convolution(rng: random.Random) -> Convolution:
    kernel = rng.randint(1, 3), rng.randint(1, 3)
    sides = kernel * 2
    inputs, outputs, groups = rng.randint(1, 40), rng.randint(1, 60), 1
    if rng.random() < 0.2:
        inputs = outputs = (groups := rng.randint(2, 20)) * rng.choice((1, 1, 2, 4))
    return Convolution(
        inputs=inputs,
        outputs=outputs,
        groups=groups,
        height=rng.randint(3, 10),
        width=rng.randint(3, 10),
        kernel=kernel,
        stride=rng.randint(1, 3),
        padding=tuple(rng.randint(0, side) for side in sides),  # type: ignore[arg-type]  # four of them
        has_bias=rng.random() < 0.3,
    )


def check(seed: int) -> None:
    """Check a random schedule on a machine that its tiles fit."""
    rng = random.Random(seed)
    found: list[Tiles] = []
    while not found:
        machine, conv = drawn_machine(rng), drawn_convolution(rng)
        found = list(candidates(conv, machine, rng.choice((1, 2, 2, 3, 4))))
    s, args = scheduled(conv, rng.choice(found), machine, low := rng.randint(-128, 0))
    kernel = build(s, args, machine)
    given = inputs(conv, seed)
    memory, _ = simulate(kernel.program, machine, kernel.memory(packed(conv, machine, *given)))
    got = unpacked(conv, machine, kernel.outputs(memory)["y"])
    np.testing.assert_array_equal(got, wanted(conv, low, given))


@pytest.mark.parametrize("seed", range(40))
def test_a_random_schedule_runs_without_a_hazard(seed: int):
    print(f"seed {seed}")
    check(seed)


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for number in range(first, first + int(sys.argv[1])):
        print(f"seed {number}", end="\r")
        check(number)
    print(f"{sys.argv[1]} random schedules without a hazard")
