"""Gradient of ai.onnx.preview.training: the derivatives of one tensor by others.

The attributes name tensors: "y" is the function's result, "xs" and "zs" are all tensors on which it
depends.  The nodes between them are differentiated at the node's inputs, which stand for xs and zs.
Of a y with several elements, the sum is differentiated.
"""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.constants import filled
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.graph.passes.differentiate import differentiate


@onnx_op("Gradient", domain="ai.onnx.preview.training")
def gradient(n: OnnxNode) -> Result:
    xs, zs = (n.attr_strings(name) or () for name in ("xs", "zs"))
    y = _tensor(n, n.attr_string("y"))
    operands, points = [_tensor(n, name) for name in (*xs, *zs)], n.inputs
    if not xs or len(points) != len(operands):
        n.bad(f"expected inputs for the {len(operands)} tensors of xs and zs, found {len(points)}")
    for old, new in zip(operands, points, strict=True):
        if old.type != new.type:
            n.bad(f"expected {old.type} for {old.name!r}, found {new.type}")
    if n.builder.is_constant(y):
        n.unsupported(f"{y.name!r} is known before the model runs")
    by_tensor = dict(zip(operands, points, strict=True))
    function = n.builder.part([*by_tensor], y)
    inner = dict(zip(by_tensor, function.inputs, strict=True))
    read = {v for node in function.nodes for v in node.inputs}
    wanted = [v for v in dict.fromkeys(operands[: len(xs)]) if inner[v] in read]
    gradients: dict[Value, Value | None] = dict.fromkeys(operands)
    if wanted:
        made = differentiate(function, (0,), [inner[v] for v in wanted])
        seeds = [filled(n, v.type.shape, 1, v.dtype) for v in made.inputs[len(by_tensor) :]]
        values = n.builder.include(
            made, dict(zip(made.inputs, [*by_tensor.values(), *seeds], strict=True))
        )
        gradients |= {v: values[g] for v, g in zip(wanted, made.outputs[1:], strict=True)}
    return tuple(gradients[v] or filled(n, v.type.shape, 0, v.dtype) for v in operands[: len(xs)])


def _tensor(n: OnnxNode, name: str) -> Value:
    """The tensor of a name.  Raises ModelError for other slots."""
    tensor = n.scope.find(name)
    if not isinstance(tensor, Value):
        n.bad(f"expected {name!r} to be a tensor")
    return tensor
