"""Each verb on a small model, against ONNX Runtime where it matters."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from common.command_lines import strict_json
from tilesmith.cli.devices import EXTRAS
from tilesmith.search_space.records import Key, Records, trial


@pytest.fixture
def example(model, tmp_path):
    """An input file with ONNX Runtime's answer."""
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (y,) = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})
    path = tmp_path / "example.npz"
    np.savez(path, in_x=x, out_y=y)
    return path


def test_run_meets_the_expected_answer(tilesmith, model, example, tmp_path):
    done = tilesmith(
        "run", model, "--input", example, "--check", "--json", "--top", 3, "-o", tmp_path / "o.npz"
    )
    assert done.code == 0, done.err
    (output,) = done.json["outputs"]
    assert output["name"] == "y" and output["type"] == "f32[1,6]"
    assert output["difference"]["relative"] < 1e-5
    y = np.load(example)["out_y"]
    assert [t["class"] for t in output["top"][0]] == list(np.argsort(-y[0])[:3])
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["y"], y, rtol=1e-5)
    text = tilesmith("run", model, "--input", example)
    assert "y: f32[1,6]" in text.out and "top 5" in text.out and "time: " in text.out


def test_run_with_a_wrong_answer_is_exit_code_4(tilesmith, model, example):
    with np.load(example) as found:
        np.savez(example, in_x=found["in_x"], out_y=found["out_y"] + 0.1)
    outcome = tilesmith("run", model, "--input", example, "--check")
    assert outcome.code == 4
    assert "output 'y' differs" in outcome.err


def test_each_output_of_a_run_has_the_tolerance_of_its_type(tilesmith, tmp_path):
    """Quantised values may be one off, other integers not; floats by a share."""
    kinds = {"INT8": (1, 2), "INT64": (0, 1), "FLOAT": (1e-2, 1.0), "FLOAT16": (1, 4)}
    for name, (right, wrong) in kinds.items():
        kind = getattr(onnx.TensorProto, name)
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "same",
            [helper.make_tensor_value_info("x", kind, [2])],
            [helper.make_tensor_value_info("y", kind, [2])],
        )
        opsets = [helper.make_opsetid("", 18)]
        path = tmp_path / "same.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
        x = np.array([1, 100], helper.tensor_dtype_to_np_dtype(kind))
        for off, code in ((right, 0), (wrong, 4)):
            np.savez(tmp_path / "a.npz", x=x, out_y=(x + off).astype(x.dtype))
            outcome = tilesmith("run", path, "--input", tmp_path / "a.npz", "--check")
            assert outcome.code == code, (name, off, outcome.err)


def test_run_on_random_input_is_repeatable(tilesmith, model):
    first, second, other = (
        tilesmith("run", model, "--json", "--seed", seed).json["outputs"] for seed in (3, 3, 4)
    )
    assert first == second != other


def test_run_reads_npy_for_a_single_input(tilesmith, model, example, tmp_path):
    np.save(tmp_path / "x.npy", np.load(example)["in_x"])
    by_name = tilesmith("run", model, "--input", example, "--json").json["outputs"][0]
    by_npy = tilesmith("run", model, "--input", tmp_path / "x.npy", "--json").json["outputs"][0]
    assert by_npy["top"] == by_name["top"]


@pytest.mark.parametrize(
    ("arrays", "code", "says"),
    [
        ({"z": np.zeros((1, 3, 8, 8), np.float32)}, 1, "lacks input x: f32[1,3,8,8]; it has z"),
        ({"x": np.zeros((1, 3, 9, 8), np.float32)}, 2, "x"),
        ({"x": np.zeros((1, 3, 8, 8), np.int64)}, 2, "x"),
    ],
)
def test_wrong_inputs(tilesmith, model, tmp_path, arrays, code, says):
    np.savez(tmp_path / "x.npz", **arrays)
    outcome = tilesmith("run", model, "--input", tmp_path / "x.npz")
    assert outcome.code == code and says in outcome.err


def test_pickles_are_not_read(tilesmith, model, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.array([{"a": 1}], dtype=object))
    outcome = tilesmith("run", model, "--input", tmp_path / "x.npz")
    assert outcome.code == 1 and "plain arrays" in outcome.err


