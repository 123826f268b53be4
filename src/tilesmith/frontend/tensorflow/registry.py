"""The table of TensorFlow's operators: which Python function imports which operator.

A function is registered with `@tf_op("Conv2D")`; it gets a `TfNode` and returns the node's output
(a tuple if there are several).  Many are those of TFLite's reader, which take an `OptionNode`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tensorflow.node import TfNode

ImportFunction: TypeAlias = Callable[[TfNode], Result]

OPERATORS: Registry[ImportFunction] = Registry()
"""The operators by name."""

_F = TypeVar("_F", bound=ImportFunction)


def tf_op(*names: str) -> Callable[[_F], _F]:
    """A decorator that registers a function."""

    def enter(function: _F) -> _F:
        OPERATORS.register(*names)(function)
        return function

    return enter


same_operator = OPERATORS.register_same

OUTPUTS: dict[str, tuple[str, ...]] = {
    "CombinedNonMaxSuppression": (
        "nmsed_boxes",
        "nmsed_scores",
        "nmsed_classes",
        "valid_detections",
    ),
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "Merge": ("output", "value_index"),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "Switch": ("output_false", "output_true"),
    "TensorArrayV3": ("handle", "flow"),
    "TensorListPopBack": ("output_handle", "tensor"),
    "TopKV2": ("values", "indices"),
    "Unique": ("y", "idx"),
    "UniqueWithCounts": ("y", "idx", "count"),
}
"""For operators with several outputs, the names by which functions refer to the outputs."""
OUTPUTS["FusedBatchNormV2"] = OUTPUTS["FusedBatchNorm"]
OUTPUTS["FusedBatchNormV3"] = (*OUTPUTS["FusedBatchNorm"], "reserve_space_3")
OUTPUTS["UniqueV2"], OUTPUTS["UniqueWithCountsV2"] = OUTPUTS["Unique"], OUTPUTS["UniqueWithCounts"]
OUTPUTS["RefSwitch"], OUTPUTS["RefMerge"] = OUTPUTS["Switch"], OUTPUTS["Merge"]
