"""What a branch of an If needs is demanded of the runs that take it, not of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_models as om
import pytest
from onnx import TensorProto, helper

import tilesmith as ts

W = {
    "w16": np.random.default_rng(0).standard_normal((512, 4), dtype=np.float32),
    "w8": np.random.default_rng(1).standard_normal((256, 4), dtype=np.float32),
    "rate": np.int64(16000),
}
FRAMES = {16000: 512, 8000: 256}


def two_rates(length: int | str) -> Any:
    """A product for frames of 512 samples, another for frames of 256."""

    def branch(weight: str) -> Any:
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        return helper.make_graph(
            [node("MatMul", ["x", weight], ["y"], weight)], weight, [], [result]
        )

    def node(op: str, inputs: list[str], outputs: list[str], name: str = "", **kwargs: Any) -> Any:
        return helper.make_node(op, inputs, outputs, name=name, **kwargs)

    nodes = [
        node("Equal", ["sr", "rate"], ["is_16"]),
        node("If", ["is_16"], ["z"], "choose", then_branch=branch("w16"), else_branch=branch("w8")),
    ]
    inputs = [om.value("x", [1, length]), om.value("sr", [], TensorProto.INT64)]
    return om.model(nodes, inputs, ["z"], W)


def samples(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((1, count), dtype=np.float32)


def test_branches_that_need_different_sizes_leave_the_size_open() -> None:
    exe = ts.compile(two_rates("n"), threads=1)
    assert exe.inputs[0].shape == (1, "n")
    for rate, count in FRAMES.items():
        x = samples(count)
        found = exe.run({"x": x, "sr": np.int64(rate)})["z"]
        np.testing.assert_allclose(found, x @ W["w16" if rate == 16000 else "w8"], 1e-4, 1e-4)
        with pytest.raises(ts.ModelError, match=rf"choose/w\d+: .*'n' {768 - count}; .* {count}"):
            exe.run({"x": samples(768 - count), "sr": np.int64(rate)})


@pytest.mark.parametrize("rate", FRAMES)
def test_a_branch_that_never_fits_is_refused_where_it_is_taken(rate: int) -> None:
    count = FRAMES[rate]
    exe = ts.compile(two_rates(count), threads=1)
    x = samples(count)
    found = exe.run({"x": x, "sr": np.int64(rate)})["z"]
    np.testing.assert_allclose(found, x @ W["w16" if rate == 16000 else "w8"], 1e-4, 1e-4)
    other = 24000 - rate
    with pytest.raises(ts.ModelError, match=r"choose/.*expected equal inner dimensions"):
        exe.run({"x": x, "sr": np.int64(other)})
