"""A small model and a way to run the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from common.command_lines import strict_json
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
