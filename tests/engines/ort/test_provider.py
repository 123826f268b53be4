"""The execution provider for ONNX Runtime, in sessions of ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import conformance
import tilesmith as ts
from provider import run_test
from tilesmith.engines.ort.provider import NAME
from tilesmith.support.errors import UsageError

FLOAT = TensorProto.FLOAT


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
) -> bytes:
    """A model of float inputs with these shapes, unless a pair gives element type and shape."""
    declared = [
        helper.make_tensor_value_info(n, *(s if isinstance(s, tuple) else (FLOAT, s)))
        for n, s in inputs.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "g",
        declared,
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(made).SerializeToString()


def relu(rows: Any = 3) -> bytes:
    return model([helper.make_node("Relu", ["x"], ["y"])], {"x": [rows, 4]}, ["y"])


def assigned(session: onnxruntime.InferenceSession) -> dict[str, list[str]]:
    """By provider, the operators of the nodes that it computes."""
    found: dict[str, list[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        found.setdefault(part.ep_name, []).extend(n.op_type for n in part.get_nodes())
    return found


def session(source: bytes | str, **options: Any) -> ts.ort.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 2
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, value in options.items():
        settings.add_session_config_entry(key.replace("__", "."), value)
    return ts.ort.InferenceSession(source, settings)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_the_provider_has_one_device_however_often_it_is_registered():
    ts.ort.register()
    (device,) = ts.ort.register()
    assert device.ep_name == NAME
    assert device.device.type == onnxruntime.OrtHardwareDeviceType.CPU


def test_a_plain_session_of_onnx_runtime_computes_with_the_device():
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(ts.ort.register(), {"threads": "1"})
    plain = onnxruntime.InferenceSession(relu(), options)
    assert plain.get_providers()[0] == NAME
    x = random(3, 4)
    assert np.array_equal(plain.run(None, {"x": x})[0], np.maximum(x, 0))


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_open_extents_have_another_size_in_each_run(rows: int):
    x = random(rows, 4)
    assert np.array_equal(session(relu("n")).run(None, {"x": x})[0], np.maximum(x, 0))


def mixed() -> bytes:
    """Products around a node that only ONNX Runtime knows, beside an independent branch."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Trilu", ["a"], ["c"], domain="com.microsoft"),
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Neg", ["t"], ["u"]),
        helper.make_node("MatMul", ["c", "w"], ["d"]),
        helper.make_node("Add", ["d", "u"], ["e"]),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    return model(nodes, {"x": [6, 16]}, ["y", "t"], {"w": random(16, 16)})


def test_nodes_that_only_onnx_runtime_knows_stay_with_it():
    made = session(mixed())
    operators = assigned(made)
    assert operators["CPUExecutionProvider"] == ["Trilu"]
    assert sorted(operators[NAME]) == ["Gemm", "MatMul", "Neg", "Relu", "Tanh"]
    plain = onnxruntime.InferenceSession(mixed(), providers=["CPUExecutionProvider"])
    x = random(6, 16)
    for ours, theirs in zip(made.run(None, {"x": x}), plain.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_results_whose_shape_depends_on_data_have_that_shape():
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["y"]),
    ]
    made = session(model(nodes, {"x": ["n", 4]}, ["y"]))
    assert "NonZero" in assigned(made)[NAME]
    x = random(5, 4)
    assert np.array_equal(made.run(None, {"x": x})[0], np.array(np.nonzero(x > 0)))


def loop_or_branch() -> bytes:
    """A branch that reads values from outside."""
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["h", "k"], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", FLOAT, None)],
        )
        for name, op in (("then", "Add"), ("else", "Mul"))
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node(
            "If", ["flag"], ["y"], then_branch=branches["then"], else_branch=branches["else"]
        ),
    ]
    inputs = {"x": [3, 4], "flag": (TensorProto.BOOL, [])}
    return model(nodes, inputs, ["y"], {"k": np.float32([2])})


@pytest.mark.parametrize("flag", [False, True])
def test_a_branch_is_computed_as_a_whole(flag: bool):
    made = session(loop_or_branch())
    assert "CPUExecutionProvider" not in assigned(made)
    x = random(3, 4)
    h = np.maximum(x, 0)
    (y,) = made.run(None, {"x": x, "flag": np.array(flag)})
    assert np.array_equal(y, h + 2 if flag else h * 2)


