"""Relay's passes.

`tilesmith.compile` runs its own passes, which do what these do, so a module stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.support.arguments import shown
from tilesmith.support.errors import UsageError

from ...names import elsewhere
from ..transform import PassContext, Sequential

__all__ = ["PassContext", "Sequential"]

_PARAMETERS = {
    **dict.fromkeys(
        ("AlterOpLayout", "BackwardFoldScaleAxis", "CanonicalizeCast", "CanonicalizeOps",
         "DynamicToStatic", "FastMath", "FoldScaleAxis", "ForwardFoldScaleAxis", "InferType",
         "Inline", "Legalize", "SimplifyExpr", "SimplifyInference"), ()),
    "CombineParallelBatchMatmul": ("min_num_branches",),
    "CombineParallelConv2D": ("min_num_branches",),
    "CombineParallelDense": ("min_num_branches", "to_batch"),
    "ConvertLayout": ("desired_layouts",),
    "DeadCodeElimination": ("inline_once", "ignore_impurity"),
    "EliminateCommonSubexpr": ("fskip",),
    "FoldConstant": ("fold_qnn",),
    "FuseOps": ("fuse_opt_level",),
    "RemoveUnusedFunctions": ("entry_functions",),
}  # fmt: skip
"""The parameters of the passes whose work `tilesmith.compile` does."""

ELSEWHERE = {
    "AnnotateTarget": "tilesmith.compile(target=), with a target for each part",
    "PartitionGraph": "tilesmith.compile(target=), with a target for each part",
    "ToANormalForm": "`tilesmith opt MODEL --form anf --print`",
    "ToGraphNormalForm": "`tilesmith opt MODEL --form graph --print`",
    "ToMixedPrecision": "tilesmith.compile(precision=)",
}
"""What to use for names of TVM."""


def _pass(name: str, *args: Any, **named: Any) -> Callable[[Any], Any]:
    parameters = _PARAMETERS[name]
    unknown = named.keys() - parameters[len(args) :]
    if unknown or len(args) > len(parameters):
        raise UsageError(
            f"relay.transform.{name}: expected the arguments ({', '.join(parameters)}), found "
            f"{', '.join([*map(shown, args), *(f'{k}={shown(v)}' for k, v in named.items())])}"
        )
    return lambda module: module


def __getattr__(name: str) -> Callable[..., Callable[[Any], Any]]:
    if name not in _PARAMETERS:
        elsewhere("relay.transform", name, ELSEWHERE)
    return partial(_pass, name)
