#!/usr/bin/env python3
"""Data movement beside a plain copy: `python benchmarks/movement.py [WORD ...]`.

Every kernel moves a tensor that is much larger than the caches.  `share` is the bandwidth it
reaches (bytes it must read and must write, over time) as a share of what the faster of two copies
reaches for as many bytes in the same round, with as many threads: `np.copyto`, and a compiled copy
with streaming stores, which is the machine's limit where the C library's copy is not.  Under the
names of ONNX Runtime, PyTorch and, with one thread, NumPy stand their times over ours for the same
operator on row-major arrays, where they are installed and have it.  Times are medians, shares and
ratios medians over rounds.  WORDs select the rows whose names contain one.
Prints a table, or JSON with --json.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from movement_peers import peers
from tilesmith import driver
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph, Value
from tilesmith.graph.passes.decompose import decompose
from tilesmith.graph.passes.fuse import fuse
from tilesmith.graph.passes.layout import assign_layouts
from tilesmith.ir.dtypes import f32, i64
from tilesmith.ir.layout import Layout
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.elementwise import Add, Identity
from tilesmith.ops.gather import Gather
from tilesmith.ops.pool import AvgPool, GlobalAvgPool, MaxPool
from tilesmith.ops.resize import Resize
from tilesmith.ops.shape import DepthToSpace, Expand, SpaceToDepth, Transpose
from tilesmith.ops.slicing import Concat, Flip, Pad, Slice, Split, Tile
from tilesmith.runtime.arguments import Arguments
from tilesmith.runtime.function import NativeFunction
from tilesmith.strategy.cpu import lower_by_rule
from tilesmith.strategy.cpu.layouts import layout_policy
from tilesmith.support.measure import interleave, ratio

NHWC = Layout.parse("0 2 3 1")


@dataclass(frozen=True)
class Case:
    """`op` on inputs of `shapes`; of rank 4 in `layout`, for which the results follow."""

    name: str
    op: Op
    shapes: tuple[tuple[int, ...], ...]
    layout: Layout | None = None


def images(size: int = 256, channels: int = 64, batch: int = 4) -> tuple[int, ...]:
    return (batch, channels, size, size)


def in_both_layouts(name: str, op: Op, *shapes: tuple[int, ...]) -> list[Case]:
    return [Case(f"{name}, NCHW", op, shapes), Case(f"{name}, NHWC", op, shapes, NHWC)]


def double(mode: str, size: int = 128) -> list[Case]:
    sizes = (4, 64, 2 * size, 2 * size)
    op = Resize(sizes, (1.0, 1.0, 2.0, 2.0), mode)
    return in_both_layouts(f"resize {mode} x2", op, images(size))


CASES: tuple[Case, ...] = (
    Case("transpose 2-D", Transpose((1, 0)), ((4096, 4096),)),
    Case("transpose 2-D, odd", Transpose((1, 0)), ((4099, 4001),)),
    Case("transpose NCHW to NHWC", Transpose((0, 2, 3, 1)), (images(),)),
    Case("transpose NHWC to NCHW", Transpose((0, 3, 1, 2)), ((4, 256, 256, 64),)),
    Case("transpose of 3 channels to NHWC", Transpose((0, 2, 3, 1)), ((8, 3, 720, 720),)),
    Case("transpose of 3 channels to NCHW", Transpose((0, 3, 1, 2)), ((8, 720, 720, 3),)),
    Case("transpose heads", Transpose((0, 2, 1, 3)), ((16, 1024, 16, 64),)),
    Case("transpose keys", Transpose((0, 2, 3, 1)), ((16, 1024, 16, 64),)),
    Case("slice", Slice((8, 16), (248, 240), (2, 3), (1, 1)), (images(),)),
    Case("slice of each second", Slice((0,), (4096,), (1,), (2,)), ((4096, 4096),)),
    Case("pad", Pad((0, 0, 1, 1, 0, 0, 1, 1)), (images(),)),
    Case("pad reflect", Pad((0, 0, 3, 3, 0, 0, 3, 3), "reflect"), (images(),)),
    Case("flip rows", Flip((2,)), (images(),)),
    Case("flip columns", Flip((3,)), (images(),)),
    Case("flip both", Flip((2, 3)), (images(),)),
    Case("tile", Tile((1, 2, 1, 2)), ((4, 32, 256, 128),)),
    Case("expand rows", Expand((4096, 4096)), ((4096, 1),)),
    Case("expand", Expand((64, 512, 512)), ((1, 512, 512),)),
    Case("embedding", Gather(0), ((32768, 768), (20000,))),
    Case("gather of columns", Gather(1), ((4096, 4096), (4096,))),
    Case("space to depth", SpaceToDepth(2), (images(),)),
    Case("depth to space", DepthToSpace(2), (images(),)),
    Case("add a row", Add(), ((4096, 4096), (4096,))),
    Case("add channels", Add(), (images(), (64, 1, 1))),
    Case("add", Add(), (images(), images())),
    Case("split", Split(1, (16, 48)), (images(),)),
    *in_both_layouts("concat", Concat(1), images(256, 24), images(256, 40)),
    *in_both_layouts("max pool 2x2 / 2", MaxPool((2, 2), (2, 2)), images()),
    *in_both_layouts("max pool 3x3 / 2", MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), images()),
    *in_both_layouts("max pool 3x3", MaxPool((3, 3), (1, 1), (1, 1, 1, 1)), images()),
    *in_both_layouts("avg pool 3x3", AvgPool((3, 3), (1, 1), (1, 1, 1, 1)), images()),
    *in_both_layouts("global avg pool", GlobalAvgPool(), images()),
    *double("nearest"),
    *double("linear"),
    *double("cubic"),
)


def body_of(case: Case, session: driver.Session) -> Graph:
    """The group that the operator becomes by itself."""
    b = Builder("case")
    kinds = [f32] * len(case.shapes)
    if isinstance(case.op, Gather):
        kinds[1] = i64
    types = [TensorType(k, s) for k, s in zip(kinds, case.shapes, strict=True)]
    values = [b.input(f"in{i}", t) for i, t in enumerate(types)]
    result = b.add(case.op, *values)
    graph = b.finish(result)
    if case.layout is not None:
        graph = laid_out(graph, case.layout)
    graph = decompose(graph)
    if case.layout is not None:
        graph = assign_layouts(graph, layout_policy(session.target))
        graph = without_last_relayouts(graph)
    nodes = fuse(graph).nodes
    if len(nodes) != 1:
        raise SystemExit(f"{case.name}: {len(nodes)} kernels, expected one")
    op = nodes[0].op
    assert isinstance(op, Fused)
    return op.body


def laid_out(graph: Graph, layout: Layout) -> Graph:
    new = {v: replace(v, layout=layout) for v in graph.inputs}
    nodes = tuple(replace(n, inputs=tuple(new[v] for v in n.inputs)) for n in graph.nodes)
    return replace(graph, inputs=tuple(new.values()), nodes=nodes)


def without_last_relayouts(graph: Graph) -> Graph:
    last = {n.outputs[0]: n for n in graph.nodes if n.op.name == "relayout"}
    nodes = tuple(n for n in graph.nodes if n.op.name != "relayout")
    outputs = tuple(last[v].inputs[0] if v in last else v for v in graph.outputs)
    return replace(graph, nodes=nodes, outputs=outputs)


def build(body: Graph, session: driver.Session, threads: int) -> NativeFunction:
    func = lower_by_rule(body, session.target, "k")
    kernel = session.backend.emit(driver.lower_loops(func, session), session.target)
    code = session.backend.tools.compile(kernel.text, session.target, session.options.opt_level)
    return NativeFunction(kernel, code, Arguments(func), session.target, threads)


def array_for(value: Value, rng: np.random.Generator, most: int) -> np.ndarray:
    shape = value.type.static_shape
    if value.dtype is i64:
        return rng.integers(0, most, shape)
    return rng.standard_normal(shape, np.float32)


def physical(value: Value, array: np.ndarray) -> np.ndarray:
    return aligned(value.layout.pack(array) if value.layout else array)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts a cache line, as everything in an executable's arena does."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def copies_of(size: int, session: driver.Session, threads: int) -> dict[str, Callable[[], None]]:
    """Functions that read and write `size` bytes in all: NumPy's copy and a compiled one."""
    n = size // 8
    a, b = (aligned(np.ones(n, np.float32)) for _ in range(2))
    compiled = build(body_of(Case("copy", Identity(), ((n,),)), session), session, threads)
    found = {"compiled copy": compiled.bind(a, b)}
    if threads == 1:
        return {**found, "np.copyto": lambda: np.copyto(b, a)}
    pool = ThreadPoolExecutor(threads)
    cuts = [n * i // threads for i in range(threads + 1)]

    def run() -> None:
        parts = [pool.submit(np.copyto, b[i:j], a[i:j]) for i, j in pairwise(cuts)]
        for p in parts:
            p.result()

    return {**found, "np.copyto": run}


def onnx_runtime(
    case: Case, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray], threads: int
) -> Callable[[], None] | None:
    """ONNX Runtime running the operator on the same arrays (row-major) into memory of its own."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    model = onnx_model(case.op, arrays, len(results)).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    memory = [aligned(a) for a in arrays]
    for i, a in zip(session.get_inputs(), memory, strict=True):
        binding.bind_cpu_input(i.name, a)
    for o, r in zip(session.get_outputs(), results, strict=True):
        found = aligned(np.zeros(r.shape, r.dtype))
        memory.append(found)
        place = found.ctypes.data
        binding.bind_output(o.name, "cpu", 0, found.dtype, found.shape, place)

    def run() -> None:
        assert len(memory)  # which the binding only points at
        session.run_with_iobinding(binding)

    run()
    for found, want in zip(memory[len(arrays) :], results, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    return run


def onnx_model(op: Op, arrays: Sequence[np.ndarray], outputs: int) -> onnx.ModelProto:
    name, attributes, constants = onnx_operator(op, arrays)
    given = [f"in{i}" for i in range(len(arrays))]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(given, arrays, strict=True)
    ]
    results = [f"out{i}" for i in range(outputs)]
    known = [
        numpy_helper.from_array(np.asarray(c), f"c{i}")
        for i, c in enumerate(constants)
        if c is not None
    ]
    more = ["" if c is None else f"c{i}" for i, c in enumerate(constants)]
    node = helper.make_node(name, [*given, *more], results, **attributes)
    value = onnx.TensorProto.FLOAT
    infos = [helper.make_tensor_value_info(n, value, None) for n in results]
    graph = helper.make_graph([node], "case", inputs, infos, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def onnx_operator(
    op: Op, arrays: Sequence[np.ndarray]
) -> tuple[str, dict[str, Any], list[np.ndarray | None]]:
    """Name, attributes and the constant inputs after the first ones, in opset 18."""

    def ints(*values: tuple[int, ...]) -> list[np.ndarray | None]:
        return [np.array(v, np.int64) for v in values]

    match op:
        case Transpose():
            return "Transpose", {"perm": op.perm}, []
        case Slice():
            return "Slice", {}, ints(op.starts, op.ends, op.axes, op.steps)
        case Pad():
            return "Pad", {"mode": op.mode}, ints(op.pads)
        case Flip():
            n = len(op.axes)
            return "Slice", {}, ints((-1,) * n, (-(1 << 62),) * n, op.axes, (-1,) * n)
        case Tile():
            return "Tile", {}, ints(op.repeats)
        case Expand():
            return "Expand", {}, ints(op.shape)  # type: ignore[arg-type]  # numbers here
        case Gather():
            return "Gather", {"axis": op.axis}, []
        case SpaceToDepth() | DepthToSpace():
            return type(op).__name__, {"blocksize": op.block}, []
        case Split():
            return "Split", {"axis": op.axis}, ints(op.sizes)
        case Concat():
            return "Concat", {"axis": op.axis}, []
        case MaxPool() | AvgPool():
            kind = "MaxPool" if isinstance(op, MaxPool) else "AveragePool"
            fields = {"kernel_shape": op.kernel, "strides": op.strides, "pads": op.pads}
            return kind, {k: v for k, v in fields.items() if v}, []
        case Resize():
            scales = np.array(op.scales, np.float32)
            return "Resize", {"mode": op.mode}, [None, scales]
        case GlobalAvgPool():
            return "GlobalAveragePool", {}, []
        case _:
            return type(op).__name__, {}, []


def moved(case: Case, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> int:
    """Bytes that have to be read and written."""
    out = sum(r.nbytes for r in results)
    if isinstance(case.op, (Gather, Slice)):
        return 2 * out  # only what is taken
    return out + sum(a.nbytes for a in arrays)


def measure(case: Case, threads: int, rounds: int) -> dict[str, Any]:
    session = driver.Session.of(None, threads=threads)
    body = body_of(case, session)
    rng = np.random.default_rng(0)
    most = case.shapes[0][getattr(case.op, "axis", 0)]
    arrays = [array_for(v, rng, most) for v in body.inputs]
    inputs = [physical(v, a) for v, a in zip(body.inputs, arrays, strict=True)]
    layouts = [v.layout or Layout.row_major(v.type.rank) for v in body.outputs]
    shapes = [v.type.static_shape for v in body.outputs]
    results = [
        aligned(np.zeros(la.physical_shape(s), v.dtype.numpy))
        for v, la, s in zip(body.outputs, layouts, shapes, strict=True)
    ]
    run = build(body, session, threads)
    run(*inputs, *results)
    wanted = list(evaluate(body, arrays).values())
    for v, got, want in zip(body.outputs, results, wanted, strict=True):
        np.testing.assert_allclose(got, physical(v, want), rtol=1e-4, atol=1e-4)
    size = moved(case, inputs, results)
    copies = copies_of(size, session, threads)
    contenders = {"ours": lambda: run(*inputs, *results), **copies}
    others = peers(case.op, arrays, wanted, threads)
    if (other := onnx_runtime(case, arrays, wanted, threads)) is not None:
        others = {"ONNX Runtime": other, **others}
    contenders |= others
    taken = interleave(
        contenders,
        rounds=rounds,
        turn_seconds=0.05,
    )
    ours, fastest = taken["ours"], min((taken[name] for name in copies), key=lambda s: s.median)
    return {
        "name": case.name,
        "threads": threads,
        "ms": ours.median * 1e3,
        "gb_per_s": size / ours.median / 1e9,
        "copy_gb_per_s": 8 * (size // 8) / fastest.median / 1e9,
        "share": 1 / ratio(ours, fastest),
        "peers": {name: ratio(taken[name], ours) for name in others},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for case in CASES:
        if given.words and not any(w in case.name for w in given.words):
            continue
        for threads in given.threads or (1, 2):
            row = measure(case, threads, given.rounds)
            rows.append(row)
            if not given.json:
                print(
                    f"{row['name']:36s} {threads} threads {row['ms']:8.2f} ms "
                    f"{row['gb_per_s']:6.1f} GB/s, copy {row['copy_gb_per_s']:6.1f}: "
                    f"{100 * row['share']:4.0f}%"
                    + "".join(f", {name} {r:.2f}" for name, r in row["peers"].items()),
                    flush=True,
                )
    if given.json:
        print(json.dumps(rows))
    elif rows:
        mean = math.exp(sum(math.log(r["share"]) for r in rows) / len(rows))
        low = [r["name"] for r in rows if r["share"] < 0.7]
        print(f"geometric mean {100 * mean:.0f}%; under 70%: {len(low)} of {len(rows)}")


if __name__ == "__main__":
    main()