def test_initialisers_that_a_caller_may_override_are_read_in_each_run():
    declared = {"x": [3, 4], "k": [4]}
    nodes = [helper.make_node("Mul", ["x", "k"], ["y"])]
    made = session(model(nodes, declared, ["y"], {"k": np.full(4, 2, np.float32)}))
    x = random(3, 4)
    assert np.array_equal(made.run(None, {"x": x})[0], x * 2)
    k = random(4)
    assert np.array_equal(made.run(None, {"x": x, "k": k})[0], x * k)


def test_a_failure_in_a_run_is_onnx_runtimes_error_with_our_message():
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Gather", ["r", "i"], ["y"], axis=0),
    ]
    made = session(model(nodes, {"x": [3, 4], "i": (TensorProto.INT64, [2])}, ["y"]))
    x = random(3, 4)
    with pytest.raises(Exception, match=r"expected indices from -3 to 2, found 7") as caught:
        made.run(None, {"x": x, "i": np.array([0, 7])})
    assert type(caught.value).__module__.startswith("onnxruntime")
    assert np.array_equal(
        made.run(None, {"x": x, "i": np.array([2, 0])})[0], np.maximum(x, 0)[[2, 0]]
    )


def test_an_unknown_option_is_refused_by_name():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_provider_for_devices(ts.ort.register(), {"thread": "1"})
    with pytest.raises(Exception, match=r"option 'thread' of .*: expected one of .*threads"):
        onnxruntime.InferenceSession(relu(), options, enable_fallback=0)


def test_an_option_with_a_bad_value_is_refused():
    with pytest.raises(Exception, match=r"option 'threads' of .*: expected a number, found 'two'"):
        ts.ort.InferenceSession(relu(), providers=[(NAME, {"threads": "two"})])


def test_without_the_provider_a_session_is_onnx_runtimes():
    made = ts.ort.InferenceSession(relu(), providers=["CPUExecutionProvider"])
    assert made.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    "providers", [None, ["CPUExecutionProvider"], [("CPUExecutionProvider", {})], [NAME]]
)
def test_sessions_of_other_packages_use_the_provider(
    monkeypatch: pytest.MonkeyPatch, providers: Any
):
    monkeypatch.setattr(onnxruntime, "InferenceSession", onnxruntime.InferenceSession)
    ts.ort.install()
    ts.ort.install()  # once more changes nothing
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    made = onnxruntime.InferenceSession(relu(), options, providers)
    assert assigned(made) == {NAME: ["Relu"]}


def test_inputs_and_outputs_are_bound_to_memory():
    made, x = session(relu()), random(3, 4)
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    y = np.empty_like(x)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    made.run_with_iobinding(binding)
    assert np.array_equal(y, np.maximum(x, 0))


def test_threads_that_share_a_session_get_the_results_of_one():
    made = session(mixed())
    feeds = [random(6, 16) + np.float32(i) for i in range(16)]
    alone = [made.run(None, {"x": x}) for x in feeds]

    def run(i: int) -> bool:
        results = (made.run(None, {"x": feeds[i]}) for _ in range(50))
        return all(np.array_equal(a, b) for r in results for a, b in zip(r, alone[i], strict=True))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(run, range(16)))


def test_an_input_at_an_odd_address_is_read():
    made, x = session(relu()), random(3, 4)
    room = np.zeros(x.nbytes + 1, np.uint8)[1:]
    odd = room.view(np.float32).reshape(3, 4) if room.ctypes.data % 4 == 0 else None
    odd = np.frombuffer(room.data, np.float32).reshape(3, 4) if odd is None else odd
    odd[...] = x
    assert np.array_equal(made.run(None, {"x": odd})[0], np.maximum(x, 0))


