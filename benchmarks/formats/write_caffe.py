#!/usr/bin/env python3
"""Write Caffe nets with random weights, and what OpenCV or a formula of NumPy computes with them:
`python benchmarks/formats/write_caffe.py FOLDER`, where OpenCV 4 is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

RANDOM = np.random.default_rng(0)


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def block(number: int, raw: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.5, 2, shape).astype(np.float32)


class Net:
    """A net in text, and its blobs."""

    def __init__(self, name: str, v1: bool = False, **inputs: tuple[int, ...]) -> None:
        self.name, self.v1, self.inputs = name, v1, inputs
        self.text = [f'name: "{name}"']
        for key, shape in inputs.items():
            dims = " ".join(f"dim: {d}" for d in shape)
            four = " ".join(f"input_dim: {d}" for d in shape)
            self.text.append(f'input: "{key}" {four if v1 else f"input_shape {{ {dims} }}"}')
        self.blobs: list[bytes] = []
        self.channels = {key: shape[1] for key, shape in inputs.items() if len(shape) > 1}
        self.last = next(iter(inputs))
        self.read: set[str] = set()
        self.makers: dict[str, tuple[str, int]] = {}
        self.made: list[str] = []

    def layer(
        self,
        kind: str,
        params: str = "",
        blobs: tuple[np.ndarray, ...] = (),
        name: str = "",
        bottom: str = "",
        top: str = "",
    ) -> str:
        """Add a layer; names are separated by spaces.  Returns its first top."""
        name = name or f"{kind.lower()}{len(self.text)}"
        bottoms, tops = (bottom or self.last).split(), (top or name).split()
        parts = [f'name: "{name}"']
        parts.append(f"type: {kind}" if self.v1 else f'type: "{kind}"')
        parts += [f'bottom: "{b}"' for b in bottoms] + [f'top: "{t}"' for t in tops]
        self.text.append(f"{'layers' if self.v1 else 'layer'} {{ {' '.join(parts)} {params} }}")
        encoded = b"".join(map(self._blob, blobs))
        if blobs and self.v1:
            types = {"CONVOLUTION": 4, "INNER_PRODUCT": 14}
            self.blobs.append(
                block(2, block(4, name.encode()) + b"\x28" + varint(types[kind]) + encoded)
            )
        elif blobs:
            self.blobs.append(
                block(100, block(1, name.encode()) + block(2, kind.encode()) + encoded)
            )
        self.read |= set(bottoms)
        self.makers |= {t: (name, i) for i, t in enumerate(tops)}
        self.made += [t for t in tops if t not in self.made]
        self.read -= set(tops)
        self.last = tops[0]
        return tops[0]

    def _blob(self, array: np.ndarray) -> bytes:
        data = block(5, array.astype("<f4").tobytes())
        if self.v1:
            four = (1,) * (4 - array.ndim) + array.shape
            return block(
                6, b"".join(varint((i + 1) << 3) + varint(d) for i, d in enumerate(four)) + data
            )
        return block(7, block(7, block(1, b"".join(map(varint, array.shape)))) + data)

    def conv(
        self,
        count: int,
        size: int,
        stride: int = 1,
        pad: int = 0,
        group: int = 1,
        bias: bool = True,
        bottom: str = "",
        name: str = "",
        kind: str = "",
        more: str = "",
        gain: float = 1.0,
    ) -> str:
        source = bottom or self.last
        channels = self.channels[source]
        w = normal(
            count,
            channels // group,
            size,
            size,
            scale=gain * (2 / (channels // group * size * size)) ** 0.5,
        )
        params = (
            f"convolution_param {{ num_output: {count} kernel_size: {size} stride: {stride} "
            f"pad: {pad} group: {group} {'' if bias else 'bias_term: false'} {more} }}"
        )
        blobs = (w, normal(count, scale=0.1)) if bias else (w,)
        top = self.layer(
            kind or ("CONVOLUTION" if self.v1 else "Convolution"), params, blobs, name, source
        )
        self.channels[top] = count
        return top

    def same(self, kind: str, params: str = "", blobs: tuple[np.ndarray, ...] = ()) -> str:
        """A layer that writes over its input."""
        return self.layer(kind, params, blobs, bottom=self.last, top=self.last)

    def norm(self) -> None:
        """BatchNorm with Scale, in place."""
        c = self.channels[self.last]
        self.same("BatchNorm", "", (normal(c, scale=0.2) * 2, positive(c) * 2, np.float32([2])))
        self.same("Scale", "scale_param { bias_term: true }", (positive(c), normal(c, scale=0.1)))

    def pool(self, kind: str, size: int, stride: int = 1, pad: int = 0, bottom: str = "") -> str:
        source = bottom or self.last
        top = self.layer(
            "POOLING" if self.v1 else "Pooling",
            f"pooling_param {{ pool: {kind} kernel_size: {size} stride: {stride} pad: {pad} }}",
            bottom=source,
        )
        self.channels[top] = self.channels[source]
        return top

    def dense(self, count: int, inputs: int) -> str:
        kind = "INNER_PRODUCT" if self.v1 else "InnerProduct"
        w = normal(count, inputs, scale=(2 / inputs) ** 0.5)
        return self.layer(
            kind, f"inner_product_param {{ num_output: {count} }}", (w, normal(count, scale=0.1))
        )

    def joined(self, *bottoms: str) -> str:
        top = self.layer("CONCAT" if self.v1 else "Concat", bottom=" ".join(bottoms))
        self.channels[top] = sum(self.channels[b] for b in bottoms)
        return top


def write(
    folder: Path, net: Net, formula: Callable[..., object] | None = None, **given: np.ndarray
) -> None:
    """Write the case.  `formula` computes the outputs; by default OpenCV does."""
    case = folder / net.name
    case.mkdir(parents=True, exist_ok=True)
    text = case / "model.prototxt"
    text.write_text("\n".join(net.text) + "\n")
    blobs = case / "model.caffemodel"
    blobs.write_bytes(block(1, net.name.encode()) + b"".join(net.blobs))
    arrays = {k: given[k] if k in given else normal(*shape) for k, shape in net.inputs.items()}
    outputs = [t for t in net.made if t not in net.read]
    if formula is not None:
        results = formula(*arrays.values())
        results = results if isinstance(results, tuple) else (results,)
    else:
        engine = cv2.dnn.readNetFromCaffe(str(text), str(blobs))
        engine.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
        for key, array in arrays.items():
            engine.setInput(array, key)
        try:
            makers = [net.makers[t] for t in outputs]
            made = engine.forwardAndRetrieve([name for name, _ in makers])
            results = [blobs[i] for blobs, (_, i) in zip(made, makers, strict=True)]
        except cv2.error as e:
            print(f"{net.name}: OpenCV: {str(e).splitlines()[0]}")
            (case / "io.npz").unlink(missing_ok=True)
            return
    if outputs == ["detection_out"]:  # OpenCV orders all by score; Caffe orders classes first
        rows = results[0].reshape(-1, 7)
        results = [rows[np.lexsort((-rows[:, 2], rows[:, 1]))].reshape(1, 1, -1, 7)]
    saved = {f"input:{k}": a for k, a in arrays.items()}
    saved |= {
        f"output:{k}": np.asarray(a, np.float32) for k, a in zip(outputs, results, strict=True)
    }
    np.savez(case / "io.npz", **saved)


def single(
    folder: Path,
    name: str,
    kind: str,
    params: str = "",
    blobs: tuple[np.ndarray, ...] = (),
    formula: Callable[..., object] | None = None,
    top: str = "",
    given: dict | None = None,
    **inputs: tuple[int, ...],
) -> None:
    """A net of one layer."""
    net = Net(name, **(inputs or {"data": (2, 6, 9, 8)}))
    net.layer(kind, params, blobs, bottom=" ".join(net.inputs), top=top or "y")
    write(folder, net, formula, **(given or {}))


def elements(folder: Path) -> None:
    single(folder, "abs", "AbsVal")
    single(folder, "bnll", "BNLL")
    single(folder, "elu", "ELU", "elu_param { alpha: 0.7 }")
    single(folder, "relu", "ReLU")
    single(folder, "leaky", "ReLU", "relu_param { negative_slope: 0.1 }")
    single(folder, "prelu", "PReLU", "", (positive(6),))
    slope = positive(1)
    shared = "prelu_param { channel_shared: true }"
    single(
        folder, "prelu_shared", "PReLU", shared, (slope,), lambda x: np.where(x > 0, x, x * slope)
    )
    single(folder, "sigmoid", "Sigmoid")
    single(folder, "tanh", "TanH")
    single(
        folder,
        "swish",
        "Swish",
        "swish_param { beta: 1.5 }",
        formula=lambda x: x / (1 + np.exp(-1.5 * x)),
    )
    single(
        folder,
        "clip",
        "Clip",
        "clip_param { min: -0.5 max: 0.7 }",
        formula=lambda x: x.clip(-0.5, 0.7),
    )
    single(folder, "power", "Power", "power_param { power: 2 scale: 0.5 shift: 3 }")
    single(folder, "power3", "Power", "power_param { power: 1.5 scale: 0.1 shift: 3 }")
    single(
        folder,
        "exp",
        "Exp",
        "exp_param { base: 2 scale: 0.5 shift: 0.3 }",
        formula=lambda x: 2 ** (0.3 + 0.5 * x),
    )
    single(folder, "exp_e", "Exp", formula=np.exp)
    single(
        folder,
        "log",
        "Log",
        "log_param { base: 10 scale: 0.5 shift: 6 }",
        formula=lambda x: np.log10(6 + 0.5 * x),
    )
    single(
        folder,
        "threshold",
        "Threshold",
        "threshold_param { threshold: 0.2 }",
        formula=lambda x: x > 0.2,
    )
    single(folder, "dropout", "Dropout", "dropout_param { dropout_ratio: 0.4 }")
    two = {"a": (2, 5, 4, 3), "b": (2, 5, 4, 3)}
    for op in ("SUM", "PROD", "MAX"):
        single(
            folder,
            f"eltwise_{op.lower()}",
            "Eltwise",
            f"eltwise_param {{ operation: {op} }}",
            **two,
        )
    single(folder, "eltwise_coeff", "Eltwise", "eltwise_param { coeff: 0.5 coeff: -2 }", **two)
    s, b = positive(6), normal(6)
    single(folder, "scale", "Scale", "scale_param { bias_term: true filler { value: 1 } }", (s, b))
    single(
        folder,
        "scale_all",
        "Scale",
        "scale_param { axis: 0 num_axes: -1 }",
        (t := normal(2, 6, 9, 8),),
        lambda x: x * t,
    )
    single(
        folder,
        "scale_two",
        "Scale",
        "scale_param { axis: 0 }",
        formula=lambda a, b: a * b[:, :, None, None],
        a=(2, 5, 4, 3),
        b=(2, 5),
    )
    single(folder, "bias", "Bias", "", (b,), lambda x: x + b.reshape(1, 6, 1, 1))
    single(
        folder,
        "axpy",
        "Axpy",
        "",
        (),
        lambda a, x, y: a * x + y,
        a=(2, 5, 1, 1),
        x=(2, 5, 4, 3),
        y=(2, 5, 4, 3),
    )


def pool_formula(kind: str, k: int, s: int, p: int) -> Callable[[np.ndarray], np.ndarray]:
    """A pool by Caffe's rules, one window at a time."""

    def formula(x: np.ndarray) -> np.ndarray:
        n, c, h, w = x.shape
        sizes = []
        for e in (h, w):
            count = -(-(e + 2 * p - k) // s) + 1
            sizes.append(count - (p > 0 and (count - 1) * s >= e + p))
        y = np.zeros((n, c, *sizes), np.float32)
        for i, j in np.ndindex(*sizes):
            top, left = i * s - p, j * s - p
            area = (min(top + k, h + p) - top) * (min(left + k, w + p) - left)
            window = x[:, :, max(top, 0) : max(top + k, 0), max(left, 0) : max(left + k, 0)]
            y[:, :, i, j] = window.max((2, 3)) if kind == "MAX" else window.sum((2, 3)) / area
        return y

    return formula


def windows(folder: Path) -> None:
    for i, (size, stride, pad, group, more) in enumerate(
        [
            (3, 1, 1, 1, ""),
            (3, 2, 0, 2, ""),
            (1, 1, 0, 1, ""),
            (3, 1, 2, 6, "dilation: 2"),
            (5, 3, 2, 3, ""),
        ]
    ):
        net = Net(f"conv{i}", data=(2, 6, 11, 9))
        net.conv(12, size, stride, pad, group, more=more)
        write(folder, net)
    w = normal(4, 6, 3, 5)
    single(
        folder,
        "conv_hw",
        "Convolution",
        "convolution_param { num_output: 4 kernel_h: 3 kernel_w: 5 stride_h: 2 stride_w: 1 "
        "pad_h: 1 pad_w: 2 bias_term: false }",
        (w,),
    )
    single(
        folder,
        "deconv",
        "Deconvolution",
        "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 }",
        (normal(6, 4, 4, 4), normal(4)),
    )
    single(
        folder,
        "deconv_group",
        "Deconvolution",
        "convolution_param { num_output: 6 kernel_size: 4 stride: 2 pad: 1 group: 6 "
        "bias_term: false }",
        (normal(6, 1, 4, 4),),
    )
    for kind in ("MAX", "AVE"):
        for k, s, p in [(3, 2, 0), (3, 2, 1), (2, 2, 0), (3, 3, 1), (2, 2, 1), (5, 1, 2)]:
            single(
                folder,
                f"pool_{kind.lower()}_{k}{s}{p}",
                "Pooling",
                f"pooling_param {{ pool: {kind} kernel_size: {k} stride: {s} pad: {p} }}",
                formula=pool_formula(kind, k, s, p),
            )
            single(
                folder,
                f"pool_{kind.lower()}_{k}{s}{p}_cv",
                "Pooling",
                f"pooling_param {{ pool: {kind} kernel_size: {k} stride: {s} pad: {p} }}",
            )
        single(
            folder,
            f"pool_{kind.lower()}_global",
            "Pooling",
            f"pooling_param {{ pool: {kind} global_pooling: true }}",
        )
    single(
        folder,
        "pool_floor",
        "Pooling",
        "pooling_param { kernel_size: 3 stride: 2 round_mode: FLOOR }",
        formula=lambda x: pool_formula("MAX", 3, 2, 0)(x[:, :, :9, :7]),
    )
    single(folder, "lrn", "LRN", "lrn_param { local_size: 5 alpha: 0.3 beta: 0.75 }")
    single(
        folder,
        "lrn_within",
        "LRN",
        "lrn_param { local_size: 3 alpha: 0.3 beta: 0.75 norm_region: WITHIN_CHANNEL }",
    )

    def pyramid(x: np.ndarray) -> np.ndarray:
        levels = []
        for level in range(3):
            bins = 1 << level
            y = np.zeros((*x.shape[:2], bins, bins), np.float32)
            k = [-(-e // bins) for e in x.shape[2:]]
            p = [(kk * bins - e + 1) // 2 for kk, e in zip(k, x.shape[2:], strict=True)]
            for i, j in np.ndindex(bins, bins):
                r, c = i * k[0] - p[0], j * k[1] - p[1]
                y[:, :, i, j] = x[:, :, max(r, 0) : r + k[0], max(c, 0) : c + k[1]].max((2, 3))
            levels.append(y.reshape(x.shape[0], -1))
        return np.concatenate(levels, 1)

    single(
        folder, "spp", "SPP", "spp_param { pyramid_height: 3 }", formula=pyramid, data=(2, 3, 8, 12)
    )


def products(folder: Path) -> None:
    single(
        folder,
        "dense",
        "InnerProduct",
        "inner_product_param { num_output: 5 }",
        (normal(5, 432), normal(5)),
    )
    w = normal(8, 5)
    single(
        folder,
        "dense_axis",
        "InnerProduct",
        "inner_product_param { num_output: 5 axis: -1 transpose: true bias_term: false }",
        (w,),
        lambda x: x @ w,
    )
    table, b = normal(10, 4), normal(4)
    places = RANDOM.integers(0, 10, (3, 5)).astype(np.float32)
    single(
        folder,
        "embed",
        "Embed",
        "embed_param { num_output: 4 input_dim: 10 }",
        (table, b),
        lambda x: table[x.astype(int)] + b,
        given={"data": places},
        data=(3, 5),
    )
    single(
        folder,
        "batchnorm",
        "BatchNorm",
        "batch_norm_param { eps: 0.001 }",
        (normal(6) * 2, positive(6) * 2, np.float32([2])),
    )
    for variance in ("true", "false"):
        for across in ("true", "false"):
            single(
                folder,
                f"mvn_{variance}_{across}",
                "MVN",
                f"mvn_param {{ normalize_variance: {variance} across_channels: {across} }}",
            )
    single(folder, "softmax", "Softmax")
    single(folder, "softmax_axis", "Softmax", "softmax_param { axis: -1 }")
    for op, f in {"SUM": lambda x: x, "ASUM": abs, "SUMSQ": np.square}.items():
        single(
            folder,
            f"reduce_{op.lower()}",
            "Reduction",
            f"reduction_param {{ operation: {op} axis: 1 coeff: 0.5 }}",
            formula=lambda x, f=f: 0.5 * f(x).sum((1, 2, 3)),
        )
    single(
        folder,
        "reduce_mean",
        "Reduction",
        "reduction_param { operation: MEAN axis: -1 }",
        formula=lambda x: x.mean(-1),
    )
    for across in ("true", "false"):
        scale = positive(6)
        single(
            folder,
            f"normalize_{across}",
            "Normalize",
            f"norm_param {{ across_spatial: {across} channel_shared: {across} }}",
            (scale[: 1 if across == "true" else 6],),
        )

    def argmax(x: np.ndarray) -> np.ndarray:
        flat = x.reshape(len(x), -1)
        order = np.argsort(-flat, 1, kind="stable")[:, :3]
        return np.stack([order, np.take_along_axis(flat, order, 1)], 1)

    single(
        folder, "argmax", "ArgMax", "argmax_param { top_k: 3 out_max_val: true }", formula=argmax
    )
    single(
        folder,
        "argmax_axis",
        "ArgMax",
        "argmax_param { axis: 1 }",
        formula=lambda x: x.argmax(1, keepdims=True),
    )


def shapes(folder: Path) -> None:
    single(folder, "concat", "Concat", a=(2, 5, 4, 3), b=(2, 2, 4, 3))
    single(
        folder, "concat_axis", "Concat", "concat_param { axis: -1 }", a=(2, 5, 4, 3), b=(2, 5, 4, 1)
    )
    single(
        folder,
        "slice",
        "Slice",
        "slice_param { axis: 1 slice_point: 1 slice_point: 3 }",
        top="a b c",
    )
    single(folder, "slice_even", "Slice", top="a b c", formula=lambda x: tuple(np.split(x, 3, 1)))
    single(folder, "split", "Split", "", top="a b", formula=lambda x: (x, x))
    single(folder, "flatten", "Flatten")
    single(folder, "flatten_part", "Flatten", "flatten_param { axis: 1 end_axis: 2 }")
    single(folder, "reshape", "Reshape", "reshape_param { shape { dim: 0 dim: 3 dim: -1 dim: 8 } }")
    single(
        folder,
        "reshape_part",
        "Reshape",
        "reshape_param { shape { dim: -1 dim: 2 } axis: 1 num_axes: 2 }",
        formula=lambda x: x.reshape(2, 27, 2, 8),
    )
    single(folder, "permute", "Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
    single(
        folder,
        "crop",
        "Crop",
        "crop_param { axis: 2 offset: 1 offset: 2 }",
        a=(2, 3, 9, 8),
        b=(2, 3, 5, 4),
    )
    single(
        folder,
        "tile",
        "Tile",
        "tile_param { axis: 2 tiles: 3 }",
        formula=lambda x: np.tile(x, (1, 1, 3, 1)),
    )
    single(folder, "shuffle", "ShuffleChannel", "shuffle_channel_param { group: 3 }")
    single(
        folder,
        "interp",
        "Interp",
        "interp_param { zoom_factor: 3 }",
        formula=lambda x: resized(x, 25, 22),
    )
    single(
        folder,
        "interp_size",
        "Interp",
        "interp_param { height: 4 width: 19 }",
        formula=lambda x: resized(x, 4, 19),
    )


def resized(x: np.ndarray, *sizes: int) -> np.ndarray:
    """Bilinear interpolation with aligned corners."""
    for axis, size in zip((2, 3), sizes, strict=True):
        at = np.arange(size) * (x.shape[axis] - 1) / max(size - 1, 1)
        low = np.minimum(at.astype(int), x.shape[axis] - 2)
        part = (at - low).reshape((-1, 1) if axis == 2 else (-1,))
        x = np.take(x, low, axis) * (1 - part) + np.take(x, low + 1, axis) * part
    return x


def alexnet(v1: bool) -> Net:
    net = Net("alexnet_v1" if v1 else "alexnet", v1, data=(1, 3, 115, 115))
    relu, lrn = ("RELU", "LRN") if v1 else ("ReLU", "LRN")
    for count, size, stride, pad, group, more in [
        (48, 11, 4, 0, 1, True),
        (64, 5, 1, 2, 2, True),
        (96, 3, 1, 1, 1, False),
        (64, 3, 1, 1, 2, False),
    ]:
        net.conv(count, size, stride, pad, group)
        net.same(relu)
        if more:
            net.channels[net.layer(lrn, "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")] = (
                count
            )
            net.pool("MAX", 3, 2)
    net.dense(128, 64 * 6 * 6)
    net.same(relu)
    net.same("DROPOUT" if v1 else "Dropout", "dropout_param { dropout_ratio: 0.5 }")
    net.dense(100, 128)
    net.layer("SOFTMAX" if v1 else "Softmax", top="prob")
    return net


def googlenet() -> Net:
    net = Net("googlenet", data=(1, 3, 96, 96))
    net.conv(32, 7, 2, 3)
    net.same("ReLU")
    net.pool("MAX", 3, 2)
    net.channels[net.layer("LRN", "lrn_param { local_size: 5 alpha: 0.0001 }")] = 32
    for widths in [(16, 24, 32, 4, 8, 8), (32, 32, 48, 8, 24, 16)]:
        source, branches = net.last, []
        branches.append(net.conv(widths[0], 1, bottom=source))
        net.same("ReLU")
        for reduced, count, size in [(widths[1], widths[2], 3), (widths[3], widths[4], 5)]:
            net.conv(reduced, 1, bottom=source)
            net.same("ReLU")
            branches.append(net.conv(count, size, 1, size // 2))
            net.same("ReLU")
        net.pool("MAX", 3, 1, 1, bottom=source)
        branches.append(net.conv(widths[5], 1))
        net.same("ReLU")
        net.joined(*branches)
    net.pool("AVE", 24, 1)
    net.dense(50, 120)
    net.layer("Softmax", top="prob")
    return net


def resnet50() -> Net:
    net = Net("resnet50", data=(1, 3, 64, 64))
    net.conv(64, 7, 2, 3, bias=False)
    net.norm()
    net.same("ReLU")
    net.pool("MAX", 3, 2)
    for stage, (width, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for number in range(count):
            source, stride = net.last, 2 if stage and not number else 1
            shortcut = source
            if not number:
                shortcut = net.conv(4 * width, 1, stride, bias=False, bottom=source)
                net.norm()
            net.conv(width, 1, stride, bias=False, bottom=source)
            net.norm()
            net.same("ReLU")
            net.conv(width, 3, 1, 1, bias=False)
            net.norm()
            net.same("ReLU")
            branch = net.conv(4 * width, 1, bias=False)
            net.norm()
            net.channels[net.layer("Eltwise", bottom=f"{shortcut} {branch}")] = 4 * width
            net.same("ReLU")
            net.same("Power", "power_param { scale: 0.5 }")
    net.pool("AVE", 2, 1)
    net.dense(100, 2048)
    net.layer("Softmax", top="prob")
    return net


def squeezenet() -> Net:
    net = Net("squeezenet", data=(1, 3, 97, 97))
    net.conv(64, 3, 2)
    net.same("ReLU")
    net.pool("MAX", 3, 2)
    for squeezed, expanded in [(16, 64), (16, 64), (32, 128)]:
        net.conv(squeezed, 1)
        net.same("ReLU")
        source, parts = net.last, []
        for size in (1, 3):
            parts.append(net.conv(expanded, size, 1, size // 2, bottom=source))
            net.same("ReLU")
        net.joined(*parts)
    net.conv(40, 1)
    net.layer("Pooling", "pooling_param { pool: AVE global_pooling: true }")
    net.layer("Softmax", top="prob")
    return net


def ssd_mobilenet() -> Net:
    net = Net("ssd_mobilenet", data=(1, 3, 96, 96))
    net.conv(16, 3, 2, 1, bias=False)
    net.norm()
    net.same("ReLU")
    heads = []
    for number, (count, stride) in enumerate(
        [(32, 1), (64, 2), (64, 1), (128, 2), (128, 2), (128, 2)]
    ):
        channels = net.channels[net.last]
        net.conv(channels, 3, stride, 1, group=channels, bias=False)
        net.norm()
        net.same("ReLU")
        net.conv(count, 1, bias=False)
        net.norm()
        net.same("ReLU")
        if number >= 3:
            heads.append(net.last)
    parts: dict[str, list[str]] = {"loc": [], "conf": [], "prior": []}
    for number, source in enumerate(heads):
        for what, count in (("loc", 4 * 4), ("conf", 4 * 5)):
            net.conv(count, 1, bottom=source, gain=0.1)
            net.layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            parts[what].append(net.layer("Flatten", "flatten_param { axis: 1 }"))
        size = 20 + 24 * number
        parts["prior"].append(
            net.layer(
                "PriorBox",
                f"prior_box_param {{ min_size: {size} max_size: {size + 24} aspect_ratio: 2 "
                "flip: true clip: false "
                "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 offset: 0.5 }",
                bottom=f"{source} data",
            )
        )
    net.layer("Concat", "concat_param { axis: 1 }", bottom=" ".join(parts["loc"]), top="mbox_loc")
    net.layer("Concat", "concat_param { axis: 1 }", bottom=" ".join(parts["conf"]), top="mbox_conf")
    net.layer(
        "Concat", "concat_param { axis: 2 }", bottom=" ".join(parts["prior"]), top="mbox_prior"
    )
    net.layer(
        "Reshape",
        "reshape_param { shape { dim: 0 dim: -1 dim: 5 } }",
        bottom="mbox_conf",
        top="mbox_conf_r",
    )
    net.layer("Softmax", "softmax_param { axis: 2 }", top="mbox_conf_s")
    net.layer("Flatten", "flatten_param { axis: 1 }", top="mbox_conf_f")
    net.layer(
        "DetectionOutput",
        "detection_output_param { num_classes: 5 share_location: true background_label_id: 0 "
        "nms_param { nms_threshold: 0.45 top_k: 100 } code_type: CENTER_SIZE "
        "keep_top_k: 30 confidence_threshold: 0.22 }",
        bottom="mbox_loc mbox_conf_f mbox_prior",
        top="detection_out",
    )
    return net


def main() -> None:
    folder = Path(sys.argv[1])
    for family in (elements, windows, products, shapes):
        family(folder)
    for net in (
        alexnet(False),
        alexnet(True),
        googlenet(),
        resnet50(),
        squeezenet(),
        ssd_mobilenet(),
    ):
        write(folder, net)


if __name__ == "__main__":
    main()
