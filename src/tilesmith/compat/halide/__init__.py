"""Halide's Python interface: Funcs, their schedules, and pipelines.

    import tilesmith.compat.halide as hl

    x, y = hl.Var("x"), hl.Var("y")
    f = hl.Func("f")
    f[x, y] = x + y
    f.vectorize(x, 8).parallel(y)
    image = f.realize([640, 480])

Names and the order of arguments are those of Halide's bindings.  A name without a counterpart
raises UsageError, which says what to use instead.
"""

from __future__ import annotations

from typing import NoReturn

from tilesmith.support.errors import TilesmithError as HalideError
from tilesmith.support.errors import UsageError

from . import boundary as BoundaryConditions  # Halide's name
from .buffers import IMPLICIT, Buffer, ImageParam, Param
from .domains import RDom, RVar
from .element_types import Bool, Float, Int, Type, UInt
from .expressions import *  # noqa: F403
from .func import Func, FuncRef
from .generators import (
    Generator,
    GeneratorParam,
    Input,
    InputBuffer,
    InputScalar,
    Output,
    OutputBuffer,
    OutputFunc,
    generator,
    main,
)
from .pipeline import Pipeline
from .reductions import argmax, argmin, maximum, minimum, product
from .reductions import sum as sum
from .schedules import MemoryType, Stage, TailStrategy
from .targets import (
    Target,
    get_host_target,
    get_jit_target_from_environment,
    get_target_from_environment,
)

__all__ = [
    "Bool", "BoundaryConditions", "Buffer", "Float", "Func", "FuncRef", "Generator",
    "GeneratorParam", "HalideError", "ImageParam", "Input", "InputBuffer", "InputScalar", "Int",
    "MemoryType", "Output", "OutputBuffer", "OutputFunc", "Param", "Pipeline", "RDom", "RVar",
    "Stage", "TailStrategy", "Target", "Type", "UInt", "argmax", "argmin", "generator",
    "get_host_target", "get_jit_target_from_environment", "get_target_from_environment", "main",
    "maximum", "minimum", "product", "sum",
]  # fmt: skip
__all__ += expressions.__all__  # noqa: F405

_ = IMPLICIT

_ELSEWHERE = {
    "print": "a realize of the Func that has the value",
    "print_when": "a realize of the Func that has the value, and NumPy on the result",
    "random_float": "an ImageParam of NumPy's random numbers",
    "random_int": "an ImageParam of NumPy's random numbers",
    "random_uint": "an ImageParam of NumPy's random numbers",
    "extern": "tilesmith.te.extern with a LoopBuilder",
    "define_extern": "tilesmith.te.extern with a LoopBuilder",
    "LoopLevel": "compute_at(func, var)",
    "JITSharedRuntime": "tilesmith.build, whose functions need no runtime",
    "PyTorch": "tilesmith.torch",
}


def __getattr__(name: str) -> NoReturn:
    ours = _ELSEWHERE.get(name)
    if ours is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise UsageError(f"hl.{name} has no counterpart under Halide's name: use {ours}")