def test_compile_then_run_the_file(tilesmith, model, example, tmp_path):
    target = tmp_path / "small.tsm"
    done = tilesmith("compile", model, "-o", target, "--json")
    assert done.code == 0, done.err
    assert done.json["inputs"] == ["x: f32[1,3,8,8]"]
    assert done.json["bytes"] == target.stat().st_size
    again = tilesmith("run", target, "--input", example, "--check", "--json")
    assert again.code == 0, again.err
    assert again.json["outputs"][0]["difference"]["relative"] < 1e-5
    assert tilesmith("compile", target).code == 1
    assert tilesmith("bench", target, "--seconds", 0.1, "--threads", 1).code == 0


def test_export_writes_a_library(tilesmith, model, tmp_path):
    folder = tmp_path / "lib"
    done = tilesmith("export", model, "-o", folder, "--target", "x86-64-v3,v2", "--json")
    files = [Path(f) for f in done.json["files"]]
    assert {"small.h", "libsmall.so", "small.weights", "main.c"} <= {f.name for f in files}
    assert all(f.is_relative_to(folder) and f.stat().st_size > 0 for f in files)
    assert "x86-64-v3, x86-64-v2" in (folder / "include" / "small.h").read_text()
    compiled = tmp_path / "m.tsm"
    assert tilesmith("compile", model, "-o", compiled).code == 0
    done = tilesmith(
        "export", compiled, "-o", tmp_path / "b", "--name", "it", "--weights", "inside"
    )
    assert done.code == 0 and "without weights" in done.out and "weights: " not in done.out
    assert tilesmith("export", model, "--specialise", "n=1").code == 1


def test_open_dimensions_stay_open_without_shape(tilesmith, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "open",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])],
    )
    path = tmp_path / "open.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path
    )
    outcome = tilesmith("run", path, "--expected", "n=5", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["outputs"][0]["type"] == "f32[5,4]"
    refused = tilesmith("run", path, "--dynamic", "n=5:4")
    assert refused.code == 2 and "dimension 'n'" in refused.err
    wrong = tilesmith("run", path, "--dynamic", "n=many")
    assert wrong.code == 1 and "--dynamic wants NAME=LOW:HIGH" in wrong.err
    done = tilesmith("run", path, "--shape", "x=3,4", "--json")
    assert done.code == 0, done.err
    assert done.json["outputs"][0]["type"] == "f32[3,4]"


def test_constraints(tilesmith, model, tmp_path):
    file = tmp_path / "m.tsm"
    pinned = tilesmith("compile", model, "--pin", "algorithm=0", "--forbid", "rows=1", "-o", file)
    assert pinned.code == 0, pinned.err
    for verb in ("compile", "run", "bench", "explain", "compare"):
        wrong = tilesmith(verb, model, "--pin", "algoritm=0")
        assert wrong.code == 1 and "did you mean 'algorithm'?" in wrong.err
    assert "no effect on a compiled" in tilesmith("run", file, "--pin", "algorithm=0").err


def test_bench(tilesmith, model):
    found = tilesmith("bench", model, "--seconds", 0.2, "--threads", 1, "--json").json
    assert found["threads"] == 1 and found["runs"] >= 3
    assert 0 < found["min_ms"] <= found["median_ms"] <= found["p90_ms"]
    assert "median ms" in tilesmith("bench", model, "--seconds", 0.1).out


def test_compare(tilesmith, model):
    done = tilesmith(
        "compare", model, "--engine", "onnxruntime", "--rounds", 1, "--threads", "1,2", "--json"
    )
    assert done.code == 0, done.err
    assert [r["threads"] for r in done.json["runs"]] == [1, 2]
    for r in done.json["runs"]:
        engines = r["engines"]
        assert list(engines) == ["tilesmith", "onnxruntime"] and r["failed"] == {}
        assert engines["tilesmith"]["ratio"] == 1 and engines["onnxruntime"]["difference"] < 1e-5
        assert all(0 < e["min_ms"] <= e["median_ms"] for e in engines.values())
    assert "onnxruntime" in tilesmith("compare", model, "--rounds", 1).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--threads", "1,x"), "--threads wants numbers"),
        (("--threads", "0"), "--threads wants numbers"),
        (("--engine", "tensorrt"), "unknown engine 'tensorrt'"),
        (("--module", "nowhere.py:f"), "--module nowhere.py:f: "),
    ],
)
def test_compare_refuses(tilesmith, model, arguments, says):
    outcome = tilesmith("compare", model, *arguments)
    assert outcome.code == 1 and says in outcome.err


