"""What becomes of a program by one road: RIGHT, REFUSED, WRONG or CRASHED.

Eager mode says what is right.  Where a result differs, PyTorch's own capture of the program may be
the cause: what it gives without Tilesmith decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

import children
from tilesmith.support.errors import (
    InternalError,
    ScheduleError,
    TilesmithError,
    VerifyError,
)

from ..judge import CRASHED, REFUSED, RIGHT, WRONG, Verdict
from .eager import Disturbed, Outcome, outcomes
from .program import Program
from .roads import PYTORCHS, ROADS, WITH_GRADIENTS

SECONDS = 60.0
MEMORY = 8 << 30
_TRIES = 4
_OURS = (InternalError, VerifyError, ScheduleError)
"""Typed errors that no user of `compile` may see."""


def judge(program: Program, road: str) -> Verdict:
    """Compiles and runs a program in this process."""
    if road not in WITH_GRADIENTS:
        program = replace(program, gradients=False)
    wanted = outcomes(program)
    try:
        found = ROADS[road](program)
    except Exception as e:  # a defect, unless it is a typed error or PyTorch's own
        return _refused(program, road, e)
    if not _all_off(found, wanted, None):
        return Verdict(RIGHT)
    spread = [_spread(program, i, want) for i, want in enumerate(wanted)]
    if not (off := _all_off(found, wanted, spread)):
        return Verdict(RIGHT)
    try:
        theirs = PYTORCHS[road](program)
    except Exception as e:  # PyTorch's capture says nothing
        return Verdict(WRONG, f"{off}; PyTorch's capture: {type(e).__name__}")
    if not _all_off(found, theirs, spread):
        return Verdict(RIGHT, f"PyTorch's capture, as Tilesmith: {off}")
    return Verdict(
        WRONG, f"{off}; PyTorch's capture: {_all_off(theirs, wanted, spread) or 'right'}"
    )


def _refused(program: Program, road: str, error: Exception) -> Verdict:
    causes = list(_causes(error))
    said = f"{type(error).__name__}: {error}"
    for e in causes:
        if isinstance(e, _OURS):
            return Verdict(CRASHED, f"{type(e).__name__}: {e}")
        if isinstance(e, TilesmithError):
            return Verdict(REFUSED, f"{type(e).__name__}: {e}")
    try:
        PYTORCHS[road](program)
    except Exception as e:  # PyTorch refuses the program without us, too
        if type(e) is type(error):
            return Verdict(REFUSED, f"PyTorch: {said}")
    return Verdict(CRASHED, said)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = getattr(error, "inner_exception", None) or error.__cause__


def judge_apart(items: Sequence[tuple[Program, str]]) -> Iterator[Verdict]:
    """The verdicts of programs and roads, in child processes."""
    for v in children.each(items, lambda item: judge(*item), SECONDS, MEMORY):
        yield Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v


def _spread(program: Program, run: int, want: Outcome) -> dict[str, torch.Tensor]:
    """How far each element of a run's results moves when calls are rounded otherwise; infinity
    where that makes it a NaN, an infinity or another integer.
    """
    found = {n: torch.zeros(t.shape, dtype=torch.float64) for n, t in want.tensors.items()}
    for seed in range(_TRIES):
        try:
            other = outcomes(program, mode=lambda seed=seed: Disturbed(seed))[run]
        except RuntimeError:  # a size or an index that rounding decides
            return {n: torch.full_like(t, torch.inf) for n, t in found.items()}
        for n, t in other.tensors.items():
            right = want.tensors[n]
            if t.shape != right.shape:
                found[n] = torch.full_like(found[n], torch.inf)
                continue
            x, y = t.double(), right.double()
            moved = torch.where(x == y, 0.0, (x - y).abs())
            moved = torch.where(x.isnan() & y.isnan(), 0.0, moved)
            moved = moved.nan_to_num(nan=torch.inf, posinf=torch.inf)
            if not right.is_floating_point():
                moved[moved > 0] = torch.inf
            found[n] = torch.maximum(found[n], moved)
    return found


def _all_off(
    got: Sequence[Outcome],
    want: Sequence[Outcome],
    spread: Sequence[dict[str, torch.Tensor]] | None,
) -> str:
    """How runs differ by more than rounding and `spread` explain; or nothing."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if off := _off(g, w, spread[i] if spread else {}):
            return f"run {i}: {off}" if len(got) > 1 else off
    return ""


def _off(got: Outcome, want: Outcome, spread: dict[str, torch.Tensor]) -> str:
    if got.tensors.keys() != want.tensors.keys():
        return f"expected {', '.join(want.tensors)}; found {', '.join(got.tensors)}"
    for name, w in want.tensors.items():
        g = got.tensors[name]
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            if name in spread and spread[name].isinf().all() and g.dtype == w.dtype:
                continue  # rounding decides its shape
            return f"{name}: expected {w.dtype}{list(w.shape)}, found {g.dtype}{list(g.shape)}"
        bad = _differs(g, w, spread.get(name))
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            return (
                f"{name}{list(at)}: expected {w[at].item()}, found {g[at].item()} "
                f"({int(bad.sum())} of {bad.numel()} elements of {w.dtype})"
            )
    return ""


def _differs(got: torch.Tensor, want: torch.Tensor, spread: torch.Tensor | None) -> torch.Tensor:
    """Where two tensors of one type differ by more than rounding and `spread` explain."""
    if not want.is_floating_point():
        bad = got != want
        return bad if spread is None else bad & ~spread.isinf()
    wide, right = got.double(), want.double()
    info = torch.finfo(want.dtype)
    finite = right[right.isfinite()].abs()
    most = min(float(finite.max()) if finite.numel() else 0.0, 1e30)
    relative = max(info.eps * 16, 1e-6)
    allowed = relative * (right.abs() + 0.01 * most) + info.tiny
    if spread is not None:
        allowed = allowed + 8 * spread
    same = (wide == right) | (wide.isnan() & right.isnan()) | allowed.isposinf()
    return ~(same | ((wide - right).abs() <= allowed))
