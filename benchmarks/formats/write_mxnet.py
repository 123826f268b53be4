# ruff: noqa: E402
"""Write MXNet models and the results that MXNet computes for them.

Run with MXNet 1.9.1 and NumPy below 1.24: `python write_mxnet.py FOLDER [PART OF A NAME]`.  Each
case is FOLDER/CASE/model-symbol.json, model-0000.params and io.npz.
"""

import sys
from pathlib import Path

import numpy as np

for _name, _kind in {"bool": bool, "int": int, "float": float, "object": object}.items():
    if _name not in np.__dict__:  # MXNet uses names that NumPy 1.24 left out
        setattr(np, _name, _kind)

import mxnet as mx
from mxnet.gluon.model_zoo import vision

RANDOM = np.random.RandomState(0)
S = mx.sym


def floats(*shape, low=-1.0, high=1.0):
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def whole(*shape, below=5):
    return RANDOM.randint(0, below, shape).astype(np.float32)


def write(folder, name, symbol, inputs):
    """Write a case.  Arguments that are not inputs get random numbers and become weights."""
    given = {k: v.shape for k, v in inputs.items()}
    shapes, _, states = symbol.infer_shape(**given)
    args, aux = {}, {}
    for arg, shape in zip(symbol.list_arguments(), shapes):
        if arg not in inputs:
            args[arg] = mx.nd.array(RANDOM.uniform(-0.5, 0.5, shape), dtype="float32")
    for state, shape in zip(symbol.list_auxiliary_states(), states):
        aux[state] = mx.nd.array(RANDOM.uniform(0.5, 1.5, shape), dtype="float32")
    save(folder, name, symbol, inputs, args, aux)


def save(folder, name, symbol, inputs, args, aux):
    feeds = {k: mx.nd.array(v, dtype=v.dtype) for k, v in inputs.items()}
    executor = symbol.bind(mx.cpu(), {**args, **feeds}, aux_states=aux, grad_req="null")
    outputs = executor.forward(is_train=False)
    path = Path(folder) / name
    path.mkdir(parents=True, exist_ok=True)
    mx.model.save_checkpoint(str(path / "model"), 0, symbol, args, aux)
    results = {f"output:{i}": o.asnumpy() for i, o in enumerate(outputs)}
    np.savez(path / "io.npz", **{f"input:{k}": v for k, v in inputs.items()}, **results)


def zoo():
    sizes = {"inceptionv3": 299, "alexnet": 224}
    for name in (
        *("alexnet", "densenet121", "inceptionv3", "mobilenet0.5", "mobilenetv2_0.5"),
        *("resnet18_v1", "resnet50_v1", "resnet18_v2", "squeezenet1.0", "squeezenet1.1"),
        *("vgg11", "vgg11_bn"),
    ):
        size = sizes.get(name, 224 if "vgg" in name or "squeeze" in name else 64)
        if "densenet" in name:
            size = 224
        yield name, vision.get_model(name), size


def write_zoo(folder, part):
    for name, network, size in zoo():
        if part in f"zoo-{name}":
            x = floats(1, 3, size, size)
            network.initialize(mx.init.Xavier())
            network(mx.nd.array(x))
            symbol = network(S.var("data"))
            params = network.collect_params()
            args = {k: params[k].data() for k in symbol.list_arguments() if k != "data"}
            aux = {}
            for k in symbol.list_auxiliary_states():
                aux[k] = mx.nd.array(RANDOM.uniform(0.5, 1.5, params[k].shape))
            save(folder, f"zoo-{name}", symbol, {"data": x}, args, aux)


