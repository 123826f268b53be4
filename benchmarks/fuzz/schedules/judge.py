"""Random schedules of random computations: whatever steps are applied, the answer is the same.

The meaning is the schedule without steps, run by the interpreter.  Integers, and floats that are
small whole numbers, must be equal; of others the program knows how far rounding may reach.  A step,
or the build, may refuse with a typed error of the user's kind.  Everything else is a defect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TextIO

import numpy as np

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.ir.expr import Var
from tilesmith.ir.layout import Layout
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Func
from tilesmith.loop.verify import verify
from tilesmith.support.errors import InternalError, TilesmithError, VerifyError
from tilesmith.support.options import Options
from tilesmith.te.steps import Step, from_json

from ..builder import Array
from ..judge import CRASHED, REFUSED, RIGHT, WRONG, Verdict
from .computations import random_computation
from .guards import guarded
from .steps import random_steps
from .writer import Program

INTERPRETER, NATIVE, C = "interpreter", "native", "c"
TARGETS = (NATIVE, NATIVE, C, INTERPRETER)
SECONDS = 30.0


@dataclass(frozen=True)
class Scheduled:
    """A computation and a schedule.

    seed: of both.
    target: what runs it.
    steps: None for those of the seed.  Steps that are refused are left out.
    outputs: names of the tensors that are returned; None for all.
    """

    seed: int
    target: str
    steps: tuple[Step, ...] | None = None
    outputs: tuple[str, ...] | None = None


def scheduled(seed: int, targets: Sequence[str] = TARGETS) -> Scheduled:
    return Scheduled(seed, Random(seed).choice(targets))


class Drawn(te.Schedule):
    """A schedule that writes each step to a file before it is tried, should it never end.

    log: the file; a line for each step as JSON, an empty line after one that is refused.
    """

    log: TextIO | None = None

    def apply(self, step: Step) -> None:
        if self.log is not None:
            print(json.dumps(step.to_json()), file=self.log, flush=True)
        try:
            super().apply(step)
        except TilesmithError as e:
            if self.log is not None and not is_defect(e):
                print(file=self.log, flush=True)
            raise


def is_defect(e: Exception) -> bool:
    """Whether an error is none that a user can cause."""
    return not isinstance(e, TilesmithError) or isinstance(e, (InternalError, VerifyError))


@dataclass(frozen=True)
class Made:
    """A case as objects.

    program: with the inputs and outputs of the case.
    plain: the schedule without steps.
    inputs, outputs: tensors, the parameters.
    shapes: of the outputs.
    data: the inputs' arrays.
    """

    program: Program
    plain: te.Schedule
    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    shapes: list[tuple[int, ...]]
    data: list[Array]

    @property
    def arguments(self) -> list[te.Tensor]:
        return [*self.inputs, *self.outputs]

    def scalars(self, func: Func) -> list[int]:
        """The values of symbols that are parameters."""
        return [self.program.sizes[v.name] for v in func.params if isinstance(v, Var)]

    def empty(self) -> list[Array]:
        """Arrays for results, full of what is no result."""
        fill = {"f": np.nan, "b": True, "i": -9, "u": 99}
        return [
            np.full(shape, fill.get(np.dtype(t.dtype.numpy).kind, np.nan), t.dtype.numpy)
            for t, shape in zip(self.outputs, self.shapes, strict=True)
        ]


def made(case: Scheduled) -> Made:
    """The tensors and data of a case."""
    p = random_computation(case.seed)
    if case.outputs is not None:
        p.outputs = [k for k in p.outputs if k.name in case.outputs]
    scope: dict[str, Any] = {"te": te}
    exec(p.source, scope)
    outputs = [scope[k.name] for k in p.outputs]
    plain = te.create_schedule(list(dict.fromkeys(t.op for t in outputs)))
    used = {x.op for x in plain.stages}
    p.inputs = {n: i for n, i in p.inputs.items() if scope[n].op in used}
    draw = np.random.default_rng(case.seed)
    inputs, data = [], []
    for name, (known, low, high) in p.inputs.items():
        inputs.append(scope[name])
        numbers = draw.integers(low, high + 1, p.shape(known))
        data.append(np.asarray(numbers).astype(scope[name].dtype.numpy))
    return Made(p, plain, inputs, outputs, [p.shape(k) for k in p.outputs], data)


def log_steps(case: Scheduled, to: Path) -> None:
    """Writes the steps of a case to a file as they are tried; the last one may end the process."""
    with to.open("w") as log, suppress(Exception):  # what `judge_schedule` reports
        s = _schedule(case, made(case))
        s.log = log
        for step in s.steps:
            print(json.dumps(step.to_json()), file=log, flush=True)
        _step(case, s)


def logged_steps(file: Path) -> tuple[Step, ...]:
    """The steps in a file of `log_steps` that were not refused."""
    found: list[Step] = []
    for line in file.read_text().splitlines():
        if line:
            found.append(from_json(json.loads(line)))
        else:
            found.pop()
    return tuple(found)


def _schedule(case: Scheduled, m: Made) -> Drawn:
    if case.steps is None and Random(case.seed + 1).random() < 0.1:
        auto = ts.auto_schedule(m.arguments)
        return Drawn(auto.ops, auto.state, auto.steps)
    return Drawn(m.plain.ops, m.plain.state)


def _step(case: Scheduled, s: Drawn) -> None:
    """Applies the steps of the case."""
    if case.steps is None:
        random_steps(s, Random(case.seed + 2))
        return
    for step in case.steps:
        try:
            s.apply(step)
        except TilesmithError as e:
            if is_defect(e):
                raise


def judge_schedule(case: Scheduled) -> Verdict:
    """What becomes of a case in this process."""
    try:
        m = made(case)
        want = m.empty()
        with np.errstate(all="ignore"):
            plain = te.lower(m.plain, m.arguments)
            interpret(plain, [*(a.copy() for a in m.data), *want, *m.scalars(plain)])
    except Exception as e:
        return Verdict(CRASHED, f"without steps: {type(e).__name__}: {e}")
    place = "at a step"
    try:
        s = _schedule(case, m)
        _step(case, s)
        again = te.Schedule.from_json(s.ops, s.to_json())
        if again.steps != s.steps:
            return Verdict(WRONG, "the steps' JSON makes other steps")
        place = "lowered"
        func = te.lower(s, m.arguments)
        verify(func, "nest")
        place = f"on {case.target}"
        results = list(_results(case, m, s, func))
    except Exception as e:
        shown = f"{place}: {type(e).__name__}: {e}"
        return Verdict(CRASHED if is_defect(e) else REFUSED, shown)
    for how, found in results:
        if off := _off(m, want, found):
            return Verdict(WRONG, f"{how}: {off}")
    return Verdict(RIGHT)


def _results(
    case: Scheduled, m: Made, s: te.Schedule, func: Func
) -> Iterator[tuple[str, list[Array]]]:
    """The results, and what gave them."""
    r = Random(case.seed + 3)
    layouts = [s[t.op].state.layout if s[t.op].op.outputs else None for t in m.arguments]
    given = [x if lay is None else lay.pack(x)
             for x, lay in zip(m.data, layouts[: len(m.data)], strict=True)]  # fmt: skip
    outputs = layouts[len(m.data) :]
    empty = [x if lay is None else lay.pack(x) for x, lay in zip(m.empty(), outputs, strict=True)]
    session = driver.Session.of(Options(verify_each=True, opt_level=r.choice([0, 1, 2])))
    if case.target == INTERPRETER:
        found = [x.copy() for x in empty]
        interpret(func, [*(x.copy() for x in given), *found, *m.scalars(func)])
        yield "loops", _logical(found, outputs, m)
        final = driver.run_loop_passes(func, session)
        found = [x.copy() for x in empty]
        flat = [x.reshape(-1) for x in (*(x.copy() for x in given), *found)]
        interpret(final, [*flat, *m.scalars(final)])
        yield "passes", _logical(found, outputs, m)
        return
    function = ts.build(s, m.arguments, target=case.target, threads=r.choice([1, 2]),
                        options=session.options)  # fmt: skip
    dims = {d for b in func.buffers for d in b.shape if isinstance(d, Var)}
    extra = [m.program.sizes[v.name] for v in func.params if isinstance(v, Var) and v not in dims]
    arguments = [*given, *empty]
    bytes_before = [x.tobytes() for x in given]
    at_end = r.random() < 0.5
    # GCC 12 reads behind the end of an array where it vectorises `x[2 * i]` at -O3
    is_exact = case.target != C or not session.options.opt_level
    with guarded(arguments, at_end) if is_exact else nullcontext(arguments) as arrays:
        function(*arrays, *extra)
        for x, name, before in zip(arrays, m.program.inputs, bytes_before, strict=False):
            if x.tobytes() != before:
                raise InternalError(f"the input {name} was changed")
        yield case.target, _logical([x.copy() for x in arrays[len(given) :]], outputs, m)


def _logical(found: list[Array], layouts: Sequence[Layout | None], m: Made) -> list[Array]:
    """Results in the order of their own axes."""
    return [x if lay is None else lay.unpack(x, shape)
            for x, lay, shape in zip(found, layouts, m.shapes, strict=True)]  # fmt: skip


def _off(m: Made, want: list[Array], found: list[Array]) -> str:
    """What is wrong, or nothing."""
    for known, w, g in zip(m.program.outputs, want, found, strict=True):
        wide = np.longdouble if w.dtype.kind in "iu" else np.float64
        a, b = w.astype(wide), g.astype(wide)
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= 2 * known.value.error
        bad = ~((a == b) | (np.isnan(a) & np.isnan(b)) | near)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            return (
                f"{known.name}{list(at)}: expected {w[at]!s}, found {g[at]!s} ({int(bad.sum())} of "
                f"{bad.size} elements of {w.dtype}; allowed {2 * known.value.error:.2g})"
            )
    return ""
