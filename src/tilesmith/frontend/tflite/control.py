"""TFLite's branches, loops and calls of subgraphs."""

from __future__ import annotations

from tilesmith.frontend.common.branches import branched, results_of
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.common.whiles import repeated
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.frontend.tflite.registry import stored_op


@stored_op("CALL")
def call(n: TfliteNode) -> Result:
    return results_of(n.inline(n.option("subgraph"), n.slots, n.loc))


@stored_op("STABLEHLO_COMPOSITE")
def composite(n: TfliteNode) -> Result:
    """Inline a composite operator's decomposition, which every file has."""
    return results_of(n.inline(n.option("decomposition_subgraph_index"), n.slots, n.loc))


@stored_op("IF")
def if_(n: TfliteNode) -> Result:
    branches = n.option("then_subgraph_index"), n.option("else_subgraph_index")
    return branched(n, n.input(0), branches, n.slots[1:])


@stored_op("WHILE", "STABLEHLO_WHILE")
def while_(n: TfliteNode) -> Result:
    condition, step = n.option("cond_subgraph_index"), n.option("body_subgraph_index")
    return repeated(n, condition, step, n.slots)
