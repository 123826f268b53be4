"""A workload, y = 2 x, whose candidates go wrong in every way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tilesmith import driver
from tilesmith.codegen.kernel import KernelCode, KernelJob, with_head, without_head
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.targets import host
from tilesmith.search_space.records import Key
from tilesmith.search_space.space import Space
from tilesmith.support.options import Options
from tilesmith.tuning.jobs import Argument
from tilesmith.tuning.measure import Task

N = 1024
NEST = f"""
def k(x: f32[{N}], y: f32[{N}]) -> y:
    for i in range({N}):
        y[i] = x[i] * 2.0
"""
SEGFAULT = "store volatile i32 1, ptr inttoptr (i64 64 to ptr)\nret i32 0"
LOOP = "br label %again\nagain:\n%p = load volatile i8, ptr %x\nbr label %again"
FUNCTION = "define i32 @k(ptr %x, ptr %y, ptr %shared, ptr %rt) {{\nentry:\n{}\n}}"


def kernel(text: str | None = None) -> KernelCode:
    text = text or NEST
    job = KernelJob(text, Options(), host(), nest=True)
    return KernelCode.from_bytes(without_head(driver.answer(job.to_bytes()))[1])


def clock(*times: float) -> Callable[[int], float]:
    """A contender whose runs take these times, then the last of them."""
    left = list(times)
    return lambda n: left.pop(0) if len(left) > 1 else left[0]


def replies() -> Mapping[str, bytes]:
    """What each candidate's "build" gives."""
    good = kernel()
    made = {
        "good": good,
        "good again": good,
        "wrong": kernel(NEST.replace("2.0", "3.0")),
        "segfault": replace(good, code=compile_object(FUNCTION.format(SEGFAULT), host())),
        "loop": replace(good, code=compile_object(FUNCTION.format(LOOP), host())),
        "memory": replace(good, workspace=100 << 30),
    }
    return {k: with_head([], v.to_bytes()) for k, v in made.items()} | {
        "unbuildable": b"fail",
        "dies": b"die",
        "sleeps": b"sleep",
        "gorges": b"memory",
    }


def a_task(kernels: Mapping[str, bytes]) -> Task:
    x = np.linspace(-1, 1, N, dtype=np.float32)
    args = (Argument("f32", (N,)),), (Argument("f32", (N,)),)
    return Task(
        Key.of("doubling", "host", 1),
        "doubling",
        Space(lambda cfg: cfg.choice("kind", list(kernels), "good")),
        lambda c: kernels[str(c.get("kind", "good"))],
        lambda c: args,
        lambda: ([x], [[x * 2]]),
        (1e-6,),
    )


EXPECTED = {
    "wrong": "wrong",
    "segfault": "crash",
    "loop": "timeout",
    "memory": "memory",
    "unbuildable": "failed",
    "dies": "crash",
    "sleeps": "timeout",
    "gorges": "memory",
}
"""What becomes of those that are not good."""
