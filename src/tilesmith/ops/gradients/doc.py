"""Writes the page of gradients, `docs/gradients.md`, from the operator table.

    python -m tilesmith.ops.gradients.doc docs/gradients.md

A test compares the file with the table, so the file is always current.
"""

from __future__ import annotations

import inspect
import sys

from tilesmith.ir.derivative import derivative
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Var
from tilesmith.ops import (
    coupling,
    divisor,
    fixed_point,
    gather,
    lookup,
    pool,
    quantize,
    random,
    reduce,
    sample,
    scatter,
    select,
    sizes,
    sort,
    suppression,
    trees,
)
from tilesmith.ops import elementwise as ew
from tilesmith.ops.base import Op
from tilesmith.ops.doc import operators, write
from tilesmith.ops.elementwise.base import Elementwise
from tilesmith.ops.table import FAMILIES

from .call import RULES
from .dispatch import origin_of

_INTEGERS = "its results are integers"
_LOOPS = "it is written in loops, and no rule is written yet"

NONE: dict[type[Op], str] = {
    **dict.fromkeys(
        (
            reduce.ArgMax, reduce.ArgMin, pool.MaxPlaces, gather.FromFront, divisor.Divisor,
            fixed_point.DoublingHighMul, fixed_point.RoundingShift, scatter.ElementPlaces,
            scatter.SlicePlaces, select.NonZero, select.RowRanks, sizes.Extents, sizes.Iota,
            lookup.Position, lookup.CountRuns, suppression.NonMaxSuppression,
            suppression.CountAbove, quantize.Quantize, quantize.DynamicQuantize, ew.CastE8M0,
            ew.Bitcast,
        ),
        _INTEGERS,
    ),
    random.RandomUniform: "its operands are integers",
    random.RandomNormal: "its operands are integers",
    scatter.ScatterSorted: "passes for devices make it, after differentiation",
    sort.MergeSorted: "passes for devices make it, after differentiation",
    coupling.PairwiseCoupling: _LOOPS,
    trees.TreeEnsemble: "it has steps everywhere",
    sample.RoiAlign: _LOOPS,
}  # fmt: skip
"""Operators without a gradient, besides elementwise ones, with the reason."""

_HEADER = """# Gradients of operators

Generated from the operator table by `python -m tilesmith.ops.gradients.doc docs/gradients.md`; do
not edit.

`ts.grad` and `ts.value_and_grad` differentiate a graph; the result is a graph that is compiled like
any other. `ts.jvp` does so in forward mode, with the same gradients: it differentiates the gradient
by its cotangent. `te.gradient` differentiates tensor expressions. Where an operator's gradient
comes from ({decision}):

- *written*: by a rule in `src/tilesmith/ops/gradients/`;
- *scalar*: from the derivative of the scalar expression, by the table in `ir/derivative.py`;
- *tensor*: from the tensor expression, by `te.gradient`; the operator `vjp` computes it;
- *expansion*: from the operators of which a composite operator consists.

The gradient of a branch (`if`) is a branch; that of a loop is a loop backwards over a trace of the
carried values (`graph/passes/differentiate_control.py`). The loop's number of iterations and its
shapes must be known before it runs.

Where a function has no derivative, the rule is PyTorch's: `relu` and `abs` have the derivative 0 at
0, `clip` has 1 at its limits, equal operands of `min` and `max` get half each, equal extremes of
`reduce_max` and `reduce_min` share evenly (as `torch.amax`), `max_pool` takes the first maximum of
a window, `cum_max` and `cum_min` take the last. Functions with steps have the gradient zero.
"""


def _summary(op: type[Op]) -> tuple[str, str]:
    """The source of the gradient, and a note."""
    if op in NONE:
        return "none", NONE[op]
    origin = origin_of(op)
    if op in RULES:
        doc = inspect.getdoc(RULES[op]) or ""
        return origin, " ".join(doc.split("\n\n")[0].split())
    if not issubclass(op, Elementwise):
        return origin, ""
    if "float" not in op.kinds:
        return "none", "its operands are not floats"
    made = op(f32) if op is ew.Cast else op()  # type: ignore[call-arg]  # the type to convert to
    elements = [Var(f"x{n}", f32) for n in range(op.arity)]
    root = made.element(*elements)
    if not root.dtype.is_float:
        return "none", "its results are bools"
    is_flat = all(derivative(root, x) is None for x in elements)
    return origin, "zero: it has steps" if is_flat else ""


def render() -> str:
    """The whole page as Markdown."""
    parts = [_HEADER.format(decision="[decision 132](decisions/0132-gradients.md)")]
    for module in FAMILIES:
        title = module.__name__.rsplit(".", 1)[-1].replace("_", " ").capitalize()
        rows = ["| operator | gradient | note |", "| --- | --- | --- |"]
        for op in operators(module.__name__):
            origin, note = _summary(op)
            rows.append(f"| `{op.name}` | {origin} | {note} |")
        parts.append(f"## {title}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    write(render(), sys.argv[1:])
