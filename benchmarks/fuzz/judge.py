"""What becomes of a case: compiled from its bytes, run, and compared.

The reference evaluator says what is right.  Where a result differs, rounding may be the cause: the
evaluator runs again with every intermediate result changed by some units in the last place, and
what these changes do is allowed.  Where the difference is larger, ONNX Runtime without
optimisations decides, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

import children
import tilesmith as ts
from tilesmith.support.errors import ModelError

from .builder import Array, Rejected
from .cases import Case, disturbed, expected, with_outputs

RIGHT, REFUSED, WRONG, CRASHED = "right", "refused", "wrong", "crashed"
SECONDS = 10.0
MEMORY = 4 << 30
_UNITS = 8.0
_JUMP = 1e-4  # of the largest input, or of the result
_TRIES = 4
_NEWEST = 25
"""The newest opset that ONNX Runtime knows; a newer model is given to it as one of this."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case.

    result: RIGHT, REFUSED, WRONG or CRASHED.
    reason: the message of an error, or what differs; for RIGHT, what the reference evaluator gave
        otherwise than ONNX Runtime and Tilesmith.
    """

    result: str
    reason: str = ""


def judge(case: Case, opt_level: int = 2) -> Verdict:
    """Compiles and runs a case in this process.

    opt_level: LLVM's effort.
    """
    try:
        wanted = [expected(case.model, inputs) for inputs in case.runs]
    except Rejected as e:
        return Verdict(REFUSED, f"the reference evaluator: {e}")
    try:
        options = ts.Options(opt_level=opt_level)
        executable = ts.compile(case.model.SerializeToString(), threads=1, options=options)
        found = [executable.run(inputs) for inputs in case.runs]
    except ModelError as e:
        return Verdict(REFUSED, str(e))
    except Exception as e:  # a defect, reported with its case
        return Verdict(CRASHED, f"{type(e).__name__}: {e}")
    said = ""
    for inputs, want, got in zip(case.runs, wanted, found, strict=True):
        if not any(_off(n, got, want, {}) for n in want):
            continue
        spread = _spread(case, inputs, want)
        for name in want:
            if off := _off(name, got, want, spread):
                one = with_outputs(case, [name])
                theirs = _by_onnxruntime(one, {n: inputs[n] for n in one.runs[0]})
                if isinstance(theirs, str):
                    return Verdict(WRONG, f"{off}; {theirs}")
                g, w, t = (np.asarray(values[name]) for values in (got, want, theirs))
                if _off(name, got, theirs, spread) and not _agrees(g, w, t, spread.get(name)):
                    other = _off(name, theirs, want, {}) or "as the reference evaluator"
                    return Verdict(WRONG, f"{off}; ONNX Runtime: {other}")
                said = off
    return Verdict(RIGHT, said)


def judge_apart(cases: Sequence[Case]) -> list[Verdict]:
    """The verdicts of cases that run in child processes."""
    found = children.each(cases, judge, SECONDS, MEMORY)
    return [Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v for v in found]


def _spread(case: Case, inputs: dict[str, Array], want: Mapping[str, Array]) -> dict[str, Array]:
    """How far each element of the outputs moves when intermediate results are rounded otherwise;
    infinity where that makes it a NaN, an infinity or another integer.

    The terms of a sum are rounded too, and may cancel.  So an element also may move as far as it
    does when the inputs are rounded otherwise, as long as that is no jump.
    """
    found = {n: np.zeros(a.shape) for n, a in want.items()}
    largest = max((np.abs(a[np.isfinite(a)]).max(initial=0.0) for a in inputs.values()
                   if a.dtype.kind == "f"), default=0.0)  # fmt: skip
    for seed in range(_TRIES):
        try:
            other = expected(case.model, disturbed(inputs, 1.0, seed))
        except Rejected:
            continue
        for n, a in other.items():
            if a.shape == want[n].shape and a.dtype.kind == "f":
                with np.errstate(all="ignore"):
                    right = want[n].astype(np.float64)
                    moved = np.abs(a.astype(np.float64) - right)
                    small = moved < _JUMP * np.maximum(largest, np.abs(right))
                found[n] = np.maximum(found[n], np.where(small, moved, 0.0))
    for seed in range(_TRIES):
        try:
            other = expected(case.model, inputs, _UNITS, seed)
        except Rejected:
            continue
        for n, a in other.items():
            if a.shape != want[n].shape:
                found[n] = np.full(found[n].shape, np.inf)
                continue
            with np.errstate(all="ignore"):
                x, y = a.astype(np.float64), want[n].astype(np.float64)
                moved = np.where(x == y, 0, np.abs(x - y))
            moved[np.isnan(x) & np.isnan(y)] = 0
            moved[np.isnan(moved)] = np.inf
            if a.dtype.kind in "iub":
                moved[moved > 0] = np.inf
            found[n] = np.maximum(found[n], moved)
    return found


def _off(
    name: str, got: Mapping[str, Array], want: Mapping[str, Array], spread: Mapping[str, Array]
) -> str:
    """How an output differs by more than rounding and `spread` explain; or nothing."""
    w = want[name]
    g = np.asarray(got[name])
    if (g.shape, g.dtype) != (w.shape, w.dtype):
        return f"{name}: expected {w.dtype}{list(w.shape)}, found {g.dtype}{list(g.shape)}"
    bad = _differs(g, w, spread.get(name))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        return (
            f"{name}{list(at)}: expected {w[at]!s}, found {g[at]!s} ({int(bad.sum())} of "
            f"{bad.size} elements of {w.dtype})"
        )
    return ""


def _differs(got: Array, want: Array, spread: Array | None) -> Array:
    """Where two arrays of one type differ by more than rounding and `spread` explain."""
    wide, right = got.astype(np.float64), want.astype(np.float64)
    allowed = np.zeros(want.shape)
    if want.dtype.kind not in "iub":
        relative = max(float(ml_dtypes.finfo(want.dtype).eps) * 64, 1e-5)
        finite = np.abs(right[np.isfinite(right)])
        allowed = relative * (np.abs(right) + 0.1 * min(finite.max(initial=0.0), 1e30)) + float(
            ml_dtypes.finfo(want.dtype).tiny
        )
    if spread is not None:
        allowed = allowed + 8 * spread
    with np.errstate(all="ignore"):
        same = (wide == right) | (np.isnan(wide) & np.isnan(right)) | np.isposinf(allowed)
        return ~(same | (np.abs(wide - right) <= allowed))


def _agrees(got: Array, want: Array, theirs: Array, spread: Array | None) -> bool:
    """Whether each element is that of one of two evaluators: non-finite numbers reach different
    elements in them.
    """
    if any((a.shape, a.dtype) != (got.shape, got.dtype) for a in (want, theirs)):
        return False
    return not (_differs(got, want, spread) & _differs(got, theirs, spread)).any()


def _by_onnxruntime(case: Case, inputs: dict[str, Array]) -> dict[str, Array] | str:
    """The outputs by ONNX Runtime without optimisations; a text where it refuses or ends."""
    (found,) = children.each([(case, inputs)], _onnxruntime, SECONDS)
    return f"ONNX Runtime: {found.reason}" if isinstance(found, children.Died) else found


def _onnxruntime(given: tuple[Case, dict[str, Array]]) -> dict[str, Array] | str:
    import onnxruntime as ort  # in a process of its own: it starts threads

    case, inputs = given
    case.model.opset_import[0].version = min(case.opset, _NEWEST)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(case.model.SerializeToString(), options)
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(None, inputs), strict=True))
    except Exception as e:  # it has no public base class of its errors
        return f"ONNX Runtime refuses: {str(e)[-200:]}"
