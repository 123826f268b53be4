"""Files that hold one model for several levels of a processor."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilesmith as ts
from tilesmith.cli.inspect import command
from tilesmith.codegen.targets import host, target
from tilesmith.runtime import bundle, host_runner
from tilesmith.runtime.tsm import load_program

LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
AMX = "x86-64-v4+amx-tile+amx-int8+amx-bf16"
TABLE = (1000, 64)  # read as it is, so that all levels pack it alike
X, ROWS = np.linspace(-1, 1, 5 * 64, dtype=np.float32).reshape(5, 64), np.array([7, 999, 0, 1, 2])

pytestmark = pytest.mark.skipif(
    host().architecture != "x86_64", reason="the levels are those of x86-64"
)


def model() -> bytes:
    """A convolution's layers, whose weights are packed by width, and rows of a table."""
    rng = np.random.default_rng(0)
    weights = {
        "table": rng.standard_normal(TABLE, np.float32),
        "w": rng.standard_normal((64, 96), np.float32),
        "filters": rng.standard_normal((32, 16, 3, 3), np.float32),
        "shape": np.array([5, 16, 2, 3]),
    }
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["found"]),
        helper.make_node("Add", ["found", "x"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["product"]),
        helper.make_node("Reshape", ["product", "shape"], ["image"]),
        helper.make_node("Conv", ["image", "filters"], ["y"], pads=[1, 1, 1, 1]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape),
        helper.make_tensor_value_info("rows", TensorProto.INT64, ROWS.shape),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    constants = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def made(folder: Path, targets: Sequence[str] = LEVELS) -> Path:
    options = ts.Options(accuracy="strict")
    ts.export(model(), folder, "m", format="python", targets=targets, options=options)
    return folder / "m.tsm"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("bundle"), (AMX, *LEVELS))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this machine one that has the features of a level alone."""

    def lower(level: str) -> None:
        masked = replace(host(), features=target(level).features)
        for module in (bundle, host_runner):
            monkeypatch.setattr(module, "host", lambda: masked)

    return lower


def runnable() -> list[str]:
    return [level for level in LEVELS if target(level).features <= host().features]


def test_each_machine_gets_its_best_level_and_all_answer_alike(
    saved: Path, machine: Callable[[str], None]
) -> None:
    answers = []
    for level in runnable():
        machine(level)
        exe = ts.load(saved)
        assert exe.program.target.name == level
        answers.append(exe(X, ROWS))
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_a_level_with_tiles_is_taken_where_there_are_tiles(
    saved: Path, machine: Callable[[str], None]
) -> None:
    machine(AMX)
    assert load_program(saved).target.name == AMX


def test_a_machine_below_all_levels_is_told_what_it_lacks(
    saved: Path, machine: Callable[[str], None]
) -> None:
    machine("x86-64")
    message = (
        r"has code for .*x86-64-v2; this machine lacks features of each: .*"
        r"x86-64-v2 needs .*sse4\.2.*; compile the model for a lower level, too, such as x86-64"
    )
    with pytest.raises(ts.ModelError, match=message):
        ts.load(saved)


def test_weights_that_levels_pack_alike_are_stored_once(tmp_path: Path) -> None:
    bundled = made(tmp_path / "all")
    alone = [made(tmp_path / level, [level]) for level in LEVELS]
    table = 4 * TABLE[0] * TABLE[1]
    together = sum(p.stat().st_size for p in alone)
    assert bundled.stat().st_size < together - (len(LEVELS) - 1) * table + (1 << 14)
    with zipfile.ZipFile(bundled) as z:
        pool = z.read("weights.bin")
    assert pool.count(np.random.default_rng(0).standard_normal(TABLE, np.float32).tobytes()) == 1
    for level, path in zip(LEVELS, alone, strict=True):
        assert load_program(path).target.name == level


def test_what_is_loaded_saves_as_a_file_for_its_level(saved: Path, tmp_path: Path) -> None:
    exe = ts.load(saved.read_bytes())
    exe.save(tmp_path / "one.tsm")
    again = ts.load(tmp_path / "one.tsm")
    assert again.program.target == exe.program.target
    np.testing.assert_array_equal(again(X, ROWS), exe(X, ROWS))


def test_the_command_line_writes_all_targets_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model())
    command = "compile", tmp_path / "m.onnx", "--target", "x86-64-v3,v2", "-o", tmp_path / "m.tsm"
    done = subprocess.run([sys.executable, "-m", "tilesmith", *command], check=False)
    assert done.returncode == 0
    with zipfile.ZipFile(tmp_path / "m.tsm") as z:
        levels = json.loads(z.read("manifest.json"))["levels"]
    assert [level["target"]["name"] for level in levels] == ["x86-64-v3", "x86-64-v2"]


def test_inspect_shows_what_each_level_holds(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(saved, json=True)
    facts = json.loads(capsys.readouterr().out)
    assert [level["target"] for level in facts["levels"]] == [AMX, *LEVELS]
    for level in facts["levels"]:
        assert level["kernels"] > 0
        assert level["code_bytes"] > 0
        assert level["own_weight_bytes"] + 4 * TABLE[0] * TABLE[1] <= level["weight_bytes"]
    command(saved)
    shown = capsys.readouterr().out
    assert "its own alone" in shown
    assert all(level in shown for level in LEVELS)


def rewritten(saved: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    result = folder / "changed.tsm"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(result, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
            new.writestr(info.filename, data)
    return result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["levels"].clear(), "its entries are not those"),
        (lambda m: m["levels"].pop(), "its entries are not those"),
        (lambda m: m.update(levels=3), "its manifest is malformed"),
        (lambda m: [level.pop("target") for level in m["levels"]], "its manifest is malformed"),
        (lambda m: [level["weights"].pop() for level in m["levels"]], "do not have .* bytes"),
        (lambda m: [level["weights"].reverse() for level in m["levels"]], "their checksum"),
        (lambda m: [s.insert(0, 1 << 40) or s.pop(1) for level in m["levels"]
                    for s in level["weights"]], "weights end beyond"),
        (lambda m: [level.update(sha256="0") for level in m["levels"]], "match its checksum"),
        (lambda m: [level["weights"][0].append(1) for level in m["levels"]], "is malformed"),
    ],
)  # fmt: skip
def test_a_damaged_bundle_is_refused(
    saved: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    with pytest.raises(ts.ModelError, match=message):
        load_program(rewritten(saved, tmp_path, change))


def test_a_bundle_is_for_levels_of_one_processor(tmp_path: Path) -> None:
    with pytest.raises(ts.UsageError, match="for one kind of processor"):
        made(tmp_path, ["x86-64-v3", "aarch64"])
    with pytest.raises(ts.UsageError, match=r"is for levels of a CPU; found the target 'c'"):
        made(tmp_path, ["x86-64-v3", "c"])
