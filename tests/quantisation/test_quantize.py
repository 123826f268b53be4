"""`ts.quantize`: what comes out is close, computed in integers, and the same in ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from quantised_networks import convolutional, samples, transformer

import tilesmith as ts
from tilesmith.driver.compiler import load_graph
from tilesmith.driver.passes import optimise
from tilesmith.driver.request import Request
from tilesmith.driver.session import Session
from tilesmith.frontend.onnx.export import to_onnx
from tilesmith.graph.control import kernels_in
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ops.conv import Conv
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.pool import MaxPool
from tilesmith.quantisation.costs import Costs
from tilesmith.quantisation.layers import layers_of, prepared
from tilesmith.quantisation.schemes import Treatment, rewritten

FEWEST_DECIBELS = {"int8": 28.0, "int8-dynamic": 28.0, "int8-weights": 38.0, "int4-weights": 14.0}


def _noise(found: np.ndarray, wanted: np.ndarray) -> float:
    """Signal-to-noise ratio in dB."""
    noise = np.square(found - wanted).sum() / np.square(wanted).sum()
    return float(-10 * np.log10(max(noise, 1e-20)))


@pytest.mark.parametrize("make", [convolutional, transformer])
@pytest.mark.parametrize("scheme", FEWEST_DECIBELS)
def test_the_quantised_model_is_close_and_onnx_runtime_agrees(make, scheme):
    graph = make()
    data = samples(graph)
    found, report = ts.quantize(graph, data, scheme=scheme)
    x = samples(graph, 1, seed=9)[0]
    exact, ours = ts.compile(graph)(x), ts.compile(found)(x)
    assert _noise(ours, exact) > FEWEST_DECIBELS[scheme]
    model = to_onnx(found)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    theirs = np.asarray(session.run(None, {"x": x})[0])
    # ties of rounding may fall to the other side
    assert _noise(theirs, ours) > 40
    assert _noise(ts.compile(model)(x), ours) > 80
    is_narrow = scheme == "int4-weights" and make is convolutional
    chosen = ["f32", "f32", scheme] if is_narrow else [scheme] * len(report.layers)
    assert [layer.scheme for layer in report.layers] == chosen


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic"])
@pytest.mark.parametrize("make", [convolutional, transformer])
def test_products_are_computed_in_integers(make, scheme):
    graph = make()
    found, _ = ts.quantize(graph, samples(graph), scheme=scheme)
    fused = optimise(found, Session.of(None))
    inside = [n for _, k in kernels_in(fused) if isinstance(k.op, Fused) for n in k.op.body.nodes]
    products = [n.op for n in inside if isinstance(n.op, (Conv, MatMul))]
    assert len(products) == len(layers_of(prepared(graph)))
    assert all(op.to is not None for op in products)


def test_bytes_are_moved_not_floats():
    """The activation is quantised before the max-pool that alone reads it."""
    graph = convolutional()
    found, _ = ts.quantize(graph, samples(graph), scheme="int8", pins={"first": "f32"})
    (pool,) = (n for n in found.nodes if isinstance(n.op, MaxPool))
    assert str(pool.inputs[0].dtype) == "f32", "the residual reads it, too"
    only = _without_residual(graph)
    found, _ = ts.quantize(only, samples(only), scheme="int8")
    (pool,) = (n for n in found.nodes if isinstance(n.op, MaxPool))
    assert str(pool.inputs[0].dtype) == "u8"


def _without_residual(graph: Graph) -> Graph:
    pooled = next(n for n in graph.nodes if isinstance(n.op, MaxPool)).outputs[0]
    (add,) = (n for n in graph.nodes if pooled in n.inputs and n.op.name == "add")
    other = next(v for v in add.inputs if v is not pooled)
    nodes = tuple(
        replace(n, inputs=tuple(other if v is add.outputs[0] else v for v in n.inputs))
        for n in graph.nodes
        if n is not add
    )
    return replace(graph, nodes=nodes)


def test_the_report_has_a_line_for_each_layer():
    graph = convolutional()
    _, report = ts.quantize(graph, samples(graph), scheme="int8", pins={"s*": "f32"})
    assert [(x.name, x.scheme) for x in report.layers] == [
        ("first", "int8"),
        ("second", "f32"),
        ("last", "int8"),
    ]
    first, second, last = report.layers
    assert second.snr == np.inf and second.cosine == pytest.approx(1.0)
    assert second.seconds == second.float_seconds
    assert first.low is not None and first.high is not None and first.low < 0 < first.high
    assert report.snr is not None and first.snr is not None and last.snr is not None
    assert report.snr <= min(first.snr, last.snr) + 1
    assert all(x.name in str(report) for x in report.layers)
    assert f"the answers to {report.samples} samples" in str(report)


def test_nothing_to_do_leaves_the_graph():
    graph = prepared(convolutional())
    assert rewritten(graph, {layer: Treatment() for layer in layers_of(graph)}) is graph


def test_without_data_dynamic_ranges_work_and_nothing_is_measured():
    graph = transformer()
    found, report = ts.quantize(graph, scheme="int8-dynamic")
    x = samples(graph, 1)[0]
    assert _noise(ts.compile(found)(x), ts.compile(graph)(x)) > 25
    assert report.snr is None and all(x.snr is None for x in report.layers)
    assert report.samples == 0


def test_a_metric_is_reported():
    graph = convolutional()
    data = samples(graph)
    want = [ts.compile(graph)(x).argmax(1) for x in data]

    def agreement(exe: ts.Executable) -> float:
        return float(np.mean([exe(x).argmax(1) == w for x, w in zip(data, want, strict=True)]))

    _, report = ts.quantize(graph, data, scheme="int8", metric=agreement)
    assert report.float_value == 1.0 and report.value is not None
    assert report.drop == 1.0 - report.value
    assert "without quantisation (drop" in str(report)


def test_bias_correction_takes_the_mean_error_out():
    """Inputs of a layer have a large mean, so the rounding of its weights shifts results."""
    graph = convolutional()
    data = [x + 3 for x in samples(graph, 8)]
    wide = [ts.compile(graph)(x) for x in data]
    shift = {}
    for corrected in (False, True):
        found, _ = ts.quantize(graph, data, scheme="int8-weights", bias_correction=corrected)
        exe = ts.compile(found)
        errors = [exe(x) - w for x, w in zip(data, wide, strict=True)]
        shift[corrected] = float(np.abs(np.concatenate(errors).mean(0)).mean())
    assert shift[True] < 0.6 * shift[False]


def test_a_saved_model_is_read_back(tmp_path):
    graph = convolutional()
    found, _ = ts.quantize(graph, samples(graph), scheme="int8")
    ts.save_onnx(found, tmp_path / "q.onnx")
    again = load_graph(Request.of(tmp_path / "q.onnx"))
    assert [v.name for v in again.inputs] == ["x"] and again.output_names == ("y",)
    x = samples(graph, 1)[0]
    assert _noise(ts.compile(again)(x), ts.compile(found)(x)) > 80
    with pytest.raises(ts.UsageError, match="can't be written"):
        ts.save_onnx(found, tmp_path / "nowhere" / "q.onnx")


def test_each_layer_gets_the_scheme_that_keeps_the_limit():
    """Predicted times are given: integers are twice as fast, dynamic ranges a little slower."""
    graph = convolutional()
    data = samples(graph)
    _, whole = ts.quantize(graph, data, scheme="int8", calibration="minmax")
    assert whole.drop is not None and whole.drop > 0
    limit = whole.drop / 2
    with pytest.MonkeyPatch.context() as patch:
        times = {
            "f32": 2.0,
            "int8": 1.0,
            "int8-dynamic": 1.1,
            "int8-weights": 2.0,
            "int4-weights": 2.5,
        }
        patch.setattr(Costs, "seconds", lambda _, layer, scheme: times[scheme])
        found, report = ts.quantize(graph, data, max_drop=limit, calibration="minmax")
    assert report.drop is not None and report.drop <= limit
    chosen = {x.scheme for x in report.layers}
    assert len(chosen) > 1 and "int8-weights" not in chosen, "what is not faster is left out"
    x = data[0]
    y, wide = ts.compile(found)(x), ts.compile(graph)(x)
    assert np.isfinite(y).all() and _noise(y, wide) > 28
    _, strict = ts.quantize(graph, data, max_drop=0.0)
    assert {x.scheme for x in strict.layers} == {"f32"} and strict.drop == pytest.approx(
        0, abs=1e-9
    )
