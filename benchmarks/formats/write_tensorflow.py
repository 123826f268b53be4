#!/usr/bin/env python3
"""Write TensorFlow models with expected results, for `check.py`:
`python benchmarks/formats/write_tensorflow.py FOLDER [--models]`, where TensorFlow is installed.

Operators are frozen graphs, some of them SavedModels too.  `--models` writes whole networks of
keras.applications with random weights instead, each as a SavedModel and as a frozen graph.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

raw = tf.raw_ops
RNG = np.random.default_rng(0)


UNARY = (
    "Abs Acos Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor Inv IsFinite "
    "IsInf IsNan Log Log1p LogSoftmax Neg Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid "
    "Sign Sin Sinh Softmax Softplus Softsign Sqrt Square Tan Tanh "
)

BINARY = (
    "Add AddV2 Sub Mul RealDiv Div Maximum Minimum Pow FloorDiv FloorMod SquaredDifference "
    "Atan2 DivNoNan MulNoNan Xdivy Xlogy Xlog1py Less LessEqual Greater GreaterEqual Equal "
    "NotEqual "
)


class Case(NamedTuple):
    name: str
    function: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    is_open: bool = False
    form: str = "pb"


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def u(*shape: int) -> np.ndarray:
    return RNG.uniform(0.1, 0.9, shape).astype(np.float32)


def i(high: int, *shape: int, low: int = 0) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


def elementwise() -> Iterator[Case]:
    for name in UNARY.split():
        arg = {
            "Elu": "features", "LogSoftmax": "logits", "Relu": "features", "Relu6": "features",
            "Selu": "features", "Softmax": "logits", "Softplus": "features", "Softsign": "features",
        }.get(name, "x")  # fmt: skip
        yield Case(name, lambda x, n=name, a=arg: getattr(raw, n)(**{a: x}), (u(2, 5),))
        if name in ("Abs", "Neg", "Sign", "Relu", "Elu", "Floor", "Round", "Expm1", "Softplus"):
            yield Case(
                name + "_signed", lambda x, n=name, a=arg: getattr(raw, n)(**{a: x}), (f(2, 5) * 3,)
            )
    yield Case("Acosh", lambda x: tf.acosh(x), (u(4) + 1,))
    yield Case("LeakyRelu", lambda x: tf.nn.leaky_relu(x, 0.3), (f(3, 4),))
    yield Case("gelu", lambda x: tf.nn.gelu(x), (f(3, 4),))
    yield Case("silu", lambda x: tf.nn.silu(x), (f(3, 4),))
    for name in BINARY.split():
        two = ("y", "x") if name == "Atan2" else ("x", "y")
        call = lambda x, y, n=name, t=two: getattr(raw, n)(**{t[0]: x, t[1]: y})  # noqa: E731
        yield Case(name, call, (u(2, 3), u(2, 3)))
        if name in ("AddV2", "Mul", "RealDiv", "FloorDiv", "FloorMod", "Maximum", "Pow"):
            yield Case(name + "_broadcast", call, (u(2, 1, 3), u(4, 1)))
    for name in ("AddV2", "Mul", "FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Maximum"):
        call = lambda x, y, n=name: getattr(raw, n)(x=x, y=y)  # noqa: E731
        yield Case(name + "_ints", call, (i(20, 8, low=-20), i(9, 8, low=1)))
    for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"):
        yield Case(name, lambda x, y, n=name: getattr(raw, n)(x=x, y=y), (i(99, 6), i(9, 6)))
    yield Case("Invert", lambda x: raw.Invert(x=x), (i(99, 6),))
    yield Case("LogicalAnd", lambda x, y: (x > 0) & (y > 0), (f(6), f(6)))
    yield Case("LogicalOr", lambda x, y: (x > 0) | (y > 0), (f(6), f(6)))
    yield Case("LogicalNot", lambda x: ~(x > 0), (f(6),))
    yield Case(
        "Select", lambda c, x, y: raw.Select(condition=c > 0, x=x, y=y), (f(3), f(3, 2), f(3, 2))
    )
    yield Case("SelectV2", lambda c, x, y: tf.where(c > 0, x, y), (f(3, 1), f(3, 2), f(2)))
    yield Case("AddN", lambda x, y: tf.add_n([x, y, x]), (f(3), f(3)))
    yield Case("Cast_int", lambda x: tf.cast(x * 5, tf.int32), (f(6),))
    yield Case("Cast_bool", lambda x: tf.cast(x, tf.bool), (i(2, 6),))
    yield Case("Cast_half", lambda x: tf.cast(tf.cast(x, tf.float16), tf.float32), (f(6),))
    yield Case("Bitcast", lambda x: tf.bitcast(x, tf.int32), (f(6),))
    yield Case(
        "ClipByValue",
        lambda x: raw.ClipByValue(t=x, clip_value_min=-0.5, clip_value_max=0.5),
        (f(6),),
    )
    yield Case("Cross", lambda x, y: tf.linalg.cross(x, y), (f(4, 3), f(4, 3)))
    yield Case(
        "ApproximateEqual", lambda x, y: raw.ApproximateEqual(x=x, y=y, tolerance=0.5), (f(9), f(9))
    )


def images() -> Iterator[Case]:
    for padding in ("SAME", "VALID"):
        for stride in (1, 2):
            for dilation in (1, 2):
                if stride > 1 and dilation > 1:
                    continue
                yield Case(
                    f"Conv2D_{padding}_{stride}_{dilation}",
                    lambda x, w, p=padding, s=stride, d=dilation: tf.nn.conv2d(
                        x, w, s, p, dilations=d
                    ),
                    (f(2, 9, 8, 3), f(3, 2, 3, 4)), stride == 1,
                )  # fmt: skip
            yield Case(
                f"DepthwiseConv2dNative_{padding}_{stride}",
                lambda x, w, p=padding, s=stride: tf.nn.depthwise_conv2d(x, w, [1, s, s, 1], p),
                (f(2, 9, 8, 3), f(3, 3, 3, 2)),
            )
            yield Case(
                f"Conv2DBackpropInput_{padding}_{stride}",
                lambda x, w, p=padding, s=stride: tf.nn.conv2d_transpose(
                    x, w, [2, *(e * s + (p == "VALID") * max(3 - s, 0) for e in (5, 4)), 4], s, p
                ),
                (f(2, 5, 4, 3), f(3, 3, 4, 3)),
            )  # fmt: skip
            yield Case(
                f"Conv3D_{padding}_{stride}",
                lambda x, w, p=padding, s=stride: tf.nn.conv3d(x, w, [1, s, s, s, 1], p),
                (f(1, 5, 6, 7, 2), f(2, 3, 2, 2, 3)),
            )
            for name, pool in (("Max", tf.nn.max_pool2d), ("Avg", tf.nn.avg_pool2d)):
                yield Case(
                    f"{name}Pool_{padding}_{stride}",
                    lambda x, p=padding, s=stride, o=pool: o(x, 3, s, p), (f(2, 7, 8, 3),), True,
                )  # fmt: skip
    yield Case(
        "Conv2D_explicit",
        lambda x, w: tf.nn.conv2d(x, w, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]),
        (f(1, 6, 6, 2), f(3, 3, 2, 2)),
    )
    yield Case(
        "Conv2D_groups",
        lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"),
        (f(1, 6, 6, 4), f(3, 3, 2, 6)),
        False,
        "saved",
    )
    yield Case(
        "Conv2D_same_open",
        lambda x, w: tf.nn.conv2d(x, w, 2, "SAME"),
        (f(1, 7, 6, 4), f(3, 3, 4, 6)),
        True,
    )
    yield Case("Conv1D", lambda x, w: tf.nn.conv1d(x, w, 2, "SAME"), (f(2, 9, 3), f(3, 3, 4)))
    yield Case("MaxPool3D", lambda x: tf.nn.max_pool3d(x, 2, 2, "SAME"), (f(1, 5, 6, 7, 2),))
    yield Case("AvgPool3D", lambda x: tf.nn.avg_pool3d(x, 2, 2, "SAME"), (f(1, 5, 6, 7, 2),))
    yield Case(
        "MaxPoolWithArgmax",
        lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "VALID"),
        (f(2, 6, 4, 3),),
    )
    yield Case(
        "MaxPoolWithArgmax_batch",
        lambda x: tf.nn.max_pool_with_argmax(x, 3, 2, "SAME", include_batch_in_index=True),
        (f(2, 6, 4, 3),),
    )
    yield Case("BiasAdd", lambda x, b: tf.nn.bias_add(x, b), (f(2, 3, 4, 5), f(5)))
    yield Case("BiasAdd_first", lambda x, b: tf.nn.bias_add(x, b, "NCHW"), (f(2, 5, 3, 4), f(5)))
    yield Case(
        "FusedBatchNormV3",
        lambda x, s, o, m, v: (
            raw.FusedBatchNormV3(
                x=x, scale=s, offset=o, mean=m, variance=v, is_training=False, epsilon=1e-3
            ).y
        ),
        (f(2, 3, 4, 5), u(5), f(5), f(5), u(5)),
    )
    yield Case(
        "FusedBatchNorm_training",
        lambda x, s, o: (
            raw.FusedBatchNormV3(x=x, scale=s, offset=o, mean=[], variance=[], is_training=True).y
        ),
        (f(4, 3, 4, 5), u(5), f(5)),
    )
    yield Case("LRN", lambda x: tf.nn.lrn(x, 2, 1.5, 0.2, 0.7), (f(2, 3, 3, 8),))
    yield Case(
        "SpaceToBatchND", lambda x: tf.space_to_batch(x, [2, 2], [[1, 1], [0, 2]]), (f(2, 4, 4, 3),)
    )
    yield Case(
        "BatchToSpaceND", lambda x: tf.batch_to_space(x, [2, 2], [[1, 0], [0, 1]]), (f(8, 3, 3, 3),)
    )
    yield Case("SpaceToDepth", lambda x: tf.nn.space_to_depth(x, 2), (f(2, 4, 6, 3),), True)
    yield Case("DepthToSpace", lambda x: tf.nn.depth_to_space(x, 2), (f(2, 4, 6, 8),), True)
    for name in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"):
        for corners, centres in ((False, False), (True, False), (False, True)):
            for size in ((9, 11), (3, 4)):
                yield Case(
                    f"{name}_{corners}_{centres}_{size[0]}",
                    lambda x, n=name, a=corners, h=centres, s=size: getattr(raw, n)(
                        images=x, size=s, align_corners=a, half_pixel_centers=h
                    ),
                    (f(2, 5, 7, 3),),
                )
    boxes = np.sort(u(5, 2, 2), 1).transpose(0, 1, 2).reshape(5, 4).astype(np.float32)
    for method in ("bilinear", "nearest"):
        yield Case(
            f"CropAndResize_{method}",
            lambda x, b, m=method: tf.image.crop_and_resize(
                x, b * 1.3 - 0.1, [0, 1, 0, 1, 1], [3, 4], m, 0.5
            ),
            (f(2, 6, 7, 3), boxes),
        )  # fmt: skip
    square = RNG.uniform(0, 10, (20, 2)).astype(np.float32)
    corners = np.concatenate([square, square + 3], 1)
    yield Case(
        "NonMaxSuppressionV3",
        lambda b, s: tf.image.non_max_suppression(b, s, 8, 0.3, 0.2),
        (corners, u(20)),
    )
    yield Case(
        "NonMaxSuppressionV4",
        lambda b, s: tf.image.non_max_suppression_padded(
            b, s, 25, 0.3, 0.2, pad_to_max_output_size=True
        ),
        (corners, u(20)),
    )
    yield Case(
        "NonMaxSuppressionV5",
        lambda b, s: tf.image.non_max_suppression_with_scores(b, s, 8, 0.3, 0.2),
        (corners, u(20)),
    )
    yield Case("adjust", lambda x: tf.image.adjust_contrast(x, 1.5), (u(2, 4, 4, 3),))


def mathematics() -> Iterator[Case]:
    yield Case("MatMul", lambda x, y: tf.matmul(x, y), (f(3, 4), f(4, 5)), True)
    yield Case("MatMul_transposed", lambda x, y: tf.matmul(x, y, True, True), (f(4, 3), f(5, 4)))
    yield Case("BatchMatMulV2", lambda x, y: tf.matmul(x, y), (f(2, 1, 3, 4), f(5, 4, 2)))
    yield Case(
        "BatchMatMulV2_adjoint",
        lambda x, y: tf.matmul(x, y, adjoint_b=True),
        (f(2, 3, 4), f(2, 5, 4)),
        True,
    )
    yield Case("Einsum", lambda x, y: tf.einsum("bij,bkj->bik", x, y), (f(2, 3, 4), f(2, 5, 4)))
    yield Case(
        "Einsum_dots", lambda x, y: tf.einsum("...ij,jk->...ik", x, y), (f(2, 3, 4), f(4, 5))
    )
    yield Case(
        "tensordot", lambda x, y: tf.tensordot(x, y, [[2], [0]]), (f(2, 3, 4), f(4, 5)), True
    )
    for name in ("sum", "mean", "max", "min", "prod"):
        op = getattr(tf, f"reduce_{name}")
        yield Case(f"reduce_{name}", lambda x, o=op: o(x, [0, 2]), (f(2, 3, 4),), True)
        yield Case(f"reduce_{name}_keep", lambda x, o=op: o(x, -1, keepdims=True), (f(2, 3, 4),))
        yield Case(f"reduce_{name}_all", lambda x, o=op: o(x), (f(2, 3, 4),))
    yield Case("reduce_any", lambda x: tf.reduce_any(x > 1, 1), (f(4, 3),))
    yield Case("reduce_all", lambda x: tf.reduce_all(x > -1, 1), (f(4, 3),))
    yield Case("reduce_sum_ints", lambda x: tf.reduce_sum(x, 1), (i(9, 4, 3),))
    yield Case("reduce_logsumexp", lambda x: tf.reduce_logsumexp(x, 1), (f(4, 3),))
    yield Case("reduce_variance", lambda x: tf.math.reduce_variance(x, 1), (f(4, 3),))
    yield Case("EuclideanNorm", lambda x: tf.math.reduce_euclidean_norm(x, 1), (f(4, 3),))
    yield Case("l2_normalize", lambda x: tf.math.l2_normalize(x, -1), (f(4, 3),))
    yield Case("moments", lambda x: tf.nn.moments(x, [0, 1]), (f(4, 3, 5),))
    for exclusive in (False, True):
        for reverse in (False, True):
            yield Case(
                f"Cumsum_{exclusive}_{reverse}",
                lambda x, e=exclusive, r=reverse: tf.cumsum(x, 1, e, r),
                (f(2, 5, 3),),
            )
    yield Case("Cumprod", lambda x: tf.math.cumprod(x, -1), (f(2, 5),))
    yield Case("L2Loss", lambda x: tf.nn.l2_loss(x), (f(2, 5),))
    yield Case("SegmentSum", lambda x: tf.math.segment_sum(x, [0, 0, 1, 3]), (f(4, 3),))
    for name in ("sum", "max", "min", "prod"):
        op = getattr(tf.math, f"unsorted_segment_{name}")
        yield Case(f"unsorted_segment_{name}", lambda x, o=op: o(x, [2, 0, 2, 0], 3), (f(4, 3),))
    yield Case(
        "unsorted_segment_mean",
        lambda x: tf.math.unsorted_segment_mean(x, [2, 0, 2, 0], 3),
        (f(4, 3),),
    )
    yield Case("Bincount", lambda x: tf.math.bincount(x, minlength=6, maxlength=6), (i(6, 12),))
    yield Case("softmax_axis", lambda x: tf.nn.softmax(x, 1), (f(2, 3, 4),))


def shapes() -> Iterator[Case]:
    yield Case("Reshape", lambda x: tf.reshape(x, [4, -1]), (f(2, 3, 4),), True)
    yield Case(
        "Reshape_computed", lambda x: tf.reshape(x, [tf.shape(x)[0], -1]), (f(2, 3, 4),), True
    )
    yield Case("Squeeze", lambda x: tf.squeeze(x, [0, 2]), (f(1, 3, 1, 4),))
    yield Case("Squeeze_all", lambda x: tf.squeeze(x), (f(1, 3, 1, 4),))
    yield Case("ExpandDims", lambda x: tf.expand_dims(x, -2), (f(3, 4),), True)
    yield Case("Transpose", lambda x: tf.transpose(x, [2, 0, 1]), (f(2, 3, 4),), True)
    yield Case("Pack", lambda x, y: tf.stack([x, y], 1), (f(2, 3), f(2, 3)))
    yield Case("Unpack", lambda x: tf.unstack(x, axis=1), (f(2, 3, 4),))
    yield Case("ConcatV2", lambda x, y: tf.concat([x, y, x], 1), (f(2, 3), f(2, 1)), True)
    yield Case("Split", lambda x: tf.split(x, 3, 1), (f(2, 6),), True)
    yield Case("SplitV", lambda x: tf.split(x, [1, -1, 2], 1), (f(2, 6),))
    yield Case("Tile", lambda x: tf.tile(x, [2, 3]), (f(2, 3),), True)
    yield Case("BroadcastTo", lambda x: tf.broadcast_to(x, [4, 2, 3]), (f(2, 1),))
    yield Case("Shape", lambda x: tf.shape(x), (f(2, 3),), True)
    yield Case("Shape_long", lambda x: tf.shape(x, tf.int64) + 1, (f(2, 3),), True)
    yield Case("ShapeN", lambda x, y: raw.ShapeN(input=[x, y]), (f(2, 3), f(4)))
    yield Case("Size", lambda x: tf.size(x) + 0, (f(2, 3),), True)
    yield Case("Rank", lambda x: tf.rank(x) + tf.cast(x[0], tf.int32), (f(3),))
    yield Case("Fill", lambda x: tf.fill(tf.shape(x), 2.5), (f(2, 3),), True)
    yield Case("ZerosLike", lambda x: tf.zeros_like(x) + 1, (f(2, 3),), True)
    yield Case("OnesLike", lambda x: raw.OnesLike(x=x), (f(2, 3),), True)
    yield Case("Range", lambda x: tf.range(tf.shape(x)[0]) * 2, (f(4),), True)
    yield Case("Range_floats", lambda x: tf.range(0.0, 2.0, 0.3) + x, (f(1),))
    yield Case("LinSpace", lambda x: tf.linspace(x[0], x[1], 7), (f(2),))
    yield Case("Slice", lambda x: tf.slice(x, [1, 0], [-1, 2]), (f(3, 4),))
    slices: dict[str, Callable[[Any], Any]] = {
        "plain": lambda x: x[1:3, ::2],
        "back": lambda x: x[::-1, 3:0:-2],
        "index": lambda x: x[1, ..., None],
        "last": lambda x: x[..., -1],
        "new": lambda x: x[:, None, :, 1:],
        "open": lambda x: x[: tf.shape(x)[0] - 1],
    }
    for name, cut in slices.items():
        yield Case(f"StridedSlice_{name}", cut, (f(4, 5, 3),), name in ("open", "last", "new"))
    yield Case("Pad", lambda x: tf.pad(x, [[1, 0], [2, 1]]), (f(2, 3),), True)
    yield Case("PadV2", lambda x: tf.pad(x, [[1, 0], [2, 1]], constant_values=1.5), (f(2, 3),))
    yield Case("MirrorPad", lambda x: tf.pad(x, [[1, 0], [2, 1]], "REFLECT"), (f(2, 3),))
    yield Case(
        "MirrorPad_symmetric", lambda x: tf.pad(x, [[1, 0], [2, 1]], "SYMMETRIC"), (f(2, 3),)
    )
    yield Case("ReverseV2", lambda x: tf.reverse(x, [1]), (f(2, 3),))
    yield Case("ReverseSequence", lambda x: tf.reverse_sequence(x, [2, 3], 1, 0), (f(2, 4, 3),))
    yield Case("Roll", lambda x: tf.roll(x, [1, -2], [0, 1]), (f(3, 4),))
    yield Case(
        "InvertPermutation",
        lambda x: tf.math.invert_permutation(x),
        (RNG.permutation(6).astype(np.int32),),
    )
    yield Case("meshgrid", lambda x, y: tf.meshgrid(x, y), (f(3), f(4)))
    yield Case("sequence_mask", lambda x: tf.sequence_mask(x, 5), (i(5, 3),))


def selection() -> Iterator[Case]:
    yield Case("GatherV2", lambda x, j: tf.gather(x, j, axis=1), (f(2, 5, 3), i(5, 4)), True)
    yield Case(
        "GatherV2_batch",
        lambda x, j: tf.gather(x, j, axis=1, batch_dims=1),
        (f(2, 5, 3), i(5, 2, 4)),
    )
    yield Case("GatherNd", lambda x, j: tf.gather_nd(x, j), (f(4, 4, 2), i(4, 3, 2)))
    yield Case("GatherNd_batch", lambda x, j: tf.gather_nd(x, j, 1), (f(3, 4, 2), i(4, 3, 1)))
    yield Case("ScatterNd", lambda j, x: tf.scatter_nd(j, x, [5, 2]), (i(5, 4, 1), f(4, 2)))
    for name in ("update", "add", "sub", "max", "min"):
        op = getattr(tf, f"tensor_scatter_nd_{name}")
        yield Case(
            f"tensor_scatter_{name}", lambda x, y, o=op: o(x, [[1], [3]], y), (f(5, 2), f(2, 2))
        )
    yield Case("TopKV2", lambda x: tf.math.top_k(x, 3), (f(2, 7),))
    yield Case("Where", lambda x: tf.where(x > 0), (f(4, 3),))
    yield Case("boolean_mask", lambda x: tf.boolean_mask(x, x[:, 0] > 0), (f(6, 3),))
    yield Case("OneHot", lambda x: tf.one_hot(x, 5), (i(7, 6),))
    yield Case("OneHot_axis", lambda x: tf.one_hot(x, 5, 2.0, -1.0, 0), (i(5, 6),))
    yield Case("ArgMax", lambda x: tf.argmax(x, 1), (f(3, 5),), True)
    yield Case("ArgMin", lambda x: tf.argmin(x, 0, tf.int32), (f(3, 5),))
    yield Case("Unique", lambda x: tf.unique(x), (i(5, 12),))
    yield Case("Bucketize", lambda x: raw.Bucketize(input=x, boundaries=[-1.0, 0.0, 0.5]), (f(9),))
    yield Case("searchsorted", lambda x, y: tf.searchsorted(x, y), (np.sort(f(2, 6)), f(2, 4)))
    yield Case(
        "searchsorted_right",
        lambda x, y: tf.searchsorted(x, y, "right"),
        (np.sort(f(2, 6)), f(2, 4)),
    )
    yield Case("in_top_k", lambda x, y: tf.math.in_top_k(y, x, 2), (f(4, 6), i(6, 4)))
    yield Case("sort", lambda x: tf.sort(x, 1), (f(3, 6),))
    yield Case("argsort", lambda x: tf.argsort(x, 1, "DESCENDING"), (f(3, 6),))
    yield Case("MatrixBandPart", lambda x: tf.linalg.band_part(x, 1, -1), (f(2, 4, 5),))
    yield Case("MatrixDiag", lambda x: tf.linalg.diag(x), (f(2, 4),))
    yield Case("MatrixDiagPart", lambda x: tf.linalg.diag_part(x), (f(2, 4, 5),))
    yield Case("MatrixSetDiag", lambda x, d: tf.linalg.set_diag(x, d), (f(2, 4, 5), f(2, 4)))
    yield Case(
        "embedding", lambda j: tf.nn.embedding_lookup(tf.constant(f(9, 4)), j), (i(9, 2, 3),), True
    )


def control() -> Iterator[Case]:
    def choose(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)

    def nested(x: Any) -> Any:
        inner = lambda: tf.cond(tf.reduce_max(x) > 1, lambda: x * 2, lambda: x * 3)  # noqa: E731
        return tf.cond(tf.reduce_sum(x) > 0, inner, lambda: x - 1)

    def count(x: Any) -> Any:
        return tf.while_loop(lambda k, y: k < 5, lambda k, y: (k + 1, y * 1.5 + x), (0, x))[1]

    def until(x: Any) -> Any:
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 50, lambda y: (y * 2,), (tf.abs(x),))[0]

    def inner_loop(x: Any) -> Any:
        def step(k: Any, y: Any) -> Any:
            z = tf.while_loop(lambda j, z: j < k, lambda j, z: (j + 1, z + y), (0, y))[1]
            return k + 1, tf.cond(tf.reduce_sum(z) > 3, lambda: z * 0.5, lambda: z)

        return tf.while_loop(lambda k, y: k < 4, step, (0, x))[1]

    def collected(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, size=tf.shape(x)[0])
        body = lambda k, r: (k + 1, r.write(k, x[k] * 2))  # noqa: E731
        _, rows = tf.while_loop(lambda k, r: k < tf.shape(x)[0], body, (0, rows))
        return rows.stack()

    def case(x: Any, k: Any) -> Any:
        return tf.switch_case(k, [lambda: x, lambda: x * 2, lambda: x + 5])

    named = {
        "If": choose,
        "If_nested": nested,
        "While": count,
        "While_until": until,
        "While_inner": inner_loop,
        "TensorList": collected,
    }
    for name, function in named.items():
        for form in ("pb", "v1", "saved"):
            yield Case(f"{name}_{form}", function, (f(3, 4),), False, form)
            yield Case(f"{name}_{form}_other", function, (-np.abs(f(3, 4)),), False, form)
    for k in (0, 1, 2):
        yield Case(f"Case_{k}", case, (f(3, 4), np.array(k, np.int32)))
    yield Case("map_fn", lambda x: tf.map_fn(lambda r: tf.reduce_sum(r) * r, x), (f(5, 3),), True)
    yield Case("scan", lambda x: tf.scan(lambda a, r: a * 0.5 + r, x), (f(5, 3),))
    yield Case("foldl", lambda x: tf.foldl(lambda a, r: a * 0.5 + r, x), (f(5, 3),))
    for cell in ("LSTM", "GRU", "SimpleRNN"):
        layer = getattr(tf.keras.layers, cell)(4, return_sequences=True)
        layer.build((None, 6, 3))
        yield Case(f"{cell}", lambda x, c=layer: c(x), (f(2, 6, 3),), True, "saved")
        yield Case(f"{cell}_v1", lambda x, c=layer: c(x), (f(2, 6, 3),), False, "v1")
    both = tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(4))
    both.build((None, 6, 3))
    yield Case("Bidirectional", lambda x: both(x), (f(2, 6, 3),), True, "saved")
    heads = tf.keras.layers.MultiHeadAttention(2, 4)
    heads.build((None, 5, 8), (None, 5, 8))
    yield Case("MultiHeadAttention", lambda x: heads(x, x), (f(2, 5, 8),), True, "saved")


FAMILIES = (elementwise, images, mathematics, shapes, selection, control)


class Module(tf.Module):
    def __init__(self, function: Any, kept: Any) -> None:
        super().__init__()
        self.kept = kept
        self.call = function


def write(folder: Path, case: Case) -> None:
    """Write one case: its model, inputs and expected outputs."""
    path = folder / case.name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    names = case.function.__code__.co_varnames[: len(case.inputs)]
    specs = [tf.TensorSpec(a.shape, a.dtype, n) for n, a in zip(names, case.inputs, strict=True)]
    if case.is_open:  # channels, weights and other operands keep their sizes
        shape = [None] * case.inputs[0].ndim
        if len(shape) > 2:
            shape[-1] = case.inputs[0].shape[-1]
        specs[0] = tf.TensorSpec(shape, case.inputs[0].dtype, names[0])
    function = tf.function(case.function, input_signature=specs)
    results = function(*map(tf.constant, case.inputs))
    if case.form == "saved":
        held = [c.cell_contents for c in case.function.__closure__ or ()]
        kept = [d for d in (*(case.function.__defaults__ or ()), *held) if hasattr(d, "weights")]
        kept = [w.value for d in kept for w in d.weights]
        module = Module(tf.function(lambda *a: named(function(*a)), input_signature=specs), kept)
        tf.saved_model.save(module, str(path / "model.saved"), module.call)
    else:
        concrete = function.get_concrete_function()
        frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=case.form == "v1")
        (path / "model.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    save(path, dict(zip(names, case.inputs, strict=True)), results)


def named(results: Any) -> dict[str, Any]:
    return {f"output_{k}": t for k, t in enumerate(tf.nest.flatten(results))}


def save(path: Path, inputs: dict[str, np.ndarray], results: Any) -> None:
    arrays = {f"input:{n}": a for n, a in inputs.items()}
    arrays |= {f"output:{k}": t.numpy() for k, t in enumerate(tf.nest.flatten(results))}
    np.savez(path / "io.npz", **arrays)


NETWORKS = (
    "MobileNetV2", "MobileNetV3Small", "ResNet50", "ResNet50V2", "EfficientNetB0", "DenseNet121",
    "InceptionV3", "Xception", "NASNetMobile", "VGG16", "ConvNeXtTiny", "EfficientNetV2B0",
    "MobileNet", "InceptionResNetV2",
)  # fmt: skip


def write_network(folder: Path, name: str) -> None:
    """Write a network as a SavedModel and as a frozen graph."""
    tf.keras.utils.set_random_seed(1)
    size = 75 if name in ("InceptionV3", "InceptionResNetV2", "Xception") else 64
    sizes = {"NASNetMobile": 224, "VGG16": 48}
    size = sizes.get(name, size)
    model = getattr(tf.keras.applications, name)(weights=None, input_shape=(size, size, 3))
    for w in model.weights:  # statistics that are not those of a new network
        if "moving_mean" in w.path or "beta" in w.path:
            w.assign(RNG.normal(0, 0.1, w.shape))
        if "moving_variance" in w.path or "gamma" in w.path:
            w.assign(RNG.uniform(0.7, 1.3, w.shape))
    x = (RNG.uniform(0, 1, (2, size, size, 3)) * 255).astype(np.float32)
    wanted = model(x, training=False)
    for form in ("saved", "pb"):
        path = folder / f"{name}_{form}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        if form == "saved":
            model.export(str(path / "model.saved"), verbose=False)
            (key,) = (
                tf.saved_model.load(str(path / "model.saved"))
                .signatures["serving_default"]
                .structured_input_signature[1]
            )
        else:
            key = "x"
            spec = tf.TensorSpec([None, size, size, 3], tf.float32, "x")
            concrete = tf.function(lambda x: model(x, training=False)).get_concrete_function(spec)
            frozen = convert_variables_to_constants_v2(concrete)
            (path / "model.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
        save(path, {key: x}, [wanted])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.models:
        for name in NETWORKS:
            if options.only in name:
                write_network(options.folder, name)
        return
    cases = [c for family in FAMILIES for c in family() if options.only in c.name]
    for case in cases:
        try:
            write(options.folder, case)
        except Exception as e:  # a case that this version of TensorFlow refuses
            print(f"{case.name}: {type(e).__name__}: {str(e)[:200]}", flush=True)
            shutil.rmtree(options.folder / case.name, ignore_errors=True)
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
