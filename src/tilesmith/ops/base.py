"""The definition of an operator.

An operator is a frozen dataclass whose fields are its attributes.  (A class without new fields
needs no decorator, which would only make import slower.) It defines one of three methods, and
everything else follows from this method:

- `compute` (primitive): a tensor expression per output.  Result types follow from the expressions,
  and lowering from a schedule of them.
- `decompose` (composite): a small graph of other operators.  Types, lowering and meaning follow.
- `loops` (irregular): loops written by hand, for operators that no tensor expression describes,
  such as sorting and scattering.  Result types are stated in `infer`.

`reference` is the meaning in NumPy.  The reference of a composite operator is independent of
`decompose`: a formula in f64, or a function of NumPy.  Users may omit `reference` for their
composite operators.  `infer` is overridden only where `compute` cannot determine the type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np

from tilesmith.ir.expr import Expr
from tilesmith.ir.grammar import items_in
from tilesmith.ir.types import Dim, TensorType
from tilesmith.loop.nodes import Func
from tilesmith.support.arguments import checked
from tilesmith.support.errors import InternalError, ModelError, UnsupportedError, UsageError
from tilesmith.te import tensor as te


@dataclass(frozen=True, slots=True, eq=False)
class OpTensors:
    """A primitive operator's tensor expressions for inputs of given types.

    inputs: a placeholder for each input, in the operator's order.  Outputs need not read all
        inputs.
    outputs: the results of `compute` for these inputs, in the operator's order.
    """

    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]


OPS: dict[str, type[Op]] = {}
"""The operator table: name -> class, filled as operator classes are defined."""


class GraphBuilder(Protocol):
    """The part of `graph.Builder` that `decompose` needs.  Values have a `.type: TensorType`."""

    def add(self, op: Op, *inputs: Any) -> Any:
        """The value of `op`, or the tuple of values if there are several."""
        ...

    def constant(self, array: np.ndarray) -> Any: ...


@dataclass(frozen=True)
class Op:
    """Base of all operators.  Tensors always have logical axes (NCHW for images, as in ONNX)."""

    name: ClassVar[str] = "op"

    heavy_reference: ClassVar[bool] = False
    """Whether `reference` may take far more time or memory than reading operands and writing
    results.  Frontends don't compute shapes with such operators.
    """

    custom: ClassVar[bool] = False
    """Whether the class is defined outside of this package.  Then its name does not determine its
    meaning, so cache keys contain the meaning (`graph.custom`), and folding never uses its
    reference.
    """

    has_steps: ClassVar[bool] = False
    """Whether the smallest change of the first operand, a float, may change the result by a step,
    as rounding does.  `check` allows for such steps.
    """

    is_scheduled: ClassVar[bool] = False
    """Whether `loops` itself, not a strategy, decides which loops run on threads and in vectors."""

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        """Enter `cls` in the operator table.  Bases of families (`abstract`) are not entered, and
        operators of users only by `register_op`.
        """
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        if "name" not in cls.__dict__:
            cls.name = re.sub(
                r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__
            ).lower()
        cls.custom = cls.__module__.partition(".")[0] != __name__.partition(".")[0]
        if cls.custom:
            cls.heavy_reference = True
        else:
            OPS[cls.name] = cls

    def compute(self, *inputs: te.Tensor) -> te.Tensor | tuple[te.Tensor, ...]:
        """Primitive operators: the outputs as tensor expressions of the inputs."""
        raise NotImplementedError(f"{self.name} has no compute")

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        """Composite operators: add nodes to `b` and return the output value, a tuple of several."""
        raise NotImplementedError(f"{self.name} has no decompose")

    def loops(self, *types: TensorType) -> Func:
        """Irregular operators: the kernel for inputs of `types` in loop IR, stage "nest".

        Parameters are the inputs, then the outputs, each in logical axes.  Loops with independent
        iterations have the kind parallel.  The strategy maps parallel loops to threads and vectors,
        and adapts accesses to the layouts of the tensors.
        """
        raise NotImplementedError(f"{self.name} has no loops")

    def reference(self, *inputs: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """The meaning in NumPy.  Composite operators of users need none."""
        raise NotImplementedError(f"{self.name} has no reference")

    def vjp(
        self,
        b: GraphBuilder,
        cotangents: tuple[Any, ...],
        outputs: tuple[Any, ...],
        *inputs: Any,
    ) -> Any:
        """Add nodes to `b` that compute the gradients of the operands of a user's operator.
        Returns one value for each operand, None for a gradient of zero.

        cotangents: the cotangent of each output; None for zero.

        An operator with `compute` or `decompose` needs no `vjp`: its gradients are derived
        (`ops.gradients`).
        """
        raise NotImplementedError(f"{self.name} has no vjp")

    @checked(ModelError)
    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """Result types.  Raises ModelError (expected, found) if inputs do not fit the operator."""
        return tuple(TensorType(t.dtype, t.shape) for t in self.tensors(*types).outputs)

    def slack(self, *types: TensorType) -> tuple[Dim, ...]:
        """Differences of extents that must not be negative, for inputs of `types`.

        `infer` rejects negative numbers; each run checks symbolic differences.  Extents of results
        need no entry, because they are always checked.
        """
        return ()

    @checked(ModelError)
    def tensors(self, *types: TensorType) -> OpTensors:
        """The result of `compute` for placeholders of `types`, cached per operator and types.

        Raises InternalError for an operator that is not primitive.
        """
        return _tensors(self, types)

    @classmethod
    def is_composite(cls) -> bool:
        return cls.decompose is not Op.decompose

    @classmethod
    def is_primitive(cls) -> bool:
        return cls.compute is not Op.compute

    @classmethod
    def is_irregular(cls) -> bool:
        return cls.loops is not Op.loops

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attribute names and values in declaration order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def is_static(self) -> bool:
        """Whether no attribute contains a symbolic dimension."""
        attributes = items_in(tuple(self.attributes.values()))
        return not any(
            isinstance(item, Expr) or (isinstance(item, (Op, TensorType)) and not item.is_static)
            for item in attributes
        )

    def __str__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.attributes.items())
        return f"{self.name} {{{shown}}}" if shown else self.name


def kind_of(cls: type[Op]) -> str:
    """The kind of an operator, as a word; empty if it defines none of the three methods."""
    kinds = {
        "primitive": cls.is_primitive(),
        "composite": cls.is_composite(),
        "irregular": cls.is_irregular(),
    }
    return next((word for word, is_defined in kinds.items() if is_defined), "")


def check_attribute_name(operator: str, name: str) -> None:
    """Raises UsageError if an attribute has the name of a member of `Op`, such as `infer`, because
    the attribute would replace the member.
    """
    if hasattr(Op, name):
        raise UsageError(
            f"{operator}: expected a name of its own for each attribute, found {name!r}, "
            "which every operator has with another meaning (tilesmith.Op); choose another name"
        )


@lru_cache(maxsize=4096)
def _tensors(op: Op, types: tuple[TensorType, ...]) -> OpTensors:
    inputs = tuple(te.placeholder(t.shape, t.dtype, f"x{i}") for i, t in enumerate(types))
    if not op.is_primitive():
        raise InternalError(f"{op.name} is {kind_of(type(op))}: it has no tensor expression")
    result = op.compute(*inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    if op.custom:
        _check_computes(op, outputs)
    return OpTensors(inputs, outputs)


def unscheduled(outputs: tuple[te.Tensor, ...]) -> te.Operation | None:
    """A stage among the producers of `outputs` that strategies can't schedule: loops or a
    recurrence.  None if all stages are plain computes.
    """
    seen: set[te.Operation] = set()
    waiting = [t.op for t in outputs]
    while waiting:
        stage = waiting.pop()
        if stage in seen:
            continue
        seen.add(stage)
        if isinstance(stage, te.Extern) or (isinstance(stage, te.Compute) and stage.recurrence):
            return stage
        waiting += [t.op for t in stage.inputs]
    return None


def _check_computes(op: Op, outputs: tuple[te.Tensor, ...]) -> None:
    """Raises UnsupportedError if a stage is not a plain compute."""
    stage = unscheduled(outputs)
    if stage is not None:
        kind = "te.extern" if isinstance(stage, te.Extern) else "te.scan"
        raise UnsupportedError(
            f"{op.name}: compute gives {stage.name!r}, a {kind}; an operator in models has "
            "loops(*types) and infer(*types) for that"
        )