@pytest.mark.parametrize("embed", [False, True])
def test_a_context_file_runs_without_a_compiler(tmp_path: Path, embed: bool):
    path = ts.ort.compile_context(mixed(), tmp_path / "m.onnx", embed=embed)
    assert len(list(tmp_path.glob("*.tsm"))) == (0 if embed else 2)
    x = random(6, 16)
    np.save(tmp_path / "x.npy", x)
    script = (
        "import sys, numpy as np, tilesmith as ts\n"
        f"s = ts.ort.InferenceSession({str(path)!r})\n"
        f"x = np.load({str(tmp_path / 'x.npy')!r})\n"
        f"np.save({str(tmp_path / 'y.npy')!r}, s.run(None, {{'x': x}})[0])\n"
        "assert 'tilesmith.graph.nodes' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    wanted = session(mixed()).run(None, {"x": x})[0]
    assert np.array_equal(np.load(tmp_path / "y.npy"), wanted)


def test_a_context_file_without_its_code_is_refused(tmp_path: Path):
    path = ts.ort.compile_context(relu(), tmp_path / "m.onnx")
    for code in tmp_path.glob("*.tsm"):
        code.unlink()
    with pytest.raises(Exception, match=r"m_.*\.tsm"):
        session(str(path))


def test_an_old_onnx_runtime_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnxruntime, "get_ep_devices", list)

    def refuse(name: str, path: str) -> None:
        raise RuntimeError("expected ONNX Runtime 1.24 or later, found 1.23.2")

    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", refuse)
    with pytest.raises(UsageError, match=r"expected ONNX Runtime 1\.24 or later, found 1\.23\.2"):
        ts.ort.register()


def test_a_session_that_outlives_the_interpreters_objects_ends_quietly():
    script = (
        "import numpy as np, onnx, onnxruntime, tilesmith as ts\n"
        "from onnx import helper as h\n"
        "infos = [h.make_tensor_value_info(n, 1, ['n']) for n in 'xy']\n"
        "graph = h.make_graph([h.make_node('Relu', ['x'], ['y'])], 'g', infos[:1], infos[1:])\n"
        "m = h.make_model(graph, opset_imports=[h.make_opsetid('', 17)], ir_version=8)\n"
        "session = ts.ort.InferenceSession(m.SerializeToString())\n"
        "onnxruntime.kept = session, session.run(None, {'x': np.ones(3, np.float32)})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("options", [5, "options", {"threads": 2}])
def test_options_of_another_kind_are_refused(options: object):
    with pytest.raises(UsageError, match="expected onnxruntime"):
        ts.ort.InferenceSession(b"", options)
    with pytest.raises(UsageError, match="expected onnxruntime"):
        ts.ort.compile_context(b"", "there.onnx", options)


@pytest.mark.parametrize(
    ("providers", "options", "message"),
    [
        ("CPUExecutionProvider", None, "expected a list of names"),
        (["AbacusExecutionProvider"], None, "expected names of TilesmithExecutionProvider"),
        (["CPUExecutionProvider"], [{}, {}], "expected a dict for each of 1 providers"),
        (["CPUExecutionProvider"], [3], "expected a dict, found"),
    ],
)
def test_providers_of_another_form_are_refused(providers: Any, options: Any, message: str):
    with pytest.raises(UsageError, match=message):
        ts.ort.InferenceSession(b"", None, providers, options)


SAMPLE = {
    "test_conv_with_strides_padding",
    "test_gru_defaults",
    "test_if",
    "test_layer_normalization_2d_axis0",
    "test_loop11",
    "test_nonzero_example",
    "test_quantizelinear_axis",
    "test_reduce_sum_empty_set",
    "test_resize_upsample_sizes_nearest",
    "test_scan9_sum",
    "test_sequence_insert_at_back",
    "test_string_concat",
    "test_top_k",
    "test_where_example",
}
"""Backend tests of many kinds; `python -m benchmarks.provider tests` runs all."""


@pytest.mark.filterwarnings("ignore")  # ONNX's cases divide by zero on purpose
def test_onnx_backend_tests_pass_with_the_provider():
    suite = [t for t in conformance.tests(("node",), tuple(SAMPLE)) if t.name in SAMPLE]
    assert {t.name for t in suite} == SAMPLE
    found = {t.name: run_test(t, own=True) for t in suite}
    assert {name: o.reason for name, o in found.items() if o.result != "passed"} == {}
