"""Exported models keep states from run to run as executables do: C libraries, C source, modules of
WebAssembly.  Quantised TFLite models become C source with the same integers.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import tilesmith as ts
from tflite_models import GraphWriter, ModelWriter
from tilesmith.codegen.c.compiler import find_compiler
from tilesmith.support.errors import UsageError

STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def handle(g: GraphWriter) -> int:
    number = g.tensor((1,), "RESOURCE")
    g.op("VAR_HANDLE", [], [number], "VarHandleOptions", shared_name="total", container="")
    return number


def stream() -> bytes:
    """y = total * x; then total is total + x.  It begins as 1, 2, 3."""
    model = ModelWriter()
    g, first = model.graph(), model.graph("init")
    x, y = g.input((3,), name="x"), g.tensor((3,), name="y")
    g.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    total, before, after = handle(g), g.tensor((3,)), g.tensor((3,))
    g.op("READ_VARIABLE", [total], [before])
    g.op("MUL", [before, x], [y], "MulOptions")
    g.op("ADD", [before, x], [after], "AddOptions")
    g.op("ASSIGN_VARIABLE", [total, after], [])
    g.output(y)
    begin = first.const(np.array([1, 2, 3], np.float32))
    first.op("ASSIGN_VARIABLE", [handle(first), begin], [])
    return model.bytes()


X = np.array([4, 5, 6], np.float32)
ANSWERS = [[4, 10, 18], [20, 35, 54], [4, 10, 18]]
"""Of two runs, and of one after a reset."""


def run(command: Sequence[object], **options: object) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=120, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture
def compiler() -> tuple[str, ...]:
    try:
        return find_compiler()
    except UsageError as e:
        pytest.skip(str(e))


def test_an_instance_of_a_c_library(tmp_path: Path, compiler: tuple[str, ...]) -> None:
    made = ts.export(stream(), tmp_path, "net", weights="inside")
    assert "total: f32[3] (a state, which an instance keeps)" in made.header.read_text()
    lib = ctypes.CDLL(str(made.library))
    model, instances = ctypes.c_void_p(), [ctypes.c_void_p(), ctypes.c_void_p()]
    assert lib.net_create(None, ctypes.byref(model)) == 0
    for i in instances:
        assert lib.net_instance_create(model, None, ctypes.byref(i)) == 0

    def answer(instance: ctypes.c_void_p, number: int = 0) -> list[float]:
        data, size = ctypes.c_void_p(), ctypes.c_int64()
        found = ctypes.byref(data), ctypes.byref(size)
        assert lib.net_get_output(instance, ctypes.c_int64(number), *found) == 0
        return list((ctypes.c_float * (size.value // 4)).from_address(data.value or 0))

    def ran(instance: ctypes.c_void_p) -> list[float]:
        place = ctypes.c_void_p(X.ctypes.data)
        assert lib.net_set_input(instance, ctypes.c_int64(0), place, ctypes.c_int64(12)) == 0
        assert lib.net_instance_run(instance) == 0
        return answer(instance)

    assert [ran(instances[0]), ran(instances[0])] == ANSWERS[:2]
    assert ran(instances[1]) == ANSWERS[0]  # its own state
    assert lib.net_reset(instances[0]) == 0
    assert ran(instances[0]) == ANSWERS[2]
    assert answer(instances[0], 1) == [5, 7, 9]
    own = np.array([10, 20, 30], np.float32)
    bound = ctypes.c_int64(1), ctypes.c_void_p(own.ctypes.data), ctypes.c_int64(12)
    assert lib.net_set_input(instances[0], *bound) == 0
    assert ran(instances[0]) == [40, 100, 180] and own.tolist() == [14, 25, 36]
    assert lib.net_set_input(instances[0], ctypes.c_int64(1), None, ctypes.c_int64(0)) == 0
    assert ran(instances[0]) == ANSWERS[1]
    for i in instances:
        lib.net_instance_destroy(i)
    lib.net_destroy(model)


def test_the_example_of_a_c_library(tmp_path: Path, compiler: tuple[str, ...]) -> None:
    ts.export(stream(), tmp_path, "net", format="static")
    X.tofile(tmp_path / "x")
    files = ("-Iinclude", "main.c", "lib/libnet.a", "-lm", "-lpthread", "-o", "main")
    run([*compiler, "-std=c11", *files], cwd=tmp_path)
    # The initial state is the model's, not a file's.
    run(["./main", "net.weights", "x", "none", "y", "after"], cwd=tmp_path)
    assert np.fromfile(tmp_path / "y", np.float32).tolist() == ANSWERS[0]
    assert np.fromfile(tmp_path / "after", np.float32).tolist() == [5, 7, 9]


def test_c_source(tmp_path: Path, compiler: tuple[str, ...]) -> None:
    made = ts.export(stream(), tmp_path, "net", targets=("cortex-m4",), format="c")
    assert "NET_STATE_BYTES 12" in made.header.read_text()
    (tmp_path / "main.c").write_text(
        '#include "net.h"\n#include <stdio.h>\nint main(void) {\n'
        "    const float x[3] = {4, 5, 6};\n    float y[3];\n"
        "    for (int n = 0; n < 3; n++) {\n        if (n == 2)\n            net_reset();\n"
        '        if (net_run(x, y))\n            return 1;\n        printf("%g %g %g\\n", '
        "(double)y[0], (double)y[1], (double)y[2]);\n    }\n    return 0;\n}\n"
    )
    program = tmp_path / "program"
    run([*compiler, *STRICT, tmp_path / "main.c", made.library, "-o", program, "-lm"])
    lines = run([program]).splitlines()
    assert [[float(v) for v in line.split()] for line in lines] == ANSWERS


def test_a_module_of_webassembly(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs Node and ziglang")
    ts.export(stream(), tmp_path, "net", targets=("wasm32",))
    (tmp_path / "test.mjs").write_text(
        """
