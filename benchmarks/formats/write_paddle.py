# ruff: noqa: E402, E501
"""Write Paddle models, in both forms, and the results that Paddle computes for them.

Run with Paddle 3: `python write_paddle.py FOLDER [PART OF A NAME]`.  Each case is
FOLDER/CASE-FORM/model.json or model.pdmodel, model.pdiparams and io.npz.
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path

FORMS = {"pir": "1", "program": "0"}
if len(sys.argv) < 4:
    arguments = [*sys.argv[1:], ""][:2]
    for form, flag in FORMS.items():
        environment = {**os.environ, "FLAGS_enable_pir_api": flag}
        subprocess.run([sys.executable, __file__, *arguments, form], env=environment, check=True)
    sys.exit()

warnings.filterwarnings("ignore")
import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

RANDOM = np.random.RandomState(0)


def floats(*shape, low=-1.0, high=1.0):
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def whole(*shape, below=5, dtype=np.int64):
    return RANDOM.randint(0, below, shape).astype(dtype)


class Made(nn.Layer):
    """A layer that computes a function of tensors, with layers that have weights."""

    def __init__(self, function, parts):
        super().__init__()
        self.parts = nn.LayerList(parts)
        self.function = function

    def forward(self, *inputs):
        return self.function(*self.parts, *inputs)


class Of1(Made):
    def forward(self, a):
        return self.function(*self.parts, a)


class Of2(Made):
    def forward(self, a, b):
        return self.function(*self.parts, a, b)


class Of3(Made):
    def forward(self, a, b, c):
        return self.function(*self.parts, a, b, c)


def write(folder, name, function, inputs, parts=(), opened=False):
    model = {1: Of1, 2: Of2, 3: Of3}[len(inputs)](function, parts)
    model.eval()
    for p in model.parameters():
        p.set_value(floats(*p.shape, low=-0.5, high=0.5))
    for key, value in model.state_dict().items():
        if key.endswith("_variance"):
            value.set_value(floats(*value.shape, low=0.5, high=1.5))
    names = [f"x{i}" for i in range(len(inputs))]
    specs = [
        paddle.static.InputSpec(
            [None if opened and i == 0 else d for i, d in enumerate(v.shape)], str(v.dtype), k
        )
        for k, v in zip(names, inputs)
    ]
    results = model(*map(paddle.to_tensor, inputs))
    results = results if isinstance(results, (list, tuple)) else [results]
    path = Path(folder) / f"{name}-{sys.argv[3]}"
    path.mkdir(parents=True, exist_ok=True)
    paddle.jit.save(
        paddle.jit.to_static(model, input_spec=specs, full_graph=True), str(path / "model")
    )
    arrays = {f"input:{k}": v for k, v in zip(names, inputs)}
    np.savez(path / "io.npz", **arrays, **{f"output:{i}": r.numpy() for i, r in enumerate(results)})


def cases():
    """Names, functions, inputs and parts with weights."""
    yield from elementwise()
    yield from layers()
    yield from shapes()
    yield from others()


def elementwise():
    x = floats(2, 3, 4, low=-0.9, high=0.9)
    for kind in (
        *("abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp"),
        *(
            "expm1",
            "floor",
            "log1p",
            "neg",
            "round",
            "sign",
            "sin",
            "sinh",
            "square",
            "tan",
            "tanh",
        ),
        *("trunc", "isnan", "logical_not"),
    ):
        given = x > 0 if kind == "logical_not" else x
        yield kind, getattr(paddle, kind), [given]
    for kind in ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal"):
        yield kind, getattr(paddle, kind), [floats(2, 3, 4, low=0.1, high=3)]
    yield "acosh", paddle.acosh, [floats(2, 3, low=1.1, high=3)]
    wide = floats(2, 3, 4, low=-5, high=5)
    for kind in (
        *(
            "celu",
            "elu",
            "gelu",
            "hardshrink",
            "hardsigmoid",
            "hardswish",
            "hardtanh",
            "leaky_relu",
        ),
        *("log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softplus"),
        *("softshrink", "softsign", "swish", "tanhshrink", "thresholded_relu"),
    ):
        yield kind, getattr(F, kind), [wide]
    yield "gelu-tanh", lambda x: F.gelu(x, approximate=True), [wide]
    yield "leaky-slope", lambda x: F.leaky_relu(x, 0.3), [wide]
    yield "prelu", lambda p, x: p(x), [wide], [nn.PReLU(3)]
    a, b = np.round(floats(2, 3, 4, low=-3, high=3)), np.round(floats(3, 1, low=1, high=4))
    for kind in (
        *(
            "add",
            "subtract",
            "multiply",
            "divide",
            "maximum",
            "minimum",
            "remainder",
            "floor_divide",
        ),
        *("fmax", "fmin", "equal", "not_equal", "greater_than", "greater_equal", "less_than"),
        "less_equal",
    ):
        yield kind, getattr(paddle, kind), [a, b]
    for kind in ("floor_divide", "remainder"):
        yield f"{kind}-int", getattr(paddle, kind), [a.astype(np.int32), b.astype(np.int32)]
    for kind in ("logical_and", "logical_or", "logical_xor"):
        yield kind, getattr(paddle, kind), [a > 0, b > 2]
    for kind in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        yield kind, getattr(paddle, kind), [whole(2, 3), whole(2, 3)]
    yield "pow", lambda x: paddle.pow(x, 2.5), [floats(2, 3, low=0.1)]
    yield "pow-two", paddle.pow, [floats(2, 3, low=0.1), floats(3)]
    yield "scale", lambda x: paddle.scale(x, 2.5, 1.5), [x]
    yield "scale-before", lambda x: paddle.scale(x, 2.5, 1.5, bias_after_scale=False), [x]
    yield "scalars", lambda x: (x * 2 + 1) / 3 - 0.5, [x]
    yield "clip", lambda x: paddle.clip(x, -0.2, 0.4), [x]
    yield "cast", lambda x: (x * 9).astype("int32"), [x]
    yield "cast-bool", lambda x: (x > 0).astype("float32"), [x]
    yield "where", paddle.where, [x > 0, x, -x]
    yield "add_n", lambda x, y: paddle.add_n([x, y, x]), [x, x + 1]
    yield "dropout", lambda x: F.dropout(x, 0.3, training=False), [x]
    yield (
        "dropout-down",
        lambda x: F.dropout(x, 0.3, training=False, mode="downscale_in_infer"),
        [x],
    )
    yield "increment", lambda x: paddle.increment(paddle.sum(x).reshape([1]), 2.0), [x]


def layers():
    images = floats(2, 4, 9, 8)
    for i, part in enumerate((
        nn.Conv2D(4, 6, 3),
        nn.Conv2D(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), bias_attr=False),
        nn.Conv2D(4, 8, 3, groups=4, dilation=2, padding=2),
        nn.Conv2D(4, 4, 3, groups=4, padding=1),
        nn.Conv2D(4, 6, 3, padding="SAME", stride=2),
        nn.Conv2D(4, 6, 3, padding=[1, 2, 0, 1]),
        nn.Conv2DTranspose(4, 6, 3),
        nn.Conv2DTranspose(4, 6, 4, stride=2, padding=1, bias_attr=False),
        nn.Conv2DTranspose(4, 8, 3, stride=2, groups=2, output_padding=1),
    )):  # fmt: skip
        yield f"conv-{i}", lambda p, x: p(x), [images], [part]
    yield (
        "conv-output",
        lambda p, x: p(x, output_size=[18, 17]),
        [images],
        [nn.Conv2DTranspose(4, 6, 3, stride=2)],
    )
    yield "conv3d", lambda p, x: p(x), [floats(1, 2, 5, 6, 7)], [nn.Conv3D(2, 3, (2, 3, 2))]
    yield "conv1d", lambda p, x: p(x), [floats(1, 4, 9)], [nn.Conv1D(4, 3, 3)]
    for kind, pool in {"max": F.max_pool2d, "avg": F.avg_pool2d}.items():
        yield f"pool-{kind}", lambda x, p=pool: p(x, (3, 2), (2, 2), (1, 0)), [images]
        yield f"pool-{kind}-ceil", lambda x, p=pool: p(x, 3, 2, 0, ceil_mode=True), [images]
        yield f"pool-{kind}-ceil-pad", lambda x, p=pool: p(x, 3, 2, 1, ceil_mode=True), [images]
        yield f"pool-{kind}-same", lambda x, p=pool: p(x, 3, 2, "SAME"), [images]
    yield "pool-count", lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False), [images]
    yield (
        "pool-count-ceil",
        lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False, ceil_mode=True),
        [images],
    )
    for size in (1, 3, (4, 5)):
        name = str(size).strip("()").replace(", ", "x")
        yield f"adaptive-avg-{name}", lambda x, s=size: F.adaptive_avg_pool2d(x, s), [images]
        yield f"adaptive-max-{name}", lambda x, s=size: F.adaptive_max_pool2d(x, s), [images]
    yield "pool1d", lambda x: F.max_pool1d(x, 3, 2), [floats(2, 3, 9)]
    for kind, part in {
        "batch": nn.BatchNorm2D(4), "instance": nn.InstanceNorm2D(4), "group": nn.GroupNorm(2, 4),
        "sync": nn.SyncBatchNorm(4), "instance-plain": nn.InstanceNorm2D(4, weight_attr=False, bias_attr=False),
    }.items():  # fmt: skip
        yield f"norm-{kind}", lambda p, x: p(x), [images], [part]
    yield "norm-batch1d", lambda p, x: p(x), [floats(5, 4)], [nn.BatchNorm1D(4)]
    yield "norm-layer", lambda p, x: p(x), [floats(2, 3, 4)], [nn.LayerNorm(4)]
    yield "norm-layer2", lambda p, x: p(x), [floats(2, 3, 4)], [nn.LayerNorm([3, 4])]
    yield (
        "norm-layer-plain",
        lambda p, x: p(x),
        [floats(2, 3, 4)],
        [nn.LayerNorm(4, weight_attr=False, bias_attr=False)],
    )
    for kind in ("softmax", "log_softmax"):
        yield kind, lambda x, k=kind: getattr(F, k)(x, axis=1), [floats(2, 3, 4)]
    yield "linear", lambda p, x: p(x), [floats(2, 3, 4)], [nn.Linear(4, 5)]
    for i, (a, b, settings) in enumerate((
        ((2, 3, 4), (2, 4, 5), {}), ((4, 3), (5, 4), {"transpose_x": True, "transpose_y": True}),
        ((4,), (4,), {}), ((2, 2, 3, 4), (4, 5), {}),
    )):  # fmt: skip
        yield (
            f"matmul-{i}",
            lambda x, y, s=settings: paddle.matmul(x, y, **s),
            [floats(*a), floats(*b)],
        )
    yield "bmm", paddle.bmm, [floats(2, 3, 4), floats(2, 4, 5)]
    yield "dot", paddle.dot, [floats(2, 3), floats(2, 3)]
    for mode in ("nearest", "bilinear", "bicubic"):
        for aligned in (False, True):
            if mode != "nearest" or not aligned:
                name = f"resize-{mode}-{aligned}"
                yield (
                    name,
                    lambda x, m=mode, a=aligned: F.interpolate(
                        x, size=[13, 5], mode=m, align_corners=a
                    ),
                    [images],
                )
                yield (
                    f"{name}-scale",
                    lambda x, m=mode, a=aligned: F.interpolate(
                        x, scale_factor=[2, 1.5], mode=m, align_corners=a
                    ),
                    [images],
                )
    yield (
        "resize-mode1",
        lambda x: F.interpolate(x, size=[13, 5], mode="bilinear", align_mode=1),
        [images],
    )
    yield (
        "resize-linear",
        lambda x: F.interpolate(x, size=[13], mode="linear", data_format="NCW"),
        [floats(2, 3, 7)],
    )
    yield "grid_sample", F.grid_sample, [images, floats(2, 3, 5, 2, low=-1.2, high=1.2)]
    yield "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [images]
    yield "channel_shuffle", lambda x: F.channel_shuffle(x, 2), [images]
    yield "p_norm", lambda x: paddle.linalg.vector_norm(x, 2, axis=1), [images]
    yield "normalize", lambda x: F.normalize(x, axis=1), [images]
    yield "embedding", lambda p, x: p(x), [whole(2, 4)], [nn.Embedding(5, 3)]
    yield "embedding-padding", lambda p, x: p(x), [whole(2, 4)], [nn.Embedding(5, 3, padding_idx=2)]
    yield "attention", lambda p, x: p(x, x, x), [floats(2, 5, 8)], [nn.MultiHeadAttention(8, 2)]
    yield "encoder", lambda p, x: p(x), [floats(2, 5, 8)], [nn.TransformerEncoderLayer(8, 2, 16)]


def shapes():
    x = floats(2, 3, 4)
    yield "reshape", lambda x: paddle.reshape(x, [0, -1]), [x]
    yield "reshape-size", lambda x: paddle.reshape(x, [x.shape[0], paddle.shape(x)[1] * 4]), [x]
    yield "flatten", lambda x: paddle.flatten(x, 1), [x]
    yield "flatten-two", lambda x: paddle.flatten(x, 0, 1), [x]
    yield "transpose", lambda x: paddle.transpose(x, [1, 0, 2]), [x]
    yield "squeeze", lambda x: paddle.squeeze(x), [floats(1, 3, 1)]
    yield "squeeze-axis", lambda x: paddle.squeeze(x, [0, 1]), [floats(1, 3, 1)]
    yield "unsqueeze", lambda x: paddle.unsqueeze(x, [0, 2]), [x]
    yield "expand", lambda x: paddle.expand(x, [2, -1, 4]), [floats(1, 3, 4)]
    yield "expand_as", paddle.expand_as, [floats(3, 1), floats(2, 3, 4)]
    yield "tile", lambda x: paddle.tile(x, [2, 1, 3]), [floats(2, 3)]
    yield "shape", paddle.shape, [x]
    yield "numel", paddle.numel, [x]
    yield "concat", lambda x, y: paddle.concat([x, y], axis=1), [x, floats(2, 2, 4)]
    yield "stack", lambda x, y: paddle.stack([x, y], axis=1), [x, x + 1]
    yield "split", lambda x: paddle.split(x, 3, axis=1), [x]
    yield "split-sizes", lambda x: paddle.split(x, [1, -1], axis=1), [x]
    yield "chunk", lambda x: paddle.chunk(x, 2, axis=2), [x]
    yield "unbind", lambda x: paddle.unbind(x, axis=1), [x]
    yield "unstack", lambda x: paddle.unstack(x, axis=0), [x]
    yield "slice", lambda x: x[:, 1:, -2:], [x]
    yield "slice-index", lambda x: x[1, :, 0], [x]
    yield "slice-step", lambda x: x[:, ::2, ::-1], [x]
    yield "slice-computed", lambda x, n: x[:, : n[0]], [x, np.int64([2])]
    yield "crop", lambda x: paddle.slice(x, [1, 2], [0, 1], [2, 100]), [x]
    yield "flip", lambda x: paddle.flip(x, [0, 2]), [x]
    yield "roll", lambda x: paddle.roll(x, [1, -1], axis=[0, 2]), [x]
    yield "roll-flat", lambda x: paddle.roll(x, 5), [x]
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield (
            f"pad-{mode}",
            lambda x, m=mode: F.pad(x, [1, 2, 2, 1], mode=m, value=0.5 if m == "constant" else 0.0),
            [floats(1, 2, 4, 5)],
        )
    yield "pad-all", lambda x: F.pad(x, [0, 0, 1, 2, 2, 1], value=0.5), [x]
    yield "meshgrid", lambda x, y: paddle.meshgrid(x, y), [floats(3), floats(4)]
    yield "tril", lambda x: paddle.tril(x, 1), [x]
    yield "triu", paddle.triu, [x]
    yield "full", lambda x: x + paddle.full([3, 1], 2.5), [x]
    yield "zeros_like", lambda x: x + paddle.zeros_like(x), [x]
    yield "ones-size", lambda x: paddle.ones([paddle.shape(x)[0], 2]) + paddle.sum(x), [x]
    yield "arange", lambda x: x + paddle.arange(0, 8, 2, dtype="float32"), [x]
    yield "arange-size", lambda x: paddle.arange(paddle.shape(x)[1]), [x]
    yield "constant", lambda x: x + paddle.to_tensor([1.0, 2.0, 3.0, 4.0]), [x]
    for kind in ("sum", "mean", "max", "min", "prod", "amax", "amin"):
        make = getattr(paddle, kind)
        yield kind, lambda x, m=make: m(x, axis=1), [x]
        yield f"{kind}-all", lambda x, m=make: m(x), [x]
        yield f"{kind}-keep", lambda x, m=make: m(x, axis=-1, keepdim=True), [x]
    yield "sum-two", lambda x: paddle.sum(x, axis=[0, 2]), [x]
    yield "sum-int", lambda x: paddle.sum(x, axis=1), [whole(2, 3, dtype=np.int32)]
    for kind in ("all", "any"):
        yield kind, lambda x, k=kind: getattr(paddle, k)(x, axis=1), [x > 0]
    yield "logsumexp", lambda x: paddle.logsumexp(x, axis=1), [x]
    yield "var", lambda x: paddle.var(x, axis=1), [x]


def others():
    x = floats(2, 3, 4)
    for kind in ("argmax", "argmin"):
        make = getattr(paddle, kind)
        yield kind, lambda x, m=make: m(x, axis=1), [x]
        yield f"{kind}-keep", lambda x, m=make: m(x, axis=-1, keepdim=True), [x]
        yield f"{kind}-all", lambda x, m=make: m(x), [x]
    yield "argmax-type", lambda x: paddle.argmax(x, axis=1, dtype="int32"), [x]
    yield "topk", lambda x: paddle.topk(x, 2), [floats(2, 6)]
    yield "topk-small", lambda x: paddle.topk(x, 2, axis=0, largest=False), [floats(6, 2)]
    yield "sort", lambda x: paddle.sort(x, axis=1), [x]
    yield "argsort", lambda x: paddle.argsort(x, axis=1, descending=True), [x]
    yield "cumsum", lambda x: paddle.cumsum(x, axis=1), [x]
    yield "cumsum-flat", paddle.cumsum, [x]
    yield "gather", lambda x, i: paddle.gather(x, i, axis=1), [x, np.int64([2, 0])]
    yield "gather-0", paddle.gather, [x, np.int64([1, 0, 1])]
    yield "gather_nd", paddle.gather_nd, [x, np.int64([[1, 2], [0, 0]])]
    yield "index_select", lambda x, i: paddle.index_select(x, i, axis=2), [x, np.int64([3, 1])]
    yield "index_sample", paddle.index_sample, [floats(2, 5), whole(2, 3)]
    yield (
        "take_along_axis",
        lambda x, i: paddle.take_along_axis(x, i, axis=1),
        [floats(2, 5), whole(2, 3)],
    )
    yield "one_hot", lambda x: F.one_hot(x, 5), [whole(2, 3)]
    yield "scatter", paddle.scatter, [floats(4, 3), np.int64([2, 0]), floats(2, 3)]
    yield (
        "scatter-add",
        lambda x, i, u: paddle.scatter(x, i, u, overwrite=False),
        [floats(4, 3), np.int64([2, 2]), floats(2, 3)],
    )
    yield (
        "scatter_nd_add",
        paddle.scatter_nd_add,
        [floats(4, 3), np.int64([[2], [0], [2]]), floats(3, 3)],
    )
    yield "set_value", fill, [floats(4, 3)]
    yield "einsum", lambda x, y: paddle.einsum("bij,bjk->bik", x, y), [x, floats(2, 4, 5)]
    for kind in ("SimpleRNN", "GRU", "LSTM"):
        for way in ("forward", "bidirect"):
            part = getattr(nn, kind)(4, 3, num_layers=2, direction=way)
            yield f"{kind}-{way}", lambda p, x: p(x)[0], [floats(2, 5, 4)], [part]
    boxes, image = floats(1, 18, 4, 4), np.int32([[128, 128]])
    yield (
        "yolo_box",
        lambda x, s: paddle.vision.ops.yolo_box(x, s, [10, 13, 16, 30], 4, 0.1, 32),
        [boxes, image],
    )
    for mode in (
        {"iou_aware": True, "iou_aware_factor": 0.4},
        {"scale_x_y": 1.2, "clip_bbox": False},
    ):
        aware = 2 if "iou_aware" in mode else 0
        yield (
            f"yolo_box-{next(iter(mode))}",
            lambda x, s, m=mode: paddle.vision.ops.yolo_box(
                x, s, [10, 13, 16, 30], 4, 0.4, 16, **m
            ),
            [floats(2, 18 + aware, 4, 5), np.int32([[64, 80], [60, 100]])],
        )
    corners = floats(2, 40, 2, high=50, low=0)
    corners = np.concatenate([corners, corners + floats(2, 40, 2, low=5, high=30)], -1)
    for row in (
        {},
        {"normalized": False},
        {"background_label": 0},
        {"nms_top_k": 7},
        {"keep_top_k": 6},
    ):
        yield (
            f"multiclass_nms3-{next(iter(row), 'plain')}",
            lambda b, s, row=row: suppressed(b, s, **row),
            [corners, floats(2, 3, 40, low=0, high=1)],
        )
    yield "while", loop, [x]
    yield "cond", branch, [x]


def suppressed(boxes, scores, **settings):
    """`multiclass_nms3`, which Paddle has no function for."""
    settings = {
        "score_threshold": 0.3, "nms_top_k": 100, "keep_top_k": 100, "nms_threshold": 0.4,
        "normalized": True, "nms_eta": 1.0, "background_label": -1, **settings,
    }  # fmt: skip
    if paddle.framework.in_dynamic_or_pir_mode():
        return paddle._C_ops.multiclass_nms3(boxes, scores, None, *settings.values())
    from paddle.base.layer_helper import LayerHelper

    helper = LayerHelper("multiclass_nms3")
    types = {"Out": "float32", "Index": "int32", "NmsRoisNum": "int32"}
    made = {k: helper.create_variable_for_type_inference(t) for k, t in types.items()}
    given = {"BBoxes": boxes, "Scores": scores}
    helper.append_op(type="multiclass_nms3", inputs=given, attrs=settings, outputs=made)
    return tuple(made.values())


def fill(x):
    y = x * 1
    y[1:3, 0] = 5.0
    return y


def loop(x):
    i = paddle.zeros([1], "int64")
    while i < 3:
        x = x * 2 + 1
        i += 1
    return x


def branch(x):
    if paddle.sum(x) > 0:
        y = x + 1
    else:
        y = x - 1
    return y


def networks():
    from paddle.vision import models

    for name, size in {
        "resnet18": 64, "mobilenet_v1": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64,
        "squeezenet1_0": 96, "shufflenet_v2_x0_5": 64, "densenet121": 64, "googlenet": 224,
        "alexnet": 224, "vgg11": 64,
    }.items():  # fmt: skip
        yield f"net-{name}", lambda p, x: p(x), [floats(2, 3, size, size)], getattr(models, name)


def main(folder, part, form):
    del form
    for name, function, inputs, *parts in cases():
        if part in name:
            try:
                write(folder, name, function, inputs, *parts)
            except Exception as e:
                print(f"{name}: {type(e).__name__}: {str(e)[:100]}")
    for name, function, inputs, make in networks():
        if part in name:
            write(folder, name, function, inputs, [make()], opened=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
