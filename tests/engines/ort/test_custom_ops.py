"""Libraries of operators in ONNX Runtime: answers, misuse, several sessions and threads."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith import te
from tilesmith.runtime.standalone.toolchain import SOURCES

FLOAT = TensorProto.FLOAT
Value = tuple[str, int, list[Any]]


def model(nodes: list[onnx.NodeProto], inputs: list[Value], outputs: list[Value]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*v) for v in inputs],
        [helper.make_tensor_value_info(*v) for v in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("tilesmith", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def session(library: Path, made: bytes, threads: int = 2) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(made, options)


def row_norm(rows: int, columns: int) -> tuple[te.Schedule, list[te.Tensor]]:
    x = te.placeholder((rows, columns), name="x")
    k = te.reduce_axis(columns, "k")
    total = te.compute((rows,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), "total")
    y = te.compute((rows, columns), lambda i, j: x[i, j] * te.rsqrt(total[i] / columns + 1e-5), "y")
    s = te.create_schedule(y)
    s[total].compute_at(s[y], s[y].op.axis[0])
    s[y].parallel(s[y].op.axis[0])
    return s, [x, y]


MISH = [
    helper.make_node("Softplus", ["a"], ["t"]),
    helper.make_node("Tanh", ["t"], ["u"]),
    helper.make_node("Mul", ["a", "u"], ["b"]),
]
ROWS = helper.make_node("Gather", ["table", "i"], ["y"])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = te.placeholder((300, 64), name="x")
    doubled = te.compute((300, 64), lambda i, j: x[i, j] * 2.0, "doubled")
    halved = te.compute((300, 64), lambda i, j: x[i, j] * 0.5, "halved")
    ops = {
        "RowNorm": row_norm(300, 64),
        "Mish": model(MISH, [("a", FLOAT, ["n", 64])], [("b", FLOAT, ["n", 64])]),
        "Rows": ts.compile(
            model(
                [ROWS],
                [("table", FLOAT, [5, "w"]), ("i", TensorProto.INT64, ["k"])],
                [("y", FLOAT, None)],  # type: ignore[list-item]  # its shape is inferred
            )
        ),
        "Both": ("auto", [x, doubled, halved]),
    }
    folder = tmp_path_factory.mktemp("ops")
    return ts.ort.export_custom_ops(ops, folder / "ops.so", threads=3)


def test_operators_stand_beside_those_of_onnx_runtime(library: Path) -> None:
    nodes = [
        helper.make_node("RowNorm", ["x"], ["r"], domain="tilesmith"),
        helper.make_node("Relu", ["r"], ["q"]),
        helper.make_node("Mish", ["q"], ["m"], domain="tilesmith"),
        helper.make_node("Both", ["m"], ["y", "z"], domain="tilesmith"),
    ]
    made = model(
        nodes, [("x", FLOAT, [300, 64])], [("y", FLOAT, [300, 64]), ("z", FLOAT, [300, 64])]
    )
    x = np.random.default_rng(0).standard_normal((300, 64), np.float32)
    wanted = np.maximum(x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5), 0)
    wanted *= np.tanh(np.log1p(np.exp(wanted)))
    for threads in (1, 2):  # operators were made for three
        y, z = session(library, made, threads).run(None, {"x": x})
        np.testing.assert_allclose(y, 2 * wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(z, wanted / 2, rtol=1e-5, atol=1e-6)


def test_sizes_are_those_of_each_run(library: Path) -> None:
    node = helper.make_node("Mish", ["x"], ["y"], domain="tilesmith")
    own = session(library, model([node], [("x", FLOAT, ["n", 64])], [("y", FLOAT, ["n", 64])]))
    rng = np.random.default_rng(1)
    for rows in (1, 700, 3, 20):
        x = rng.standard_normal((rows, 64), np.float32)
        np.testing.assert_allclose(
            own.run(None, {"x": x})[0], x * np.tanh(np.log1p(np.exp(x))), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("pool", ["session", "own"])
def test_runs_at_once_and_sessions_share_a_library(
    pool: Literal["session", "own"], library: Path, tmp_path: Path
) -> None:
    if pool == "own":
        ops = {"RowNorm": row_norm(300, 64)}
        library = ts.ort.export_custom_ops(ops, tmp_path / "ops.so", threads=3, pool=pool)
    node = helper.make_node("RowNorm", ["x"], ["y"], domain="tilesmith")
    made = model([node], [("x", FLOAT, [300, 64])], [("y", FLOAT, [300, 64])])
    sessions = [session(library, made) for _ in range(2)]
    x = np.random.default_rng(2).standard_normal((12, 300, 64), np.float32)
    wanted = [sessions[0].run(None, {"x": a})[0] for a in x]
    with ThreadPoolExecutor(6) as pool:
        found = pool.map(lambda i: sessions[i % 2].run(None, {"x": x[i % 12]})[0], range(60))
        for i, y in enumerate(found):
            np.testing.assert_array_equal(y, wanted[i % 12])


@pytest.mark.parametrize(
    ("shape", "indices", "message"),
    [
        ((5, 4), [1, 7], r"Rows: .*expected indices from -5 to 4, found 7 at position 1"),
        ((6, 4), [1], r"Rows: input table: expected extent 5 of axis 0, found 6"),
        ((5, 4, 1), [1], r"Rows: input table: expected rank 2, found 3"),
    ],
)
def test_what_does_not_fit_is_an_error_and_the_next_run_works(
    library: Path, shape: tuple[int, ...], indices: list[int], message: str
) -> None:
    node = helper.make_node("Rows", ["t", "i"], ["y"], domain="tilesmith")
    inputs = [("t", FLOAT, None), ("i", TensorProto.INT64, ["k"])]
    own = session(library, model([node], inputs, [("y", FLOAT, None)]))  # type: ignore[arg-type]
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    with pytest.raises(Exception, match=message):  # ONNX Runtime's own type
        own.run(None, {"t": np.ones(shape, np.float32), "i": np.array(indices)})
    (y,) = own.run(None, {"t": table, "i": np.array([-1, 0])})
    np.testing.assert_array_equal(y, table[[-1, 0]])


def test_an_older_onnx_runtime_is_told(tmp_path: Path) -> None:
    """A stand-in for ONNX Runtime 1.16, in C, calls what the library exports."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on PATH")
    library = ts.ort.export_custom_ops({"RowNorm": row_norm(4, 8)}, tmp_path / "libops.so")
    (tmp_path / "old.c").write_text("""
#include "tilesmith_ort.h"
#include <stdio.h>
static struct ort_status *create(int code, const char *text) {
    printf("%d %s\\n", code, text);
    return (void *)text;
}
static ort_any_function table[1] = {(ort_any_function)create};
static const ort_any_function *api(uint32_t version) { return version <= 16 ? table : NULL; }
static const char *version(void) { return "1.16.3"; }
struct ort_status *RegisterCustomOps(struct ort_options *, const struct ort_api_base *);
int main(void) {
    static const struct ort_api_base base = {api, version};
    return RegisterCustomOps(NULL, &base) == NULL;
}
""")
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}", f"-I{SOURCES}/library")
    subprocess.run([compiler, *flags, "old.c", library, "-o", "old"], cwd=tmp_path, check=True)
    said = subprocess.check_output(["./old"], cwd=tmp_path, env={"LD_LIBRARY_PATH": "."}, text=True)
    assert said == "9 expected ONNX Runtime 1.17 or later, found 1.16.3\n"


