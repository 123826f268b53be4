"""Core ML programs against NumPy, and what damaged files give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect, load
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.coreml import block, operation, program, tensor_type, weight_file, write_package

F32 = np.dtype("float32")


def run(model: Any, **inputs: np.ndarray) -> np.ndarray:
    """The first output."""
    return next(iter(ts.compile(model).run(inputs).values()))


def single(kind: str, x: np.ndarray, **arguments: Any) -> np.ndarray:
    """The result of one operator."""
    made = program({"x": (x.dtype, x.shape)}, [operation(kind, "y", x="%x", **arguments)], "y")
    return run(made, x=x)


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 11


def test_a_package_reads_its_weight_file(tmp_path: Path) -> None:
    w, half = np.random.rand(5, 4).astype(np.float32), np.random.rand(5).astype(np.float16)
    content, places = weight_file([half, w])

    def stored(array: np.ndarray, at: int) -> Any:
        file = {"fileName": "@model_path/weights/weight.bin", "offset": at}
        const = operation("const", f"c{at}")
        val = {"type": tensor_type(array.dtype, array.shape), "blobFileValue": file}
        return const | {"attributes": {"val": val}}

    operations = [
        stored(half, places[0]),
        stored(w, places[1]),
        operation("cast", "bias", x=f"%c{places[0]}", dtype="fp32"),
        operation("linear", "y", x="%x", weight=f"%c{places[1]}", bias="%bias"),
    ]
    package = write_package(
        tmp_path / "m.mlpackage", program({"x": (F32, X.shape)}, operations, "y"), content
    )
    wanted = X @ w.T + half.astype(np.float32)
    assert np.allclose(run(package, x=X), wanted, 1e-4, 1e-4)
    facts = inspect(package)
    assert facts.operators == {"cast": 1, "linear": 1} and facts.format.startswith("Core ML")
    (package / "Data/com.apple.CoreML/weights/weight.bin").write_bytes(content[:100])
    with pytest.raises(ModelError, match="expected a record"):
        ts.compile(package)
    (package / "Manifest.json").write_text("{}")
    with pytest.raises(ModelError, match="root model's path"):
        ts.compile(package)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"begin": [1, 0, -2], "end": [2, 3, 0], "stride": [1, 2, -1],
          "end_mask": [False, False, True]}, X[1:2, 0:3:2, -2::-1]),
        ({"begin": [-1, 0, 0], "end": [0, 3, 4], "squeeze_mask": [True, False, False]}, X[-1]),
    ],
)  # fmt: skip
def test_slices_follow_their_masks(arguments: Any, wanted: np.ndarray) -> None:
    assert np.array_equal(single("slice_by_index", X, **arguments), wanted)


def test_convolution_pads_like_the_stated_type() -> None:
    x, w = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 3), np.float32)
    pads = {"weight": w, "pad_type": "custom", "pad": [2, 0]}
    assert single("conv", x, **pads).tolist() == [[[1, 2, 3, 3]]]
    assert single("conv", x, weight=w, pad_type="same").tolist() == [[[2, 3, 3, 2]]]


def test_scatter_subtracts_and_divides() -> None:
    data = np.full((2, 3), 8, np.float32)

    def scattered(mode: str) -> list[float]:
        op = operation("scatter", "y", data="%x", indices=[2], updates=[[2.0], [4.0]], axis=1,
                       mode=mode)  # fmt: skip
        return run(program({"x": (F32, (2, 3))}, [op], "y"), x=data)[:, 2].tolist()

    assert scattered("sub") == [6, 4]
    assert scattered("div") == [4, 2]
    assert scattered("update") == [2, 4]


def test_branches_and_loops_have_blocks() -> None:
    then = block([operation("mul", "t", x="%x", y=2.0)], "t")
    otherwise = block([operation("sub", "t2", x="%x", y=1.0)], "t2")
    start = [
        operation("reduce_sum", "total", x="%x"),
        operation("greater", "is_up", x="%total", y=0.0),
        operation("cond", "c", [then, otherwise], pred="%is_up"),
    ]
    test = block([operation("less", "go", x="%i", y=3)], "go", "i v")
    step = block(
        [operation("add", "j", x="%i", y=1), operation("add", "w", x="%v", y="%v")], "j w", "i v"
    )
    loop = operation("while_loop", "n y", [test, step], loop_vars=["%zero", "%c"])
    zero = operation("const", "zero", val=0)
    made = program({"x": (F32, (2,))}, [*start, zero, loop], "y")
    assert run(made, x=np.array([1, 2], np.float32)).tolist() == [16, 32]
    assert run(made, x=np.array([-1, -2], np.float32)).tolist() == [-16, -24]


def test_a_state_keeps_its_value() -> None:
    operations = [
        operation("read_state", "s", input="%sum"),
        operation("add", "y", x="%s", y="%x"),
        operation("coreml_update_state", "z", state="%sum", value="%y"),
    ]
    made = program({"x": (F32, (2,))}, operations, "z", states={"sum": (2,)})
    exe = ts.compile(made)
    x = np.array([1, 2], np.float32)
    assert [exe.run({"x": x})["z"].tolist() for _ in range(3)] == [[1, 2], [2, 4], [3, 6]]


def test_weights_stay_quantised_or_are_looked_up() -> None:
    q = np.array([[1, -2], [3, 4]], np.int8)
    scale, zero = np.array([0.5, 2.0], np.float32), np.array(1, np.int8)
    weights = [
        operation("constexpr_affine_dequantize", "w", quantized_data=q, scale=scale,
                  zero_point=zero, axis=0),
        operation("constexpr_lut_to_dense", "t", indices=np.array([0b1101], np.uint8),
                  lut=np.array([5.0, 7.0], np.float32), shape=np.array([2, 2], np.uint32)),
        operation("constexpr_sparse_to_dense", "s", mask=np.array([0b1010], np.uint8),
                  nonzero_data=np.array([3.0, 4.0], np.float32), shape=np.array([2, 2], np.uint32)),
        operation("add", "a", x="%t", y="%s"),
        operation("add", "b", x="%a", y="%w"),
        operation("matmul", "y", x="%x", y="%b"),
    ]  # fmt: skip
    x = np.eye(2, dtype=np.float32)
    wanted = (q - 1.0) * scale[:, None] + [[7, 5], [7, 7]] + [[0, 3], [0, 4]]
    made = program({"x": (F32, (2, 2))}, weights, "y")
    assert np.allclose(run(made, x=x), wanted)


def test_ranges_of_the_description_open_dimensions() -> None:
    sizes = [{"lowerBound": 2, "upperBound": 2}, {"lowerBound": 1, "upperBound": -1}]
    array = {"shape": [2, 5], "dataType": "FLOAT32", "shapeRange": {"sizeRanges": sizes}}
    description = {"input": [{"name": "x", "type": {"multiArrayType": array}}]}
    soft = operation("softmax", "y", x="%x", axis=-1)
    exe = ts.compile(program({"x": (F32, (2, None))}, [soft], "y", description))
    for extent in (1, 7):
        assert np.allclose(exe.run({"x": np.ones((2, extent), np.float32)})["y"], 1 / extent)


def test_unsupported_operators_are_reported_together() -> None:
    operations = [operation("walk", "a", x="%x"), operation("fly", "b", x="%x")]
    with pytest.raises(UnsupportedError, match=r"walk.*'a'.*fly.*'b'"):
        load(program({"x": (F32, (2,))}, operations, "a b"))


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("transpose", {"perm": [0, 1, 5]}, "perm"),
        ("conv", {"weight": np.ones((1, 1), np.float32)}, "same rank"),
        ("reshape", {}, "'shape', which is required"),
        ("pad", {"pad": [1, 2, 3]}, "two numbers"),
        ("add", {"y": "%nothing"}, "nothing defines"),
    ],
)
def test_wrong_operations_are_refused(kind: str, arguments: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        single(kind, X, **arguments)


def test_damaged_files_give_model_errors() -> None:
    operations = [
        operation("conv", "c", x="%x", weight=np.ones((2, 3, 2), np.float32)),
        operation("slice_by_index", "s", x="%c", begin=[0, 0, 1], end=[2, 2, 3]),
        operation("reduce_mean", "y", x="%s", axes=[-1]),
    ]
    model = program({"x": (F32, X.shape)}, operations, "y")
    assert load(model).outputs
    draw = random.Random(7)
    for _ in range(400):
        damaged = bytearray(model)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            load(bytes(damaged))
        except ModelError:
            continue