def write_numpy_interface(folder):
    """A network of MXNet's NumPy interface."""
    mx.npx.set_np()
    from mxnet.gluon import nn

    network = nn.HybridSequential()
    network.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(), nn.Flatten())
    network.add(nn.Dense(5), nn.LeakyReLU(0.1), nn.Dropout(0.5), nn.Dense(3))
    network.initialize()
    network.hybridize()
    x = floats(2, 3, 8, 8)
    y = network(mx.np.array(x))
    path = Path(folder) / "numpy-interface"
    path.mkdir(parents=True, exist_ok=True)
    network.export(str(path / "model"))
    np.savez(path / "io.npz", **{"input:data": x, "output:0": y.asnumpy()})
    mx.npx.reset_np()


def var(name):
    return S.var(name)


def unary(kind, low=-0.9, high=0.9, **attributes):
    return lambda: (
        getattr(S, kind)(var("x"), **attributes),
        {"x": floats(2, 3, 4, low=low, high=high)},
    )


def on(shape, make, **others):
    """A case with the input `x` of floats, and further inputs."""
    return lambda: (
        make(var("x"), *(S.var(k, dtype=v.dtype.name) for k, v in others.items())),
        {"x": floats(*shape), **dict(others.items())},
    )


_OLD = {"add": "plus", "sub": "minus"}


def cases():
    for kind in (
        *("abs", "arccos", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "cos", "cosh"),
        *("degrees", "erf", "exp", "expm1", "fix", "floor", "hard_sigmoid", "identity", "negative"),
        *("radians", "relu", "rint", "round", "sigmoid", "sign", "sin", "sinh", "softsign"),
        *("square", "tan", "tanh", "trunc", "logical_not", "BlockGrad", "make_loss", "smooth_l1"),
        *("Dropout", "zeros_like", "ones_like", "shape_array", "size_array", "MakeLoss"),
    ):
        yield kind, unary(kind)
    for kind in ("log", "log10", "log1p", "log2", "sqrt", "rsqrt", "rcbrt", "reciprocal"):
        yield kind, unary(kind, 0.1, 3.0)
    yield "arccosh", unary("arccosh", 1.1, 3.0)
    for kind in (
        *("add", "sub", "mul", "div", "mod", "power", "maximum", "minimum", "equal", "not_equal"),
        *("greater", "greater_equal", "lesser", "lesser_equal", "hypot", "logical_and"),
        *("logical_or", "logical_xor"),
    ):
        low = 0.5 if kind == "power" else 0.0 if kind.startswith("log") else -3.0
        x, y = np.round(floats(2, 3, 4, low=low, high=3)), np.round(floats(3, 1, low=low, high=3))
        make = getattr(S, f"broadcast_{kind}")
        yield (
            f"broadcast_{kind}",
            lambda m=make, x=x, y=y: (m(var("x"), var("y")), {"x": x, "y": y}),
        )
        if not kind.startswith(("logical", "hypot")):
            make = getattr(S._internal, f"_{_OLD.get(kind, kind)}")
            z = np.round(floats(2, 3, 4, low=low, high=3))
            yield (
                f"elemwise_{kind}",
                lambda m=make, x=x, z=z: (m(var("x"), var("z")), {"x": x, "z": z}),
            )
        make = getattr(S._internal, f"_{_OLD.get(kind, kind)}_scalar", None)
        if make is not None:
            yield f"{kind}_scalar", lambda m=make, x=x: (m(var("x"), scalar=2.0), {"x": x})
    for kind in ("minus", "div", "power", "mod"):
        make = getattr(S._internal, f"_r{kind}_scalar")
        yield f"r{kind}_scalar", on((2, 3), lambda x, m=make: m(S.abs(x), scalar=2.5))
    yield "add_n", on((2, 3), lambda x, y, z: S.add_n(x, y, z), y=floats(2, 3), z=floats(2, 3))
    yield "clip", on((2, 3), lambda x: S.clip(x, -0.3, 0.4))
    yield "cast", on((2, 3), lambda x: S.Cast(x * 9, dtype="int32"))
    yield "where", on((2, 3), lambda x, c: S.where(c, x, -x), c=whole(2, 3, below=2))
    yield "where-rows", on((2, 3), lambda x, c: S.where(c, x, -x), c=np.float32([0, 1]))
    yield from layers()
    yield from shapes()
    yield from reductions()
    yield from others()