def test_what_can_not_be_an_operator_is_said(tmp_path: Path) -> None:
    def refused(message: str, ops: Any, **more: Any) -> None:
        with pytest.raises(ts.UsageError, match=message):
            ts.ort.export_custom_ops(ops, tmp_path / "x.so", **more)

    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1.0, "y")
    refused("expected operators by name", {})
    refused(r"name of an operator.*found 'a b'", {"a b": ("auto", [x, y])})
    refused(r"part of a domain.*found ''", {"a": ("auto", [x, y])}, domain="")
    refused(r"operator a: expected a schedule \(or 'auto'\)", {"a": ("fast", [x, y])})
    add = [helper.make_node("Add", ["a", "a"], ["b"])]
    one = model(add, [("a", FLOAT, [4])], [("b", FLOAT, [4])])
    lives = ts.compile(one, in_place={"b": "a"})
    refused("operator a: its outputs can't live in inputs", {"a": lives})
    refused(r"pool: expected one of .* found 'mine'", {"a": one}, pool="mine")
    refused("found 'opencl-gpu'", {"a": one}, targets=("opencl-gpu",))
    (tmp_path / "file").write_text("")
    with pytest.raises(ts.UsageError, match=r"file/x.so' can't be written"):
        ts.ort.export_custom_ops({"a": one}, tmp_path / "file" / "x.so")