def test_explain_shows_every_kernel_beside_the_model(tilesmith, model):
    found = tilesmith("explain", model, "--threads", 1, "--repeats", 3, "--json").json
    kernels = found["kernels"]
    assert [k["kernel"] for k in kernels] == list(range(len(kernels)))
    assert sum(k["share"] for k in kernels) == pytest.approx(1)
    assert sum(k["ms"] for k in kernels) == pytest.approx(found["kernels_ms"])
    assert {"conv1", "relu1"} <= {s for k in kernels for s in k["sources"]}
    conv = next(k for k in kernels if "conv" in k["operators"])
    assert conv["flops"] >= 2 * 8 * 8 * 4 * 27 and conv["bytes"] > 0
    assert conv["predicted_ms"] > 0 and conv["ratio"] > 0
    assert conv["bound"] in ("compute", "memory", "threads")
    assert all(v >= 0 for v in found["peak"].values()) and found["peak"]["gflops"] > 1
    text = tilesmith("explain", model, "--repeats", 3, "--top", 2).out
    assert "peak" in text and "predicted/" in text and "GB/s from DRAM" in text
    assert max(map(len, text.splitlines()[1:])) <= 80
    assert "from conv1" in text


def test_explain_shows_the_instruction_of_a_product(tilesmith, tmp_path):
    kind, shape = onnx.TensorProto.UINT8, [32, 64]
    weights = np.random.default_rng(6).integers(-9, 9, (64, 32)).astype(np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [32, 32])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    rows = tilesmith("explain", path, "--repeats", 2, "--json").json["kernels"]
    (row,) = (r for r in rows if "intrinsic" in r)
    assert row["type"] in ("int8", "int16") and row["peak_share"] > 0
    text = tilesmith("explain", path, "--repeats", 2).out
    assert row["intrinsic"] in text and f"the peak of {row['type']}" in text


def test_explain_shows_one_kernel_in_full(tilesmith, model, tmp_path):
    assert tilesmith("compile", model, "-o", tmp_path / "m.tsm").code == 0
    for source in (model, tmp_path / "m.tsm"):  # what it needs is kept in the file
        text = tilesmith("explain", source, "--kernel", 0, "--repeats", 2).out
        assert "schedule:" in text and "loops:" in text and "def k_" in text
    row = tilesmith("explain", model, "--kernel", 0, "--repeats", 2, "--json").json["kernels"]
    assert len(row) == 1 and row[0]["steps"] and row[0]["loops"].startswith("def k_")


def test_explain_refuses_a_kernel_that_is_not_there(tilesmith, model):
    outcome = tilesmith("explain", model, "--kernel", 999)
    assert outcome.code == 1 and "--kernel must be from 0 to" in outcome.err


def test_check(tilesmith, model):
    done = tilesmith("check", model, "--json")
    assert done.code == 0, done.err
    kernels = done.json["kernels"]
    outputs = [o for k in kernels for o in k["outputs"]]
    assert outputs and all(o["error"] <= o["bound"] == 1e-4 for o in outputs)
    assert "kernels" in tilesmith("check", model).out


def test_time_passes_and_dump(tilesmith, model, tmp_path):
    done = tilesmith("run", model, "--time-passes", "--dump", tmp_path / "d", "--json")
    assert done.code == 0, done.err
    assert done.json["outputs"], "the report must not get into the JSON"
    assert "share" in done.err
    names = {p.name for p in (tmp_path / "d").rglob("*.txt")}
    assert any("fuse" in n for n in names) and any("code" in n for n in names)
    again = tilesmith("run", model, "--dump", tmp_path / "warm", "--json")
    assert again.code == 0, again.err
    for folder in ("d", "warm"):  # kernels in the cache are shown as well
        code = [p.parent.name for p in (tmp_path / folder).rglob("*code.txt")]
        assert any("conv1" in name for name in code), code