def layers():
    images = (2, 4, 9, 8)
    for i, settings in enumerate((
        {"kernel": (3, 3), "num_filter": 6},
        {"kernel": (3, 2), "num_filter": 6, "stride": (2, 1), "pad": (1, 0), "no_bias": True},
        {"kernel": (3, 3), "num_filter": 8, "num_group": 4, "dilate": (2, 2), "pad": (2, 2)},
    )):  # fmt: skip
        yield f"convolution-{i}", on(images, lambda x, s=settings: S.Convolution(x, **s))
    yield "convolution-1d", on((2, 4, 9), lambda x: S.Convolution(x, kernel=(3,), num_filter=5))
    yield (
        "convolution-3d",
        on((1, 2, 5, 6, 7), lambda x: S.Convolution(x, kernel=(2, 3, 2), num_filter=5)),
    )
    for i, settings in enumerate((
        {"kernel": (3, 3), "num_filter": 6},
        {"kernel": (4, 4), "num_filter": 6, "stride": (2, 2), "pad": (1, 1), "no_bias": False},
        {"kernel": (3, 3), "num_filter": 8, "num_group": 4, "stride": (2, 2), "adj": (1, 1)},
        {"kernel": (4, 4), "num_filter": 4, "stride": (2, 2), "target_shape": (17, 15)},
    )):  # fmt: skip
        yield f"deconvolution-{i}", on(images, lambda x, s=settings: S.Deconvolution(x, **s))
    yield "fully_connected", on((2, 3, 4), lambda x: S.FullyConnected(x, num_hidden=5))
    yield (
        "fully_connected-last",
        on((2, 3, 4), lambda x: S.FullyConnected(x, num_hidden=5, flatten=False, no_bias=True)),
    )
    yield "batch_norm", on(images, lambda x: S.BatchNorm(x))
    yield (
        "batch_norm-gamma",
        on(images, lambda x: S.BatchNorm(x, fix_gamma=False, eps=1e-5, use_global_stats=True)),
    )
    yield "batch_norm-axis", on(images, lambda x: S.BatchNorm(x, fix_gamma=False, axis=-1))
    for kind in ("relu", "sigmoid", "softrelu", "softsign", "tanh"):
        yield f"activation-{kind}", on(images, lambda x, k=kind: S.Activation(x, act_type=k))
    for kind in ("elu", "gelu", "leaky", "prelu", "rrelu", "selu"):
        yield (
            f"leaky_relu-{kind}",
            on(images, lambda x, k=kind: next(iter(S.LeakyReLU(x, act_type=k)))),
        )
    for kind in ("max", "avg", "sum"):
        yield (
            f"pool-global-{kind}",
            on(
                images, lambda x, k=kind: S.Pooling(x, pool_type=k, global_pool=True, kernel=(2, 2))
            ),
        )
        yield (
            f"pool-{kind}",
            on(
                images,
                lambda x, k=kind: S.Pooling(
                    x, pool_type=k, kernel=(3, 2), stride=(2, 2), pad=(1, 0)
                ),
            ),
        )
    for kind in ("max", "avg"):
        for pad in (0, 1):
            yield (
                f"pool-full-{kind}-{pad}",
                on(
                    images,
                    lambda x, k=kind, p=pad: S.Pooling(
                        x,
                        pool_type=k,
                        kernel=(3, 3),
                        stride=(2, 2),
                        pad=(p, p),
                        pooling_convention="full",
                    ),
                ),
            )
    yield (
        "pool-exclude",
        on(
            images,
            lambda x: S.Pooling(
                x,
                pool_type="avg",
                kernel=(3, 3),
                stride=(2, 2),
                pad=(1, 1),
                count_include_pad=False,
            ),
        ),
    )
    yield (
        "pool-exclude-full",
        on(
            images,
            lambda x: S.Pooling(
                x,
                pool_type="avg",
                kernel=(3, 3),
                stride=(2, 2),
                pad=(1, 1),
                count_include_pad=False,
                pooling_convention="full",
            ),
        ),
    )
    yield "pool-lp", on(images, lambda x: S.Pooling(x, pool_type="lp", kernel=(3, 3), p_value=2))
    yield (
        "pool-1d",
        on((2, 3, 9), lambda x: S.Pooling(x, pool_type="max", kernel=(3,), stride=(2,))),
    )
    for size in ((1,), (3,), (4, 5)):
        yield (
            f"adaptive-{len(size)}-{size[0]}",
            on(images, lambda x, s=size: S.contrib.AdaptiveAvgPooling2D(x, output_size=s)),
        )
    yield "lrn", on(images, lambda x: S.LRN(x, nsize=3, alpha=0.1))
    yield "instance_norm", on(images, lambda x: S.InstanceNorm(x))
    yield "group_norm", on(images, lambda x: S.GroupNorm(x, num_groups=2))
    yield "layer_norm", on((2, 3, 4), lambda x: S.LayerNorm(x))
    yield "layer_norm-1", on((2, 3, 4), lambda x: S.LayerNorm(x, axis=1))
    for mode in ("instance", "channel", "spatial"):
        yield f"l2_normalization-{mode}", on(images, lambda x, m=mode: S.L2Normalization(x, mode=m))
    yield "softmax", on((2, 3, 4), lambda x: S.softmax(x, axis=1, temperature=2.0))
    yield (
        "softmax-length",
        on(
            (2, 4), lambda x, length: S.softmax(x, length, use_length=True), length=np.int32([2, 4])
        ),
    )
    yield "softmin", on((2, 3, 4), lambda x: S.softmin(x))
    yield "log_softmax", on((2, 3, 4), lambda x: S.log_softmax(x))
    yield "softmax_activation", on(images, lambda x: S.SoftmaxActivation(x))
    yield "softmax_activation-channel", on(images, lambda x: S.SoftmaxActivation(x, mode="channel"))
    yield "softmax_output", on((3, 5), lambda x: S.SoftmaxOutput(x, name="softmax"))
    yield "softmax_output-multi", on(images, lambda x: S.SoftmaxOutput(x, multi_output=True))
    yield "logistic", on((3, 5), lambda x: S.LogisticRegressionOutput(x))
    yield "linear", on((3, 5), lambda x: S.LinearRegressionOutput(x))
    yield "up_sampling", on(images, lambda x: S.UpSampling(x, scale=2, sample_type="nearest"))
    yield (
        "up_sampling-two",
        on(
            images,
            lambda x, y: S.UpSampling(x, y, scale=2, sample_type="nearest", num_args=2),
            y=floats(2, 2, 9, 8),
        ),
    )
    for scale in (2, 3):
        yield (
            f"up_sampling-bilinear-{scale}",
            on(
                images,
                lambda x, s=scale: S.UpSampling(
                    x, var("weight"), scale=s, sample_type="bilinear", num_filter=4, num_args=2
                ),
            ),
        )
    yield "bilinear_resize", on(images, lambda x: S.contrib.BilinearResize2D(x, height=13, width=5))
    yield (
        "bilinear_resize-half",
        on(
            images, lambda x: S.contrib.BilinearResize2D(x, height=13, width=5, align_corners=False)
        ),
    )
    yield (
        "bilinear_resize-scale",
        on(
            images,
            lambda x: S.contrib.BilinearResize2D(
                x, scale_height=2.0, scale_width=1.5, mode="odd_scale"
            ),
        ),
    )
    yield (
        "bilinear_resize-like",
        on(
            images, lambda x, y: S.contrib.BilinearResize2D(x, y, mode="like"), y=floats(2, 4, 3, 7)
        ),
    )


