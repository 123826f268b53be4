"""Models as C libraries: answers without Python, what linkers see, and every kind of misuse."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.codegen.link import compile_object
from tilesmith.codegen.targets import host
from tilesmith.runtime.standalone.elf import private
from tilesmith.runtime.standalone.objects import weights_sum

HERE = Path(__file__).parent
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to compile C")


def model(rows: int = 5, seed: int = 0) -> bytes:
    """y = table[i], z = x . w for x: f32[n,16]."""
    table = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    w = np.random.default_rng(seed).standard_normal((16, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["y"]),
        helper.make_node("MatMul", ["x", "w"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(w, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        env=environment or None,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def answers(
    folder: Path, program: Path, weights: Path | None, x: np.ndarray, i: np.ndarray
) -> list:
    """The outputs of the example program on raw files."""
    files = [folder / f"{n}.bin" for n in ("x", "i", "y", "z")]
    x.tofile(files[0])
    i.tofile(files[1])
    run(program, weights or "-", *files)
    return [np.fromfile(f, np.float32) for f in files[2:]]


@pytest.mark.parametrize("format", ["shared", "static", "object"])
@pytest.mark.parametrize("weights", ["file", "inside"])
def test_a_c_program_gets_the_same_bits(tmp_path: Path, format: str, weights: str) -> None:
    exe = ts.compile(model(), shapes={"n": 9})
    made = exe.export(tmp_path, "small", format, weights)  # type: ignore[arg-type]  # parameters
    assert (made.weights is None) == (weights == "inside")
    example = tmp_path / "example"
    run(
        "gcc", *WARNINGS, f"-I{tmp_path}/include", tmp_path / "main.c", made.library,
        f"-Wl,-rpath,{made.library.parent}", "-lm", "-pthread", "-o", example,
    )  # fmt: skip
    rng = np.random.default_rng(3)
    x, i = rng.standard_normal((9, 16)).astype(np.float32), np.array([3, 0])
    found = answers(tmp_path, example, made.weights, x, i)
    for a, b in zip(found, exe(x, i), strict=True):
        np.testing.assert_array_equal(a, b.reshape(-1))


def test_a_library_takes_the_best_level_that_its_processor_runs(tmp_path: Path) -> None:
    made = ts.export(
        model(), tmp_path, "levels", targets=("x86-64-v4+amx-fp16", "x86-64-v2"), shapes={"n": 9}
    )
    example = tmp_path / "example"
    run(
        "gcc", *WARNINGS, f"-I{tmp_path}/include", tmp_path / "main.c", made.library,
        f"-Wl,-rpath,{made.library.parent}", "-o", example,
    )  # fmt: skip
    x, i = np.ones((9, 16), np.float32), np.array([3, 0])
    found = answers(tmp_path, example, made.weights, x, i)
    w = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    np.testing.assert_allclose(found[1].reshape(9, 8), x @ w, rtol=1e-5, atol=1e-5)


def symbols(library: Path, *options: str) -> set[str]:
    return {line.split()[-1] for line in run("nm", *options, library).splitlines()}


def test_linkers_see_the_functions_of_the_header_and_only_the_c_library_is_needed(
    tmp_path: Path,
) -> None:
    made = ts.compile(model()).export(tmp_path, "small")
    verbs = (
        "abi", "arena_bytes", "create", "default", "description", "destroy", "error", "found",
        "get_output", "input_sizes", "instance_create", "instance_destroy", "instance_error",
        "instance_run", "instance_shape", "reset", "run", "set_input", "set_output", "sizes",
        "submit", "version", "wait",
    )  # fmt: skip
    assert symbols(made.library, "-D", "--defined-only") == {f"small_{v}" for v in verbs}
    needed = {n for n in symbols(made.library, "-D", "--undefined-only") if "GLIBC" not in n}
    assert needed <= {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__"}


def test_two_models_stand_in_one_program(tmp_path: Path) -> None:
    first = ts.compile(model()).export(tmp_path / "a", "first", "object", "inside")
    other = ts.compile(model(7, 1)).export(tmp_path / "b", "other", "object", "inside")
    text = """
        #include "first.h"
        #include "other.h"
        int main(void) {
            struct tilesmith_model *a, *b;
            return first_create(NULL, &a) || other_create(NULL, &b);
        }"""
    (tmp_path / "both.c").write_text(text)
    run(
        "gcc", *WARNINGS, f"-I{tmp_path}/a/include", f"-I{tmp_path}/b/include", tmp_path / "both.c",
        first.library, other.library, "-lm", "-pthread", "-o", tmp_path / "both",
    )  # fmt: skip
    run(tmp_path / "both")


def test_misuse_is_an_error_code_and_runs_share_a_model(tmp_path: Path) -> None:
    """Under AddressSanitizer and UndefinedBehaviorSanitizer."""
    bounds: Mapping[str, tuple[int, int]] = {"n": (1, 64)}
    made = ts.export(model(), tmp_path, "hostile", format="static", dynamic=bounds)
    other = ts.export(model(seed=1), tmp_path / "other", "hostile", format="static", dynamic=bounds)
    assert made.weights is not None and other.weights is not None
    contents = made.weights.read_bytes()
    (tmp_path / "cut").write_bytes(contents[:-1])
    changed = bytearray(contents)
    changed[-1] ^= 1
    (tmp_path / "changed").write_bytes(changed)
    runtime = Path(ts.__file__).parent / "runtime" / "csrc"
    program = tmp_path / "hostile"
    run(
        "gcc", *WARNINGS, "-g", "-O1", "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined", f"-I{tmp_path}/include", HERE / "hostile.c",
        runtime / "library" / "model.c", runtime / "library" / "instance.c", made.library, "-lm",
        "-pthread", "-o", program,
    )  # fmt: skip
    files = (made.weights, tmp_path / "cut", other.weights, tmp_path / "changed")
    assert run(program, *files) == "ok\n"


def test_an_instance_in_cxx17_runs_and_throws_what_was_wrong(tmp_path: Path) -> None:
    bounds: Mapping[str, tuple[int, int]] = {"n": (1, 64)}
    made = ts.export(model(), tmp_path, "small", dynamic=bounds)
    program = tmp_path / "program"
    run(
        "g++", "-std=c++17", *WARNINGS[1:], "-g", "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined", f"-I{tmp_path}/include", HERE / "instance.cpp",
        made.library, f"-Wl,-rpath,{made.library.parent}", "-o", program,
    )  # fmt: skip
    assert made.weights is not None
    found = run(program, made.weights).split("\n")
    exe = ts.compile(model(), dynamic=bounds)
    for line, value in ((found[1], 1), (found[2], 2)):
        (_, z) = exe(np.full((3, 16), value, np.float32), np.array([4, 0]))
        np.testing.assert_array_equal(np.array(line.split(), np.float32), z.reshape(-1))
    assert found[3] == "1 0 16"
    wanted = (
        r"16: .*", r"16: .*", r"16: input x: expected elements of type f32, found another type",
        r"16: expected the number of an input below 2, found 2",
        r"16: output y: expected elements of type f32, found another type",
        r"16: small has 1 open sizes, found 0",
        r"1: .*expected indices from -5 to 4, found 9 at position 1",
        r"1: .*expected indices from -5 to 4, found 9 at position 1", r"18: .*weights.*", "",
    )  # fmt: skip
    for line, pattern in zip((found[0], *found[4:]), wanted, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_the_headers_are_c99_and_cxx17(tmp_path: Path) -> None:
    made = ts.compile(model()).export(tmp_path, "small")
    (tmp_path / "a.c").write_text('#include "small.h"\n')
    (tmp_path / "a.cpp").write_text('#include "small.hpp"\nsmall::model *made;\n')
    include = f"-I{made.header.parent}"
    strict = (*WARNINGS[1:], "-pedantic", "-fsyntax-only", include)
    run("gcc", "-std=c99", *strict, tmp_path / "a.c")
    run("g++", "-std=c++17", *strict, tmp_path / "a.cpp")


def test_what_can_not_be_a_library_is_said(tmp_path: Path) -> None:
    exe = ts.compile(model())
    with pytest.raises(ts.UsageError, match=r"expected a C identifier .*, found '1st'"):
        exe.export(tmp_path, "1st")
    with pytest.raises(ts.UsageError, match=r"format: expected one of .*, found 'exe'"):
        exe.export(tmp_path, "a", "exe")  # type: ignore[arg-type]  # what is tested
    for given in ({"targets": ("x86-64-v2",)}, {"shapes": {"x": (4, 16)}}):
        named = f"{', '.join(given)}: arguments for a model that is not compiled yet"
        with pytest.raises(ts.UsageError, match=named):
            ts.export(exe, tmp_path, "a", **given)
    with pytest.raises(
        ts.UsageError, match=r"for a CPU under linux, windows, macos: .*, found 'opencl-gpu'"
    ):
        ts.export(model(), tmp_path, "a", targets=("opencl-gpu",), shapes={"n": 4})
    (tmp_path / "file").write_text("")
    with pytest.raises(ts.UsageError, match="file/sub' can't be written: "):
        exe.export(tmp_path / "file" / "sub", "a")
    nodes = [helper.make_node("ConstantOfShape", ["x"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    grows = ts.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    )
    with pytest.raises(
        ts.UsageError,
        match=r"the sizes of y: f32.* depend on data, as found by 'y', without a bound",
    ):
        grows.export(tmp_path, "a")


def test_private_symbols_are_renamed_weak_and_hidden(tmp_path: Path) -> None:
    text = "declare i32 @far()\ndefine i32 @near() {\n  %a = call i32 @far()\n  ret i32 %a\n}\n"
    code = private(compile_object(text, host()), lambda s: {"near": "mine", "far": "yours"}[s])
    (tmp_path / "a.o").write_bytes(code)
    rows = [line.split()[-2:] for line in run("nm", tmp_path / "a.o").splitlines()]
    assert rows == [["W", "mine"], ["U", "yours"]]
    assert "HIDDEN" in run("readelf", "-s", tmp_path / "a.o")


@pytest.mark.parametrize("count", [0, 1, 8, 1000])
def test_the_sum_of_weights_is_that_of_the_runtime(count: int) -> None:
    data = np.random.default_rng(count).integers(0, 256, count).astype(np.uint8)
    padded = bytes(data) + bytes(-count % 8)
    words = [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
    expected = count + sum(w * (2 * i + 1) for i, w in enumerate(words))
    assert weights_sum(data) == expected % 2**64
