"""ONNX's loss functions, composed of gathers and reductions."""

from __future__ import annotations

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import onnx_op
from tilesmith.graph.nodes import Value
from tilesmith.ops import gather, norm, rules, shape
from tilesmith.ops.functions import where


@onnx_op("NegativeLogLikelihoodLoss", since=12)
def nll_loss(n: OnnxNode) -> Result:
    return _loss(n, n.input(0), n.input(1), n.optional(2))


@onnx_op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(n: OnnxNode) -> Result:
    if n.input(0).type.rank < 2:
        n.bad(f"scores: expected [N, C, ...], found {n.input(0).type}")
    logs = n.add(norm.LogSoftmax(1), n.input(0))
    return _loss(n, logs, n.input(1), n.optional(2)), logs


def _loss(n: OnnxNode, logs: Value, labels: Value, weight: Value | None) -> Value:
    """-log p[label] * weight[label], averaged by weight, summed, or per element."""
    reduction = n.attr_string("reduction", "mean", among=("none", "sum", "mean"))
    ignored = n.attr_int("ignore_index") if n.has("ignore_index") else None
    dims = logs.type.shape
    if len(dims) < 2 or not rules.equal_shapes("loss", labels.type.shape, (dims[0], *dims[2:])):
        n.bad(f"expected logs [N, C, ...] and labels [N, ...], found {logs.type} and {labels.type}")
    zero = n.const(0, logs.dtype)
    kept = None
    if ignored is not None:
        # An ignored label may lie outside of the classes.  Class 0 with weight 0 replaces it.
        kept = labels.differs(ignored)
        labels = where(kept, labels, 0)
    index = n.add(shape.Unsqueeze((1,)), labels)
    picked = n.reshape(n.add(gather.GatherElements(1), logs, index), labels.type.shape)
    if weight is not None:
        factor = n.add(gather.Gather(0), weight, labels)
    else:
        factor = n.const(1, logs.dtype).expand(*labels.type.shape)
    if kept is not None:
        factor = where(kept, factor, zero)
        picked = where(kept, picked, zero)
    losses = -(picked * factor)
    if reduction == "none":
        return losses
    total = losses.sum()
    if reduction == "sum":
        return total
    return total / factor.sum()
