"""An operator of one's own in ONNX models: what it computes, its reference, its ONNX name.

    python examples/custom_operator.py
    tilesmith check model.onnx --operators examples/custom_operator.py

A model whose nodes are of the operator's domain is compiled like any other: the operator is fused,
scheduled and checked against its reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.expr import Expr


@ts.register_op("com.example")
@dataclass(frozen=True)
class Snake(ts.Op):
    """x + sin(`alpha` x)^2 / `alpha` (arXiv:2006.08195)."""

    alpha: float = 1.0

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        (x,) = inputs

        def element(*i: Expr) -> Expr:
            wave = te.sin(self.alpha * x[i])
            return x[i] + wave * wave / self.alpha

        return te.compute(x.shape, element)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        (x,) = inputs
        alpha = x.dtype.type(self.alpha)
        return x + np.sin(alpha * x) ** 2 / alpha


def model(alpha: float) -> onnx.ModelProto:
    """Snake after a matrix product: `x` f32[4,64] to `y` f32[4,32]."""
    weights = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    tensor = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Snake", ["h"], ["y"], domain="com.example", alpha=alpha),
        ],
        "snake",
        [helper.make_tensor_value_info("x", tensor, [4, 64])],
        [helper.make_tensor_value_info("y", tensor, [4, 32])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def main() -> None:
    """Compile a model with the operator, compare each kernel with its reference, and run it."""
    snake = model(alpha=2.0)
    for kernel in ts.check(snake):
        print(" + ".join(kernel.operators), "is right" if kernel.passed else "is wrong")
    x = np.ones((4, 64), np.float32)
    print(ts.compile(snake)(x)[0, :4])


if __name__ == "__main__":
    main()