def shapes():
    x = (2, 3, 4)
    yield "flatten", on(x, lambda x: S.Flatten(x))
    for i, code in enumerate(
        (
            (6, 4),
            (-1, 2),
            (0, -1),
            (-2,),
            (0, -3),
            (-3, 0),
            (-4, 1, 2, -2),
            (0, -4, -1, 3, 0),
            (0, 0, 2, -1),
            (-2, 1, 1),
        )
    ):
        yield f"reshape-{i}", on(x, lambda x, c=code: S.reshape(x, shape=c))
    yield "reshape-reverse", on((8, 3, 4), lambda x: S.reshape(x, shape=(-1, 0), reverse=True))
    yield "reshape_like", on(x, lambda x, y: S.reshape_like(x, y), y=floats(6, 4))
    yield "transpose", on(x, lambda x: S.transpose(x))
    yield "transpose-axes", on(x, lambda x: S.transpose(x, axes=(1, 0, 2)))
    yield "swapaxes", on(x, lambda x: S.swapaxes(x, dim1=0, dim2=2))
    yield "expand_dims", on(x, lambda x: S.expand_dims(x, axis=1))
    yield "squeeze", on((1, 3, 1), lambda x: S.squeeze(x))
    yield "squeeze-axis", on((1, 3, 1), lambda x: S.squeeze(x, axis=0))
    yield "depth_to_space", on((1, 8, 2, 3), lambda x: S.depth_to_space(x, block_size=2))
    yield "space_to_depth", on((1, 2, 4, 6), lambda x: S.space_to_depth(x, block_size=2))
    yield "concat", on(x, lambda x, y: S.concat(x, y, dim=1), y=floats(2, 2, 4))
    yield "stack", on(x, lambda x, y: S.stack(x, y, axis=1), y=floats(2, 3, 4))
    yield "split", on((2, 6), lambda x: S.Group(list(S.split(x, num_outputs=3))))
    yield (
        "split-squeeze",
        on((2, 3, 4), lambda x: S.Group(list(S.split(x, num_outputs=3, squeeze_axis=True)))),
    )
    yield "split_v2", on((2, 7), lambda x: S.Group(list(S.split_v2(x, (2, 3), axis=1))))
    yield "slice", on((4, 5, 6), lambda x: S.slice(x, begin=(1, None, -2), end=(3, -1, None)))
    yield (
        "slice-step",
        on((4, 5, 6), lambda x: S.slice(x, begin=(None, 4), end=(None, None), step=(2, -1))),
    )
    yield "slice_axis", on((4, 5, 6), lambda x: S.slice_axis(x, axis=1, begin=1, end=-1))
    yield "slice_axis-end", on((4, 5, 6), lambda x: S.slice_axis(x, axis=2, begin=-3, end=None))
    yield (
        "slice_like",
        on((4, 5, 6), lambda x, y: S.slice_like(x, y, axes=(0, 2)), y=floats(2, 5, 3)),
    )
    yield "slice_like-all", on((4, 5, 6), lambda x, y: S.slice_like(x, y), y=floats(2, 2, 3))
    yield "crop", on((1, 2, 7, 8), lambda x, y: S.Crop(x, y, num_args=2), y=floats(1, 2, 4, 5))
    yield (
        "crop-center",
        on((1, 2, 7, 8), lambda x: S.Crop(x, h_w=(4, 5), center_crop=True, num_args=1)),
    )
    yield (
        "crop-offset",
        on((1, 2, 7, 8), lambda x: S.Crop(x, h_w=(4, 5), offset=(1, 2), num_args=1)),
    )
    for mode in ("constant", "edge", "reflect"):
        yield (
            f"pad-{mode}",
            on(
                (1, 2, 4, 5),
                lambda x, m=mode: S.pad(
                    x, mode=m, pad_width=(0, 0, 0, 0, 1, 2, 2, 1), constant_value=3.0
                ),
            ),
        )
    yield "tile", on((2, 3), lambda x: S.tile(x, reps=(2, 1, 3)))
    yield "repeat", on((2, 3), lambda x: S.repeat(x, repeats=2, axis=1))
    yield "repeat-flat", on((2, 3), lambda x: S.repeat(x, repeats=2))
    yield "reverse", on((2, 3), lambda x: S.reverse(x, axis=1))
    yield "broadcast_axis", on((2, 1, 4), lambda x: S.broadcast_axis(x, axis=1, size=3))
    yield "broadcast_to", on((2, 1, 4), lambda x: S.broadcast_to(x, shape=(0, 3, 0)))
    yield "broadcast_like", on((2, 1, 4), lambda x, y: S.broadcast_like(x, y), y=floats(2, 3, 4))
    yield "zeros", on((2, 3), lambda x: S.broadcast_add(x, S.zeros((1, 3))))
    yield "ones", on((2, 3), lambda x: S.broadcast_mul(x, S.ones((1, 3)) * 2))
    yield "full", on((2, 3), lambda x: S.broadcast_add(x, S.full((1, 3), 1.5)))
    yield (
        "arange",
        on((2, 6), lambda x: S.broadcast_add(x, S.reshape(S.arange(1, 7, 2, repeat=2), (1, 6)))),
    )
    yield (
        "arange_like",
        on(
            (2, 6),
            lambda x: S.broadcast_add(x, S.reshape(S.contrib.arange_like(x, axis=1), (1, 6))),
        ),
    )


