"""Sound models of every format but ONNX, whose files are damaged."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tilesmith as ts
from tflite_models import ModelWriter
from tilesmith.frontend.load import inspect
from tilesmith.frontend.relay.tensors import written_constants, written_parameters
from tilesmith.ir.dtypes import f32
from tilesmith.runtime.blocks import BLOCKS
from tilesmith.runtime.weights import arrays_of
from written_models import (
    caffe,
    coreml,
    darknet,
    gguf,
    keras,
    mxnet,
    ncnn,
    nnvm,
    openvino,
    paddle,
    stablehlo,
    tengine,
    tensorflow,
)
from written_models.protobuf import encode


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    make: writes a sound file, and what belongs to it, into an empty folder; returns what `read`
        gets.
    read: what uses a file, whose path it gets.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], object]


def floats(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, dims).astype(np.float32)


_MOST_ELEMENTS = 1 << 16
"""Elements of inputs with which a mutant is run."""


def run(executable: Any) -> None:
    """Runs an executable with ones, if its inputs are small."""
    given = {s.name for s in executable.inputs}
    specs = [s for s in executable.program.expected_inputs if s.name in given]
    if sum(math.prod(s.static_shape) for s in specs) <= _MOST_ELEMENTS:
        executable.run({s.name: np.ones(s.static_shape, s.dtype.numpy) for s in specs})


def _run(path: Path) -> None:
    run(ts.compile(path, threads=1))


def _run_of_size(*dims: int) -> Callable[[Path], None]:
    """What runs a model whose only input has this shape, which the model does not state."""
    return lambda path: run(ts.compile(path, threads=1, shapes={"data": dims}))


def written(suffix: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    """What writes a single file."""

    def write(folder: Path) -> Path:
        path = folder / f"file{suffix}"
        path.write_bytes(content())
        return path

    return write


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def _archive(folder: Path) -> Path:
    program = torch.export.export(network(), (torch.ones(2, 4),))
    torch.export.save(program, folder / "m.pt2")
    return folder / "m.pt2"


def _script(folder: Path) -> Path:
    torch.jit.trace(network(), torch.ones(2, 4)).save(str(folder / "m.pt"))
    return folder / "m.pt"


def _tflite() -> bytes:
    """A quantised network with a branch, a variable and a signature."""
    rng = np.random.default_rng(0)
    model = ModelWriter()
    g, first, then, otherwise = (model.graph(n) for n in ("main", "init", "then", "otherwise"))
    x = g.input((1, 6, 6, 4), np.int8, "x", scale=0.5, zero=3)
    made = [
        g.tensor(s, np.int8, scale=0.25, zero=-4) for s in ((1, 6, 6, 4), (1, 3, 3, 4), (1, 36))
    ]
    image, pooled, row = made
    w = g.const(rng.integers(-9, 9, (4, 3, 3, 4), np.int8), scale=np.full(4, 0.1), axis=0)
    bias = g.const(rng.integers(-99, 99, 4, np.int32), scale=np.full(4, 0.05), axis=0)
    g.op("CONV_2D", [x, w, bias], [image], "Conv2DOptions", stride_w=1, stride_h=1)
    window = {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2}
    g.op("MAX_POOL_2D", [image], [pooled], "Pool2DOptions", padding=1, **window)
    g.op("RESHAPE", [pooled, g.const(np.array([1, -1], np.int32))], [row], "ReshapeOptions")
    matrix = g.const(rng.integers(-9, 9, (3, 36), np.int8), scale=0.1)
    stored, scores = g.tensor((1, 3), np.int8, scale=0.5), g.tensor((1, 3))
    g.op("FULLY_CONNECTED", [row, matrix, -1], [stored], "FullyConnectedOptions")
    g.op("DEQUANTIZE", [stored], [scores], "DequantizeOptions")
    handles = []
    for graph in (g, first):
        handles.append(graph.tensor((1,), "RESOURCE", name="handle"))
        graph.op("VAR_HANDLE", [], handles[-1:], "VarHandleOptions", shared_name="sum")
    ones = first.const(np.ones((1, 3), np.float32))
    first.op("ASSIGN_VARIABLE", [handles[1], ones], [])
    g.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    before, total, more, y = (g.tensor((1, 3)) for _ in range(4))
    g.op("READ_VARIABLE", handles[:1], [before])
    g.op("ADD", [before, scores], [total], "AddOptions")
    g.op("ASSIGN_VARIABLE", [handles[0], total], [])
    is_more = g.tensor((1, 3), np.bool_)
    g.op("GREATER", [total, scores], [is_more], "GreaterOptions")
    any_more = g.tensor((), np.bool_)
    axes = g.const(np.array([0, 1], np.int32))
    g.op("REDUCE_ANY", [is_more, axes], [any_more], "ReducerOptions")
    for branch, kind in ((then, "EXP"), (otherwise, "NEG")):
        value, result = branch.input((1, 3)), branch.tensor((1, 3))
        branch.op(kind, [value], [result])
        branch.output(result)
    branches = {"then_subgraph_index": 2, "else_subgraph_index": 3}
    g.op("IF", [any_more, total], [more], "IfOptions", **branches)
    g.op("SOFTMAX", [more], [y], "SoftmaxOptions", beta=1.0)
    g.output(y)
    named = {
        "inputs": [{"name": "image", "tensor_index": x}],
        "outputs": [{"name": "scores", "tensor_index": y}],
        "signature_key": "serve",
    }
    model.signatures.append(named)
    return model.bytes()


def _caffe(folder: Path) -> Path:
    text = """name: "net" input: "data" input_shape { dim: 1 dim: 3 dim: 6 dim: 5 }
