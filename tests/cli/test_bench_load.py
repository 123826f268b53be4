"""`bench` with many callers at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = -x for x: f32[batch,4]."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path_factory.mktemp("rows") / "rows.onnx"
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


FEW = ("--seconds", 0.2, "--threads", 1, "--expected", "batch=1")


def test_a_batcher_gathers_the_requests_of_callers(tilesmith, rows):
    done = tilesmith("bench", rows, *FEW, "--concurrency", 8, "--batcher", "--json").json
    assert done["concurrency"] == 8 and done["requests"] >= 8 and done["mean_batch"] > 1
    p = done["latency_ms"]
    assert list(p) == ["50", "90", "99", "99.9"] and list(p.values()) == sorted(p.values())
    assert list(done["stages_ms"]) == ["queue", "gather", "run", "scatter", "other"]
    assert min(done["stages_ms"].values()) > 0
    text = tilesmith("bench", rows, *FEW, "--concurrency", 2, "--batcher", "--max-batch", 4).out
    assert "p99.9 ms" in text and "scatter ms" in text and "rows a call" in text


def test_requests_arrive_at_the_rate(tilesmith, rows):
    done = tilesmith("bench", rows, *FEW, "--seconds", 1, "--rate", 100, "--json").json
    assert 50 < done["requests"] < 150 and "stages_ms" not in done


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rate", "0"), "--rate must be more than 0"),
        (("--batcher", "--trace", "t.json"), "one after the other"),
        (("--batcher", "--max-batch", "4", "--expected", "batch=8"), "1 to 4 rows"),
    ],
)
def test_options_that_do_not_fit_are_refused(tilesmith, rows, options, message):
    outcome = tilesmith("bench", rows, "--seconds", 0.1, *options)
    assert outcome.code in (1, 2) and message in " ".join(outcome.err.split())