def test_ops(tilesmith):
    ours = tilesmith("ops", "--json").json
    assert {"conv", "matmul", "softmax"} <= {r["name"] for r in ours}
    assert {r["kind"] for r in ours} == {"composite", "irregular", "primitive"}
    theirs = tilesmith("ops", "--onnx", "conv", "--json").json
    assert "Conv" in {r["name"] for r in theirs}
    assert all("conv" in r["name"].lower() for r in theirs)
    shown = tilesmith("ops", "--onnx", "scan")
    assert "9+" in shown.out and "ai.onnx: 1 of 1 operators" in shown.out + shown.err
    assert "body" in tilesmith("ops", "--onnx", "swiglu").out
    assert "conv" in tilesmith("ops", "conv").out


def test_doctor(tilesmith, model, tmp_path):
    found = tilesmith("doctor", "--json").json
    assert found["target"]["vector_bits"] in (128, 256, 512)
    assert found["threads"]["default"] >= 1
    assert found["rates"][0]["threads"] == 1 and found["rates"][0]["gflops"] > 1
    assert "f32" in {p["type"] for p in found["peaks"] if p["gops"] > 1 and p["intrinsic"]}
    assert found["cache"]["folder"] == str(tmp_path / "cache")
    assert [c["cpu"] for c in found["cores"]] == sorted(os.sched_getaffinity(0))
    assert all(0 < c["mean_gflops"] <= c["gflops"] for c in found["cores"])
    assert found["cache"]["entries"] == 0
    assert tilesmith("run", model).code == 0
    assert tilesmith("doctor", "--json").json["cache"]["entries"] > 0
    text = tilesmith("doctor", "--clear-cache")
    assert "kernel cache" in text.out and "removed" in text.err
    assert tilesmith("doctor", "--json").json["cache"]["entries"] == 0


def test_doctor_and_records(tilesmith, tmp_path):
    path = tmp_path / "r.sqlite"
    none = tilesmith("doctor", "--json", "--records", path).json["records"]
    assert none["trials"] == 0 and not path.exists()
    fast, slow = Key.of("a", "t", 1), Key.of("b", "t", 1)
    with Records(path) as records:
        records.add(
            trial(fast, {"n": 1}, "ok", "", "", 0.5, 1.0),
            trial(fast, {"n": 2}, "crash", "", "SIGSEGV"),
            trial(slow, {}, "ok", "", "", 1.5, 1.0),
        )
    found = tilesmith("doctor", "--json", "--records", path).json["records"]
    assert (found["trials"], found["workloads"], found["failed"], found["helpful"]) == (3, 2, 1, 1)
    assert "3 trials (1 failed) of 2 workloads" in tilesmith("doctor", "--records", path).out
    path.write_bytes(b"no database" * 100)
    assert "can't be used: file is not a database" in tilesmith("doctor", "--records", path).out