def reductions():
    for kind in ("sum", "mean", "prod", "max", "min", "nansum", "nanprod"):
        make = getattr(S, kind)
        yield f"{kind}", on((2, 3, 4), lambda x, m=make: m(x, axis=1))
        yield f"{kind}-all", on((2, 3, 4), lambda x, m=make: m(x))
        yield f"{kind}-keep", on((2, 3, 4), lambda x, m=make: m(x, axis=(0, 2), keepdims=True))
        yield f"{kind}-exclude", on((2, 3, 4), lambda x, m=make: m(x, axis=1, exclude=True))
    yield "norm", on((2, 3, 4), lambda x: S.norm(x, axis=1))
    yield "norm-1", on((2, 3, 4), lambda x: S.norm(x, ord=1, axis=2, keepdims=True))
    for kind in ("argmax", "argmin"):
        make = getattr(S, kind)
        yield kind, on((2, 3, 4), lambda x, m=make: m(x, axis=1))
        yield f"{kind}-keep", on((2, 3, 4), lambda x, m=make: m(x, axis=-1, keepdims=True))
        yield f"{kind}-all", on((2, 3, 4), lambda x, m=make: m(x))
    yield "argmax_channel", on((2, 5), lambda x: S.argmax_channel(x))
    yield "cumsum", on((2, 3, 4), lambda x: S.cumsum(x, axis=1))
    for kind in ("indices", "value", "mask"):
        yield f"topk-{kind}", on((2, 6), lambda x, k=kind: S.topk(x, k=3, ret_typ=k))
    yield (
        "topk-both",
        on((2, 6), lambda x: S.Group(list(S.topk(x, k=2, ret_typ="both", is_ascend=True)))),
    )
    yield "sort", on((2, 6), lambda x: S.sort(x))
    yield "sort-down", on((2, 6), lambda x: S.sort(x, axis=0, is_ascend=False))
    yield "argsort", on((2, 6), lambda x: S.argsort(x))
    yield "dot", on((2, 3), lambda x, y: S.dot(x, y), y=floats(3, 4))
    yield (
        "dot-transposed",
        on((3, 2), lambda x, y: S.dot(x, y, transpose_a=True, transpose_b=True), y=floats(4, 3)),
    )
    yield "dot-3d", on((2, 5, 3), lambda x, y: S.dot(x, y), y=floats(3, 4))
    yield "batch_dot", on((2, 3, 4), lambda x, y: S.batch_dot(x, y), y=floats(2, 4, 5))
    yield (
        "batch_dot-transposed",
        on(
            (2, 4, 3),
            lambda x, y: S.batch_dot(x, y, transpose_a=True, transpose_b=True),
            y=floats(2, 5, 4),
        ),
    )
    yield (
        "linalg_gemm2",
        on(
            (2, 3, 4),
            lambda x, y: S.linalg_gemm2(x, y, alpha=0.5, transpose_b=True),
            y=floats(2, 5, 4),
        ),
    )
    yield "div_sqrt_dim", on((2, 3, 4), lambda x: S.contrib.div_sqrt_dim(x))
    yield (
        "selfatt",
        on(
            (5, 2, 24),
            lambda x: S.contrib.interleaved_matmul_selfatt_valatt(
                x, S.softmax(S.contrib.interleaved_matmul_selfatt_qk(x, heads=2)), heads=2
            ),
        ),
    )
    yield (
        "embedding",
        on((5, 3), lambda x, i: S.Embedding(i, x, input_dim=5, output_dim=3), i=whole(2, 4)),
    )
    for mode in ("clip", "wrap"):
        yield (
            f"take-{mode}",
            on(
                (3, 4),
                lambda x, i, m=mode: S.take(x, i, axis=1, mode=m),
                i=np.float32([[0, 5], [-1, 2]]),
            ),
        )
    yield "pick", on((3, 4), lambda x, i: S.pick(x, i, axis=1), i=np.float32([0, 3, 7]))
    yield (
        "pick-keep",
        on((3, 4), lambda x, i: S.pick(x, i, axis=0, keepdims=True), i=np.float32([0, 2, 1, 1])),
    )
    yield "batch_take", on((3, 4), lambda x, i: S.batch_take(x, i), i=np.int32([0, 3, 1]))
    yield (
        "gather_nd",
        on((3, 4), lambda x, i: S.gather_nd(x, i), i=np.float32([[0, 2, 1], [3, 1, 0]])),
    )
    yield (
        "scatter_nd",
        on(
            (3,),
            lambda x, i: S.scatter_nd(x, i, shape=(3, 4)),
            i=np.float32([[0, 2, 1], [3, 1, 0]]),
        ),
    )
    yield (
        "one_hot",
        on(
            (2, 3),
            lambda x, i: S.one_hot(i, depth=4, on_value=2.0, off_value=-1.0) + S.sum(x),
            i=np.float32([[0, 3, -1], [4, 1, 2]]),
        ),
    )


