"""Requests have spans where OpenTelemetry is installed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilesmith as ts

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None
    or importlib.util.find_spec("opentelemetry.sdk") is None,
    reason="opentelemetry-sdk is not installed",
)


def test_a_request_has_a_span_below_that_of_its_caller():
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    exe = ts.compile(model, dynamic={"batch": (1, 8)}, threads=1)
    with ts.Batcher(exe, max_batch=8) as batcher:
        with provider.get_tracer("caller").start_as_current_span("caller") as caller:
            batcher(np.ones((3, 4), np.float32))
        held = batcher.submit(np.ones((1, 4), np.float32), deadline=1e-9)
        with pytest.raises(ts.DeadlineError):
            held.result()
    trace_id = caller.get_span_context().trace_id
    spans = {s.name: s for s in kept.get_finished_spans() if s.context.trace_id == trace_id}
    request, call = spans["tilesmith.request"], spans["tilesmith.call"]
    assert request.parent.span_id == caller.get_span_context().span_id
    assert request.attributes["tilesmith.rows"] == call.attributes["tilesmith.call.rows"] == 3
    assert spans["tilesmith.queue"].parent.span_id == request.context.span_id
    assert request.start_time <= call.start_time <= call.end_time == request.end_time
    late = [s for s in kept.get_finished_spans() if s.parent is None and s.name != "caller"]
    assert [s.name for s in late] == ["tilesmith.request"] and not late[0].status.is_ok
