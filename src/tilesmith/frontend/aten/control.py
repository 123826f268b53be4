"""Control flow on the values of tensors: `torch.cond` and `while_loop`.

If a condition is known at compile time, only the chosen branch is imported.  If the first condition
of a loop is known to be false, the loop is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.aten.registry import aten_op
from tilesmith.frontend.common.body import Body, alternatives
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.graph.control import INDEX, If, Loop
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i64

Block = Callable[[FoldingBuilder, Sequence[Any]], Any]
"""A function that imports a block's calls into a builder, with the given arguments in place of the
block's inputs, and returns the block's results.
"""

_ENDLESS = (1 << 63) - 1


@aten_op("cond")
def cond(
    n: AtenNode, pred: Any, true_fn: Block, false_fn: Block, operands: Sequence[Any] = ()
) -> Sequence[Any]:
    """The results of the branch that `pred` (one bool) chooses."""
    condition = _condition(n, pred)
    known = n.known(condition)
    if known is not None:
        return (true_fn if bool(known) else false_fn)(n.builder, operands)
    bodies = [Body(n.builder, name, is_branch=True) for name in ("then", "otherwise")]
    then, otherwise = (
        _tensors(n, body, branch(body, _inside(body, operands)))
        for body, branch in zip(bodies, (true_fn, false_fn), strict=True)
    )
    for a, b in zip(then, otherwise, strict=True):
        if a.type != b.type:
            n.unsupported(f"branches that give {a.type} and {b.type}; expected equal types")
    (first, second), captured = alternatives(bodies, (then, otherwise))
    return _several(n.add(If(first, second), condition, *captured))


@aten_op("while_loop")
def while_loop(
    n: AtenNode,
    cond_fn: Block,
    body_fn: Block,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> Sequence[Any]:
    """The carried values after the last iteration.  The trip count may be 0."""
    state = [n.tensor(v) for v in carried_inputs]
    going = _condition(n, cond_fn(n.builder, [*state, *additional_inputs]))
    known = n.known(going)
    if known is not None and not known:
        return state
    body = Body(n.builder, "step")
    _, *carried = body.given([INDEX, *(v.type for v in state)])
    others = _inside(body, additional_inputs)
    results = _tensors(n, body, body_fn(body, [*carried, *others]))
    for before, after in zip(state, results, strict=True):
        if before.type != after.type:
            n.unsupported(
                f"a loop that makes {after.type} of {before.type}; expected values that keep "
                "their types"
            )
    again = _condition(replace(n, builder=body), cond_fn(body, [*results, *others]))
    step = body.finish([again, *results], [f"out{i}" for i in range(len(results) + 1)])
    op = Loop(step, len(state), conditional=True)
    return _several(n.add(op, n.const(_ENDLESS, i64), going, *state, *body.captured))


def _condition(n: AtenNode, condition: Any) -> Value:
    """A condition as a bool of rank 0."""
    if isinstance(condition, (list, tuple)):
        (condition,) = condition
    value = n.truth(condition)
    return value.reshape() if value.type.rank else value


def _inside(body: Body, operands: Sequence[Any]) -> list[Any]:
    """The operands inside a body: values are captured, numbers and extents stay unchanged."""
    return [body.capture(v) if isinstance(v, Value) else v for v in operands]


def _tensors(n: AtenNode, body: Body, results: Any) -> list[Value]:
    """The results of a body, converted to tensors."""
    whole = results if isinstance(results, (list, tuple)) else [results]
    if any(r is None for r in whole):
        n.unsupported("None as a result that only a run chooses")
    inner = replace(n, builder=body)
    return [inner.tensor(r) for r in whole]


def _several(made: Any) -> Sequence[Any]:
    return made if isinstance(made, tuple) else (made,)
