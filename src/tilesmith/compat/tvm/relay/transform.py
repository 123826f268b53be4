"""Relay's passes.

`tilesmith.compile` runs its own passes, which do what these do, so a module stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.support.errors import UsageError

from ..transform import PassContext, Sequential

__all__ = ["PassContext", "Sequential"]

_DONE_BY_COMPILE = frozenset(
    {
        "AlterOpLayout", "BackwardFoldScaleAxis", "CanonicalizeCast", "CanonicalizeOps",
        "CombineParallelBatchMatmul", "CombineParallelConv2D", "CombineParallelDense",
        "ConvertLayout", "DeadCodeElimination", "DynamicToStatic", "EliminateCommonSubexpr",
        "FastMath", "FoldConstant", "FoldScaleAxis", "ForwardFoldScaleAxis", "FuseOps", "InferType",
        "Inline", "RemoveUnusedFunctions", "SimplifyExpr", "SimplifyInference",
    }
)  # fmt: skip
_ELSEWHERE = {
    "AnnotateTarget": "tilesmith.compile(target=) takes a target for each part",
    "PartitionGraph": "tilesmith.compile(target=) takes a target for each part",
    "ToANormalForm": "`tilesmith opt MODEL --form anf --print` prints this form",
    "ToGraphNormalForm": "`tilesmith opt MODEL --form graph --print` prints this form",
    "ToMixedPrecision": "tilesmith.compile(precision=) chooses it",
}


def __getattr__(name: str) -> Callable[..., Callable[[Any], Any]]:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _DONE_BY_COMPILE:
        return lambda *_, **__: lambda module: module
    ours = _ELSEWHERE.get(name, "tilesmith.compile runs all of its passes")
    raise UsageError(f"relay.transform.{name} has no counterpart: {ours}")