def others():
    steps = (5, 3, 4)
    lengths = np.float32([2, 5, 1])
    yield (
        "sequence_mask",
        on(
            steps,
            lambda x, n: S.SequenceMask(x, n, use_sequence_length=True, value=-1.0),
            n=lengths,
        ),
    )
    yield (
        "sequence_mask-1",
        on(
            (3, 5, 4),
            lambda x, n: S.SequenceMask(x, n, use_sequence_length=True, axis=1),
            n=lengths,
        ),
    )
    yield (
        "sequence_last",
        on(steps, lambda x, n: S.SequenceLast(x, n, use_sequence_length=True), n=lengths),
    )
    yield "sequence_last-all", on(steps, lambda x: S.SequenceLast(x))
    yield (
        "sequence_reverse",
        on(steps, lambda x, n: S.SequenceReverse(x, n, use_sequence_length=True), n=lengths),
    )
    yield "sequence_reverse-all", on(steps, lambda x: S.SequenceReverse(x))
    for mode in ("rnn_relu", "rnn_tanh", "gru", "lstm"):
        for both in (False, True):
            yield f"rnn-{mode}-{both}", lambda m=mode, b=both: recurrent(m, b)
    grid = floats(2, 2, 4, 5, low=-1.2, high=1.2)
    yield "bilinear_sampler", on((2, 3, 6, 7), lambda x, g: S.BilinearSampler(x, g), g=grid)
    yield (
        "grid_generator",
        on((2, 6), lambda x: S.GridGenerator(x, transform_type="affine", target_shape=(4, 5))),
    )
    yield (
        "spatial_transformer",
        on(
            (2, 3, 6, 7),
            lambda x, t: S.SpatialTransformer(
                x, t, target_shape=(4, 5), transform_type="affine", sampler_type="bilinear"
            ),
            t=floats(2, 6),
        ),
    )
    rois = np.float32([[0, 0, 0, 5, 5], [1, 1, 2, 6, 4], [0, 3, 3, 3, 3], [1, -2, 0, 9, 9]])
    yield (
        "roi_pooling",
        on(
            (2, 3, 8, 8),
            lambda x, r: S.ROIPooling(x, r, pooled_size=(2, 3), spatial_scale=0.9),
            r=rois,
        ),
    )
    yield (
        "roi_align",
        on(
            (2, 3, 8, 8),
            lambda x, r: S.contrib.ROIAlign(
                x, r, pooled_size=(2, 3), spatial_scale=0.9, sample_ratio=2
            ),
            r=rois,
        ),
    )
    yield (
        "multibox_prior",
        on(
            (1, 3, 4, 6), lambda x: S.contrib.MultiBoxPrior(x, sizes=(0.3, 0.5), ratios=(1, 2, 0.5))
        ),
    )
    yield (
        "multibox_prior-steps",
        on(
            (1, 3, 4, 6),
            lambda x: S.contrib.MultiBoxPrior(
                x, sizes=(0.3,), ratios=(2, 0.5), clip=True, steps=(0.2, 0.1), offsets=(0.4, 0.6)
            ),
        ),
    )
    for force in (False, True):
        yield f"multibox_detection-{force}", lambda f=force: detection(f)
    boxes = np.concatenate([whole(2, 12, 1, below=3), floats(2, 12, 1, low=0), corners(2, 12)], 2)
    for name, settings in {
        "plain": {"overlap_thresh": 0.3, "valid_thresh": 0.1},
        "classes": {"overlap_thresh": 0.3, "valid_thresh": 0.1, "id_index": 0},
        "force": {
            "overlap_thresh": 0.3,
            "valid_thresh": 0.1,
            "id_index": 0,
            "force_suppress": True,
        },
        "topk": {"overlap_thresh": 0.3, "valid_thresh": 0.1, "id_index": 0, "topk": 5},
    }.items():
        yield f"box_nms-{name}", lambda s=settings: (S.contrib.box_nms(var("x"), **s), {"x": boxes})


