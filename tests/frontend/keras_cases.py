"""Models of one layer or a few operations, made by Keras, for comparison with our results."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
from keras import layers as L
from keras import ops

Case = Callable[[], Any]
CASES: dict[str, Case] = {}
"""Functions that make models, by name."""


def one(name: str, shape: tuple[Any, ...], make: Callable[[], Any], dtype: str = "float32") -> None:
    """A case of one layer."""

    def model() -> Any:
        x = keras.Input(shape, name="x", dtype=dtype)
        return keras.Model(x, make()(x))

    assert name not in CASES, name
    CASES[name] = model


def op(
    name: str, function: Callable[..., Any], *shapes: tuple[Any, ...], dtype: str = "float32"
) -> None:
    """A case of operations on tensors."""

    def model() -> Any:
        xs = [keras.Input(s, name=f"x{i}", dtype=dtype) for i, s in enumerate(shapes or ((4, 6),))]
        return keras.Model(xs, function(*xs))

    assert name not in CASES, name
    CASES[name] = model


def many(function: Callable[[], Any]) -> Callable[[], Any]:
    """A decorator of a case that makes its own model."""
    CASES[function.__name__] = function
    return function


IMAGE, CHANNELS, LINE, VOLUME = (9, 8, 6), (6, 9, 8), (10, 6), (6, 5, 7, 2)

# Products
one("dense", (5,), lambda: L.Dense(4))
one("dense_relu_3d", (3, 5), lambda: L.Dense(4, activation="relu"))
one("dense_no_bias", (5,), lambda: L.Dense(4, use_bias=False))
one("dense_f16", (5,), lambda: L.Dense(4, dtype="mixed_float16"))
one(
    "einsum_dense",
    (3, 5),
    lambda: L.EinsumDense("abc,cde->abde", output_shape=(None, 2, 4), bias_axes="de"),
)
one(
    "einsum_dense_ellipsis",
    (3, 5),
    lambda: L.EinsumDense("...x,xy->...y", output_shape=4, activation="gelu"),
)
one("embedding", (7,), lambda: L.Embedding(11, 4), "int32")
one("identity", (7,), lambda: L.Identity())
one("dropout", (7,), lambda: L.Dropout(0.5))
one("noise", (7,), lambda: L.GaussianNoise(0.5))
one("spatial_dropout", IMAGE, lambda: L.SpatialDropout2D(0.5))
one("spectral", (7,), lambda: L.SpectralNormalization(L.Dense(4)))
# Convolutions
for _padding in ("valid", "same"):
    for _strides in (1, 2):
        one(
            f"conv1d_{_padding}{_strides}",
            LINE,
            lambda p=_padding, s=_strides: L.Conv1D(4, 3, s, p),
        )
        one(
            f"conv2d_{_padding}{_strides}",
            IMAGE,
            lambda p=_padding, s=_strides: L.Conv2D(4, (3, 2), s, p, activation="relu"),
        )
        one(
            f"conv3d_{_padding}{_strides}",
            VOLUME,
            lambda p=_padding, s=_strides: L.Conv3D(4, 2, s, p),
        )
        one(
            f"depthwise1d_{_padding}{_strides}",
            LINE,
            lambda p=_padding, s=_strides: L.DepthwiseConv1D(3, s, p),
        )
        one(
            f"depthwise2d_{_padding}{_strides}",
            IMAGE,
            lambda p=_padding, s=_strides: L.DepthwiseConv2D(3, s, p, depth_multiplier=2),
        )
        one(
            f"separable1d_{_padding}{_strides}",
            LINE,
            lambda p=_padding, s=_strides: L.SeparableConv1D(5, 3, s, p),
        )
        one(
            f"separable2d_{_padding}{_strides}",
            IMAGE,
            lambda p=_padding, s=_strides: L.SeparableConv2D(5, 3, s, p, depth_multiplier=2),
        )
        one(
            f"transpose1d_{_padding}{_strides}",
            LINE,
            lambda p=_padding, s=_strides: L.Conv1DTranspose(4, 3, s, p),
        )
        one(
            f"transpose2d_{_padding}{_strides}",
            IMAGE,
            lambda p=_padding, s=_strides: L.Conv2DTranspose(4, 3, s, p),
        )
        one(
            f"transpose3d_{_padding}{_strides}",
            VOLUME,
            lambda p=_padding, s=_strides: L.Conv3DTranspose(3, 3, s, p),
        )
        # With Keras' backend for PyTorch, uneven padding counts in averages; elsewhere none does.
        for _k in ("Max", "Average") if _padding == "valid" else ("Max",):
            one(
                f"{_k.lower()}_pool1d_{_padding}{_strides}",
                LINE,
                lambda k=_k, p=_padding, s=_strides: getattr(L, k + "Pooling1D")(3, s, p),
            )
            one(
                f"{_k.lower()}_pool2d_{_padding}{_strides}",
                IMAGE,
                lambda k=_k, p=_padding, s=_strides: getattr(L, k + "Pooling2D")((3, 2), s, p),
            )
            one(
                f"{_k.lower()}_pool3d_{_padding}{_strides}",
                VOLUME,
                lambda k=_k, p=_padding, s=_strides: getattr(L, k + "Pooling3D")(2, s, p),
            )
one("average_pool_even", IMAGE, lambda: L.AveragePooling2D(3, 1, "same"))
one("conv1d_causal", LINE, lambda: L.Conv1D(4, 3, padding="causal", dilation_rate=2))
one("conv2d_dilated", IMAGE, lambda: L.Conv2D(4, 3, padding="same", dilation_rate=2))
one("conv2d_groups", IMAGE, lambda: L.Conv2D(4, 3, groups=2, use_bias=False))
one(
    "conv2d_first",
    CHANNELS,
    lambda: L.Conv2D(4, 3, data_format="channels_first", activation="tanh"),
)
one("conv2d_open", (None, None, 3), lambda: L.Conv2D(4, 3, 2, "same"))
one("conv2d_f16", IMAGE, lambda: L.Conv2D(4, 3, dtype="float16"))
one("depthwise_first", CHANNELS, lambda: L.DepthwiseConv2D(3, data_format="channels_first"))
one(
    "separable_first",
    CHANNELS,
    lambda: L.SeparableConv2D(3, 3, data_format="channels_first", activation="relu"),
)
one("transpose_first", CHANNELS, lambda: L.Conv2DTranspose(3, 3, data_format="channels_first"))
one(
    "transpose_output_padding", IMAGE, lambda: L.Conv2DTranspose(4, 3, 2, "valid", output_padding=1)
)
one("transpose_short_kernel", IMAGE, lambda: L.Conv2DTranspose(4, 2, 3, "same"))
one("transpose_wide_kernel", IMAGE, lambda: L.Conv2DTranspose(4, 5, 2, "same"))
one("max_pool_first", CHANNELS, lambda: L.MaxPooling2D(2, data_format="channels_first"))
for _r, _shape in ((1, LINE), (2, IMAGE), (3, VOLUME)):
    for _k in ("Max", "Average"):
        one(
            f"global_{_k.lower()}{_r}",
            _shape,
            lambda k=_k, r=_r: getattr(L, f"Global{k}Pooling{r}D")(),
        )
        one(
            f"global_{_k.lower()}_keep{_r}",
            _shape,
            lambda k=_k, r=_r: getattr(L, f"Global{k}Pooling{r}D")(keepdims=True),
        )
        one(
            f"global_{_k.lower()}_first{_r}",
            _shape,
            lambda k=_k, r=_r: getattr(L, f"Global{k}Pooling{r}D")(data_format="channels_first"),
        )
        if hasattr(L, "AdaptiveMaxPooling1D"):
            one(
                f"adaptive_{_k.lower()}{_r}",
                _shape,
                lambda k=_k, r=_r: getattr(L, f"Adaptive{k}Pooling{r}D")(3),
            )
# Normalisations
one("batch_norm", IMAGE, L.BatchNormalization)
one("batch_norm_2d", (5,), lambda: L.BatchNormalization(scale=False))
one("batch_norm_axis", IMAGE, lambda: L.BatchNormalization(axis=1, center=False, epsilon=0.1))
one("batch_norm_f16", IMAGE, lambda: L.BatchNormalization(dtype="mixed_float16"))
one("layer_norm", LINE, L.LayerNormalization)
one("layer_norm_axes", IMAGE, lambda: L.LayerNormalization(axis=(2, 3), center=False))
one("rms_norm", LINE, L.RMSNormalization)
one("group_norm", IMAGE, lambda: L.GroupNormalization(3))
one("group_norm_instance", IMAGE, lambda: L.GroupNormalization(-1, scale=False))
one("group_norm_first", CHANNELS, lambda: L.GroupNormalization(2, axis=1))
one("unit_norm", LINE, L.UnitNormalization)
one("unit_norm_axes", IMAGE, lambda: L.UnitNormalization(axis=(1, 2)))
one("normalization", (3,), lambda: L.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 4.0, 0.5]))
one("normalization_scalar", (3,), lambda: L.Normalization(axis=None, mean=1.5, variance=4.0))


@many
def normalization_adapted() -> Any:
    layer = L.Normalization()
    layer.adapt(np.random.default_rng(0).normal(2, 3, (20, 4)).astype("f"))
    return keras.Sequential([keras.Input((4,), name="x"), layer])


# Activations
for _name in [
    "celu",
    "elu",
    "exponential",
    "gelu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "tanh",
    "tanh_shrink",
    "glu",
]:
    if hasattr(keras.activations, _name):
        one(f"activation_{_name}", (4, 6), lambda k=_name: L.Activation(k))
one("activation_object", (4, 6), lambda: L.Dense(4, activation=L.LeakyReLU(negative_slope=0.1)))
one("activation_function", (4, 6), lambda: L.Dense(4, activation=keras.activations.silu))
one("relu_layer", (4, 6), lambda: L.ReLU(max_value=0.5, negative_slope=0.1, threshold=0.1))
one("relu_max", (4, 6), lambda: L.ReLU(max_value=0.5))
one("leaky_layer", (4, 6), lambda: L.LeakyReLU(negative_slope=0.1))
one("elu_layer", (4, 6), lambda: L.ELU(alpha=0.7))
one("prelu", IMAGE, lambda: L.PReLU(alpha_initializer="uniform", shared_axes=[1, 2]))
one("softmax_layer", (4, 6), lambda: L.Softmax(axis=1))
one("softmax_axes", (4, 6), lambda: L.Softmax(axis=[1, 2]))
# Shapes and images
one("reshape", (4, 6), lambda: L.Reshape((2, -1)))
one("flatten", IMAGE, L.Flatten)
one("flatten_first", CHANNELS, lambda: L.Flatten(data_format="channels_first"))
one("permute", IMAGE, lambda: L.Permute((3, 1, 2)))
one("repeat_vector", (6,), lambda: L.RepeatVector(3))
one("crop1d", LINE, lambda: L.Cropping1D((1, 2)))
one("crop2d", IMAGE, lambda: L.Cropping2D(((1, 2), (0, 3))))
one("crop3d", VOLUME, lambda: L.Cropping3D(1))
one("pad1d", LINE, lambda: L.ZeroPadding1D((1, 2)))
one("pad2d", IMAGE, lambda: L.ZeroPadding2D((1, 2)))
one("pad2d_first", CHANNELS, lambda: L.ZeroPadding2D(2, data_format="channels_first"))
one("pad3d", VOLUME, lambda: L.ZeroPadding3D(1))
one("up1d", LINE, lambda: L.UpSampling1D(3))
one("up2d", IMAGE, lambda: L.UpSampling2D((2, 3)))
one("up2d_open", (None, None, 3), lambda: L.UpSampling2D(2))
one("up2d_bilinear", IMAGE, lambda: L.UpSampling2D(2, interpolation="bilinear"))
one("up2d_bicubic", IMAGE, lambda: L.UpSampling2D(2, interpolation="bicubic"))
one("up3d", VOLUME, lambda: L.UpSampling3D(2))
one("rescaling", IMAGE, lambda: L.Rescaling(1 / 127.5, -1))
one("rescaling_channels", (4, 4, 3), lambda: L.Rescaling([1.0, 2.0, 3.0], [0.5, 0.1, 0.2]))
one("resizing", IMAGE, lambda: L.Resizing(5, 12))
one("resizing_nearest", IMAGE, lambda: L.Resizing(12, 5, interpolation="nearest"))
one("resizing_crop", IMAGE, lambda: L.Resizing(4, 8, crop_to_aspect_ratio=True))
one("center_crop", IMAGE, lambda: L.CenterCrop(4, 5))
one("discretization", (4,), lambda: L.Discretization([-0.5, 0.0, 0.5]))
one("category_multi", (4,), lambda: L.CategoryEncoding(11, output_mode="multi_hot"), "int32")
one("category_count", (4,), lambda: L.CategoryEncoding(11, output_mode="count"), "int32")
one("category_one", (1,), lambda: L.CategoryEncoding(11, output_mode="one_hot"), "int32")
one("masking", LINE, L.Masking)
# Recurrent layers
for _name in ("SimpleRNN", "GRU", "LSTM"):
    _key = _name.lower()
    one(_key, LINE, lambda k=_name: getattr(L, k)(5))
    one(
        f"{_key}_sequences",
        LINE,
        lambda k=_name: getattr(L, k)(5, return_sequences=True, use_bias=False),
    )
    one(
        f"{_key}_state",
        LINE,
        lambda k=_name: getattr(L, k)(
            5, return_state=True, return_sequences=True, bias_initializer="uniform"
        ),
    )
    one(
        f"{_key}_backwards",
        LINE,
        lambda k=_name: getattr(L, k)(5, go_backwards=True, return_sequences=True),
    )
    one(f"{_key}_open", (None, 6), lambda k=_name: getattr(L, k)(5, return_sequences=True))
    one(
        f"bidirectional_{_key}",
        LINE,
        lambda k=_name: L.Bidirectional(getattr(L, k)(5, return_sequences=True)),
    )
    one(f"bidirectional_last_{_key}", LINE, lambda k=_name: L.Bidirectional(getattr(L, k)(5)))

    def _masked(k: str = _name, wrap: Any = None, **options: Any) -> Any:
        x = keras.Input((8,), name="x", dtype="int32")
        layer = getattr(L, k)(5, **options)
        return keras.Model(
            x, (wrap(layer) if wrap else layer)(L.Embedding(11, 6, mask_zero=True)(x))
        )

    CASES[f"masked_{_key}"] = _masked
    CASES[f"masked_{_key}_sequences"] = lambda f=_masked, k=_name: f(k, return_sequences=True)
    CASES[f"masked_{_key}_zero"] = lambda f=_masked, k=_name: f(
        k, return_sequences=True, zero_output_for_mask=True
    )
    CASES[f"masked_{_key}_both"] = lambda f=_masked, k=_name: f(
        k, L.Bidirectional, return_sequences=True
    )
    CASES[f"masked_{_key}_both_last"] = lambda f=_masked, k=_name: f(k, L.Bidirectional)
one("gru_before", LINE, lambda: L.GRU(5, reset_after=False, bias_initializer="uniform"))
one(
    "lstm_functions",
    LINE,
    lambda: L.LSTM(5, activation="relu", recurrent_activation="hard_sigmoid"),
)
one("rnn_cell", LINE, lambda: L.RNN(L.LSTMCell(4), return_sequences=True))
one(
    "rnn_stacked",
    LINE,
    lambda: L.RNN([L.LSTMCell(4), L.GRUCell(3), L.SimpleRNNCell(5)], return_sequences=True),
)
one(
    "rnn_stacked_backwards",
    LINE,
    lambda: L.RNN([L.GRUCell(4), L.GRUCell(3)], go_backwards=True, return_sequences=True),
)
for _mode in ("sum", "mul", "ave", None):
    one(
        f"bidirectional_{_mode}",
        LINE,
        lambda m=_mode: L.Bidirectional(L.GRU(4, return_sequences=True), merge_mode=m),
    )
one("bidirectional_state", LINE, lambda: L.Bidirectional(L.LSTM(4, return_state=True)))
one(
    "bidirectional_other",
    LINE,
    lambda: L.Bidirectional(L.LSTM(4), backward_layer=L.GRU(4, go_backwards=True)),
)
one("conv_lstm1d", (4, 7, 2), lambda: L.ConvLSTM1D(3, 3, padding="same"))
one("conv_lstm2d", (4, 7, 6, 2), lambda: L.ConvLSTM2D(3, 3, return_sequences=True, strides=2))
one(
    "conv_lstm2d_first",
    (4, 2, 7, 6),
    lambda: L.ConvLSTM2D(3, 3, data_format="channels_first", return_state=True),
)
one(
    "conv_lstm3d",
    (3, 5, 4, 6, 2),
    lambda: L.ConvLSTM3D(2, 2, go_backwards=True, return_sequences=True),
)
one("distributed_dense", (4, 7, 6), lambda: L.TimeDistributed(L.Dense(3)))
one("distributed_conv", (4, 7, 6, 2), lambda: L.TimeDistributed(L.Conv2D(3, 3)))
one("distributed_lstm", (4, 7, 6), lambda: L.TimeDistributed(L.LSTM(3)))
one("distributed_open", (None, 7, 6), lambda: L.TimeDistributed(L.Dense(3)))
one(
    "distributed_model",
    (4, 6),
    lambda: L.TimeDistributed(
        keras.Sequential([keras.Input((6,)), L.Dense(5), L.BatchNormalization(), L.Dense(3)])
    ),
)


@many
def rnn_initial_state() -> Any:
    x, h, c = keras.Input(LINE, name="x"), keras.Input((5,), name="h"), keras.Input((5,), name="c")
    y = L.LSTM(5)(x, initial_state=[h, c])
    z = L.GRU(5)(x, initial_state=h)
    return keras.Model([x, h, c], [y, z])


@many
def encoder_decoder() -> Any:
    x, y = keras.Input((None, 4), name="x"), keras.Input((None, 3), name="y")
    _, h, c = L.LSTM(5, return_state=True)(x)
    out = L.LSTM(5, return_sequences=True)(y, initial_state=[h, c])
    return keras.Model([x, y], L.Dense(3, activation="softmax")(out))


# Attention
MHA = L.MultiHeadAttention


def _attention(layer: Callable[[], Any], *shapes: tuple[Any, ...], **options: Any) -> Any:
    xs = [keras.Input(s, name=f"x{i}") for i, s in enumerate(shapes)]
    return keras.Model(xs, layer()(*xs, **options))


CASES |= {
    "mha": lambda: _attention(lambda: MHA(2, 4), (5, 6), (7, 6)),
    "mha_key": lambda: _attention(lambda: MHA(2, 4, 3, use_bias=False), (5, 6), (7, 6), (7, 5)),
    "mha_causal": lambda: _attention(lambda: MHA(2, 4), (5, 6), (5, 6), use_causal_mask=True),
    "mha_scores": lambda: _attention(
        lambda: MHA(2, 4, output_shape=3), (5, 6), (7, 6), return_attention_scores=True
    ),
    "mha_open": lambda: _attention(lambda: MHA(2, 4), (None, 6), (None, 6)),
    "mha_axes": lambda: _attention(lambda: MHA(2, 4, attention_axes=(2,)), (3, 5, 6), (3, 7, 6)),
    "mha_both_axes": lambda: _attention(
        lambda: MHA(2, 4, attention_axes=(1, 2)), (3, 5, 6), (3, 2, 6)
    ),
    "gqa": lambda: _attention(lambda: L.GroupQueryAttention(4, 4, 2), (5, 6), (7, 6)),
    "gqa_causal": lambda: _attention(
        lambda: L.GroupQueryAttention(4, 4, 2), (5, 6), (5, 6), use_causal_mask=True
    ),
}


@many
def mha_mask() -> Any:
    x = keras.Input((5, 6), name="x")
    mask = keras.Input((5, 5), name="mask", dtype="bool")
    return keras.Model([x, mask], L.MultiHeadAttention(2, 4)(x, x, attention_mask=mask | True))


@many
def mha_masked_embedding() -> Any:
    q = keras.Input((5, 6), name="q")
    x = keras.Input((8,), name="x", dtype="int32")
    e = L.Embedding(11, 6, mask_zero=True)(x)
    return keras.Model([q, x], L.MultiHeadAttention(2, 4)(q, e))


def _pair(layer: Callable[[], Any], *shapes: tuple[Any, ...], **options: Any) -> Any:
    xs = [keras.Input(s, name=f"x{i}") for i, s in enumerate(shapes)]
    return keras.Model(xs, layer()(xs, **options))


A, B = (5, 6), (7, 6)
CASES |= {
    "attention": lambda: _pair(L.Attention, A, B),
    "attention_key": lambda: _pair(lambda: L.Attention(use_scale=True), A, B, B),
    "attention_concat": lambda: _pair(
        lambda: L.Attention(score_mode="concat", use_scale=True), A, B
    ),
    "attention_causal": lambda: _pair(L.Attention, A, A, use_causal_mask=True),
    "attention_scores": lambda: _pair(L.Attention, A, B, return_attention_scores=True),
    "additive_attention": lambda: _pair(L.AdditiveAttention, A, B),
    "additive_unscaled": lambda: _pair(lambda: L.AdditiveAttention(use_scale=False), A, B),
    "add": lambda: _pair(L.Add, A, A, A),
    "add_broadcast": lambda: _pair(L.Add, A, (5, 1)),
    "add_ranks": lambda: _pair(L.Add, A, (6,)),
    "subtract": lambda: _pair(L.Subtract, A, A),
    "multiply": lambda: _pair(L.Multiply, A, A),
    "average": lambda: _pair(L.Average, A, A, A),
    "maximum": lambda: _pair(L.Maximum, A, A),
    "minimum": lambda: _pair(L.Minimum, A, A),
    "concatenate": lambda: _pair(L.Concatenate, A, (5, 3)),
    "concatenate_axis": lambda: _pair(lambda: L.Concatenate(axis=1), A, B),
    "dot": lambda: _pair(lambda: L.Dot(axes=2), A, B),
    "dot_vectors": lambda: _pair(lambda: L.Dot(axes=1, normalize=True), (6,), (6,)),
    "dot_axes": lambda: _pair(lambda: L.Dot(axes=(1, 2)), (6, 4), (3, 6)),
}


@many
def masked_merge() -> Any:
    x, y = (keras.Input((8,), name=k, dtype="int32") for k in "xy")
    a, b = L.Embedding(11, 6, mask_zero=True)(x), L.Embedding(11, 6, mask_zero=True)(y)
    return keras.Model([x, y], [L.LSTM(3)(L.Add()([a, b])), L.GRU(3)(L.Concatenate()([a, b]))])


@many
def masked_pool() -> Any:
    x = keras.Input((8,), name="x", dtype="int32")
    e = L.Dense(4)(L.Dropout(0.1)(L.Embedding(11, 6, mask_zero=True)(x)))
    return keras.Model(x, L.GlobalAveragePooling1D()(e))


@many
def masking_lstm() -> Any:
    x = keras.Input((8, 3), name="x")
    gate = ops.cast(ops.greater(ops.mean(x, axis=-1, keepdims=True), 0.0), "float32")
    return keras.Model(x, L.LSTM(4)(L.Masking()(x * gate)))


# Structure
@many
def nested() -> Any:
    inner = keras.Sequential(
        [keras.Input((6,)), L.Dense(5, activation="relu"), L.BatchNormalization(), L.Dense(3)]
    )
    x, y = keras.Input((6,), name="x"), keras.Input((6,), name="y")
    deep = keras.Model(x, [inner(x), L.Dense(3)(x)])
    a, b = deep(y)
    return keras.Model([x, y], [L.Add()([inner(x), a]), b])


@many
def frozen_nested() -> Any:
    inner = keras.Sequential(
        [keras.Input((6,)), L.BatchNormalization(), L.Dense(3), L.BatchNormalization()]
    )
    inner.layers[1].trainable = False
    return keras.Sequential([keras.Input((6,), name="x"), inner, L.Dense(2)])


@many
def shared() -> Any:
    x, y = keras.Input((6,), name="x"), keras.Input((6,), name="y")
    layer = L.Dense(4)
    return keras.Model([x, y], [layer(x), layer(y), layer(x) + layer(y) * 2.0])


@many
def dictionaries() -> Any:
    x, y = keras.Input((6,), name="x"), keras.Input((6,), name="y")
    return keras.Model({"x": x, "y": y}, {"sum": L.Add()([x, y]), "difference": x - y})


@many
def input_is_output() -> Any:
    x = keras.Input((6,), name="x")
    return keras.Model(x, [x, L.Dense(2)(x)])


@many
def sequential_masks() -> Any:
    layers = [L.Embedding(11, 6, mask_zero=True), L.Dropout(0.1), L.LSTM(5, return_sequences=True)]
    return keras.Sequential([keras.Input((8,), name="x", dtype="int32"), *layers, L.GRU(4)])


@many
def sequential_masking() -> Any:
    layers = [L.Masking(), L.Bidirectional(L.LSTM(5, return_sequences=True)), L.Dense(3)]
    return keras.Sequential([keras.Input((8, 3), name="x"), *layers, L.GlobalAveragePooling1D()])


# Operations
for _name in [
    "abs",
    "absolute",
    "ceil",
    "floor",
    "sign",
    "negative",
    "cos",
    "cosh",
    "sin",
    "sinh",
    "tanh",
    "exp",
    "expm1",
    "erf",
    "square",
    "sigmoid",
    "relu",
    "softplus",
    "silu",
    "isnan",
    "isfinite",
    "logical_not",
    "arctan",
    "arcsinh",
    "round",
    "trunc",
    "relu6",
    "softsign",
    "selu",
    "hard_sigmoid",
    "log_sigmoid",
    "hard_silu",
    "tan",
    "exp2",
    "signbit",
]:
    if hasattr(ops, _name):
        op(f"op_{_name}", lambda x, k=_name: getattr(ops, k)(x))
for _name in ["log", "log10", "log1p", "log2", "sqrt", "rsqrt", "reciprocal", "arccosh"]:
    op(f"op_{_name}", lambda x, k=_name: getattr(ops, k)(ops.abs(x) + 1.0))
for _name in ["arccos", "arcsin", "arctanh", "erfinv"]:
    op(f"op_{_name}", lambda x, k=_name: getattr(ops, k)(ops.tanh(x) * 0.9))
for _name in [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "arctan2",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "equal",
    "not_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "true_divide",
    "floor_divide",
    "mod",
    "hypot",
]:
    if hasattr(ops, _name):
        op(f"op_{_name}", lambda x, y, k=_name: getattr(ops, k)(x, y), A, (1, 6))
for _name in [
    "sum",
    "mean",
    "max",
    "min",
    "prod",
    "std",
    "var",
    "any",
    "all",
    "argmax",
    "argmin",
    "logsumexp",
    "amax",
]:
    for _label, _axis in (("axis", 1), ("all", None), ("axes", (1, 2))):
        if not (_label == "axes" and _name in ("argmax", "argmin")):
            op(f"op_{_name}_{_label}", lambda x, k=_name, a=_axis: getattr(ops, k)(x, axis=a))
for _name in ["sum", "mean", "max", "std"]:
    op(f"op_{_name}_keep", lambda x, k=_name: getattr(ops, k)(x, axis=-1, keepdims=True))
op("op_numbers", lambda x: 2.0 - x / 3 + (x**2) * 0.5)
op("op_integers", lambda x: (x + 3) * 2 - x // 2 + x % 3, dtype="int32")
op("op_int_to_float", lambda x: x / 2 + ops.mean(x, axis=-1, keepdims=True), dtype="int32")
op("op_power", lambda x, y: ops.power(ops.abs(x) + 0.1, y), A, A)
op("op_clip", lambda x: ops.clip(x, -0.5, 0.5))
op("op_where", lambda x, y: ops.where(x > y, x, y * 2.0), A, A)
op("op_cast", lambda x: ops.cast(x * 10.0, "int32"))
op("op_reshape", lambda x: ops.reshape(x, (-1, 3, 8)))
op("op_transpose", lambda x: ops.transpose(x, (0, 2, 1)))
op("op_swapaxes", lambda x: ops.swapaxes(x, 1, -1))
op("op_moveaxis", lambda x: ops.moveaxis(x, 2, 1))
op("op_expand_squeeze", lambda x: ops.squeeze(ops.expand_dims(x, -2), -2) + 1.0)
op("op_concatenate", lambda x, y: ops.concatenate([x, y], axis=1), A, B)
op("op_stack", lambda x, y: ops.stack([x, y], axis=1), A, A)
op("op_split", lambda x: ops.split(x, 3, axis=-1))
op("op_split_at", lambda x: ops.split(x, [2, 3], axis=-1))
op("op_unstack", lambda x: ops.unstack(x, axis=1))
op("op_flip", lambda x: ops.flip(x, axis=1))
op("op_roll", lambda x: ops.roll(x, 2, axis=1))
op("op_pad", lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 1))))
op("op_pad_reflect", lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 1)), mode="reflect"))
op("op_tile", lambda x: ops.tile(x, (1, 2, 3)))
op("op_repeat", lambda x: ops.repeat(x, 3, axis=1))
op("op_broadcast", lambda x: ops.broadcast_to(x[:, :1], (3, 4, 6)))
op("op_tril", lambda x: ops.tril(x) + ops.triu(x, 1))
op("op_cumsum", lambda x: ops.cumsum(x, axis=1) + ops.cumprod(x, axis=2))
op("op_sort", lambda x: ops.sort(x, axis=-1))
op("op_argsort", lambda x: ops.argsort(x, axis=-1))
op("op_top_k", lambda x: ops.top_k(x, 3))
op("op_take", lambda x: ops.take(x, [2, 0], axis=1))
op("op_take_along", lambda x: ops.take_along_axis(x, ops.argsort(x, axis=-1), axis=-1))
op("op_one_hot", lambda x: ops.one_hot(x, 11), (4,), dtype="int32")
op("op_getitem", lambda x: x[:, 1:3, ::2])
op("op_getitem_int", lambda x: x[:, -1] + x[:, 0])
op("op_getitem_new", lambda x: x[:, None, ..., 1:])
op("op_getitem_last", lambda x: x[..., -2:])
op("op_matmul", lambda x, y: ops.matmul(x, ops.transpose(y, (0, 2, 1))), A, B)
op("op_einsum", lambda x, y: ops.einsum("bij,bkj->bik", x, y), A, B)
op("op_tensordot", lambda x: ops.tensordot(x, np.ones((6, 3), "f"), axes=1))
op("op_dot", lambda x: ops.dot(x, np.ones((6, 3), "f")))
op("op_softmax", lambda x: ops.softmax(x, axis=1) + ops.log_softmax(x, axis=-1))
op("op_gelu", lambda x: ops.gelu(x) + ops.gelu(x, approximate=False) + ops.leaky_relu(x))
op("op_elu", lambda x: ops.elu(x) + ops.celu(x, 0.5) + ops.silu(x))
op("op_zeros_like", lambda x: ops.zeros_like(x) + ops.ones_like(x) + ops.full_like(x, 3))
op("op_resize", lambda x: ops.image.resize(x, (7, 5)), IMAGE)
op("op_diff", lambda x: ops.diff(x, axis=-1))
op("op_array", lambda x: x * np.arange(6, dtype="f") + np.ones((4, 1), "f"))
op(
    "op_attention",
    lambda q, k, v: ops.dot_product_attention(q, k, v),
    (5, 2, 4),
    (7, 2, 4),
    (7, 2, 4),
)
op("op_diagonal", lambda x: ops.diagonal(x, axis1=1, axis2=2))
op("op_isinf", lambda x: ops.isinf(x / ops.zeros_like(x)))
op("op_fmod", lambda x: ops.cbrt(x) + ops.deg2rad(x) + ops.rad2deg(x))
