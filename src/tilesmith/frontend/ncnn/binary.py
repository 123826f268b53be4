"""ncnn's `.param.bin`: the layers of a `.param` as numbers of 32 bits, without names.

    file   = 7767517, number of layers, number of tensors, layer...
    layer  = type, number of inputs, number of outputs, inputs..., outputs..., parameters, -233
    parameter = key, value, or -23300 - key, length, values...

A type is a position in `TYPES`.  A value does not say whether it is an integer or an f32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilesmith.frontend.common.networks import Layer
from tilesmith.support.cursor import Cursor

MAGIC = 7767517
FIRST_LIST = -23300
"""Parameter number i has the number FIRST_LIST - i if it is a list (in text, only in old files)."""
_END = -233

_NAMES = """
AbsVal ArgMax BatchNorm Bias BNLL Concat Convolution Crop Deconvolution Dropout Eltwise ELU
Embed Exp Flatten InnerProduct Input Log LRN MemoryData MVN Pooling Power PReLU Proposal
Reduction ReLU Reshape ROIPooling Scale Sigmoid Slice Softmax Split SPP TanH Threshold Tile RNN
LSTM BinaryOp UnaryOp ConvolutionDepthWise Padding Squeeze ExpandDims Normalize Permute PriorBox
DetectionOutput Interp DeconvolutionDepthWise ShuffleChannel InstanceNorm Clip Reorg
YoloDetectionOutput Quantize Dequantize Yolov3DetectionOutput PSROIPooling ROIAlign Packing
Requantize Cast HardSigmoid SELU HardSwish Noop PixelShuffle DeepCopy Mish StatisticsPooling
Swish Gemm GroupNorm LayerNorm Softplus GRU MultiHeadAttention GELU Convolution1D Pooling1D
ConvolutionDepthWise1D Convolution3D ConvolutionDepthWise3D Pooling3D MatMul Deconvolution1D
DeconvolutionDepthWise1D Deconvolution3D DeconvolutionDepthWise3D Einsum DeformableConv2D GLU
Fold Unfold GridSample CumulativeSum CopyTo Erf Diag CELU Shrink RMSNorm Spectrogram
InverseSpectrogram Flip SDPA RotaryEmbed
"""
TYPES = tuple(_NAMES.split())
"""ncnn's layers; a number never changes its meaning."""


class Word(int):
    """A value of 32 bits, which is read as an integer or as an f32."""

    def __float__(self) -> float:
        return struct.unpack("<f", struct.pack("<i", self))[0]


def layers_of(content: memoryview) -> Iterator[Layer]:
    """The layers of a file.  Layers and tensors are named after their numbers.  Raises ModelError
    for damaged files.
    """
    file = Cursor(content, ".param.bin file")
    _, count, _ = file.numbers("iii", "numbers of layers and tensors")
    for number in range(count):
        kind, reads, makes = file.numbers("iii", f"layer {number}")
        inputs = _list(file, reads, f"inputs of layer {number}")
        outputs = _list(file, makes, f"outputs of layer {number}")
        name = TYPES[kind] if 0 <= kind < len(TYPES) else f"type{kind}"
        yield Layer(
            name,
            f"{name}{number}",
            tuple(map(str, inputs.tolist())),
            tuple(map(str, outputs.tolist())),
            _parameters(file, f"parameters of layer {number}"),
        )


def _parameters(file: Cursor, what: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    while (key := file.number("i", what)) != _END:
        if key <= FIRST_LIST:
            values = _list(file, file.number("i", what), what)
            parameters[str(FIRST_LIST - key)] = _integers_or_floats(values)
        elif key < 0:
            file.bad("the number of a parameter", key)
        else:
            parameters[str(key)] = Word(file.number("i", what))
    return parameters


def _list(file: Cursor, count: int, what: str) -> np.ndarray:
    return file.array(np.dtype("<i4"), (max(count, -1),), what)


def _integers_or_floats(values: np.ndarray) -> list[float]:
    """The numbers of a list.  Bits that are a normal f32 are one: as an integer they would be at
    least 2^23, and no list of a layer has such integers except the largest ones, whose bits are
    NaNs.
    """
    floats = values.view("<f4")
    is_float = np.isfinite(floats) & (np.abs(floats) >= np.finfo(np.float32).tiny)
    return np.where(is_float, floats.astype(np.float64), values).tolist()
