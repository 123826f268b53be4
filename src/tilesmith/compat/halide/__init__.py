"""Halide's Python interface: Funcs, their schedules, and pipelines.

    import tilesmith.compat.halide as hl

    x, y = hl.Var("x"), hl.Var("y")
    f = hl.Func("f")
    f[x, y] = x + y
    f.vectorize(x, 8).parallel(y)
    image = f.realize([640, 480])

Names and the order of arguments are those of Halide's bindings.  Halide's names without a
counterpart (`ELSEWHERE`, and that of `schedules` for Funcs) raise UsageError, which says what to
use instead.
"""

from __future__ import annotations

from tilesmith.support.errors import TilesmithError as HalideError

from ..names import refusing
from . import boundary as BoundaryConditions  # Halide's name
from .buffers import IMPLICIT, Buffer, ImageParam, Param
from .domains import RDom, RVar
from .element_types import Bool, Float, Int, Type, UInt
from .expressions import *  # noqa: F403
from .func import Func, FuncRef
from .generators import *  # noqa: F403
from .pipeline import Pipeline
from .reductions import argmax, argmin, maximum, minimum, product
from .reductions import sum as sum
from .schedules import MemoryType, ScheduleWarning, Stage, TailStrategy
from .targets import *  # noqa: F403

__all__ = [
    "Bool", "BoundaryConditions", "Buffer", "Float", "Func", "FuncRef",
    "HalideError", "ImageParam", "Int",
    "MemoryType", "Param", "Pipeline", "RDom", "RVar",
    "ScheduleWarning", "Stage", "TailStrategy", "Type", "UInt", "argmax", "argmin",
    "maximum", "minimum", "product", "sum",
]  # fmt: skip
__all__ += expressions.__all__  # noqa: F405
__all__ += generators.__all__  # noqa: F405
__all__ += targets.__all__  # noqa: F405

_ = IMPLICIT

ELSEWHERE = {
    "print": "a realize of the Func that has the value",
    "print_when": "a realize of the Func that has the value, and NumPy on the result",
    **dict.fromkeys(
        ("random_float", "random_int", "random_uint"), "an ImageParam of NumPy's random numbers"
    ),
    "extern": "tilesmith.te.extern with a LoopBuilder",
    "LoopLevel": "compute_at(func, var)",
    "JITSharedRuntime": "tilesmith.build, whose functions need no runtime",
    "PyTorch": "tilesmith.torch",
    "undef": "the old value f[x] in hl.select",
}
"""What to use for names of Halide."""

__getattr__ = refusing("hl", ELSEWHERE)
