#!/usr/bin/env python3
"""Write OpenVINO models of single operators and of networks, and what OpenVINO computes with them:
`python benchmarks/formats/write_openvino.py FOLDER`, where OpenVINO, PyTorch and torchvision are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import torch
from openvino import opset15 as ops

RANDOM = np.random.default_rng(0)
CORE = ov.Core()


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def save(
    folder: Path, name: str, model: ov.Model, arrays: list[np.ndarray], half: bool = False
) -> None:
    case = folder / name
    case.mkdir(parents=True, exist_ok=True)
    ov.save_model(model, case / "model.xml", compress_to_fp16=half)
    if not (case / "model.bin").exists():
        (case / "model.bin").write_bytes(b"")
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    results = CORE.compile_model(CORE.read_model(case / "model.xml"), "CPU", config)(arrays)
    saved = {f"input:{i.any_name}": a for i, a in zip(model.inputs, arrays, strict=True)}
    saved |= {f"output:{i}": np.array(r) for i, r in enumerate(results.values())}
    np.savez(case / "io.npz", **saved)


def single(folder: Path, name: str, make: Callable[..., Any], *arrays: np.ndarray) -> None:
    """A model of one operator on these inputs."""
    parameters = [ops.parameter(a.shape, a.dtype, name=f"x{i}") for i, a in enumerate(arrays)]
    for i, p in enumerate(parameters):
        p.output(0).set_names({f"x{i}"})
    try:
        node = make(*parameters)
        results = [ops.result(node.output(i)) for i in range(node.get_output_size())]
        save(folder, name, ov.Model(results, parameters, name), list(arrays))
    except Exception as e:
        print(f"{name}: {str(e).splitlines()[0][:150]}")


X = normal(2, 6, 8, 9)
POSITIVE = RANDOM.uniform(0.5, 2, (2, 6, 8, 9)).astype(np.float32)
INTEGERS = RANDOM.integers(-9, 10, (2, 6, 8, 9))
BOOLS = RANDOM.integers(0, 2, (2, 6, 8, 9)).astype(bool)


def elements(folder: Path) -> None:
    for name in [
        "abs",
        "asin",
        "atan",
        "ceiling",
        "cos",
        "cosh",
        "erf",
        "exp",
        "floor",
        "hsigmoid",
        "hswish",
        "mish",
        "negative",
        "relu",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "softplus",
        "softsign",
        "tan",
        "tanh",
        "is_nan",
        "is_inf",
        "is_finite",
    ]:
        data = np.clip(X, -0.9, 0.9) if name == "asin" else X
        make = getattr(ops, name)
        single(folder, name, make if name != "softplus" else ops.softplus, data)
    for name in ("sqrt", "log", "asinh", "acosh"):
        single(folder, name, getattr(ops, name), POSITIVE + 1)
    single(folder, "acos", ops.acos, np.clip(X, -0.9, 0.9))
    single(folder, "atanh", ops.atanh, np.clip(X, -0.9, 0.9))
    single(folder, "elu", lambda x: ops.elu(x, 0.7), X)
    single(folder, "clamp", lambda x: ops.clamp(x, -0.5, 0.7), X)
    single(folder, "clamp_int", lambda x: ops.clamp(x, -2.5, 3.7), INTEGERS)
    for mode in ("erf", "tanh"):
        single(folder, f"gelu_{mode}", lambda x, m=mode: ops.gelu(x, m), X)
    for mode in ("half_to_even", "half_away_from_zero"):
        single(
            folder, f"round_{mode}", lambda x, m=mode: ops.round(x, m), (INTEGERS / 2).astype("f4")
        )
    single(folder, "prelu", lambda x: ops.prelu(x, normal(6)), X)
    single(folder, "prelu_one", lambda x: ops.prelu(x, normal(1)), X)
    one = np.float32
    single(folder, "selu", lambda x: ops.selu(x, one(1.5), one(1.1)), X)
    single(folder, "hard_sigmoid", lambda x: ops.hard_sigmoid(x, one(0.3), one(0.4)), X)
    single(folder, "swish", ops.swish, X)
    single(folder, "swish_beta", lambda x: ops.swish(x, one(1.3)), X)
    single(folder, "logical_not", ops.logical_not, BOOLS)
    single(folder, "bitwise_not", ops.bitwise_not, INTEGERS)
    for name in [
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "floor_mod",
        "mod",
        "squared_difference",
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    ]:
        single(folder, name, getattr(ops, name), X, POSITIVE[:, :, :1])
        whole = np.where(INTEGERS[:1] == 0, 3, INTEGERS[:1])
        single(
            folder,
            f"{name}_int",
            getattr(ops, name),
            INTEGERS if name != "divide" else abs(INTEGERS),
            abs(whole) if name == "divide" else whole,
        )
    single(folder, "power", ops.power, POSITIVE, X)
    for name in ("logical_and", "logical_or", "logical_xor"):
        single(folder, name, getattr(ops, name), BOOLS, BOOLS[::-1].copy())
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        single(folder, name, getattr(ops, name), INTEGERS, INTEGERS[::-1].copy())
    single(folder, "select", ops.select, BOOLS, X, POSITIVE[:, :1])
    for dtype in ("i32", "i64", "u8", "boolean"):
        single(
            folder,
            f"convert_{dtype}",
            lambda x, d=dtype: ops.convert(ops.convert(x, d), "f32"),
            POSITIVE * 9,
        )
    single(folder, "convert_like", ops.convert_like, POSITIVE * 9, INTEGERS)
    single(
        folder,
        "fake_quantize",
        lambda x: ops.fake_quantize(x, one(-1.5), one(1.2), one(-3), one(2), 256),
        X,
    )
    channels = [
        normal(1, 6, 1, 1) - 2,
        normal(1, 6, 1, 1) + 3,
        normal(1, 6, 1, 1) - 2,
        normal(1, 6, 1, 1) + 2,
    ]
    single(folder, "fake_quantize_channels", lambda x: ops.fake_quantize(x, *channels, 16), X)
    for name in ("l1", "l2", "max", "mean", "min", "prod", "sum"):
        for keep in (False, True):
            single(
                folder,
                f"reduce_{name}_{keep}",
                lambda x, n=name, k=keep: getattr(ops, f"reduce_{n}")(x, np.array([1, -1]), k),
                POSITIVE,
            )
    for name in ("and", "or"):
        single(
            folder,
            f"reduce_logical_{name}",
            lambda x, n=name: getattr(ops, f"reduce_logical_{n}")(x, np.array([1]), False),
            BOOLS,
        )


def windows(folder: Path) -> None:
    w, kinds = normal(4, 6, 3, 3, scale=0.2), ("explicit", "same_upper", "same_lower", "valid")
    for mode in kinds:
        single(
            folder,
            f"conv_{mode}",
            lambda x, m=mode: ops.convolution(x, w, [2, 1], [1, 0], [0, 2], [1, 1], m),
            X,
        )
        for name, make in {"max": ops.max_pool, "avg": ops.avg_pool}.items():
            more = ([1, 1],) if name == "max" else ()
            for rounding in ("floor", "ceil", "ceil_torch"):
                for size in (2, 3):

                    def pool(
                        x, make=make, mode=mode, more=more, rounding=rounding, size=size, name=name
                    ):
                        rest = (rounding, mode) if name == "max" else (True, rounding, mode)
                        return make(x, [2, 2], *more, [1, 0], [0, 1], [size, 3], *rest)

                    single(folder, f"pool_{name}_{mode}_{rounding}_{size}", pool, X)
    single(
        folder, "avg_counts", lambda x: ops.avg_pool(x, [2, 2], [1, 1], [1, 1], [3, 3], False), X
    )
    single(
        folder, "conv_dilated", lambda x: ops.convolution(x, w, [1, 1], [2, 2], [2, 2], [2, 2]), X
    )
    single(
        folder,
        "conv_1d",
        lambda x: ops.convolution(x, normal(4, 6, 3), [1], [1], [1], [1]),
        X[:, :, 0],
    )
    for groups in (6, 2):
        g = normal(groups, 2, 6 // groups, 3, 3)
        single(
            folder,
            f"group_conv_{groups}",
            lambda x, g=g: ops.group_convolution(x, g, [1, 1], [1, 1], [1, 1], [1, 1]),
            X,
        )
        b = normal(groups, 6 // groups, 2, 4, 4)
        single(
            folder,
            f"group_deconv_{groups}",
            lambda x, b=b: ops.group_convolution_backprop_data(
                x, b, [2, 2], None, [1, 1], [1, 1], [1, 1]
            ),
            X,
        )
    d = normal(6, 4, 4, 4, scale=0.2)
    single(
        folder,
        "deconv",
        lambda x: ops.convolution_backprop_data(x, d, [2, 2], None, [1, 1], [1, 1]),
        X,
    )
    single(
        folder,
        "deconv_more",
        lambda x: ops.convolution_backprop_data(
            x, d, [2, 2], None, [1, 1], [1, 1], output_padding=[1, 1]
        ),
        X,
    )
    single(folder, "adaptive_avg", lambda x: ops.adaptive_avg_pool(x, np.array([3, 4])), X)
    single(folder, "adaptive_max", lambda x: ops.adaptive_max_pool(x, np.array([3, 4]), "i64"), X)
    single(folder, "lrn", lambda x: ops.lrn(x, np.array([1]), 0.3, 0.75, 1.0, 5), X)
    for variance in (True, False):
        for mode in ("inside_sqrt", "outside_sqrt"):
            single(
                folder,
                f"mvn_{variance}_{mode}",
                lambda x, v=variance, m=mode: ops.mvn(x, np.array([2, 3]), v, 0.01, m),
                X,
            )
    for mode in ("add", "max"):
        single(
            folder,
            f"normalize_{mode}",
            lambda x, m=mode: ops.normalize_l2(x, np.array([1]), 0.1, m),
            X,
        )
    four = normal(6), normal(6), normal(6), np.abs(normal(6)) + 0.5
    single(folder, "batch_norm", lambda x: ops.batch_norm_inference(x, *four, 0.001), X)
    single(
        folder,
        "group_norm",
        lambda x: ops.group_normalization(x, normal(6), normal(6), 3, 0.001),
        X,
    )
    for axis in (1, -1):
        single(folder, f"softmax_{axis}", lambda x, a=axis: ops.softmax(x, a), X)
        single(folder, f"log_softmax_{axis}", lambda x, a=axis: ops.log_softmax(x, a), X)
    for a, b in ((False, False), (True, False), (False, True), (True, True)):
        left = normal(3, 5, 4) if a else normal(3, 4, 5)
        right = normal(3, 6, 5) if b else normal(3, 5, 6)
        single(
            folder, f"matmul_{a}_{b}", lambda x, y, a=a, b=b: ops.matmul(x, y, a, b), left, right
        )
    single(
        folder,
        "matmul_vector",
        lambda x, y: ops.matmul(x, y, False, False),
        normal(3, 4, 5),
        normal(5),
    )
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 8)
    single(folder, "attention", ops.scaled_dot_product_attention, q, k, v)
    for mode in ("nearest", "linear_onnx", "cubic"):
        for where in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"):
            for how in ("sizes", "scales"):
                target = np.array([13, 20]) if how == "sizes" else np.array([1.5, 2.0], np.float32)

                def resize(x, mode=mode, where=where, how=how, target=target):
                    return ops.interpolate(
                        x,
                        target,
                        mode,
                        how,
                        [0, 0],
                        [0, 0],
                        where,
                        "floor",
                        False,
                        -0.75,
                        np.array([2, 3]),
                    )

                single(folder, f"resize_{mode}_{where}_{how}", resize, X)


def shapes(folder: Path) -> None:
    single(folder, "reshape", lambda x: ops.reshape(x, np.array([0, -1, 12]), True), X)
    single(folder, "reshape_plain", lambda x: ops.reshape(x, np.array([4, -1]), False), X)
    single(folder, "transpose", lambda x: ops.transpose(x, np.array([2, 0, 3, 1])), X)
    single(folder, "transpose_all", lambda x: ops.transpose(x, np.zeros(0, np.int64)), X)
    single(folder, "squeeze", lambda x: ops.squeeze(x, np.array([1, -1])), X[:, :1, :, :1])
    single(folder, "unsqueeze", lambda x: ops.unsqueeze(x, np.array([0, -1])), X)
    single(folder, "concat", lambda a, b: ops.concat([a, b], -1), X, POSITIVE)
    single(folder, "split", lambda x: ops.split(x, np.int64(1), 3), X)
    single(
        folder,
        "variadic_split",
        lambda x: ops.variadic_split(x, np.int64(2), np.array([1, -1, 3])),
        X,
    )
    full = [np.array(v) for v in ([1, -7], [9, -1], [2, 3], [2, 3])]
    single(folder, "slice", lambda x: ops.slice(x, *full), X)
    single(
        folder, "slice_back", lambda x: ops.slice(x, *(np.array([v]) for v in (-1, -99, -2, 3))), X
    )

    def strided(begins, ends, steps, masks):
        return lambda x: ops.strided_slice(
            x, np.array(begins), np.array(ends), np.array(steps), *masks
        )

    for number, case in enumerate(
        [
            ([0, 1, 2], [2, 5, 7], [1, 2, 1], ([0] * 3, [0] * 3, [], [], [])),
            ([0, 1, 2], [2, 5, 7], [1, 2, 1], ([1, 0, 1], [1, 1, 0], [], [], [])),
            ([0, 1, 2], [1, 5, 3], [1, 1, 1], ([0] * 3, [0] * 3, [], [1, 0, 1], [])),
            ([0, 0, 1], [0, 0, 4], [1, 1, 1], ([0] * 3, [0] * 3, [0, 1, 0], [], [])),
            ([0, 1], [0, 4], [1, 2], ([0] * 2, [0] * 2, [], [], [1, 0])),
            ([0, -1], [0, 0], [1, 1], ([0] * 2, [0] * 2, [], [0, 1], [1, 0])),
            ([-1, 4], [0, 0], [-1, -1], ([0] * 2, [1, 1], [], [], [])),
        ]
    ):
        single(folder, f"strided_{number}", strided(*case), X)
    single(folder, "gather", lambda x: ops.gather(x, np.array([[1, -1], [0, 3]]), np.int64(2)), X)
    single(
        folder, "gather_given", lambda x, i: ops.gather(x, i, np.int64(1)), X, np.array([5, -2, 0])
    )
    single(
        folder,
        "gather_batch",
        lambda x, i: ops.gather(x, i, np.int64(1), 1),
        X,
        np.array([[5, 2, 0], [1, 1, 3]]),
    )
    places = RANDOM.integers(0, 8, (2, 6, 3, 9))
    single(folder, "gather_elements", lambda x, i: ops.gather_elements(x, i, 2), X, places)
    single(folder, "gather_nd", lambda x, i: ops.gather_nd(x, i), X, RANDOM.integers(0, 2, (4, 2)))
    single(
        folder,
        "gather_nd_batch",
        lambda x, i: ops.gather_nd(x, i, 1),
        X,
        RANDOM.integers(0, 6, (2, 4, 1)),
    )
    single(
        folder,
        "scatter_elements",
        lambda x, u: ops.scatter_elements_update(x, np.array([[1, 3, 0]]), u, np.int64(1)),
        normal(2, 5),
        normal(1, 3),
    )
    single(
        folder,
        "scatter_nd",
        lambda x, u: ops.scatter_nd_update(x, np.array([[1], [3]]), u),
        normal(5, 4),
        normal(2, 4),
    )
    single(folder, "broadcast", lambda x: ops.broadcast(x, np.array([3, 2, 6, 8, 9])), X)
    single(
        folder,
        "broadcast_both",
        lambda x: ops.broadcast(x, np.array([4, 1, 1]), broadcast_spec="BIDIRECTIONAL"),
        normal(3, 1, 5, 6),
    )
    single(
        folder,
        "broadcast_explicit",
        lambda x: ops.broadcast(x, np.array([2, 6, 4]), np.array([1]), "EXPLICIT"),
        normal(6),
    )
    single(folder, "tile", lambda x: ops.tile(x, np.array([2, 1, 3])), X)
    for mode in ("constant", "edge", "reflect"):
        single(
            folder,
            f"pad_{mode}",
            lambda x, m=mode: ops.pad(
                x, np.array([0, 0, 1, 2]), np.array([0, 1, 2, 0]), m, np.float32(0.5)
            ),
            X,
        )
    single(folder, "shape_of", lambda x: ops.shape_of(x, "i32"), X)
    single(
        folder,
        "one_hot",
        lambda x: ops.one_hot(x, np.int64(5), np.float32(2), np.float32(-1), 1),
        np.array([[1, 0], [4, 3]]),
    )
    for mode in ("max", "min"):
        for order in ("value", "index"):
            single(
                folder,
                f"topk_{mode}_{order}",
                lambda x, m=mode, o=order: ops.topk(x, np.int64(3), 1, m, o),
                X,
            )
    single(folder, "non_zero", ops.non_zero, INTEGERS)
    for exclusive, reverse in ((False, False), (True, False), (False, True)):
        single(
            folder,
            f"cumsum_{exclusive}_{reverse}",
            lambda x, e=exclusive, r=reverse: ops.cum_sum(x, np.int64(2), e, r),
            X,
        )
    single(folder, "reverse", lambda x: ops.reverse_sequence(x, np.array([3, 5]), 0, 2), X)
    for mode in ("blocks_first", "depth_first"):
        single(
            folder,
            f"depth_to_space_{mode}",
            lambda x, m=mode: ops.depth_to_space(x, m, 2),
            normal(2, 8, 3, 4),
        )
        single(
            folder,
            f"space_to_depth_{mode}",
            lambda x, m=mode: ops.space_to_depth(x, m, 2),
            normal(2, 3, 4, 6),
        )
    single(folder, "shuffle", lambda x: ops.shuffle_channels(x, 1, 3), X)
    single(folder, "roll", lambda x: ops.roll(x, np.array([2, -1]), np.array([1, 3])), X)


def networks(folder: Path) -> None:
    import torchvision

    torch.manual_seed(0)
    for name in (
        "resnet18",
        "mobilenet_v2",
        "squeezenet1_1",
        "shufflenet_v2_x0_5",
        "efficientnet_b0",
    ):
        network = getattr(torchvision.models, name)(weights=None).eval()
        x = torch.rand(1, 3, 96, 96)
        model = ov.convert_model(network, example_input=x, input=[(1, 3, 96, 96)])
        save(folder, name, model, [x.numpy()], half=True)
    vision = torchvision.models.VisionTransformer(64, 16, 2, 4, 64, 128, num_classes=10).eval()
    x = torch.rand(1, 3, 64, 64)
    save(
        folder,
        "vit",
        ov.convert_model(vision, example_input=x, input=[(1, 3, 64, 64)]),
        [x.numpy()],
    )


def main() -> None:
    folder = Path(sys.argv[1])
    for family in (elements, windows, shapes, networks):
        family(folder)


if __name__ == "__main__":
    main()
