"""Initialisers that are inputs with a default: as given, as left out, saved, exported."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.driver import Request, load_graph
from tilesmith.graph.compare import assert_structural_equal
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.support.errors import ModelError, UsageError

W = np.arange(9, dtype=np.float32).reshape(3, 3) - 4
B = np.array([1, -2, 3], np.float32)
X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
OPTIONAL = ("w", "b")


def model(rows: int | str = "n", ir_version: int = 8, lists: bool = True) -> onnx.ModelProto:
    """y = x . w + b; lists: whether `w` and `b` are inputs of the model, too."""
    stored = {"w": W, "b": B}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 3])]
    if lists:
        inputs += [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in stored.items()
        ]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["t"]),
            helper.make_node("Add", ["t", "b"], ["y"]),
        ],
        "g",
        inputs,
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(a, n) for n, a in stored.items()],
    )
    opsets = [helper.make_opsetid("", 9 if ir_version < 4 else 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def expected(given: Mapping[str, np.ndarray]) -> np.ndarray:
    return X @ given.get("w", W) + given.get("b", B)


GIVEN: tuple[dict[str, np.ndarray], ...] = ({}, {"w": 2 * W}, {"b": B + 7}, {"w": -W, "b": B * 3})


def check(exe: ts.Executable) -> None:
    for given in GIVEN:
        wanted = expected(given)
        for found in (exe.run({"x": X, **given})["y"], exe(X, **given), exe(x=X, **given)):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(exe(X, -W), expected({"w": -W}), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("made", [model(), model(4), model(4, 3), model(lists=False)])
def test_what_is_optional_may_be_given(made: onnx.ModelProto) -> None:
    exe = ts.compile(made, optional=OPTIONAL)
    assert [s.name for s in exe.inputs] == ["x", "w", "b"]
    check(exe)


def test_programs_for_some_sizes_and_instances_have_the_defaults() -> None:
    exe = ts.compile(model(), optional=OPTIONAL, specialise={"n": 4})
    check(exe)
    run = ts.Instance(exe)
    run.set_input("x", X)
    run.run()
    np.testing.assert_allclose(run.get_output(0), expected({}), rtol=1e-5, atol=1e-5)
    run.set_input("w", 2 * W)
    run.run()
    np.testing.assert_allclose(run.get_output(0), expected({"w": 2 * W}), rtol=1e-5, atol=1e-5)


def test_files_hold_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    options = ts.Options(cache_dir=tmp_path / "cache")
    for _ in range(2):  # the second is from the cache
        exe = ts.compile(path, optional=OPTIONAL, options=options)
        check(exe)
    assert len(ts.compile(path, options=options).inputs) == 1
    exe.save(tmp_path / "m.tsm")
    check(ts.load(tmp_path / "m.tsm"))


def test_new_weights_are_new_defaults() -> None:
    exe = ts.compile(model(), optional=["w"])
    exe.load_weights({"w": 5 * W, "b": B})
    np.testing.assert_allclose(exe(X), expected({"w": 5 * W}), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(exe(X, W), expected({}), rtol=1e-5, atol=1e-5)


def test_the_text_has_the_defaults() -> None:
    graph = load_graph(Request.of(model(), optional=OPTIONAL))
    text = print_graph(graph)
    assert "%b: f32[3] = [1.0, -2.0, 3.0])" in text
    again = parse_graph(text, constants_of(graph))
    assert_structural_equal(again, graph)
    assert print_graph(again) == text
    with pytest.raises(AssertionError, match="defaults"):
        assert_structural_equal(
            parse_graph(text.replace("[1.0,", "[9.0,"), constants_of(graph)), graph
        )


def test_a_shape_may_be_optional() -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "g",
        inputs,
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.array([3, -1]), "shape")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = ts.compile(made, optional=["shape"])
    np.testing.assert_array_equal(exe(X), X.reshape(3, 4))
    np.testing.assert_array_equal(exe(X, np.array([2, 6])), X.reshape(2, 6))


def test_what_was_not_named_is_refused_with_the_option() -> None:
    exe = ts.compile(model())
    for call in (lambda: exe.run({"x": X, "w": W}), lambda: exe(X, w=W)):
        with pytest.raises(ModelError, match=r"no input is called 'w'.*optional=\[.*--optional"):
            call()
    with pytest.raises(ModelError, match="optional="):
        ts.Instance(exe).set_input("w", W)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optional": ["v"]}, "no initializer 'v'.*those that it lists as inputs are 'w', 'b'"),
        ({"optional": ["x"]}, "no initializer 'x'"),
        ({"optional": "w"}, "optional: expected"),
        ({"optional": ["w"], "values": {"w": W}}, "'w' is fixed by values="),
        ({"optional": ["b"], "in_place": {"y": "b"}, "shapes": {"n": 1}}, "'y' can't live in 'b'"),
    ],
)
def test_names_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ts.compile(model(), **options)
    with pytest.raises(UsageError, match="names initialisers of an ONNX model, found a Graph"):
        ts.compile(load_graph(Request.of(model())), optional=["w"])


def test_a_damaged_place_of_a_default_is_refused() -> None:
    from tilesmith.runtime.tsm import from_manifest, to_manifest

    program = ts.compile(model(), optional=["w"]).program
    files = {s: f"code/{i}.o" for i, s in enumerate(program.objects)}
    for place in ([1, program.constants.nbytes], [1, 8], [7, 0], [1, -64], [0, 0]):
        manifest = {**to_manifest(program, files), "parts": {}, "defaults": [place]}
        with pytest.raises(ValueError, match=r"default|expected a number"):
            from_manifest(manifest)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to compile C")
def test_c_libraries_begin_with_the_defaults(tmp_path: Path) -> None:
    made = ts.export(model(4), tmp_path, "some", optional=OPTIONAL, weights="file")
    assert "w: f32[3,3] (optional: number 1 of" in made.header.read_text()
    example = tmp_path / "example"
    command = (
        "gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}/include",
        tmp_path / "main.c", made.library, f"-Wl,-rpath,{made.library.parent}", "-o", example,
    )  # fmt: skip
    subprocess.run([*map(str, command)], check=True, timeout=60)
    arrays = {"x": X, "w": 2 * W, "b": B, "y": B}
    files = {n: tmp_path / f"{n}.bin" for n in arrays}
    for n in "xwb":
        arrays[n].tofile(files[n])
    for names, wanted in (("xwby", expected({"w": 2 * W})), ("x", None)):
        given = [str(files[n]) for n in names]
        subprocess.run([str(example), str(made.weights), *given], check=True, timeout=60)
        if wanted is not None:
            found = np.fromfile(files["y"], np.float32).reshape(4, 3)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    text = """
        #include "some.h"
        #include <stdio.h>
        int main(int argc, char **argv) {
            struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
            struct tilesmith_model *model;
            struct tilesmith_instance *instance;
            float x[12], b[3] = {0, 0, 0}, *y;
            options.weights = argv[argc - 1];
            if (some_create(&options, &model)) return 1;
            if (some_instance_create(model, NULL, &instance)) return 1;
            for (int i = -1; i < 4; i++)
                if (!some_default(model, i) != (i < 1 || i > 2)) return 2;
            for (int i = 0; i < 12; i++) x[i] = (float)i;
            if (some_set_input(instance, 0, x, sizeof x)) return 3;
            for (int run = 0; run < 3; run++) {
                if (run && some_set_input(instance, 2, run == 1 ? b : NULL, sizeof b)) return 4;
                if (some_instance_run(instance)) return 5;
                if (some_get_output(instance, 0, (void **)&y, NULL)) return 6;
                printf("%g\\n", y[2]);
            }
            return 0;
        }
    """
    (tmp_path / "own.c").write_text(text)
    command = (*command[:6], tmp_path / "own.c", *command[7:])
    subprocess.run([*map(str, command)], check=True, timeout=60)
    done = subprocess.run([str(example), str(made.weights)], capture_output=True, text=True)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    plain = float((x @ W)[0, 2])
    assert [float(v) for v in done.stdout.split()] == [plain + 3, plain, plain + 3], done


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to compile C")
def test_null_is_the_default_in_c_source(tmp_path: Path) -> None:
    ts.export(model(4), tmp_path, "some", targets=("cortex-m4",), format="c", optional=OPTIONAL)
    assert "NULL stands for its default" in (tmp_path / "some.h").read_text()
    (tmp_path / "main.c").write_text("""
        #include "some.h"
        #include <stdio.h>
        int main(void) {
            static float x[12] = {1, 2, 3}, b[3], y[12];
            for (int run = 0; run < 2; run++) {
                if (some_run(x, NULL, run ? b : NULL, y)) return 1;
                printf("%g\\n", (double)y[2]);
            }
            return 0;
        }
    """)
    strict = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    files = [str(tmp_path / n) for n in ("some.c", "main.c")]
    example = str(tmp_path / "example")
    subprocess.run(["gcc", *strict, *files, "-lm", "-o", example], check=True, timeout=60)
    done = subprocess.run([example], capture_output=True, text=True, check=True)
    plain = float((np.array([1, 2, 3], np.float32) @ W)[2])
    assert [float(v) for v in done.stdout.split()] == [plain + 3, plain]


def test_a_python_module_has_none_for_the_defaults(tmp_path: Path) -> None:
    ts.export(model(), tmp_path, "some", format="python", optional=OPTIONAL)
    spec = importlib.util.spec_from_file_location("some", tmp_path / "some.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.Model()
    np.testing.assert_allclose(made(X).y, expected({}), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(made(X, b=2 * B).y, expected({"b": 2 * B}), rtol=1e-5, atol=1e-5)
    assert "w: npt.NDArray[np.float32] | None = None" in (tmp_path / "some.pyi").read_text()


def test_operators_of_engines_have_no_defaults(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="compile it without optional="):
        ts.export(model(), tmp_path, "some", format="plugin", optional=["w"])
