#!/usr/bin/env python3
"""Operators beside what the machine can do: `python benchmarks/operators.py [WORD ...]`.

A row is a model of one operator.  Its `floor` is the larger of two times: its floating-point
operations over the peak of the cores, and the bytes that it must read and write over the bandwidth
of the first cache that holds them all.  `share` is the floor over the time of the operator's own
kernels inside the compiled model (conversions of the model's inputs and results to other layouts,
which are no part of a network, aside).  Winograd's algorithm does less arithmetic than the
definition, so its share may be above 100%.  `peer` is ONNX Runtime's whole run over ours, in the
layouts of the model, for products only (its convolutions would convert layouts as well).

WORDs select the rows whose names contain one.  Exit status 1 when a row misses its bar.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tilesmith as ts
from tilesmith.codegen.targets import host
from tilesmith.perf.machine import Rates
from tilesmith.runtime.rates import machine
from tilesmith.support.measure import interleave, ratio

CUBE, SKINNY, CONVOLUTION, STREAM = 0.90, 0.80, 0.85, 0.70


@dataclass(frozen=True)
class Case:
    """ONNX's operator `op` on `shapes`, those from `constant` on being weights of the model; `bar`:
    the share to reach, None where none was set.
    """

    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    constant: int
    bar: float | None
    attributes: dict[str, Any] = field(default_factory=dict)


def product(m: int, k: int, n: int, bar: float, weights: bool = False) -> Case:
    shapes = (m, k), (k, n)
    said = f"{m}x{k}x{n}" + (", weights" if weights else "")
    return Case(f"product {said}", "MatMul", shapes, 1 if weights else 2, bar)


def transposed(size: int, a: int, b: int) -> Case:
    name = f"product {size}^3, {'transposed ' * a}A, {'transposed ' * b}B"
    shapes = ((size, size),) * 2
    return Case(name, "Gemm", shapes, 2, CUBE, {"transA": a, "transB": b})


def batched(count: int, m: int, k: int, n: int) -> Case:
    shapes = (count, m, k), (count, k, n)
    return Case(f"products {count} of {m}x{k}x{n}", "MatMul", shapes, 2, None)


def conv(
    name: str,
    x: Sequence[int],
    w: Sequence[int],
    bar: float | None = CONVOLUTION,
    op: str = "Conv",
    **attributes: Any,
) -> Case:
    """A convolution with constant weights and padding that keeps the size at stride 1."""
    kernel = tuple(w[2:])
    dilations = attributes.get("dilations", (1,) * len(kernel))
    half = [(k - 1) * d // 2 for k, d in zip(kernel, dilations, strict=True)]
    given = {"pads": [*half, *half], **attributes}
    return Case(name, op, (tuple(x), tuple(w)), 1, bar, given)


def square(c: int, size: int, out: int, k: int, stride: int = 1) -> Case:
    """One of ResNet-50's layers."""
    name = f"convolution {k}x{k}{f' / {stride}' * (stride > 1)}, {c} to {out} at {size}"
    return conv(name, (1, c, size, size), (out, c, k, k), strides=[stride, stride])


def depthwise(c: int, size: int, k: int, stride: int = 1) -> Case:
    name = f"depthwise {k}x{k}{f' / {stride}' * (stride > 1)}, {c} at {size}"
    shape, weights = (1, c, size, size), (c, 1, k, k)
    return conv(name, shape, weights, STREAM, group=c, strides=[stride, stride])


CASES: tuple[Case, ...] = (
    *(product(n, n, n, CUBE) for n in (512, 1024, 2048)),
    product(1024, 1024, 1024, CUBE, weights=True),
    *(transposed(768, a, b) for a in (0, 1) for b in (0, 1)),
    product(49, 2048, 512, SKINNY, weights=True),
    product(49, 512, 2048, SKINNY, weights=True),
    product(128, 768, 3072, SKINNY, weights=True),
    product(128, 3072, 768, SKINNY, weights=True),
    product(196, 256, 1024, SKINNY, weights=True),
    product(197, 768, 2304, SKINNY, weights=True),
    product(197, 3072, 768, SKINNY, weights=True),
    product(197, 768, 1000, SKINNY),
    product(250, 147, 333, SKINNY),
    batched(12, 128, 64, 128),
    batched(96, 197, 64, 197),
    batched(4096, 8, 8, 8),
    product(1, 2048, 1000, STREAM, weights=True),
    product(1, 4096, 4096, STREAM, weights=True),
    product(1, 2048, 2048, STREAM),
    product(1, 4096, 4096, STREAM),
    product(1, 512, 30000, STREAM),
    product(4096, 4096, 1, STREAM),
    conv("convolution 7x7 / 2, 3 to 64 at 224", (1, 3, 224, 224), (64, 3, 7, 7), strides=[2, 2]),
    square(64, 56, 64, 1),
    square(64, 56, 64, 3),
    square(64, 56, 256, 1),
    square(256, 56, 128, 1),
    square(128, 56, 128, 3, 2),
    square(256, 56, 512, 1, 2),
    square(128, 28, 128, 3),
    square(512, 28, 256, 1),
    square(256, 28, 256, 3, 2),
    square(256, 14, 256, 3),
    square(256, 14, 1024, 1),
    square(1024, 14, 2048, 1, 2),
    square(512, 14, 512, 3, 2),
    square(512, 7, 512, 3),
    square(512, 7, 2048, 1),
    depthwise(32, 112, 3),
    depthwise(96, 112, 3, 2),
    depthwise(144, 56, 3),
    depthwise(384, 14, 3),
    depthwise(240, 28, 5),
    depthwise(672, 14, 5),
    conv("grouped 3x3, 32 of 8", (1, 256, 28, 28), (256, 8, 3, 3), None, group=32),
    conv("grouped 3x3, 4 of 64", (1, 256, 28, 28), (256, 64, 3, 3), group=4),
    conv("dilated 3x3 by 2, 256 at 28", (1, 256, 28, 28), (256, 256, 3, 3), dilations=[2, 2]),
    conv("1-D 3, 384 at 1500", (1, 384, 1500), (384, 384, 3)),
    conv("3-D 3x3x3, 64 at 28", (1, 64, 8, 28, 28), (64, 64, 3, 3, 3)),
    conv(
        "transposed 4x4 / 2, 128 to 64 at 32",
        (1, 128, 32, 32),
        (128, 64, 4, 4),
        op="ConvTranspose",
        strides=[2, 2],
        pads=[1, 1, 1, 1],
    ),
)


