"""Wrong choices and wrong samples: one clear error each."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from quantised_networks import samples, transformer

import tilesmith as ts
from tilesmith.graph.builder import Builder
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.ops.elementwise import Mul
from tilesmith.ops.matmul import MatMul
from tilesmith.quantisation.samples import Samples


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"scheme": "int3"}, "scheme must be one of int8, .*, not 'int3'"),
        ({"calibration": "best"}, "calibration must be one of minmax, .*, not 'best'"),
        ({"max_drop": -1}, "max_drop must be a number of at least 0, not -1"),
        ({"activations": "f16"}, "activations must be one of u8, i8, not 'f16'"),
        ({"pins": {"up": "int3"}}, "a pinned scheme must be one of f32, int8"),
        ({"pins": {"head/*": "f32"}}, "pins: no layer is called 'head/\\*'; layers are up, down"),
    ],
)
def test_wrong_choices(choices, message):
    graph = transformer()
    with pytest.raises(ts.UsageError, match=message):
        ts.quantize(graph, samples(graph), **choices)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (np.zeros((4, 15), np.float32), r"sample 1: expected f32\[4,16\] for input 'x', found"),
        (np.zeros((4, 16)), r"sample 1: expected f32\[4,16\] for input 'x', found float64"),
        ({"z": np.zeros((4, 16), np.float32)}, "sample 1: expected arrays for the inputs 'x'"),
        (np.full((4, 16), np.nan, np.float32), "sample 1: input 'x' holds a NaN"),
        (np.full((4, 16), np.inf, np.float32), "sample 1: input 'x' holds an infinity"),
    ],
)
def test_a_sample_that_does_not_fit(sample, message):
    graph = transformer()
    with pytest.raises(ts.ModelError, match=message):
        ts.quantize(graph, [*samples(graph, 1), sample], scheme="int8")


def test_no_samples(tmp_path: Path):
    graph = transformer()
    for data, message in (
        ([], "found an empty sequence"),
        (tmp_path, "has no samples: expected .npz or .npy files in it"),
        (tmp_path / "x.npz", "there is no file or folder"),
        ("x" * 5000, "samples: .* can't be a path"),
        (7, "expected samples: a folder, a file, or a sequence"),
        (None, "scheme int8 takes samples: give data, or choose int8-dynamic"),
    ):
        with pytest.raises(ts.UsageError, match=message):
            ts.quantize(graph, data, scheme="int8")
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 16), np.float32))
    with pytest.raises(ts.UsageError, match="found arrays without any"):
        ts.quantize(graph, tmp_path, scheme="int8")


def test_an_input_that_is_always_zero_has_no_scale():
    b = Builder("dead")
    x = b.input("x", TensorType(f32, (2, 4)))
    y = b.add(Relu(), b.add(Mul(), x, b.constant(np.float32(0))))
    weights = b.constant(np.ones((4, 3), np.float32), "w")
    graph = b.finish(b.add(MatMul(), y, weights, loc="dead"))
    with pytest.raises(ts.UsageError, match="input of layer 'dead' is zero in all samples"):
        ts.quantize(graph, samples(graph), scheme="int8")
    ts.quantize(graph, samples(graph), scheme="int8", pins={"dead": "f32"})


def test_channels_of_zeros_have_a_scale():
    b = Builder("zeros")
    x = b.input("x", TensorType(f32, (2, 4)))
    weights = np.ones((4, 3), np.float32)
    weights[:, 1] = 0
    graph = b.finish(b.add(MatMul(), x, b.constant(weights, "w")))
    found, _ = ts.quantize(graph, samples(graph), scheme="int8")
    y = ts.compile(found)(samples(graph, 1)[0])
    assert (y[:, 1] == 0).all() and np.isfinite(y).all()


def test_a_model_without_layers():
    b = Builder("none")
    graph = b.finish(b.add(Relu(), b.input("x", TensorType(f32, (2, 4)))))
    with pytest.raises(ts.UsageError, match="there is nothing to quantise"):
        ts.quantize(graph, samples(graph), scheme="int8")


def test_values_inside_that_are_not_finite():
    graph = transformer()
    data = [*samples(graph, 1), np.full((4, 16), 3e38, np.float32)]
    data[1][:, ::2] = -3e38
    with pytest.raises(ts.UsageError, match="sample 1: expected finite values inside the model"):
        ts.quantize(graph, data, scheme="int8")


def test_a_generator_is_not_read_beyond_its_first_bad_sample():
    with pytest.raises(ts.ModelError, match=r"sample 0: expected f32\[4,16\] for input 'x'"):
        ts.quantize(transformer(), itertools.count(), scheme="int8")


def test_files_hold_one_sample_or_many(tmp_path: Path):
    graph = transformer()
    rows = np.arange(3 * 4 * 16, dtype=np.float32).reshape(12, 16)
    np.savez(tmp_path / "stacked.npz", in_x=rows)
    np.savez(tmp_path / "more.npz", x=rows.reshape(3, 4, 16), labels=np.zeros(3))
    np.save(tmp_path / "one.npy", rows[:4])
    for name, count in (("stacked.npz", 3), ("more.npz", 3), ("one.npy", 1)):
        found = [s["x"] for s in Samples(tmp_path / name, graph)]
        assert np.array_equal(np.concatenate(found), rows[: 4 * count])
    assert len(list(Samples(tmp_path, graph))) == 7
    np.savez(tmp_path / "bad.npz", x=rows[:, :15])
    with pytest.raises(ts.ModelError, match=r"bad.npz'.*expected f32\[4,16\] for input 'x'"):
        list(Samples(tmp_path / "bad.npz", graph))
