"""StableHLO's operators in TFLite files, and operators of TFLite that equal ones of StableHLO."""

from __future__ import annotations

from tilesmith.frontend.common.branches import branched, results_of
from tilesmith.frontend.common.hlo import indexing  # noqa: F401  (registers operators)
from tilesmith.frontend.common.hlo.elementwise import padded
from tilesmith.frontend.common.hlo.functions import LARGEST, LEAST, PRODUCT, SUM, windows
from tilesmith.frontend.common.hlo.registry import HLO, MOVES
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op, tflite_op

for _, _name in HLO:
    _function = HLO.find("", _name)
    assert _function is not None
    (stored_op if _name in MOVES else tflite_op)(f"STABLEHLO_{_name.upper()}")(_function)

_WINDOW_FUNCTIONS = (None, SUM, PRODUCT, LEAST, LARGEST, LEAST, LARGEST)
"""The functions of `REDUCE_WINDOW`, by number; the last two are for bools."""


@tflite_op("REDUCE_WINDOW")
def builtin_reduce_window(n: TfliteNode) -> Result:
    c = n.choice("reduce_function", tuple(map(str, range(len(_WINDOW_FUNCTIONS)))))
    window, strides, dilations = (n.int_list(n.input(i), "the windows") for i in range(2, 5))
    zeros, ones = ((v,) * n.input(0).type.rank for v in (0, 1))
    lists = [window, strides, ones, dilations, zeros, zeros]
    return windows(n, n.input(0), n.input(1), _WINDOW_FUNCTIONS[int(c)], lists)


@stored_op("DILATE")
def dilate(n: TfliteNode) -> Result:
    x, factors = n.input(0), n.int_list(n.input(1), "the dilations")
    zeros = (0,) * x.type.rank
    return padded(n, x, zeros, zeros, [f - 1 for f in factors], n.input(2))


@stored_op("STABLEHLO_CASE")
def case(n: TfliteNode) -> Result:
    """One of several branches; a number outside of the range takes the last one."""
    branches, index = n.options("branch_subgraph_indices"), n.input(0)
    known = n.known(index)
    if known is not None or len(branches) == 1:
        number = 0 if known is None else int(known.reshape(-1)[0])
        number = number if 0 <= number < len(branches) else len(branches) - 1
        return results_of(n.inline(branches[number], n.slots[1:], n.loc))
    if len(branches) != 2:
        n.unsupported(f"{len(branches)} branches of which only a run knows the one to take")
    return branched(n, index.equals(0), (branches[0], branches[1]), n.slots[1:])
