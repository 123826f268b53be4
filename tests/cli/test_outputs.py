"""Where a verb writes to: streams get the bytes alone, and what can't be written is said first."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import tilesmith as ts
from tilesmith.cli import compile as compile_verb

PROGRAM = f"'{sys.executable}' -m tilesmith"


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", line], capture_output=True, timeout=120)


@pytest.mark.parametrize("to", ["-o /dev/stdout", "-o /dev/fd/1", "-o >(cat >&3) 1>&2"])
def test_a_stream_gets_the_bytes_alone(model, to):
    done = shell(f"exec 3>&1; {PROGRAM} compile '{model}' {to} | cat")
    assert b"wrote /dev/" in done.stderr, done.stderr
    (spec,) = ts.Executable.load(done.stdout).outputs
    assert spec.shape == (1, 6)


def test_a_file_that_stdout_appends_to_keeps_its_beginning(model, tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"before")
    done = shell(f"{PROGRAM} compile '{model}' -o /dev/stdout >> '{file}'")
    assert done.returncode == 0, done.stderr
    start, tsm = file.read_bytes()[:6], file.read_bytes()[6:]
    assert start == b"before" and len(ts.Executable.load(tsm).outputs) == 1


def test_results_of_a_run_go_to_a_pipe(model):
    done = shell(f"{PROGRAM} run '{model}' -o /dev/stdout | cat")
    with np.load(io.BytesIO(done.stdout)) as found:
        assert [found[name].shape for name in found.files] == [(1, 6)]


@pytest.mark.parametrize("verb", ["compile", "tune", "run", "opt", "export", "quantize"])
def test_a_place_that_can_not_be_written_is_refused_first(tilesmith, model, tmp_path, verb):
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "folder.npz").mkdir()
    refused = {
        str(file / "x.onnx"): "can't be written" if verb == "export" else "does not exist",
    }
    if verb != "export":
        end = "npz" if verb == "run" else "onnx"
        refused[str(tmp_path / f"folder.{end}")] = "is a folder"
        refused[str(tmp_path / "none" / f"x.{end}")] = "does not exist"
    if verb != "quantize":  # which chooses by the end of the name
        refused["-"] = "give /dev/stdout"
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")  # reading it would be another error
    for output, says in refused.items():
        found = tilesmith(verb, broken, "-o", output)
        assert found.code == 1 and says in found.err, (output, found.err)


def test_a_folder_without_the_right_to_write_is_refused(tilesmith, model, tmp_path, monkeypatch):
    # Root may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path) != tmp_path)
    monkeypatch.setattr(compile_verb, "open_model", None)
    found = tilesmith("compile", model, "-o", tmp_path / "x.tsm")
    assert found.code == 1 and f"you may not write to the folder '{tmp_path}'" in found.err


def test_nothing_stands_beside_a_stream(model):
    with pytest.raises(ts.UsageError, match="is a stream; save it to a file"):
        ts.compile(model).save(Path("/dev/null"), stubs=True)


@pytest.mark.parametrize(
    "locale",
    ["LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0", "PYTHONIOENCODING=ascii", "LC_ALL=C.UTF-8"],
)
@pytest.mark.parametrize("name", ["d 'ö☃'", b"d\xff"])
def test_names_are_printed_whatever_the_encoding(model, tmp_path, locale, name):
    source = os.fsencode(tmp_path) + b"/" + os.fsencode(name) + b".onnx"
    os.symlink(model, source)
    target = source.removesuffix(b".onnx") + b".tsm"
    line = [b"env", *locale.encode().split(), sys.executable, "-m", "tilesmith", "compile", source]
    done = subprocess.run([*line, "-o", target], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert b"wrote " in done.stdout and os.path.exists(target)


@pytest.mark.parametrize("wrong", [["--stubs"], ["--sign", "no.pem"]])
def test_what_can_not_be_written_beside_is_said_first(tilesmith, model, tmp_path, wrong):
    target = tmp_path / "a b.tsm"
    result = tilesmith("compile", model, "-o", target, *wrong)
    assert result.code == 1 and "compiling" not in result.err, result.err
    assert not target.exists()


def test_a_trace_that_can_not_be_written_is_refused_before_measuring(tilesmith, model, tmp_path):
    result = tilesmith("bench", model, "--trace", tmp_path / "absent" / "t.json")
    assert result.code == 1 and "compiling" not in result.err, result.err


def test_a_run_shows_strings_and_lists(tilesmith, tmp_path):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (string[2] s, float[3] x) => (string[2] t, seq(float[K]) parts) {
        t = StringConcat(s, s)
        sizes = Constant<value = int64[2] {1, 2}>()
        parts = SplitToSequence<axis = 0>(x, sizes)
    }"""
    path, data = tmp_path / "mixed.onnx", tmp_path / "data.npz"
    onnx.save(onnx.parser.parse_model(text), path)
    x = np.zeros(3, np.float32)
    np.savez(data, s=["a", "b"], x=x, out_t=["aa", "bb"])
    t, parts = tilesmith("run", path, "--input", data, "--check", "--json").json["outputs"]
    assert t["difference"]["absolute"] == 0 and parts["length"] == 2
    shown = tilesmith("run", path, "--input", data)
    assert shown.code == 0 and "a list of 2" in shown.out, shown.err
    np.savez(data, s=["a", "b"], x=x, out_t=["aa", "other"])
    wrong = tilesmith("run", path, "--input", data, "--check")
    assert wrong.code == 4 and "differs from the expected answer by 1 " in wrong.err, wrong.err
    refused = tilesmith("run", path, "--output", tmp_path / "found.npz")
    assert refused.code == 1 and "found a list as output 'parts'" in refused.err, refused.err
