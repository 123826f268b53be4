#!/usr/bin/env python3
"""One row times matrices of 4 or 8 bits, against reading their bytes:
`python -m benchmarks.few_bits`.

A chain of products turns over matrices of four times the last-level cache, so each is read from
memory.  `share` is the time of a kernel that only reads as many bytes with as many threads (the
best of some prefetch distances), divided by that of the products.  `onnxruntime` is the same model
in ONNX Runtime, with products of f32 and (`onnxruntime 8 bits`) with activations quantised to 8
bits, which round more.  All take turns; medians of the ratios within a round count.  `cycles` are
those of instructions alone: the time of a product whose weights the L2 cache holds, per 64 bytes.
Prints one JSON object for each kind.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith import te
from tilesmith.codegen.targets import host
from tilesmith.support.measure import Samples, interleave, ratio

MICROSOFT = "com.microsoft"
SIZE = 4096
KINDS = {
    "int4, groups of 32": (4, 32),
    "int4, groups of 128": (4, 128),
    "int8, groups of 128": (8, 128),
}
"""Bits, and rows that share a scale."""
DISTANCES = (0, 8, 32)
"""Prefetch distances of the reading kernel, in rows of 256 bytes; 0: none."""
BF16 = "bf16"


def chain(bits: int, block: int, count: int, columns: int = SIZE, level: int = 0) -> bytes:
    """An ONNX model: x times `count` matrices, one after the other, of `columns` columns each.

    level: ONNX Runtime's accuracy level of products; 4 quantises activations.
    """
    rng = np.random.default_rng(0)
    blocks, name, nodes, constants = SIZE // block, "x", [], []
    for i in range(count):
        codes = rng.integers(0, 256, (columns, blocks, block * bits // 8), dtype=np.uint8)
        spread = 1 / ((1 << bits) / 3.5 * SIZE**0.5)
        scales = rng.uniform(0.5 * spread, 1.5 * spread, (columns, blocks)).astype(np.float32)
        arrays = {f"q{i}": codes, f"s{i}": scales}
        constants += [numpy_helper.from_array(a, n) for n, a in arrays.items()]
        nodes.append(
            helper.make_node(
                "MatMulNBits", [name, f"q{i}", f"s{i}"], [f"y{i}"], domain=MICROSOFT,
                K=SIZE, N=columns, bits=bits, block_size=block, accuracy_level=level,
            )
        )  # fmt: skip
        name = f"y{i}"
    return _model(nodes, constants, name, columns)


def floats(count: int) -> bytes:
    """The chain with matrices of f32."""
    rng, name, nodes, constants = np.random.default_rng(0), "x", [], []
    for i in range(count):
        w = rng.standard_normal((SIZE, SIZE), dtype=np.float32) / np.float32(SIZE**0.5)
        constants.append(numpy_helper.from_array(w, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{i}"], [f"y{i}"]))
        name = f"y{i}"
    return _model(nodes, constants, name, SIZE)


def _model(
    nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto], result: str, columns: int
) -> bytes:
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", kind, [1, SIZE])],
        [helper.make_tensor_value_info(result, kind, [1, columns])],
        constants,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def readers(size: int, threads: int) -> dict[str, Callable[[], object]]:
    """By name, kernels that read `size` bytes in vectors and add them up."""
    rows, width = 1024, 64
    count = size // (4 * rows * width)
    source = np.ones((count, rows, width), np.float32)
    out = np.empty((count, width), np.float32)
    found: dict[str, Callable[[], object]] = {}
    for distance in DISTANCES:
        a, r = te.placeholder(source.shape, "f32", "a"), te.reduce_axis(rows, "r")
        total = te.compute(out.shape, lambda i, j, a=a, r=r: te.sum(a[i, r, j], axis=r), "total")
        s = te.create_schedule(total)
        acc = s.cache_write(total, "register")
        part, column = s[total].axis
        s[total].parallel(part)
        vectors, lanes = s[total].split(column, factor=8)
        s[total].unroll(vectors)
        s[total].vectorize(lanes)
        s[acc].compute_at(s[total], part)
        own, column = s[acc].axis
        (row,) = s[acc].reduce_axis
        vectors, lanes = s[acc].split(column, factor=8)
        s[acc].reorder(own, row, vectors, lanes)
        s[acc].unroll(vectors)
        s[acc].vectorize(lanes)
        if distance:
            s[acc].prefetch(a, row, distance)
        read = ts.build(s, [a, total], threads=threads)
        found[f"read {distance}"] = lambda read=read: read(source, out)
    return found


def engine(model: bytes, threads: int, x: np.ndarray) -> Callable[[], Any]:
    """ONNX Runtime on a model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]


def compute_cycles(bits: int, block: int) -> float:
    """Cycles of one core per 64 bytes of weights that lie in the L2 cache."""
    target = host()
    columns = max(target.model.l2_bytes * 16 // bits // SIZE // 4 // 64 * 64, 64)
    exe = ts.compile(chain(bits, block, 1, columns), threads=1, pins={"packed": True})
    x, best = np.ones((1, SIZE), np.float32), float("inf")
    for _ in range(200):
        start = time.thread_time()
        exe(x)
        best = min(best, time.thread_time() - start)
    return best * target.model.ghz * 1e9 / (columns * SIZE * bits / 8 / 64)


def share(times: dict[str, Samples], of: str) -> float:
    """The time of the fastest reader relative to that of `of`."""
    return max(1 / ratio(times[of], times[f"read {d}"]) for d in DISTANCES)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    x = np.random.default_rng(1).standard_normal((1, SIZE), dtype=np.float32)
    cache = host().model.l3_bytes
    for name, (bits, block) in (*KINDS.items(), (BF16, (16, 0))):
        each = SIZE * SIZE * bits // 8 + (4 * SIZE * (SIZE // block) if block else 0)
        count = -(-4 * cache // each)
        runs = readers(count * each, given.threads)
        row: dict[str, Any] = {"name": name, "matrices": count, "threads": given.threads}
        if name == BF16:
            exe = ts.compile(floats(count), threads=given.threads, precision=BF16)
        else:
            model = chain(bits, block, count)
            exe = ts.compile(model, threads=given.threads)
            row["cycles"] = round(compute_cycles(bits, block), 1)
            runs["onnxruntime"] = engine(model, given.threads, x)
            quantised = chain(bits, block, count, level=4)
            runs["onnxruntime 8 bits"] = engine(quantised, given.threads, x)
            wanted = runs["onnxruntime"]()
            np.testing.assert_allclose(exe(x), wanted, rtol=1e-3, atol=1e-3 * abs(wanted).max())
        runs["tilesmith"] = lambda exe=exe: exe(x)
        times = interleave(runs, rounds=given.rounds, turn_seconds=0.1)
        row["gbytes"] = {k: round(count * each / t.median / 1e9, 1) for k, t in times.items()}
        row["share"] = round(share(times, "tilesmith"), 2)
        row["ratio"] = {
            k: round(ratio(times[k], times["tilesmith"]), 2) for k in runs if "onnx" in k
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
