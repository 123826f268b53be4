#!/usr/bin/env python3
"""Write ncnn models with random weights, and what ncnn computes with them:
`python benchmarks/formats/write_ncnn.py FOLDER`, where ncnn is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import ncnn
import numpy as np

RANDOM = np.random.default_rng(0)
F32, HALF, INT8, TABLE, PLAIN = "f32", "half", "int8", "table", "plain"
IMAGE = (6, 8, 9)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.5, 2, shape).astype(np.float32)


def stored(array: np.ndarray, form: str = PLAIN) -> bytes:
    """The bytes of a tensor, with the flag of its form; without one if it is PLAIN."""
    if form == PLAIN:
        raw = array.astype("<f4").tobytes()
    elif form == HALF:
        raw = b"\x47\x6b\x30\x01" + array.astype("<f2").tobytes()
    elif form == INT8:
        raw = b"\x38\x4b\x0d\x00" + array.astype("i1").tobytes()
    elif form == TABLE:
        table = np.linspace(-1, 1, 256).astype("<f4")
        places = np.abs(array.reshape(-1, 1) - table).argmin(1).astype("u1")
        raw = b"\x01\x00\x00\x00" + table.tobytes() + places.tobytes()
    else:
        raw = b"\0\0\0\0" + array.astype("<f4").tobytes()
    return raw + b"\0" * (-len(raw) % 4)


class Model:
    """Layers in text, and the bytes of their weights."""

    def __init__(self, *inputs: tuple[int, ...]) -> None:
        self.inputs = inputs
        self.lines: list[str] = []
        self.weights: list[bytes] = []
        self.names = [f"in{i}" for i in range(len(inputs))]
        for name, shape in zip(self.names, inputs, strict=True):
            keys = {1: (0,), 2: (1, 0), 3: (2, 1, 0), 4: (2, 11, 1, 0)}[len(shape)]
            params = " ".join(f"{k}={d}" for k, d in zip(keys, shape, strict=True))
            self.lines.append(f"Input {name} 0 1 {name} {params}")

    def add(self, kind: str, params: str, bottoms: str, tops: str, *weights: bytes) -> None:
        reads, makes = bottoms.split(), tops.split()
        name = f"layer{len(self.lines)}"
        words = [kind, name, len(reads), len(makes), bottoms, tops, params]
        self.lines.append(" ".join(str(w) for w in words if w != ""))
        self.weights += weights

    def write(self, folder: Path, name: str, tops: list[str], **given: np.ndarray) -> None:
        case = folder / name
        case.mkdir(parents=True, exist_ok=True)
        names = {w for line in self.lines for w in line.split()[4:] if "=" not in w}
        text = "\n".join(["7767517", f"{len(self.lines)} {len(names)}", *self.lines]) + "\n"
        (case / "model.param").write_text(text)
        (case / "model.bin").write_bytes(b"".join(self.weights))
        arrays = [normal(*shape) for shape in self.inputs]
        arrays = [given.get(n, a) for n, a in zip(self.names, arrays, strict=True)]
        net = ncnn.Net()
        for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
            setattr(net.opt, f"use_{option}", False)
        if net.load_param(str(case / "model.param")) or net.load_model(str(case / "model.bin")):
            print(f"{name}: ncnn does not load it")
            return
        results = []
        for top in tops:
            run = net.create_extractor()
            for n, a in zip(self.names, arrays, strict=True):
                run.input(n, ncnn.Mat(a).clone())
            code, mat = run.extract(top)
            if code:
                print(f"{name}: ncnn gives code {code}")
                return
            results.append(np.array(mat))
        saved = {f"input:{n}": a for n, a in zip(self.names, arrays, strict=True)}
        saved |= {f"output:{t}": r for t, r in zip(tops, results, strict=True)}
        np.savez(case / "io.npz", **saved)


def single(
    folder: Path, name: str, kind: str, params: str = "", weights: tuple[bytes, ...] = (),
    tops: str = "y", shapes: tuple[tuple[int, ...], ...] = (IMAGE,), **given: np.ndarray,
) -> None:  # fmt: skip
    """A model of one layer."""
    model = Model(*shapes)
    model.add(kind, params, " ".join(model.names), tops, *weights)
    model.write(folder, name, tops.split(), **given)


def elements(folder: Path) -> None:
    for kind, params in {
        "AbsVal": "", "BNLL": "", "CELU": "0=0.7", "Clip": "0=-0.5 1=0.7", "ELU": "0=0.6",
        "Erf": "",
        "GELU": "0=1", "HardSigmoid": "0=0.2 1=0.5", "HardSwish": "0=0.1667 1=0.5", "Mish": "",
        "SELU": "", "Shrink": "0=0.1 1=0.4", "Sigmoid": "", "Softplus": "", "Swish": "", "TanH": "",
        "Dropout": "0=0.5", "ReLU": "0=0.1", "Threshold": "0=0.2", "Noop": "", "Exp": "0=2.0 1=0.5",
    }.items():  # fmt: skip
        single(folder, kind.lower(), kind, params)
    x = positive(*IMAGE)
    single(folder, "log", "Log", "0=10.0 1=0.5 2=0.1", in0=x)
    single(folder, "power", "Power", "0=1.5 1=0.5 2=0.1", in0=x)
    single(folder, "gelu_exact", "GELU", "0=0")
    single(folder, "split", "Split", "", tops="a b")
    for number in range(20):
        single(folder, f"unary_{number}", "UnaryOp", f"0={number}", in0=positive(*IMAGE) / 2.1)
    for number in range(10):
        two = {"in0": positive(*IMAGE), "in1": positive(*IMAGE)}
        single(folder, f"binary_{number}", "BinaryOp", f"0={number}", shapes=(IMAGE, IMAGE), **two)
        single(folder, f"scalar_{number}", "BinaryOp", f"0={number} 1=1 2=1.5", in0=two["in0"])
    for number, other in enumerate([(6,), (9,), (6, 8), (6, 1, 1), (1, 8, 9), (6, 8, 1), (1,)]):
        single(folder, f"spread_{number}", "BinaryOp", "0=0", shapes=(IMAGE, other))
        single(folder, f"spread_back_{number}", "BinaryOp", "0=1", shapes=(other, IMAGE))
    for number in range(3):
        single(folder, f"eltwise_{number}", "Eltwise", f"0={number}", shapes=(IMAGE, IMAGE))
    single(folder, "eltwise_factors", "Eltwise", "0=1 -23301=2,0.5,-2.0", shapes=(IMAGE, IMAGE))


def convolutions(folder: Path) -> None:
    w, b = normal(4, 6, 3, 3, scale=0.2), stored(normal(4))
    base = "0=4 1=3 5=1 6=216"
    for form in (F32, HALF, TABLE):
        single(folder, f"conv_{form}", "Convolution", f"{base} 4=1", (stored(w, form), b))
    for number, more in enumerate(
        ["3=2 4=1", "4=2 2=2", "4=1 14=0 15=2 16=1", "4=-233", "3=2 4=-233", "3=2 4=-234",
         "4=1 18=0.5", "9=1", "9=2 -23310=1,0.3", "9=3 -23310=2,-0.5,0.8", "9=4", "9=5",
         "9=6 -23310=2,0.2,0.5", "10=0.3 9=2"]
    ):  # fmt: skip
        single(folder, f"conv_{number}", "Convolution", f"{base} {more}", (stored(w, F32), b))
    uneven = normal(4, 6, 2, 3, scale=0.2)
    single(
        folder, "conv_uneven", "Convolution", "0=4 1=3 11=2 3=1 13=2 6=144", (stored(uneven, F32),)
    )
    for groups in (6, 2):
        g = normal(6, 6 // groups, 3, 3, scale=0.3)
        params = f"0=6 1=3 4=1 5=1 6={g.size} 7={groups}"
        single(folder, f"depthwise_{groups}", "ConvolutionDepthWise", params,
               (stored(g, F32), stored(normal(6))))  # fmt: skip
    integers = RANDOM.integers(-127, 128, w.shape)
    scales = stored(positive(4) * 100), stored(np.float32([30]))
    single(
        folder, "conv_int8", "Convolution", f"{base} 4=1 8=2", (stored(integers, INT8), b, *scales)
    )
    w1 = normal(4, 6, 3, scale=0.3)
    single(folder, "conv_1d", "Convolution1D", "0=4 1=3 3=2 4=1 5=1 6=72", (stored(w1, F32), b),
           shapes=((6, 11),))  # fmt: skip
    for stride in (1, 2):
        d = normal(4, 6, 3, 3, scale=0.2)
        params = f"0=4 1=3 3={stride} 4=1 5=1 6=216"
        single(folder, f"deconv_{stride}", "Deconvolution", params, (stored(d, F32), b))
    single(folder, "deconv_more", "Deconvolution", "0=4 1=3 3=2 4=1 18=1 5=1 6=216",
           (stored(w, F32), b))  # fmt: skip
    g = normal(6, 1, 3, 3)
    single(folder, "deconv_depthwise", "DeconvolutionDepthWise", "0=6 1=3 3=2 4=1 6=54 7=6",
           (stored(g, F32),))  # fmt: skip
    for kind in (0, 1):
        for mode in range(4):
            for size, stride, pad in [(3, 2, 0), (3, 2, 1), (2, 2, 0), (4, 3, 1)]:
                if mode > 1 and pad:
                    continue
                single(folder, f"pool_{kind}{mode}{size}{stride}{pad}", "Pooling",
                       f"0={kind} 1={size} 2={stride} 3={pad} 5={mode}")  # fmt: skip
        single(folder, f"pool_global_{kind}", "Pooling", f"0={kind} 4=1")
        single(folder, f"pool_adaptive_{kind}", "Pooling", f"0={kind} 7=1 8=4 18=3")
    for pad in (0, 1):
        single(folder, f"pool_counts_{pad}", "Pooling", f"0=1 1=3 2=2 3={pad} 5=1 6=1")
        single(folder, f"pool_counts_full_{pad}", "Pooling", f"0=1 1=3 2=2 3={pad} 6=1")


def products(folder: Path) -> None:
    w, b = normal(5, 432, scale=0.1), stored(normal(5))
    for form in (F32, HALF):
        single(folder, f"dense_{form}", "InnerProduct", "0=5 1=1 2=2160 9=1", (stored(w, form), b))
    single(folder, "dense_rows", "InnerProduct", "0=5 1=1 2=45", (stored(normal(5, 9), F32), b),
           shapes=((7, 9),))  # fmt: skip
    single(folder, "dense_int8", "InnerProduct", "0=5 1=1 2=2160 8=2",
           (stored(RANDOM.integers(-127, 128, (5, 432)), INT8), b, stored(positive(5) * 100),
            stored(np.float32([40]))))  # fmt: skip
    single(folder, "matmul", "MatMul", "", shapes=((3, 4, 5), (3, 5, 6)))
    single(folder, "matmul_b", "MatMul", "0=1", shapes=((4, 5), (6, 5)))
    single(folder, "gemm", "Gemm", "0=0.5 1=2.0 2=1 3=1", shapes=((5, 4), (6, 5), (4, 6)))
    single(folder, "gemm_constant", "Gemm", "3=1 5=1 6=1 8=6 9=5 10=4",
           (stored(normal(6, 5), F32), stored(normal(1, 6), F32)), shapes=((4, 5),))  # fmt: skip
    single(folder, "embed", "Embed", "0=4 1=10 2=1 3=40",
           (stored(normal(10, 4), F32), stored(normal(4))),
           shapes=((7,),), in0=RANDOM.integers(0, 10, 7).astype(np.int32))  # fmt: skip
    for number, shape in enumerate([IMAGE, (6, 9), (6,)]):
        four = tuple(stored(a) for a in (positive(6), normal(6), positive(6), normal(6)))
        single(folder, f"batchnorm_{number}", "BatchNorm", "0=6 1=0.001", four, shapes=(shape,))
        two = stored(positive(6)), stored(normal(6))
        single(folder, f"scale_{number}", "Scale", "0=6 1=1", two, shapes=(shape,))
        single(folder, f"prelu_{number}", "PReLU", "0=6", two[:1], shapes=(shape,))
        single(folder, f"bias_{number}", "Bias", "0=6", two[1:], shapes=(shape,))
        size = shape[-1]
        affine = stored(positive(size)), stored(normal(size))
        single(
            folder, f"layernorm_{number}", "LayerNorm", f"0={size} 1=0.001", affine, shapes=(shape,)
        )
        single(
            folder, f"rmsnorm_{number}", "RMSNorm", f"0={size} 1=0.001", affine[:1], shapes=(shape,)
        )
    whole = stored(positive(72)), stored(normal(72))
    single(folder, "layernorm_image", "LayerNorm", "0=72 1=0.001", whole)
    single(folder, "layernorm_plain", "LayerNorm", "0=9 1=0.001 2=0")
    six = stored(positive(6)), stored(normal(6))
    single(folder, "instancenorm", "InstanceNorm", "0=6 1=0.001", six)
    single(folder, "groupnorm", "GroupNorm", "0=3 1=6 2=0.001 3=1", six)
    for number in range(4):
        single(folder, f"mvn_{number}", "MVN", f"0={number % 2} 1={number // 2} 2=0.001")
    for number, (spatial, channel) in enumerate([(1, 1), (1, 0), (0, 1)]):
        for mode in range(3):
            single(folder, f"normalize_{number}{mode}", "Normalize",
                   f"0={spatial} 1=0 2=0.001 3=6 4={channel} 9={mode}", six[:1])  # fmt: skip
    single(folder, "lrn", "LRN", "0=0 1=5 2=0.3 3=0.75 4=1.0")
    single(folder, "lrn_within", "LRN", "0=1 1=3 2=0.3 3=0.75 4=1.0")
    for axis in (0, 1, 2, -1):
        single(folder, f"softmax_{axis}", "Softmax", f"0={axis} 1=1")


def shapes(folder: Path) -> None:
    single(folder, "flatten", "Flatten")
    for number, params in enumerate(
        ["0=-1", "0=9 1=-1", "0=0 1=-1", "0=4 1=-1 2=6", "0=3 1=3 2=0 11=8"]
    ):
        single(folder, f"reshape_{number}", "Reshape", params)
    for number in range(6):
        single(folder, f"permute_{number}", "Permute", f"0={number}")
    for number in (0, 1):
        single(folder, f"permute_2d_{number}", "Permute", f"0={number}", shapes=((5, 7),))
    for number in range(24):
        single(folder, f"permute_4d_{number}", "Permute", f"0={number}", shapes=((2, 3, 4, 5),))
    for axis, other in enumerate([(2, 8, 9), (6, 3, 9), (6, 8, 4)]):
        single(folder, f"concat_{axis}", "Concat", f"0={axis}", shapes=(IMAGE, other))
    single(folder, "slice", "Slice", "-23300=3,1,2,-233 1=0", tops="a b c")
    single(folder, "slice_even", "Slice", "-23300=2,-233,-233 1=1", tops="a b")
    single(folder, "slice_places", "Slice", "-23302=2,2,5 1=2", tops="a b c")
    single(folder, "crop", "Crop", "0=1 1=2 2=1 3=4 4=5 5=3")
    single(folder, "crop_rest", "Crop", "0=1 1=2 2=1 3=-233 4=-233 5=-233 6=2 7=1 8=1")
    single(folder, "crop_axes", "Crop", "-23309=2,1,2 -23310=2,-1,-233 -23311=2,1,2")
    single(folder, "crop_like", "Crop", "0=1 1=2", shapes=(IMAGE, (6, 4, 5)))
    for kind in range(3):
        single(folder, f"padding_{kind}", "Padding", f"0=1 1=2 2=3 3=1 4={kind} 5=0.5")
        single(
            folder, f"padding_2d_{kind}", "Padding", f"0=1 1=2 2=3 3=1 4={kind}", shapes=((5, 7),)
        )
    single(folder, "expand", "ExpandDims", "-23303=1,0", shapes=((5, 7),))
    single(folder, "squeeze", "Squeeze", "-23303=1,0", shapes=((1, 5, 7),))
    single(folder, "squeeze_named", "Squeeze", "1=1", shapes=((5, 1, 7),))
    single(folder, "tile", "Tile", "0=1 1=3")
    single(folder, "tile_list", "Tile", "-23302=3,2,1,2")
    for number in range(11):
        for keep in (0, 1):
            single(folder, f"reduce_{number}_{keep}", "Reduction",
                   f"0={number} 1=0 -23303=1,1 4={keep} 5=1 2=0.5",
                   in0=positive(*IMAGE))  # fmt: skip
        single(
            folder, f"reduce_all_{number}", "Reduction", f"0={number} 1=1", in0=positive(*IMAGE) / 2
        )
    single(folder, "argmax", "ArgMax", "0=0 1=3")
    single(folder, "cumsum", "CumulativeSum", "0=1")
    single(folder, "flip", "Flip", "-23300=2,0,2")
    single(folder, "glu", "GLU", "0=0")
    single(folder, "shuffle", "ShuffleChannel", "0=3")
    single(folder, "shuffle_back", "ShuffleChannel", "0=3 1=1")
    for mode in (0, 1):
        single(folder, f"pixelshuffle_{mode}", "PixelShuffle", f"0=2 1={mode}", shapes=((8, 3, 4),))
        single(folder, f"reorg_{mode}", "Reorg", f"0=2 1={mode}", shapes=((3, 4, 6),))
    for kind in (1, 2, 3):
        single(folder, f"interp_{kind}", "Interp", f"0={kind} 1=2.0 2=1.5")
        single(folder, f"interp_size_{kind}", "Interp", f"0={kind} 3=5 4=20")
        if kind > 1:
            single(folder, f"interp_aligned_{kind}", "Interp", f"0={kind} 3=5 4=20 6=1")
    single(folder, "interp_like", "Interp", "0=2 5=1", shapes=(IMAGE, (2, 11, 13)))
    model = Model((6, 8, 9))
    model.add("MemoryData", "0=9 1=8 2=6", "", "m", stored(normal(*IMAGE)))
    model.add("BinaryOp", "0=2", "in0 m", "y")
    model.write(folder, "memory", ["y"])


def sequences(folder: Path) -> None:
    steps, width, size = 7, 5, 6
    x = ((steps, width),)
    for kind, gates, biases in (("LSTM", 4, 4), ("GRU", 3, 4), ("RNN", 1, 1)):
        for way in range(3):
            ways = 2 if way == 2 else 1
            rows = ((gates * size, width), (biases, size), (gates * size, size))
            weights = tuple(stored(normal(ways, *r, scale=0.5), F32) for r in rows)
            params = f"0={size} 1={ways * gates * size * width} 2={way}"
            single(folder, f"{kind.lower()}_{way}", kind, params, weights, shapes=x)
    rows = ((4 * 8, width), (4, 8), (4 * 8, size), (size, 8))
    weights = tuple(stored(normal(*r, scale=0.5), F32) for r in rows)
    params = f"0={size} 1={4 * 8 * width} 2=0 3=8"
    single(folder, "lstm_projected", "LSTM", params, weights, shapes=x)
    weights = tuple(stored(normal(*r, scale=0.5), F32) for r in ((24, 5), (4, 6), (24, 6)))
    shapes = (*x, (1, size), (1, size))
    single(folder, "lstm_states", "LSTM", "0=6 1=120 2=0", weights, "y h c", shapes)
    for name, widths, shapes in (
        ("self", (8, 8, 8), ((7, 8),)),
        ("cross", (8, 6, 6), ((7, 8), (4, 6))),
        ("masked", (8, 6, 10), ((7, 8), (4, 6), (4, 10), (7, 4))),
    ):
        pairs = [(stored(normal(8, w, scale=0.5), F32), stored(normal(8))) for w in (*widths, 8)]
        params = f"0=8 1=2 2=64 3={widths[1]} 4={widths[2]} 5={int(name == 'masked')}"
        flat = tuple(part for pair in pairs for part in pair)
        single(folder, f"attention_{name}", "MultiHeadAttention", params, flat, shapes=shapes)
    heads = ((4, 7, 8), (2, 5, 8), (2, 5, 3))
    single(folder, "sdpa", "SDPA", "", shapes=heads)
    single(folder, "sdpa_masked", "SDPA", "5=1 6=0.3", shapes=(*heads, (7, 5)))


def detection(folder: Path) -> None:
    image = ((4, 5, 6), (3, 60, 90))
    sizes = "-23300=2,10.0,20.0 -23301=2,15.0,30.0 -23302=2,2.0,3.0 9=-233 10=-233 13=0.5"
    single(folder, "priors", "PriorBox", sizes, shapes=image)
    sizes = "-23300=1,10.0 -23302=2,2.0,3.0 7=0 8=1 9=-233 10=-233 11=14.0 12=11.0 13=0.5"
    single(folder, "priors_clipped", "PriorBox", sizes, shapes=image)
    sizes = "-23300=2,0.2,0.3 -23302=3,1.0,2.0,0.5 9=-233 10=-233 13=0.5"
    single(folder, "priors_mxnet", "PriorBox", sizes, shapes=image[:1])
    count, classes = 24, 4
    scores = np.exp(2 * normal(count, classes))
    scores /= scores.sum(1, keepdims=True)
    centres, halves = RANDOM.uniform(0.2, 0.8, (count, 2)), RANDOM.uniform(0.05, 0.3, (count, 2))
    priors = np.hstack([centres - halves, centres + halves]).astype(np.float32)
    both = np.stack([priors.reshape(-1), np.tile(np.float32([0.1, 0.1, 0.2, 0.2]), count)])
    limits = "1=0.45 2=20 3=10 4=0.25"
    shapes = ((4 * count,), (classes * count,), (2, 4 * count))
    single(
        folder, "ssd", "DetectionOutput", f"0={classes} {limits}", shapes=shapes,
        in1=scores.reshape(-1), in2=both,
    )  # fmt: skip
    shapes = ((4 * count,), (classes, count), (count, 4))
    single(
        folder, "ssd_mxnet", "DetectionOutput", f"0=-233 {limits}", shapes=shapes,
        in1=scores.T.copy(), in2=priors,
    )  # fmt: skip
    params = "0=3 1=2 2=0.2 3=0.4 -23304=4,1.0,1.5,2.0,3.0"
    single(folder, "yolo_2", "YoloDetectionOutput", params, shapes=((16, 5, 6),))
    anchors = "-23304=8,10.0,15.0,20.0,30.0,7.0,8.0,9.0,4.0"
    params = f"0=3 1=2 2=0.4 3=0.4 {anchors} -23305=4,2.0,3.0,0.0,1.0 -23306=2,32.0,16.0"
    shapes = ((16, 5, 6), (16, 10, 12))
    single(folder, "yolo_3", "Yolov3DetectionOutput", params, shapes=shapes)


def mobilenet(folder: Path) -> None:
    """A small network of depthwise blocks, like MobileNet with residual sums."""
    model, channels, last = Model((3, 64, 64)), 3, "in0"

    def conv(count: int, size: int, stride: int, groups: int = 1, act: int = 1) -> None:
        nonlocal channels, last
        taps = channels // groups * size * size
        w = normal(count, taps, scale=(2 / taps) ** 0.5)
        kind = "ConvolutionDepthWise" if groups > 1 else "Convolution"
        more = f"7={groups} " if groups > 1 else ""
        top = f"b{len(model.lines)}"
        params = f"0={count} 1={size} 3={stride} 4={size // 2} 5=1 6={w.size} {more}9={act}"
        model.add(kind, params, last, top, stored(w, HALF), stored(normal(count, scale=0.1)))
        channels, last = count, top

    conv(16, 3, 2)
    for count, stride in [(16, 1), (24, 2), (24, 1), (40, 2), (40, 1)]:
        model.add("Split", "", last, f"k{len(model.lines)} m{len(model.lines)}")
        before, last = model.lines[-1].split()[-2:]
        source = channels
        conv(4 * channels, 1, 1)
        conv(channels, 3, stride, channels)
        conv(count, 1, 1, act=0)
        if stride == 1 and source == count:
            top = f"s{len(model.lines)}"
            model.add("BinaryOp", "0=0", f"{before} {last}", top)
            last = top
    model.add("Pooling", "0=1 4=1", last, "pooled")
    model.add(
        "InnerProduct",
        "0=10 1=1 2=400",
        "pooled",
        "fc",
        stored(normal(10, 40), HALF),
        stored(normal(10)),
    )
    model.add("Softmax", "0=0 1=1", "fc", "prob")
    model.write(folder, "mobilenet", ["prob"])


def main() -> None:
    folder = Path(sys.argv[1])
    for family in (elements, convolutions, products, shapes, sequences, detection, mobilenet):
        family(folder)


if __name__ == "__main__":
    main()