def test_kernels_compiled_by_one_process_are_found_by_another(model, tmp_path):
    program = "import sys; from tilesmith.cli import execute as run; sys.exit(run(sys.argv[1:]))"
    counts = []
    for seed in ("1", "2", "3"):  # nothing may depend on the order of a set
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "TILESMITH_CACHE_DIR": str(tmp_path / "cache"),
        }
        done = subprocess.run(
            [sys.executable, "-c", program, "run", str(model)],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        files = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
        # not the hash of the model's file, which is kept once the file is a minute old
        counts.append(len([p for p in files if p.stat().st_size > 1000]))
    assert counts[0] > 0 and len(set(counts)) == 1


def test_a_target_that_is_another_machine_is_refused_before_compiling(
    tilesmith, model, tmp_path, monkeypatch
):
    monkeypatch.setattr("tilesmith.driver.entry.program_of", None)
    for target, lacks in (("aarch64", "aarch64"), ("cortex-m4", "thumbv7em")):
        done = tilesmith("compile", model, "--target", target, "-o", tmp_path / "m.tsm")
        assert done.code == 1 and f"which lacks {lacks}" in done.err
        assert f"tilesmith export MODEL --target {target}" in done.err
    assert not (tmp_path / "m.tsm").exists()


def test_doctor_names_devices_and_what_installs_missing_extras(tilesmith, monkeypatch):
    absent = {"ray", "openvino"}
    found = importlib.metadata.version

    def version(package):
        if package in absent:
            raise importlib.metadata.PackageNotFoundError(package)
        return found(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    done = tilesmith("doctor", "--json").json
    for kind in ("opencl", "cuda"):
        assert done["devices"][kind]["devices"] or done["devices"][kind]["error"]
    installs = {e["install"]: e["missing"] for e in done["missing_extras"]}
    assert installs["pip install 'tilesmith[fleet]'"] == ["ray"]
    assert installs["pip install 'tilesmith[bench]'"] == ["openvino"]
    text = tilesmith("doctor").out
    assert "OpenCL devices" in text and "CUDA devices" in text
    assert "ray, for tuning on several machines: pip install 'tilesmith[fleet]'" in text


def test_the_extras_that_doctor_knows_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    for extra, requirements in project["project"]["optional-dependencies"].items():
        if extra not in ("test", "docs"):
            names = tuple(re.split(r"[\[><=]", r)[0] for r in requirements)
            assert EXTRAS[extra][0] == names


def test_bench_counts_runs_and_gives_percentiles(tilesmith, model):
    done = tilesmith("bench", model, "--iters", 20, "--warmup", 0, "--percentiles", "0,50,99.9",
                     "--json").json  # fmt: skip
    assert done["runs"] == 20
    p = done["percentiles_ms"]
    assert list(p) == ["0", "50", "99.9"]
    assert p["0"] == done["min_ms"] <= p["50"] <= done["median_ms"] <= p["99.9"]
    text = tilesmith("bench", model, "--iters", 3, "--percentiles", "99")
    assert "p99 ms" in text.out
    for wrong in ("x", "", "101", "-1", "nan", "50,"):
        outcome = tilesmith("bench", model, f"--percentiles={wrong}")
        assert outcome.code == 1 and "--percentiles wants numbers" in outcome.err


def test_bench_writes_a_trace_that_perfetto_opens(tilesmith, model, tmp_path):
    path = tmp_path / "t.json"
    done = tilesmith("bench", model, "--iters", 2, "--trace", path, "--json")
    assert done.json["trace"] == str(path)
    events = strict_json(path.read_text())["traceEvents"]
    kernels = [e for e in events if e["ph"] == "X"]
    assert any("conv1" in e["name"] for e in kernels)
    end = 0.0
    for e in kernels:  # one after the other
        assert e["ts"] == pytest.approx(end) and e["dur"] > 0 and e["pid"] == e["tid"] == 1
        assert e["args"]["threads"] >= 1 and e["args"]["runs"] == 1
        end = e["ts"] + e["dur"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"small.onnx", "kernels"}
    outcome = tilesmith("bench", model, "--iters", 1, "--trace", tmp_path / "no" / "t.json")
    assert outcome.code == 1 and "does not exist; make it first" in outcome.err


def test_run_says_how_many_threads_and_what_to_try_next(tilesmith, model, tmp_path):
    done = tilesmith("run", model, "--threads", 2)
    assert " ms with 2 threads (first run " in done.out
    assert f"tilesmith tune {model} --seconds 60" in done.err.splitlines()[-1]
    assert " ms with 1 thread (first run" in tilesmith("run", model, "--threads", 1).out
    assert tilesmith("run", model, "--threads", 2, "--json").json["threads"] == 2
    saved = tmp_path / "a b.tsm"
    assert tilesmith("compile", model, "-o", saved).code == 0
    assert tilesmith("run", saved).err.splitlines()[-1] == (
        f"next: tilesmith bench '{saved}' measures it"
    )


def test_compiling_shows_how_many_kernels_are_done(tilesmith, model, monkeypatch):
    monkeypatch.setattr("tilesmith.cli.console.LINE_SECONDS", 0.0)
    lines = tilesmith("run", model).err.splitlines()
    steps = [line for line in lines if line.endswith(" kernels")]
    total = len(steps)
    assert total > 1
    assert steps == [
        f"compiling small.onnx for native {n} of {total} kernels" for n in range(1, total + 1)
    ]
    assert not any(line.endswith(" kernels") for line in tilesmith("run", model).err.splitlines())
