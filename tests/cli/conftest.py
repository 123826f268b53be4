"""A small model and a way to run the command line in this process."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from typer.models import ArgumentInfo

from tilesmith.cli import execute as run


@dataclass
class Outcome:
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return strict_json(self.out)


def strict_json(text: str) -> Any:
    """JSON as its standard has it: without NaN and Infinity, which Python's reader takes."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def option_names(parameter: inspect.Parameter) -> list[str]:
    """The names of a verb's option (`--seed`), as its signature says; none of an argument."""
    info = get_args(parameter.annotation)[1]
    if isinstance(info, ArgumentInfo):
        return []
    words = [info.default, *(info.param_decls or ())]  # typer takes the first name for a default
    names = [n for w in words if isinstance(w, str) for n in w.split("/") if n.startswith("-")]
    return names or [f"--{parameter.name.replace('_', '-')}"]


@pytest.fixture
def tilesmith(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Outcome]:
    """`tilesmith("run", path, "--json")` gives the outcome of that command line."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))

    def command(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return Outcome(code, printed.out, printed.err)

    return command


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """conv, relu, global average pool, gemm, softmax: `x` f32[1,3,8,8] to `y` f32[1,6]."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w", "wb"], ["c"], name="conv1", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"], name="relu1"),
            helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
            helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
            helper.make_node("Gemm", ["f", "v", "vb"], ["g"], name="fc", transB=1),
            helper.make_node("Softmax", ["g"], ["y"], name="softmax"),
        ],
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 6])],
        [weight("w", 4, 3, 3, 3), weight("wb", 4), weight("v", 6, 4), weight("vb", 6)],
    )
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path
    )
    return path
