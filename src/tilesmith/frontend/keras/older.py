"""The names that classes and their options had in Keras 1 and 2."""

from __future__ import annotations

from typing import Any

from tilesmith.support.errors import ModelError

_CLASSES = {
    "Convolution1D": "Conv1D",
    "Convolution2D": "Conv2D",
    "Convolution3D": "Conv3D",
    "AtrousConvolution1D": "Conv1D",
    "AtrousConvolution2D": "Conv2D",
    "Deconvolution2D": "Conv2DTranspose",
    "SeparableConvolution2D": "SeparableConv2D",
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "SyncBatchNormalization": "BatchNormalization",
    "CuDNNGRU": "GRU",
    "CuDNNLSTM": "LSTM",
    "GRUV2": "GRU",
    "LSTMV2": "LSTM",
    "RandomContrast": "Dropout",
}

_OPTIONS = {
    "nb_filter": "filters",
    "subsample": "strides",
    "subsample_length": "strides",
    "stride": "strides",
    "border_mode": "padding",
    "dim_ordering": "data_format",
    "bias": "use_bias",
    "inner_activation": "recurrent_activation",
    "filter_length": "kernel_size",
    "pool_length": "pool_size",
    "length": "size",
    "atrous_rate": "dilation_rate",
    "batch_input_shape": "batch_shape",
    "consume_less": "implementation",
}
"""The current names of options, by their names in Keras 1."""

_LAYOUTS = {"tf": "channels_last", "th": "channels_first"}
_KERNELS = (("nb_row", "nb_col"), ("kernel_dim1", "kernel_dim2", "kernel_dim3"))


def modern(kind: str, config: Any) -> tuple[str, Any]:
    """A layer's class and configuration, with the names of Keras 3."""
    if not isinstance(config, dict):
        return kind, config
    new = {_OPTIONS.get(k, k): v for k, v in config.items()}
    if "output_dim" in new and kind not in ("Embedding", "ReversibleEmbedding"):
        new["units"] = new["output_dim"]
    for names in _KERNELS:
        if all(n in new for n in names):
            new["kernel_size"] = [new[n] for n in names]
    if new.get("data_format") in ("tf", "th"):
        new["data_format"] = _LAYOUTS[new["data_format"]]
    if kind.startswith("CuDNN"):
        new |= {"reset_after": True, "recurrent_activation": "sigmoid"}
    return _CLASSES.get(kind, kind), new


_FUNCTIONS = {
    "__operators__.add": "Add",
    "__operators__.getitem": "GetItem",
    "concat": "Concatenate",
    "math.multiply": "Multiply",
    "math.subtract": "Subtract",
    "math.truediv": "Divide",
    "math.divide": "Divide",
    "math.reduce_mean": "Mean",
    "math.reduce_sum": "Sum",
    "math.reduce_max": "Max",
    "math.reduce_min": "Min",
    "math.pow": "Power",
    "linalg.matmul": "Matmul",
    "cast": "Cast",
    "clip_by_value": "Clip",
    "reshape": "Reshape",
    "transpose": "Transpose",
    "expand_dims": "ExpandDims",
    "squeeze": "Squeeze",
    "stack": "Stack",
    "tile": "Tile",
    "split": "Split",
}
"""Operations of Keras 3, by the names of equal TensorFlow functions in files of Keras 2."""

ARGUMENTS = {
    "x": "x1",
    "y": "x2",
    "a": "x1",
    "b": "x2",
    "shape": "newshape",
    "perm": "axes",
    "clip_value_min": "x_min",
    "clip_value_max": "x_max",
    "slice_spec": "key",
    "multiples": "repeats",
    "num_or_size_splits": "indices_or_sections",
}
"""Names of arguments of these operations, by the names in TensorFlow's functions."""


def operation_of(kind: str, config: Any) -> tuple[str, Any]:
    """The operation of Keras 3 that equals a call of a TensorFlow function in a Keras 2 file."""
    if not isinstance(config, dict):
        raise ModelError(f"{kind}: expected a configuration, found {type(config).__name__}")
    function = str(config.get("function"))
    short = function.removeprefix("math.").removeprefix("nn.").removeprefix("compat.v1.")
    return _FUNCTIONS.get(function, "".join(w.title() for w in short.split("_"))), config
