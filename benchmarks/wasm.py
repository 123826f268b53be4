#!/usr/bin/env python3
"""WebAssembly modules and onnxruntime-web in Node: `python -m benchmarks.wasm zoo/ --peer FOLDER`.

FOLDER is one in which `npm install onnxruntime-web` ran.  Each model runs in Node by both, with
SIMD and one thread, in processes that take turns.  Prints the medians in ms of all rounds, their
ratio, and the largest difference relative to the largest magnitude; exit status 1 where the bar is
missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import tilesmith as ts

LEAST = 1.0
"""Bar: onnxruntime-web's time over ours."""
NAMES = ("mobilenet_v2", "squeezenet1_1", "resnet18")
RUNS = 10
"""Runs of a process that are counted, after two that are not."""

TIMED = """
const times = [];
for (let i = 0; i < RUNS + 2; i++) {
    const start = performance.now();
    await run();
    if (i > 1) times.push(performance.now() - start);
}
writeFileSync(result, await run());
console.log(JSON.stringify(times));
"""
COMMON = f"""
import {{ readFileSync, writeFileSync }} from "node:fs";
const RUNS = {RUNS}, [,, folder, name, file, result] = process.argv;
const bytes = readFileSync(file);
const x = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
"""
OURS = (
    COMMON
    + """
const { load, inputs, outputs } = await import(`${folder}/${name}.mjs`);
const model = await load(), feed = { [inputs[0].name]: x };
const run = () => model.run(feed)[outputs[0].name].data;
"""
    + TIMED
)
THEIRS = (
    COMMON
    + """
import * as ort from "onnxruntime-web";
ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(readFileSync(`${folder}/${name}.onnx`), {
    executionProviders: ["wasm"], graphOptimizationLevel: "all",
});
const input = new ort.Tensor(x, JSON.parse(process.argv[6]));
const feed = { [session.inputNames[0]]: input };
const run = async () => (await session.run(feed))[session.outputNames[0]].data;
"""
    + TIMED
)


def node(script: Path, *arguments: object) -> list[float]:
    """The times in ms that a script prints."""
    command = ["node", str(script), *map(str, arguments)]
    return json.loads(subprocess.check_output(command, text=True, cwd=script.parent))


def measured(zoo: Path, name: str, peer: Path, rounds: int) -> tuple[float, float, float]:
    """Medians in ms, ours and theirs, and the relative difference of the results."""
    with np.load(zoo / f"{name}.npz") as arrays:
        (x,) = (arrays[k] for k in arrays if k.startswith("in_"))
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        ts.export(zoo / f"{name}.onnx", folder, name, targets=("wasm32",), threads=1)
        x.tofile(folder / "input")
        (folder / "ours.mjs").write_text(OURS)
        theirs = peer / "tilesmith_peer.mjs"
        theirs.write_text(THEIRS)
        try:
            for _ in range(rounds):
                times["ours"] += node(
                    folder / "ours.mjs", folder, name, folder / "input", folder / "a"
                )
                times["theirs"] += node(
                    theirs, zoo.absolute(), name, folder / "input", folder / "b",
                    json.dumps(x.shape),
                )  # fmt: skip
        finally:
            theirs.unlink()
        a, b = (np.fromfile(folder / f, np.float32) for f in "ab")
    ours, others = (statistics.median(times[n]) for n in ("ours", "theirs"))
    return ours, others, float(np.abs(a - b).max() / np.abs(b).max())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("zoo", type=Path, help="a folder that benchmarks/zoo.py made")
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(NAMES)}")
    parser.add_argument("--peer", type=Path, required=True, help="where onnxruntime-web is")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each")
    given = parser.parse_args()
    missed = False
    print(f"{'model':16} {'tilesmith':>10} {'onnxruntime-web':>16}  ratio")
    for name in given.names or NAMES:
        ours, theirs, difference = measured(given.zoo, name, given.peer, given.rounds)
        missed |= theirs < LEAST * ours
        print(f"{name:16} {ours:10.2f} {theirs:16.2f}  {theirs / ours:.2f}  ({difference:.1e})")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
