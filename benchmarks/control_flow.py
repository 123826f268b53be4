#!/usr/bin/env python3
"""Control flow against ONNX Runtime: `python -m benchmarks.control_flow [NAME ...]`.

A beam search with a branch, loops whose carried values grow, rows that a loop collects until it
ends itself, a long LSTM, and a scan in a scan: one compilation each, native, in the same turns as
ONNX Runtime, with two threads both.  Prints the time of a cold compilation, both medians and their
ratio; exit status 1 where an answer differs or a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import tilesmith as ts
from tables import table, verdict
from tilesmith.cli.compare import difference
from tilesmith.cli.engines import bound_run, onnxruntime_session
from tilesmith.support.measure import interleave, ratio

FASTER, SECONDS = 1.2, 3.0
"""How many times as fast as ONNX Runtime at least, and the longest compilation."""

THREADS = 2
CLOSE = 1e-3
"""The largest difference from ONNX Runtime's answer, relative to the largest magnitude."""

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)

Model = tuple[onnx.ModelProto, dict[str, np.ndarray]]


def info(name: str, kind: int, shape: Sequence[int | str | None]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def part(nodes: str, inputs: Sequence[Any], outputs: Sequence[str]) -> Any:
    """A graph whose nodes are written as in ONNX's text form."""
    parsed = onnx.parser.parse_graph(f"part () => () {{ {nodes} }}")
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    return helper.make_graph(parsed.node, "part", inputs, ends, parsed.initializer)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray],
) -> Model:
    kinds = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, kinds[name], a.shape) for name, a in inputs.items()],
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), dict(inputs)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)


STEP = [info("i", I64, []), info("c", BOOL, [])]


def beam_search(beams: int = 4, hidden: int = 128, words: int = 1000, steps: int = 60) -> Model:
    """Tokens are appended to each beam, beams are reordered, and an If chooses how a step begins;
    the loop ends when the best beam says so.
    """
    first = part("s1 = Slice (logp, zero, one, zero) sc = Expand (s1, shape)", [], ["sc"])
    others = part("sc = Add (logp, score)", [], ["sc"])
    nodes = part(
        "e = Gather (table, token) z = Concat <axis=1> (e, state) g = MatMul (z, w) h = Tanh (g)"
        "o = MatMul (h, out) logp = LogSoftmax <axis=1> (o) is_first = Equal (i, i0)",
        [],
        ["logp"],
    ).node
    choice = helper.make_node("If", ["is_first"], ["sums"], then_branch=first, else_branch=others)
    after = part(
        "flat = Reshape (sums, minus) top, at = TopK (flat, beams) beam = Div (at, words)"
        "next = Mod (at, words) state1 = Gather (h, beam) old = Gather (tokens, beam)"
        "column = Unsqueeze (next, one) tokens1 = Concat <axis=1> (old, column)"
        "score1 = Unsqueeze (top, one) best = ReduceMax <keepdims=0> (top)"
        "go = Greater (best, lowest)",
        [],
        ["go"],
    ).node
    inputs = [
        *STEP, info("token", I64, [beams]), info("state", F32, [beams, hidden]),
        info("score", F32, [beams, 1]), info("tokens", I64, [beams, None]),
    ]  # fmt: skip
    ends = ["go", "next", "state1", "score1", "tokens1"]
    step = helper.make_graph(
        [*nodes, choice, *after], "step", inputs, [onnx.ValueInfoProto(name=o) for o in ends]
    )
    loop = helper.make_node(
        "Loop", ["steps", "", "token0", "state0", "score0", "tokens0"],
        ["last", "state", "score", "tokens"], body=step,
    )  # fmt: skip
    constants = {
        "table": weights(words, hidden), "w": weights(2 * hidden, hidden),
        "out": weights(hidden, words), "zero": np.zeros(1, np.int64), "one": np.ones(1, np.int64),
        "minus": np.array([-1]), "beams": np.array([beams]), "words": np.array(words),
        "i0": np.array(0), "shape": np.array([beams, words]),
        "score0": np.zeros((beams, 1), np.float32), "lowest": np.array(-1e9, np.float32),
        "tokens0": np.zeros((beams, 0), np.int64),
        "state0": np.zeros((beams, hidden), np.float32),
    }  # fmt: skip
    given = {"steps": np.array(steps), "token0": np.arange(beams)}
    return model([loop], given, ["score", "tokens"], constants)


def growing_cache(heads: int = 4, size: int = 64, steps: int = 128) -> Model:
    """Attention of each new token over keys and values that grow by one row in each step."""
    step = part(
        "qkv = MatMul (x, w) parts = Reshape (qkv, split)"
        "q, k1, v1 = Split <axis=0, num_outputs=3> (parts)"
        "ql = Squeeze (q, zero) kl = Squeeze (k1, zero) vl = Squeeze (v1, zero)"
        "ks = Concat <axis=1> (k, kl) vs = Concat <axis=1> (v, vl)"
        "kt = Transpose <perm=[0, 2, 1]> (ks) s = MatMul (ql, kt) p = Softmax (s)"
        "y = MatMul (p, vs) yl = Reshape (y, row) z = MatMul (yl, o) r = Add (z, x)"
        "most = ReduceMax <keepdims=0> (r) go = Less (most, limit)",
        [*STEP, info("x", F32, [1, heads * size]), info("k", F32, [heads, None, size]),
         info("v", F32, [heads, None, size])],
        ["go", "r", "ks", "vs", "r"],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["t", "", "x0", "k0", "v0"], ["x", "k", "v", "rows"], body=step)
    wide = heads * size
    constants = {
        "w": weights(wide, 3 * wide), "o": weights(wide, wide) * 0.1,
        "split": np.array([3, heads, 1, size]), "row": np.array([1, wide]),
        "zero": np.zeros(1, np.int64), "limit": np.array(1e6, np.float32),
        "k0": np.zeros((heads, 0, size), np.float32), "v0": np.zeros((heads, 0, size), np.float32),
    }  # fmt: skip
    return model([loop], {"t": np.array(steps), "x0": weights(1, wide)}, ["k", "rows"], constants)


