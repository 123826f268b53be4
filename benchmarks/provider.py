#!/usr/bin/env python3
"""Sessions of ONNX Runtime with the execution provider, beside sessions without it and executables:

- `python -m benchmarks.provider tests [WORD ...]`: ONNX's backend tests in both kinds of session.
  Exit status 1 if a test crashed, or passed only without the provider.
- `python -m benchmarks.provider times ZOO [NAME ...]`: the time of a call of a session with the
  provider, of an executable, and of a session without it, measured in turns.
- `python -m benchmarks.provider start ZOO [NAME ...]`: seconds until a new process has a session of
  a context file.
- `python -m benchmarks.provider memory`: memory of the process while sessions come and go.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import children
import conformance
from conformance import CRASHED, KINDS, PASSED, REFUSED, SECONDS, WRONG, Outcome

ROUNDS = 15
TURN_SECONDS = 0.1
SESSIONS, EVERY = 500, 50


def session(model: Any, threads: int, own: bool) -> Any:
    """A session with the provider (`own`) or without."""
    import onnxruntime

    import tilesmith as ts

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    if own:
        return ts.ort.InferenceSession(model, options)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_test(test: conformance.Test, own: bool) -> Outcome:
    try:
        made = session(test.model, 1, own)
        for inputs, outputs in test.data:
            given = dict(zip(test.names, inputs, strict=False))
            conformance.compare(made.run(None, given), outputs, test)
    except AssertionError as e:
        return Outcome(WRONG, str(e).strip().splitlines()[0])
    except Exception as e:  # ONNX Runtime's errors have no common class
        return Outcome(REFUSED, str(e).strip().splitlines()[0] if str(e).strip() else repr(e))
    return Outcome(PASSED)


def run_both(test: conformance.Test) -> tuple[Outcome, Outcome]:
    return run_test(test, False), run_test(test, True)


def backend_tests(kinds: Sequence[str], words: Sequence[str], every: int) -> int:
    """Prints how many tests pass in which sessions, and those that differ."""
    suite = list(conformance.tests(kinds, words))[::every]
    counts: Counter[tuple[str, str]] = Counter()
    shown: dict[str, list[str]] = defaultdict(list)
    for test, found in zip(suite, children.each(suite, run_both, SECONDS), strict=True):
        if isinstance(found, children.Died):
            counts["?", CRASHED] += 1
            shown[CRASHED].append(f"{test.name}: {found.reason}")
            print(f"{test.name}: {found.reason}", flush=True)
            continue
        without, with_ = found
        counts[without.result, with_.result] += 1
        if without.result == PASSED != with_.result:
            shown["passed only without the provider"].append(f"{test.name}: {with_.reason}")
            print(f"{test.name}: {with_.reason}", flush=True)
        elif with_.result == PASSED != without.result:
            shown["passed only with it"].append(test.name)
    for (without, with_), count in sorted(counts.items()):
        print(f"{without:10} without, {with_:10} with the provider: {count}")
    for what, names in shown.items():
        print(f"\n{what}:", *names, sep="\n  ")
    return int(bool(shown.keys() - {"passed only with it"}))


def zoo_model(zoo: Path, name: str) -> tuple[Path, dict[str, np.ndarray]]:
    """A model's path, and inputs by name from the `.npz` beside it, in which they are `in_NAME`."""
    held = np.load(zoo / f"{name}.npz")
    inputs = {k.removeprefix("in_"): held[k] for k in held.files if k.startswith("in_")}
    return zoo / f"{name}.onnx", inputs


def times(zoo: Path, names: Sequence[str], threads: int) -> int:
    import tilesmith as ts
    from tilesmith.support.measure import interleave

    for name in names:
        path, feed = zoo_model(zoo, name)
        exe = ts.compile(path, threads=threads)
        arrays = [feed[s.name] for s in exe.inputs]
        own, plain = (session(str(path), threads, kind) for kind in (True, False))
        calls = {
            "executable": lambda exe=exe, arrays=arrays: exe(*arrays),
            "provider": lambda own=own, feed=feed: own.run(None, feed),
            "without": lambda plain=plain, feed=feed: plain.run(None, feed),
        }
        taken = interleave(calls, rounds=ROUNDS, turn_seconds=TURN_SECONDS)
        us = {what: statistics.median(taken[what].rounds) * 1e6 for what in calls}
        bound = us["executable"] * 1.03 + 10
        print(
            f"{name:16} executable {us['executable']:10.1f} us, provider {us['provider']:10.1f} us "
            f"({us['provider'] - us['executable']:+.1f}; at most {bound:.1f}), "
            f"without {us['without']:10.1f} us"
        )
    return 0


_START = """
import time
start = time.perf_counter()
import onnxruntime
imported = time.perf_counter()
import tilesmith as ts
session = ts.ort.InferenceSession({path!r})
print(imported - start, time.perf_counter() - imported)
"""


def start(zoo: Path, names: Sequence[str], threads: int) -> int:
    import onnxruntime

    import tilesmith as ts

    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            path = ts.ort.compile_context(zoo / f"{name}.onnx", Path(folder) / "c.onnx", options)
            command = [sys.executable, "-c", _START.format(path=str(path))]
            runs = [
                [*map(float, subprocess.check_output(command, text=True).split())] for _ in range(5)
            ]
        engine, own = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{name:16} import onnxruntime {engine:.3f} s, tilesmith and session {own:.3f} s")
    return 0


def resident_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def memory() -> int:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 256])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 256])
    w = helper.make_tensor("w", TensorProto.FLOAT, [256, 256], np.full(65536, 0.1, np.float32))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    opsets = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    given = {"x": np.ones((8, 256), np.float32)}
    begin = time.perf_counter()
    for i in range(SESSIONS + 1):
        session(model, 2, True).run(None, given)
        if i % EVERY == 0:
            print(f"{i:4} sessions: {resident_mb():7.1f} MB, {time.perf_counter() - begin:.1f} s")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("tests", "times", "start", "memory"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--kinds", nargs="*", default=KINDS, help="of backend tests")
    parser.add_argument("--every", type=int, default=1, help="run one in so many backend tests")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.what == "tests":
        return backend_tests(args.kinds, args.words, args.every)
    if args.what == "memory":
        return memory()
    if not args.words:
        parser.error(f"{args.what}: give the folder of the models")
    zoo = Path(args.words[0])
    names = args.words[1:] or sorted(p.stem for p in zoo.glob("*.onnx"))
    return (times if args.what == "times" else start)(zoo, names, args.threads)


if __name__ == "__main__":
    sys.exit(main())