def model_of(case: Case, arrays: Sequence[np.ndarray]) -> onnx.ModelProto:
    tensor = onnx.TensorProto.FLOAT
    names = [f"in{i}" for i in range(len(arrays))]
    given = [
        helper.make_tensor_value_info(n, tensor, a.shape)
        for n, a in zip(names[: case.constant], arrays, strict=False)
    ]
    known = [
        numpy_helper.from_array(a, n)
        for n, a in zip(names[case.constant :], arrays[case.constant :], strict=True)
    ]
    node = helper.make_node(case.op, names, ["out"], **case.attributes)
    result = helper.make_tensor_value_info("out", tensor, None)
    graph = helper.make_graph([node], "case", given, [result], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def operations(case: Case, result: np.ndarray) -> float:
    """Floating-point operations of the definition."""
    first, second = case.shapes
    if case.op == "ConvTranspose":  # each element of the input meets each weight of its channel
        return 2.0 * math.prod(first) * math.prod(second[1:])
    terms = first[-2 if case.attributes.get("transA") else -1]
    return 2.0 * result.size * (math.prod(second[1:]) if case.op == "Conv" else terms)


def seconds_to_move(read: int, written: int, rates: Rates) -> float:
    """Of bytes that all live in the first cache that holds them."""
    target = host()
    all_of_it = read + written
    if all_of_it <= target.model.l2_bytes * rates.threads:
        return read / rates.l2 + written / rates.l2_write
    if all_of_it <= target.model.l3_bytes:
        return read / rates.l3 + written / rates.l3_write
    return read / rates.dram + written / rates.dram_write


def peer_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray], threads: int) -> Callable | None:
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, inputs)


def measure(case: Case, threads: int, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in case.shapes]
    model = model_of(case, arrays)
    exe = ts.compile(model, threads=threads)
    inputs = {f"in{i}": a for i, a in enumerate(arrays[: case.constant])}
    (result,) = exe.run(inputs).values()
    profile = exe.profile(*inputs.values(), repeats=repeats)
    own = [
        k.seconds for k in profile if k.info is None or {*k.info.operators} - {"relayout", "pack"}
    ]
    rates = machine().at(threads)
    read = sum(a.nbytes for a in arrays)
    work = operations(case, result)
    floor = max(work / rates.flops, seconds_to_move(read, result.nbytes, rates))
    peer = None
    if case.op in ("MatMul", "Gemm") and (run := peer_of(model, inputs, threads)):
        taken = interleave(
            {"ours": lambda: exe.run(inputs), "peer": run}, rounds=7, turn_seconds=0.05
        )
        peer = ratio(taken["peer"], taken["ours"])
    return {
        "name": case.name,
        "threads": threads,
        "ms": sum(own) * 1e3,
        "gflops": work / sum(own) / 1e9,
        "gb_per_s": (read + result.nbytes) / sum(own) / 1e9,
        "share": floor / sum(own),
        "bar": case.bar,
        "peer": peer,
    }


def line(row: dict[str, Any]) -> str:
    missed = row["bar"] is not None and row["share"] < row["bar"]
    return (
        f"{row['name']:44s} {row['threads']} threads {row['ms']:8.3f} ms "
        f"{row['gflops']:6.1f} GFLOP/s {row['gb_per_s']:5.1f} GB/s {100 * row['share']:4.0f}%"
        + ("" if row["bar"] is None else f" (>= {100 * row['bar']:.0f}%)")
        + (f", peer {row['peer']:.2f}" if row["peer"] else "")
        + (" missed" if missed else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--repeats", type=int, default=100, help="runs of each model")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for case in CASES:
        if given.words and not any(w in case.name for w in given.words):
            continue
        for threads in given.threads or (1,):
            rows.append(measure(case, threads, given.repeats))
            if not given.json:
                print(line(rows[-1]), flush=True)
    missed = [r["name"] for r in rows if r["bar"] is not None and r["share"] < r["bar"]]
    if given.json:
        print(json.dumps(rows))
    else:
        print(f"{len(missed)} of {len(rows)} miss their bar")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