import { load, inputs, outputs } from "./net.mjs";
const model = await load(), other = await load(), x = Float32Array.of(4, 5, 6), said = [];
const run = of => said.push(Array.from(of.run({ x }).y.data));
run(model);
run(model);
model.reset();
run(model);
run(other);
let refusal = "";
try { model.run({ x, total: x }); } catch (e) { refusal = e.message; }
console.log(JSON.stringify([said, inputs.map(t => t.name), outputs.map(t => t.name), refusal]));
"""
    )
    said, inputs, outputs, refusal = json.loads(run([node, "test.mjs"], cwd=tmp_path))
    assert said == [*ANSWERS, ANSWERS[0]]
    assert (inputs, outputs) == (["x"], ["y"])
    assert refusal == "expected inputs x, found total"
    types = (tmp_path / "net.d.mts").read_text()
    assert "total" not in types and "reset(): void" in types


def quantised() -> bytes:
    """A convolution, a depthwise one with ReLU6, a mean and a product of int8 numbers, with the
    last two pictures' means as a state.
    """
    rng = np.random.default_rng(0)
    model = ModelWriter()
    g, first = model.graph(), model.graph("init")
    x = g.input((1, 8, 8, 3), np.int8, "x", scale=0.04, zero=-3)

    def weights(shape: tuple[int, ...], axis: int, before: float) -> list[int]:
        scales = rng.uniform(0.005, 0.02, shape[axis])
        w = g.const(rng.integers(-127, 128, shape, np.int8), scale=scales, axis=axis)
        bias = rng.integers(-900, 900, shape[axis], np.int32)
        return [w, g.const(bias, scale=scales * before)]

    a = g.tensor((1, 4, 4, 6), np.int8, scale=0.06, zero=5)
    strides = {"stride_w": 2, "stride_h": 2, "fused_activation_function": 0}
    g.op("CONV_2D", [x, *weights((6, 3, 3, 3), 0, 0.04)], [a], "Conv2DOptions", **strides)
    b = g.tensor((1, 4, 4, 6), np.int8, scale=0.0235, zero=-128)
    options = {"stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    of = "DepthwiseConv2DOptions"
    row = [a, *weights((1, 3, 3, 6), 3, 0.06)]
    g.op("DEPTHWISE_CONV_2D", row, [b], of, fused_activation_function=3, **options)
    mean = g.tensor((1, 6), np.int8, scale=0.02, zero=-120)
    g.op("MEAN", [b, g.const(np.array([1, 2], np.int32))], [mean], "ReducerOptions")
    g.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    means, before = handle(g), g.tensor((1, 6), np.int8, scale=0.02, zero=-120)
    g.op("READ_VARIABLE", [means], [before])
    both = g.tensor((1, 12), np.int8, scale=0.02, zero=-120)
    g.op("CONCATENATION", [before, mean], [both], "ConcatenationOptions", axis=1)
    g.op("ASSIGN_VARIABLE", [means, mean], [])
    y = g.tensor((1, 4), np.int8, "y", scale=0.05, zero=7)
    product = [both, *weights((4, 12), 0, 0.02)]
    g.op("FULLY_CONNECTED", product, [y], "FullyConnectedOptions")
    g.output(y)
    begin = first.const(np.full((1, 6), -120, np.int8), scale=0.02, zero=-120)
    first.op("ASSIGN_VARIABLE", [handle(first), begin], [])
    return model.bytes()


@pytest.mark.parametrize("target", ["cortex-m0", "cortex-m4", "cortex-m7"])
def test_a_quantised_tflite_model_on_a_microcontroller(
    tmp_path: Path, target: str, compiler: tuple[str, ...]
) -> None:
    content = quantised()
    made = ts.export(content, tmp_path, "net", targets=(target,), format="c")
    code = made.library.read_text().split("static const struct {")[0]
    assert "float" not in code
    x = np.random.default_rng(1).integers(-128, 128, (3, 192), np.int8)
    numbers = ", ".join(map(str, x.reshape(-1)))
    (tmp_path / "main.c").write_text(
        '#include "net.h"\n#include <stdio.h>\n'
        f"static const int8_t x[] = {{{numbers}}};\nint main(void) {{\n    int8_t y[4];\n"
        "    for (int n = 0; n < 3; n++) {\n        if (net_run(x + 192 * n, y))\n"
        "            return 1;\n        for (int i = 0; i < 4; i++)\n"
        '            printf("%d ", y[i]);\n    }\n    return 0;\n}\n'
    )
    program = tmp_path / "program"
    run([*compiler, *STRICT, tmp_path / "main.c", made.library, "-o", program, "-lm"])
    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    expected = []
    for row in x:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], row.reshape(1, 8, 8, 3))
        interpreter.invoke()
        expected += interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0].tolist()
    assert [int(v) for v in run([program]).split()] == expected
    assert len(set(expected)) > 4
