"""What an odd operator is: one computation, said in every language that takes part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tilesmith import te
from tilesmith.support.arrays import difference

LAST = (0, 2, 3, 1)
"""Where the axes of N C H W are in N H W C."""


@dataclass(frozen=True)
class Way:
    """One way to write the operator for another engine.

    `program`: a function of torch tensors, or an ONNX model.  `inputs`: what it is given, in the
    layout that it likes best (converted before any clock runs).  `order`: transposition of its
    result that gives ours.  `engines`: which of PyTorch's it is meant for.
    """

    name: str
    program: Any
    inputs: Sequence[Any]
    order: tuple[int, ...] | None = None
    engines: tuple[str, ...] = ("torch", "torch.compile")

    def ours(self, result: np.ndarray) -> np.ndarray:
        return result if self.order is None else result.transpose(self.order)


@dataclass(frozen=True)
class Operator:
    """An operator with its sizes; each subclass has realistic ones by default.

    Arrays are channels-last where there are channels.  The first `inputs` of them vary from call to
    call, the others are weights, which engines may pack in advance.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    """Where such an operator is found."""
    inputs: ClassVar[int] = 1

    def define(self) -> list[te.Tensor]:
        """The tensor expression: inputs, weights, results."""
        raise NotImplementedError

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Inputs and weights."""
        raise NotImplementedError

    def reference(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The results by NumPy, in float64."""
        raise NotImplementedError

    def torch(self, *arrays: np.ndarray) -> list[Way]:
        """As an expert in PyTorch would write it, best first guess first."""
        raise NotImplementedError

    def onnx(self, *arrays: np.ndarray) -> list[Way]:
        """As ONNX, where that has the operators."""
        return []

    def difference(
        self,
        found: Sequence[np.ndarray],
        expected: Sequence[np.ndarray],
        arrays: Sequence[np.ndarray],
    ) -> float:
        """How far results for `arrays` are off, as a share of the largest magnitude."""
        del arrays
        pairs = zip(found, expected, strict=True)
        return max(difference(f.reshape(e.shape), e) for f, e in pairs)

    @property
    def flops(self) -> int:
        """Floating point operations of the plain computation, a multiply-add being two."""
        raise NotImplementedError

    def moved(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> int:
        """Bytes that have to be read and written at the least."""
        return sum(a.nbytes for a in arrays) + sum(r.nbytes for r in results)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Float32 noise."""
    return rng.standard_normal(shape, np.float32) * np.float32(scale)


def both_layouts(
    function: Callable[..., Any], images: Sequence[np.ndarray], *others: np.ndarray
) -> list[Way]:
    """A torch function of N C H W images (and of other arrays) with both memory layouts."""
    import torch

    rest = [torch.from_numpy(o) for o in others]
    last = [torch.from_numpy(i).movedim(-1, 1) for i in images]  # no copy
    first = [i.contiguous() for i in last]
    rank = images[0].ndim
    order = (0, *range(2, rank), 1)
    return [
        Way("channels last", function, [*last, *rest], order),
        Way("channels first", function, [*first, *rest], order),
    ]


@dataclass
class Model:
    """An ONNX model in the making: `add` appends a node and returns its (first) output."""

    opset: int = 22
    nodes: list[Any] = field(default_factory=list)
    given: list[tuple[str, np.ndarray]] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def input(self, array: np.ndarray) -> str:
        self.given.append((f"in{len(self.given)}", np.ascontiguousarray(array)))
        return self.given[-1][0]

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def finish(self, *outputs: str, kind: int = TensorProto.FLOAT) -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "odd",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in self.given],
            [helper.make_tensor_value_info(o, kind, None) for o in outputs],
            self.weights,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10
        )

    def way(
        self,
        *outputs: str,
        name: str = "",
        order: tuple[int, ...] | None = None,
        kind: int = TensorProto.FLOAT,
    ) -> Way:
        return Way(name, self.finish(*outputs, kind=kind), [a for _, a in self.given], order)
