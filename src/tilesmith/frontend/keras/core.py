"""Keras' layers of products and embeddings, and layers that do nothing in inference."""

from __future__ import annotations

from tilesmith.frontend.keras.activations import activated
from tilesmith.frontend.keras.node import KerasNode, Tensor
from tilesmith.frontend.keras.registry import layer
from tilesmith.graph.nodes import Value
from tilesmith.ir.dtypes import i32
from tilesmith.ops import einsum, gather
from tilesmith.ops import functions as fn
from tilesmith.ops import matmul as mm


@layer(
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "Identity",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "StochasticDepth",
    masked=True,
)
def unchanged(n: KerasNode) -> Value:
    return n.input()


@layer("InputLayer", masked=True)
def input_layer(n: KerasNode) -> Value:
    return n.input()


@layer("Dense", masked=True)
def dense(n: KerasNode) -> Value:
    _check_plain(n)
    y = n.add(mm.MatMul(), n.input(), n.weight(0))
    if n.option("use_bias", True):
        y = y + n.weight(1)
    return activated(n, y, n.option("activation", None))


def _check_plain(n: KerasNode) -> None:
    if n.option("quantization_config", None) or n.option("quantization_mode", None):
        n.unsupported("quantised weights; save the model before quantize()")
    if n.option("lora_rank", None):
        n.unsupported("weights with LoRA; merge them before saving")


@layer("EinsumDense", masked=False)
def einsum_dense(n: KerasNode) -> Value:
    _check_plain(n)
    y = n.add(einsum.Einsum(n.option("equation", kind=str)), n.input(), n.weight(0))
    if n.option("bias_axes", None):
        y = y + n.weight(1)
    return activated(n, y, n.option("activation", None))


@layer("Embedding")
def embedding(n: KerasNode) -> Tensor:
    _check_plain(n)
    x = n.input()
    y = n.add(gather.Gather(0), n.weight(0), x if x.dtype.is_int else x.cast(i32))
    return Tensor(y, x.differs(0) if n.option("mask_zero", False) else None)


@layer("ReversibleEmbedding")
def reversible_embedding(n: KerasNode) -> Value | Tensor:
    if not n.argument("reverse", 1, False):
        return embedding(n)
    tied = n.option("tie_weights", True)
    y = n.add(mm.MatMul(transpose_b=bool(tied)), n.input(), n.weight(0 if tied else 1))
    cap = n.option("logit_soft_cap", None)
    return y if cap is None else fn.tanh(y / float(cap)) * float(cap)


@layer("LayerScale")
def layer_scale(n: KerasNode) -> Value:
    """The layer LayerScale of keras.applications' ConvNeXt."""
    return n.input() * n.weight(0)


@layer("SpectralNormalization")
def spectral_normalization(n: KerasNode) -> Value:
    return n.call(n.option("layer", kind=dict), n.weights.part(["layer"]), n.tensors[0])