def appended(width: int = 256, steps: int = 400) -> Model:
    """A tensor to which each step appends a row that depends on the last one."""
    step = part(
        "y = MatMul (x, w) h = Tanh (y) b = Concat <axis=0> (a, h) go = Identity (c)",
        [*STEP, info("x", F32, [1, width]), info("a", F32, [None, width])],
        ["go", "h", "b"],
    )
    loop = helper.make_node("Loop", ["t", "", "x0", "x0"], ["x", "all"], body=step)
    given = {"t": np.array(steps), "x0": weights(1, width)}
    return model([loop], given, ["all"], {"w": weights(width, width)})


def early_rows(width: int = 128, steps: int = 500) -> Model:
    """Rows are collected until a norm falls below a limit."""
    step = part(
        "y = MatMul (x, w) h = Mul (y, decay) s = ReduceL2 <keepdims=0> (h)go = Greater (s, limit)",
        [*STEP, info("x", F32, [1, width])],
        ["go", "h", "h"],
    )
    loop = helper.make_node("Loop", ["t", "", "x0"], ["x", "rows"], body=step)
    q, _ = np.linalg.qr(RNG.standard_normal((width, width)))
    constants = {
        "w": q.astype(np.float32), "decay": np.array(0.97, np.float32),
        "limit": np.array(1e-4, np.float32),
    }  # fmt: skip
    return model([loop], {"t": np.array(steps), "x0": weights(1, width)}, ["rows"], constants)


def long_lstm(steps: int = 1000, width: int = 64, hidden: int = 128) -> Model:
    lstm = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h"], hidden_size=hidden)
    constants = {
        "w": weights(1, 4 * hidden, width) / width**0.5,
        "r": weights(1, 4 * hidden, hidden) / hidden**0.5,
        "b": weights(1, 8 * hidden) * 0.1,
    }
    return model([lstm], {"x": weights(steps, 1, width)}, ["y", "h"], constants)


def nested_scan(rows: int = 64, columns: int = 64, width: int = 16) -> Model:
    """A recurrence over the columns of each row, inside one over the rows."""
    inner = part(
        "p = MatMul (s, w) n = Add (p, e) t = Tanh (n) u = Identity (t)",
        [info("s", F32, [1, width]), info("e", F32, [1, width])],
        ["t", "u"],
    )
    row = helper.make_node("Scan", ["state", "m"], ["after", "us"], body=inner, num_scan_inputs=1)
    outer = helper.make_graph(
        [row], "outer",
        [info("state", F32, [1, width]), info("m", F32, [columns, 1, width])],
        [info("after", F32, [1, width]), info("us", F32, [columns, 1, width])],
    )  # fmt: skip
    scan = helper.make_node("Scan", ["s0", "x"], ["end", "all"], body=outer, num_scan_inputs=1)
    given = {"x": weights(rows, columns, 1, width)}
    constants = {"w": weights(width, width), "s0": np.zeros((1, width), np.float32)}
    return model([scan], given, ["end", "all"], constants)


CASES: dict[str, Callable[[], Model]] = {
    f.__name__: f
    for f in (beam_search, growing_cache, appended, early_rows, long_lstm, nested_scan)
}


def measured(name: str, seconds: float) -> tuple[list[str], bool]:
    """A row of the table, and whether it holds its bars."""
    global RNG
    RNG = np.random.default_rng(0)  # a model is the same whichever ran before it
    proto, inputs = CASES[name]()
    data = proto.SerializeToString()
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        options = ts.Options(threads=THREADS, cache_dir=Path(cache))
        exe = ts.compile(data, options=options, fallback="error")
        cold = time.perf_counter() - start
        path = Path(cache, "model.onnx")
        path.write_bytes(data)
        session = onnxruntime_session(path, THREADS)
    off = difference(session.run(None, inputs), list(exe.run(inputs).values()))
    runs = {"ours": lambda: exe.run(inputs), "theirs": bound_run(session, inputs)}
    times = interleave(runs, turn_seconds=seconds / 20)
    ours, theirs = times["ours"], times["theirs"]
    faster = ratio(theirs, ours)
    holds = faster >= FASTER and cold <= SECONDS and off <= CLOSE
    row = [
        name, f"{cold:.2f}", f"{ours.median * 1e3:.3f}", f"{theirs.median * 1e3:.3f}",
        f"{faster:.2f}", f"{off:.1e}", verdict(holds),
    ]  # fmt: skip
    return row, holds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each model (default 4)")
    given = parser.parse_args()
    results = [measured(name, given.seconds) for name in given.names or CASES]
    columns = ["model", "compile, s", "Tilesmith, ms", "ONNX Runtime, ms", "ratio", "off by", "bar"]
    title = f"Control flow, {THREADS} threads (bars: ratio {FASTER}, compile {SECONDS} s)"
    print(table(title, columns, [row for row, _ in results]))
    return int(not all(holds for _, holds in results))


if __name__ == "__main__":
    sys.exit(main())
