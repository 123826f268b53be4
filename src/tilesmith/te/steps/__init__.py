"""The steps of a schedule: one class for each primitive.

A new primitive is a class in one of these files (fields and `apply`), and a method of `te.Stage` or
`te.Schedule` that makes it.
"""

from .base import PRIMITIVES, Step, from_json
from .loops import Bind, Fuse, Parallel, Pragma, Reorder, Serial, Skew, Split, Unroll, Vectorize
from .placement import (
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    DoubleBuffer,
    FoldStorage,
    Pipeline,
    Prefetch,
    SetScope,
    StorageAlign,
    StoreAt,
    StoreRoot,
    TransformLayout,
)
from .rewrites import CacheRead, CacheWrite, FlattenAxes, RFactor, UnflattenAxis
from .tensorize import TensorizeLoops
from .winograd import Winograd

__all__ = [
    "PRIMITIVES", "Bind", "CacheRead", "CacheWrite", "ComputeAt", "ComputeInline", "ComputeRoot",
    "DoubleBuffer", "FlattenAxes", "FoldStorage", "Fuse", "Parallel", "Pipeline", "Pragma",
    "Prefetch", "RFactor", "Reorder", "Serial", "SetScope", "Skew", "Split", "Step", "StorageAlign",
    "StoreAt", "StoreRoot", "TensorizeLoops", "TransformLayout", "UnflattenAxis", "Unroll",
    "Vectorize", "Winograd", "from_json",
]  # fmt: skip