layer {
  name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 1 weight_filler { type: "xavier" } }
}
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" batch_norm_param { eps: 0.001 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: 0.1 } }
layer {
  name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 }
}
layer { name: "both" type: "Concat" bottom: "pool" bottom: "pool" top: "both" concat_param { axis: 1 } }
layer { name: "cut" type: "Slice" bottom: "both" top: "a" top: "b" slice_param { slice_point: 3 } }
layer { name: "fc" type: "InnerProduct" bottom: "b" top: "fc" inner_product_param { num_output: 7 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""  # noqa: E501
    (folder / "net.prototxt").write_text(text)
    stored = caffe.blobs(
        conv=[floats(4, 3, 3, 3), floats(4)],
        bn=[floats(4), floats(4) + 2, np.ones(1, np.float32)],
        fc=[floats(7, 45), floats(7)],
    )
    (folder / "net.caffemodel").write_bytes(stored)
    return folder / "net.prototxt"


def _caffemodel(folder: Path) -> Path:
    layers = [
        {"name": "data", "type": "Input", "top": ["data"],
         "input_param": {"shape": [{"dim": (1, 3, 6, 5)}]}},
        {"name": "conv", "type": "Convolution", "bottom": ["data"], "top": ["conv"],
         "convolution_param": {"num_output": 4, "kernel_size": [3], "pad": [1]},
         "blobs": [caffe.blob(floats(4, 3, 3, 3)), caffe.blob(floats(4), legacy=True)]},
        {"name": "lrn", "type": "LRN", "bottom": ["conv"], "top": ["y"],
         "lrn_param": {"local_size": 3, "alpha": 0.5}},
    ]  # fmt: skip
    stored = encode(caffe.SCHEMA, "Net", {"name": "net", "layer": layers})
    (folder / "net.caffemodel").write_bytes(stored)
    return folder / "net.caffemodel"


def _darknet(folder: Path) -> Path:
    text = """[net]
batch=64
height=6
width = 6
channels=2

[convolutional]
batch_normalize=1
filters=4
size=3
stride=1
pad=1
activation=leaky

[maxpool]
size=2
stride=1

[route]
layers = -1, 0  # both
groups=2
group_id=1

[shortcut]
from=-3
activation=linear

[upsample]
stride=2

[convolutional]
filters=14
size=1
stride=1
activation=linear

[yolo]
mask=0,2
anchors=2,3, 4,5, 6,7
classes=2
num=3
scale_x_y=1.2
"""
    stored = [*floats(3, 4), floats(4) + 2, floats(4, 2, 3, 3), floats(14), floats(14, 4, 1, 1)]
    return darknet.written(folder, text, stored)


def _ncnn(folder: Path) -> Path:
    layers = (
        "Input data 0 1 data 0=5 1=6 2=3",
        "Convolution conv 1 1 data conv 0=4 1=3 4=1 5=1 6=108 9=2 -23310=1,0.1",
        "Split split 1 2 conv c1 c2",
        "Pooling pool 1 1 c1 pool 0=0 1=2 2=2",
        "Interp up 1 1 pool up 0=2 3=6 4=5",
        "BinaryOp sum 2 1 up c2 sum 0=0",
        "Crop cut 1 1 sum cut -23309=1,1 -23310=1,-2 -23311=1,1",
        "Reshape flat 1 1 cut flat 0=-1",
        "InnerProduct fc 1 1 flat fc 0=2 1=1 2=120",
        "Softmax prob 1 1 fc prob 0=0 1=1",
    )
    floating = b"\0\0\0\0"
    stored = floating + floats(4, 3, 3, 3).tobytes() + floats(4).tobytes()
    stored += b"\x47\x6b\x30\x01" + floats(2, 60).astype("<f2").tobytes() + floats(2).tobytes()
    return ncnn.written(folder, *layers, weights=stored)


def _tengine() -> bytes:
    w = tengine.ModelWriter()
    x = w.input("x", 1, 3, 6, 6)
    window = {"kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1}
    pads = {"dilation_h": 1, "dilation_w": 1, "group": 1, "pad_h0": 1, "pad_w1": 1}
    weights = w.constant("w", floats(4, 3, 3, 3)), w.constant("b", floats(4))
    y = w.add("Convolution", "conv", x, *weights, **window, **pads)
    y = w.add("Pooling", "pool", y, **window, pool_method=1, caffe_flavor=1)
    y = w.add("Concat", "both", y, w.add("ReLU6", "relu6", y), axis=1)
    y = w.add("Reshape", "rows", y, re_shape=w.vector([0, -1]), is_onnx=1)
    y = w.add("FullyConnected", "fc", y, w.constant("v", floats(2, 72)), num_output=2)
    w.add("Softmax", "prob", y, axis=1)
    return w.finish()


def _ncnn_numbers(folder: Path) -> Path:
    text = _ncnn(folder)
    text.with_name("net.param.bin").write_bytes(ncnn.binary(text.read_text()))
    text.unlink()
    return folder / "net.param.bin"


def _openvino(folder: Path) -> Path:
    net = openvino.Net("1,3,6,5")
    w = net.add("Convert", 'destination_type="f32"', net.const(floats(4, 3, 3, 3).astype("f2")))
    window = 'strides="1,1" dilations="1,1" pads_begin="1, 1" pads_end="1, 1" auto_pad="explicit"'
    y = net.add("Convolution", window, net.x, w, names="y,z")
    y = net.add("ReLU", "", y)
    start, stop, step = (net.const(np.array(v)) for v in ([0, 1, 0, 0], [1, 4, 6, 9], [1] * 4))
    masks = 'begin_mask="0,0,0,0" end_mask="0,0,0,1"'
    y = net.add("StridedSlice", masks, y, start, stop, step)
    flat = net.add("Reshape", 'special_zero="true"', y, net.const(np.array([0, -1])))
    rows = net.const(np.arange(90 * 2) % 16 - 8, "i4", bytes(range(90)))
    rows = net.add("Reshape", 'special_zero="false"', rows, net.const(np.array([90, 2])))
    weights = net.add("Convert", 'destination_type="f32"', rows)
    product = net.add("MatMul", 'transpose_a="false" transpose_b="false"', flat, weights)
    return net.write(folder, net.add("SoftMax", 'axis="1"', product))


def _mxnet(folder: Path) -> Path:
    node = mxnet.node
    nodes = [
        *(node("null", n) for n in ("data", "w", "b")),
        node("Convolution", "c", (0, 1, 2), kernel=(3, 3), pad=(1, 1), num_filter=2),
        node("Activation", "a", (3,), act_type="relu"),
        node("Pooling", "p", (4,), kernel=(2, 2), stride=(2, 2), pool_type="max"),
        node("Reshape", "r", (5,), shape=(0, -1)),
        *(node("null", n) for n in ("v", "d")),
        node("FullyConnected", "f", (6, 7, 8), num_hidden=3),
        node("SliceChannel", "s", (9,), num_outputs=3, axis=1),
        {"op": "elemwise_add", "name": "y", "inputs": [[10, 0, 0], [10, 2, 0]]},
    ]
    arrays = {"w": floats(2, 3, 3, 3), "b": floats(2), "v": floats(3, 18), "d": floats(3)}
    return mxnet.network(folder, nodes, [len(nodes) - 1], arrays)


def _paddle(folder: Path) -> Path:
    op = paddle.operator
    operators = [
        op("conv2d", {"Input": "x", "Filter": "w"}, {"Output": "c"}, strides=[1, 1],
           paddings=[1, 1], dilations=[1, 1], groups=1, padding_algorithm="EXPLICIT"),
        op("relu", {"X": "c"}, {"Out": "r"}),
        op("pool2d", {"X": "r"}, {"Out": "p"}, pooling_type="max", ksize=[2, 2], strides=[2, 2],
           paddings=[0, 0]),
        op("reshape2", {"X": "p"}, {"Out": "s"}, shape=[0, -1]),
        op("matmul_v2", {"X": "s", "Y": "v"}, {"Out": "m"}, trans_x=False, trans_y=True),
        op("concat", {"X": "m m"}, {"Out": "y"}, axis=1),
    ]  # fmt: skip
    weights = {"w": floats(4, 3, 3, 3), "v": floats(5, 36)}
    return paddle.program(folder, operators, {"x": ("float32", (-1, 3, 6, 6))}, ["y"], weights)


def _pir(folder: Path) -> Path:
    named, op, typed = paddle.named, paddle.op, paddle.typed
    numbers = [{"#": "0.a_i64", "D": d} for d in (0, -1)]
    ops = [
        {"#": "p", "A": [0, 1, 1, "w"], "O": typed(1, dims=(6, 4)), "OA": [1, 0, 1]},
        op("1.data", (), [typed(2, dims=(-1, 2, 2))], named("name", "0.a_str", "x")),
        op("1.full_int_array", (), [typed(3, "i64")], named("value", "0.a_array", numbers)),
        op("1.reshape", (2, 3), [typed(4)]),
        op("1.matmul", (4, 1), [typed(5)], named("transpose_y", "0.a_bool", True)),
        op("1.relu", (5,), [typed(6)]),
        op("1.fetch", (6,), [typed(10)], named("name", "0.a_str", "last")),
    ]
    return paddle.pir(folder, ops, {"w": floats(6, 4)})


def _gguf() -> bytes:
    numbers = {block.name: number for number, block in BLOCKS.items()}
    tensors = {
        "w": (0, (2, 3), floats(2, 3).tobytes()),
        "h": (1, (4,), floats(4).astype("f2").tobytes()),
        "q": (numbers["Q4_0"], (2, 32), bytes(range(36))),
    }
    eight = (4).to_bytes(4, "little") + (5).to_bytes(4, "little")
    return gguf.gguf(tensors, gguf.text("count") + eight, 1)


def _read_gguf(path: Path) -> None:
    inspect(path)
    arrays_of(path)


def _relay(folder: Path) -> Path:
    text = """#[version = "0.0.5"]
def @half(%h: Tensor[(1, 3), float32]) -> Tensor[(1, 3), float32] { %h / 2f }
def @main(%x: Tensor[(1, 3, 4, 4), float32], %w: Tensor[(2, 3, 3, 3), float32], %n: int32) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=2, kernel_size=[3, 3]);
  %1 = nn.relu(%0) /* ty=Tensor[(1, 2, 4, 4), float32] */;
  %2 = reshape(%1, newshape=[1, -1]);
  %3 = nn.dense(%2, meta[relay.Constant][0], units=3);
  %4 = split(%3, indices_or_sections=3, axis=1);
  %5 = (%4.0, %4.2);
  %6 = concatenate(%5, axis=1);
  let %loop = fn (%i: int32, %y: Tensor[(1, 3), float32]) {
    if (less(%i, %n)) {
      %7 = add(%i, 1 /* ty=int32 */);
      %8 = @half(%y);
      %loop(%7, %8)
    } else {
      (%i, %y)
    }
  };
  %9 = %loop(0, %3);
  (%6, %9.1)
}

#[metadata]
"""
    (folder / "m.relay").write_text(text + written_constants([(floats(3, 32), f32)]))
    (folder / "m.params").write_bytes(written_parameters({"w": (floats(2, 3, 3, 3), f32)}))
    return folder / "m.relay"


def _nnvm(folder: Path) -> Path:
    (folder / "net.json").write_bytes(nnvm.network())
    shapes = {"w": (4, 3, 3, 3), "b": 4, "gamma": 4, "beta": 4, "mean": 4, "var": 4, "dw": (3, 64)}
    stored = {k: (np.abs(floats(*np.atleast_1d(s))), f32) for k, s in shapes.items()}
    (folder / "net.params").write_bytes(written_parameters(stored))
    return folder / "net.json"


def _keras(folder: Path) -> Path:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras as k

    x = k.Input((6, 6, 3), name="x")
    y = k.layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    y = k.layers.MaxPooling2D(2)(k.layers.BatchNormalization()(y))
    y = k.layers.Concatenate()([y, y * 2.0])
    y = k.layers.Dense(3, activation="softmax")(k.layers.Flatten()(y))
    k.Model(x, y).save(folder / "m.keras")
    return folder / "m.keras"


def _h5() -> bytes:
    convolution = {
        "name": "c", "batch_input_shape": [None, 6, 5, 3], "nb_filter": 4, "nb_row": 3,
        "nb_col": 2, "subsample": [1, 1], "border_mode": "valid", "dim_ordering": "tf",
        "bias": True, "activation": "relu",
    }  # fmt: skip
    config = [
        {"class_name": "Convolution2D", "config": convolution},
        {"class_name": "GlobalAveragePooling2D", "config": {"name": "g", "dim_ordering": "tf"}},
        {"class_name": "Dense", "config": {"name": "d", "output_dim": 2, "bias": False}},
    ]
    arrays = {"c": [floats(3, 2, 3, 4), floats(4)], "g": [], "d": [floats(4, 2)]}
    return keras.older_file(b"1.2.2", "Sequential", config, arrays)


def _saved_model(folder: Path) -> Path:
    return tensorflow.dense(folder, floats(3, 2), floats(2))


def _frozen() -> bytes:
    t = tensorflow
    step = t.function("step", {"a": t.FLOAT}, {"out": "sum:z:0"},
                      t.const("one", np.float32(1)),
                      t.node("sum", "AddV2", "a", "one:output:0"))  # fmt: skip
    return t.frozen(
        t.placeholder("x", 1, 6, 6, 2), t.const("w", floats(3, 3, 2, 4)), t.const("b", floats(4)),
        t.node("c", "Conv2D", "x", "w", strides=[1, 2, 2, 1], padding="SAME", data_format="NHWC"),
        t.node("s", "BiasAdd", "c", "b:0"),
        t.node("r", "Relu", "s"),
        t.const("shape", np.array([1, -1], np.int32)), t.node("f", "Reshape", "r", "shape"),
        t.node("call", "PartitionedCall", "f", f=t.Called("step")),
        t.const("axis", np.int32(1)), t.node("both", "ConcatV2", "call", "f", "axis", N=2),
        t.node("parts", "Split", "axis", "both", num_split=2),
        t.node("y", "Sub", "parts", "parts:1"),
        functions=(step,),
    )  # fmt: skip


def _mlpackage(folder: Path) -> Path:
    w = floats(5, 4)
    content, places = coreml.weight_file([w])
    file = {"fileName": "@model_path/weights/weight.bin", "offset": places[0]}
    val = {"type": coreml.tensor_type(w.dtype, w.shape), "blobFileValue": file}
    op, block = coreml.operation, coreml.block
    test = block([op("less", "go", x="%i", y=3)], "go", "i v")
    body = [op("add", "j", x="%i", y=1), op("add", "w2", x="%v", y="%v")]
    operations = [
        op("const", "w") | {"attributes": {"val": val}},
        op("linear", "h", x="%x", weight="%w"),
        op("concat", "both", values=["%h", "%h"], axis=1, interleave=False),
        op("reduce_sum", "total", x="%both"),
        op("const", "zero", val=0),
        op("while_loop", "n t", [test, block(body, "j w2", "i v")], loop_vars=["%zero", "%total"]),
        op("add", "y", x="%both", y="%t"),
    ]
    model = coreml.program({"x": (np.float32, (2, 4))}, operations, "y")
    return coreml.write_package(folder / "m.mlpackage", model, content)


def _mlmodel() -> bytes:
    edges = {"borderAmounts": [{"startEdgeSize": 1, "endEdgeSize": 1}] * 2}
    packed = {"linearQuantization": {"scale": [2.0, 3.0], "bias": [1.0, 0.0]}, "numberOfBits": 8}
    layers = [
        coreml.layer("convolution", "c", "x", outputChannels=2, kernelChannels=2, nGroups=1,
                     kernelSize=[3, 3], valid={"paddingAmounts": edges},
                     weights={"floatValue": floats(36)}),
        coreml.layer("activation", "a", "c", leakyReLU={"alpha": 0.5}),
        coreml.layer("pooling", "p", "a", type="AVERAGE", globalPooling=True),
        coreml.layer("innerProduct", "y", "p", inputChannels=2, outputChannels=2,
                     weights={"rawValue": bytes(4), "quantization": packed}),
    ]  # fmt: skip
    return coreml.network(layers, (1, 2, 3, 4))


def _stablehlo() -> bytes:
    return b"""module @m attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%x: tensor<2x3xf32>, %n: tensor<i32>) -> (tensor<2x3xf32>, tensor<2xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %w = stablehlo.constant dense<[[1.0, -2.0, 0.5], [0.0, 3.0, 1.0], [1.0, 1.0, 0x3F800000]]> : tensor<3x3xf32>
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %1 = call @relu(%0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %2:2 = stablehlo.while(%i = %c, %v = %1) : tensor<i32>, tensor<2x3xf32>
    cond {
      %8 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %i, %one : tensor<i32>
      %9 = stablehlo.add %v, %x : tensor<2x3xf32>
      stablehlo.return %8, %9 : tensor<i32>, tensor<2x3xf32>
    }
    %3 = stablehlo.slice %2#1 [0:2, 0:1] : (tensor<2x3xf32>) -> tensor<2x1xf32>
    %4 = stablehlo.reshape %3 : (tensor<2x1xf32>) -> tensor<2xf32>
    %5 = stablehlo.iota dim = 0 : tensor<2xi32>
    %6:2 = "stablehlo.sort"(%4, %5) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %j: tensor<i32>, %k: tensor<i32>):
      %8 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    }) : (tensor<2xf32>, tensor<2xi32>) -> (tensor<2xf32>, tensor<2xi32>)
    return %2#1, %6#1 : tensor<2x3xf32>, tensor<2xi32>
  }
  func.func private @relu(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %cst = stablehlo.constant dense<0.0> : tensor<2x3xf32>
    %0 = stablehlo.maximum %x, %cst : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
"""  # noqa: E501


MODELS: dict[str, Kind] = {
    "pt2": Kind(_archive, _run),
    "pt": Kind(_script, lambda p: run(ts.compile(p, torch.ones(2, 4), threads=1))),
    "tflite": Kind(written(".tflite", _tflite), _run),
    "caffe": Kind(_caffe, _run),
    "caffemodel": Kind(_caffemodel, _run),
    "darknet": Kind(_darknet, _run),
    "ncnn": Kind(_ncnn, _run),
    "tengine": Kind(written(".tmfile", _tengine), _run),
    "ncnn_numbers": Kind(_ncnn_numbers, _run),
    "openvino": Kind(_openvino, _run),
    "mxnet": Kind(_mxnet, _run_of_size(1, 3, 6, 6)),
    "paddle": Kind(_paddle, _run),
    "pir": Kind(_pir, _run),
    "gguf": Kind(written(".gguf", _gguf), _read_gguf),
    "relay": Kind(_relay, _run),
    "nnvm": Kind(_nnvm, _run_of_size(2, 3, 8, 8)),
    "stablehlo": Kind(written(".mlir", _stablehlo), _run),
    "mlirbc": Kind(written(".mlirbc", lambda: stablehlo.bytecode(_stablehlo())), _run),
    "jaxexp": Kind(
        written(".jaxexp", lambda: stablehlo.exported(stablehlo.bytecode(_stablehlo()))), _run
    ),
    "keras": Kind(_keras, _run),
    "h5": Kind(written(".h5", _h5), _run),
    "saved_model": Kind(_saved_model, _run),
    "frozen": Kind(written(".pb", _frozen), _run),
    "mlpackage": Kind(_mlpackage, _run),
    "mlmodel": Kind(written(".mlmodel", _mlmodel), _run),
}
"""The formats by name."""
