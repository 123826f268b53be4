"""What an operator is.

An operator is a frozen dataclass; its fields are its attributes.  It says *either* `compute`
(primitive: a tensor expression per output) *or* `decompose` (composite: a small graph of other
operators), and everything else follows: result types from the expression, lowering from the
schedule, the reference from the decomposition.  `reference` is the meaning in NumPy of a primitive;
`infer` is overridden only where `compute` cannot say the type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np

from tilesmith.ir.types import TensorType
from tilesmith.support.errors import InternalError
from tilesmith.te import tensor as te

OPS: dict[str, type[Op]] = {}
"""The operator table: name -> class, filled as operator classes are defined."""


class GraphBuilder(Protocol):
    """What `decompose` needs of `graph.Builder`; a value has a `.type: TensorType`."""

    def add(self, op: Op, *inputs: Any) -> Any:
        """The value (tuple of values if several) that `op` gives."""
        ...

    def constant(self, array: np.ndarray) -> Any: ...


@dataclass(frozen=True)
class Op:
    """Base of all operators.  Tensors everywhere are in logical axes (NCHW for images, as ONNX has
    them).
    """

    name: ClassVar[str] = "op"

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        """Enters `cls` in the table, unless it is only a base for a family of operators
        (`abstract`).
        """
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        if "name" not in cls.__dict__:
            cls.name = re.sub(
                r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__
            ).lower()
        OPS[cls.name] = cls

    def compute(self, *inputs: te.Tensor) -> te.Tensor | tuple[te.Tensor, ...]:
        """Primitive operators: the outputs as tensor expressions of the inputs."""
        raise NotImplementedError(f"{self.name} has no compute")

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        """Composite operators: add nodes to `b` and return the output value (tuple of values if
        several).
        """
        raise NotImplementedError(f"{self.name} has no decompose")

    def reference(self, *inputs: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """Primitive operators: the meaning, in NumPy."""
        raise NotImplementedError(f"{self.name} has no reference")

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """Result types.  Raises ModelError (expected, found) when the inputs do not fit the
        operator.
        """
        return tuple(TensorType(t.dtype, t.shape) for t in self.tensors(*types))

    def tensors(self, *types: TensorType) -> tuple[te.Tensor, ...]:
        """`compute` applied to fresh placeholders of `types` (made once per op and types)."""
        return _tensors(self, types)

    @classmethod
    def is_composite(cls) -> bool:
        return cls.decompose is not Op.decompose

    @classmethod
    def is_primitive(cls) -> bool:
        return cls.compute is not Op.compute

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attribute names and values in declaration order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __str__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.attributes.items())
        return f"{self.name} {{{shown}}}" if shown else self.name


@lru_cache(maxsize=4096)
def _tensors(op: Op, types: tuple[TensorType, ...]) -> tuple[te.Tensor, ...]:
    inputs = [te.placeholder(t.shape, t.dtype, f"x{i}") for i, t in enumerate(types)]
    if not op.is_primitive():
        raise InternalError(
            f"{op.name} is composite; decompose it before asking for tensor expressions"
        )
    result = op.compute(*inputs)
    return result if isinstance(result, tuple) else (result,)