def corners(*lead):
    start, size = floats(*lead, 2, low=0, high=0.6), floats(*lead, 2, low=0.1, high=0.4)
    return np.concatenate([start, start + size], -1)


def detection(force):
    scores = np.exp(floats(2, 4, 10, low=-2, high=2))
    scores /= scores.sum(1, keepdims=True)
    symbol = S.contrib.MultiBoxDetection(
        var("p"), var("l"), var("a"), threshold=0.2, nms_threshold=0.3, force_suppress=force
    )
    return symbol, {"p": scores, "l": floats(2, 40), "a": corners(1, 10)}


def recurrent(mode, both):
    directions = 2 if both else 1
    state = {"state": var("h")} | ({"state_cell": var("c")} if mode == "lstm" else {})
    symbol = S.RNN(
        var("x"),
        parameters=var("w"),
        state_size=3,
        num_layers=2,
        mode=mode,
        bidirectional=both,
        state_outputs=True,
        **state,
    )
    inputs = {"x": floats(5, 2, 4), "h": floats(2 * directions, 2, 3)}
    if mode == "lstm":
        inputs["c"] = floats(2 * directions, 2, 3)
    return S.Group(list(symbol)), inputs


def main(folder, part=""):
    for name, make in cases():
        if part in name:
            try:
                write(folder, name, *make())
            except mx.base.MXNetError as e:
                print(f"{name}: MXNet can't run it: {str(e).splitlines()[-1]}")
    if part in "numpy-interface":
        write_numpy_interface(folder)
    write_zoo(folder, part)


if __name__ == "__main__":
    main(*sys.argv[1:])
