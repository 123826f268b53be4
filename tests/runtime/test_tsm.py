"""The file format: round trips, and files that are damaged or made to harm."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import COLS, ROWS, expected, program

from tilesmith.codegen.targets import host, target
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.tsm import load_program, save_program
from tilesmith.support.errors import ModelError, UsageError


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_program(program()[0], tmp_path / "model.tsm")
    return tmp_path / "model.tsm"


def rewrite(
    source: Path, change: Callable[[dict[str, Any]], None], drop: str = "", extra: str = ""
) -> Path:
    """The archive with its manifest changed."""
    result = source.with_name("changed.tsm")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(result, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
            if info.filename != drop:
                new.writestr(info.filename, data)
        if extra:
            new.writestr(extra, b"?")
    return result


def step(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["main"]["steps"][0]


def args(manifest: dict[str, Any]) -> list[str]:
    return step(manifest)["args"]


def spec(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["main"]["inputs"][0]


def test_round_trip(saved: Path) -> None:
    p, c = program()
    x = np.random.default_rng(0).standard_normal((ROWS, COLS)).astype(np.float32)
    exe = Executable.load(saved, threads=2)
    for got, want in zip(exe(x), expected(x, c), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    q = exe.program
    assert (q.inputs, q.outputs, q.calls) == (p.inputs, p.outputs, p.calls)
    assert (q.arena_bytes, q.scratch_bytes, q.metadata, q.target) == (
        p.arena_bytes,
        p.scratch_bytes,
        p.metadata,
        p.target,
    )
    assert dict(q.objects) == dict(p.objects)
    exe.save(saved.with_name("again.tsm"))
    assert saved.with_name("again.tsm").read_bytes() == saved.read_bytes()
    assert [f.name for f in saved.parent.iterdir() if f.suffix == ".part"] == []


def test_a_missing_folder_is_a_usage_error(saved: Path) -> None:
    exe = Executable.load(saved)
    with pytest.raises(UsageError, match=r"there is no folder .*/absent' to write 'm.tsm' to"):
        exe.save(saved.parent / "absent" / "m.tsm")
    with pytest.raises(UsageError, match="can't be written: Is a directory"):
        exe.save(saved.parent)
    assert list(saved.parent.iterdir()) == [saved]


def test_weights_are_private_and_aligned(saved: Path) -> None:
    blob = load_program(saved).constants
    assert blob.ctypes.data % 64 == 0
    assert not blob.flags.writeable


OVERWRITTEN = f"""
import os, sys, numpy as np
from tilesmith.runtime.executable import Executable

exe, x = Executable.load(sys.argv[1]), np.linspace(-1, 1, {ROWS * COLS}, dtype=np.float32)
x = x.reshape({ROWS}, {COLS})
before = exe(x)
size = os.path.getsize(sys.argv[1])
with open(sys.argv[1], "r+b") as f:
    f.write(bytes(size))
assert all(map(np.array_equal, exe(x), before)), "other weights"
os.truncate(sys.argv[1], 0)
assert all(map(np.array_equal, exe(x), before))
"""


def test_a_file_that_is_overwritten_changes_no_executable(saved: Path) -> None:
    """In a process of its own: one that maps a file dies of its truncation."""
    done = subprocess.run(
        [sys.executable, "-c", OVERWRITTEN, str(saved)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_another_process_runs_it(saved: Path) -> None:
    script = (
        "import sys, numpy as np; from tilesmith.runtime.executable import Executable\n"
        f"y, z = Executable.load(sys.argv[1])(np.ones(({ROWS}, {COLS}), np.float32)); "
        "print(float(z[0]))"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, str(saved)], capture_output=True, text=True, check=True
    )
    assert float(out.stdout) == pytest.approx(2 * COLS, rel=1e-5)


@pytest.mark.parametrize(
    "change,message",
    (
        (lambda m: m.update(format=99), "version 99 of the format; .* reads version 15: compile"),
        (lambda m: m.update(format=2), "version 2 of the format"),
        (lambda m: m.pop("format"), "version None of the format"),
        (lambda m: m.update(abi=7), "version 7 of the native interface; .* reads version 2"),
        (lambda m: m["main"].pop("inputs"), "a Main needs 'inputs'"),
        (lambda m: m["main"].update(arena_bytes=1 << 60), "expected a number from 0 to"),
        (lambda m: m["main"].update(arena_bytes=-1), "expected a number from 0 to"),
        (lambda m: m["main"].update(arena_bytes=True), "expected a number, found True"),
        (
            lambda m: args(m).append(f"arena+{1 << 40}"),
            "expected a number from 0",
        ),
        (
            lambda m: args(m).append("output2"),
            "expected a number from 0 to 1",
        ),
        (lambda m: args(m).append(f"output1+{1 << 20}"), "a number from 0"),
        (
            lambda m: args(m).append("file2"),
            "expected an argument such as .* found 'file2'",
        ),
        (
            lambda m: step(m).update(symbol="system"),
            "the function 'system' has no code",
        ),
        (lambda m: spec(m).update(shape=[1 << 40]), "bytes, the machine has"),
        (lambda m: spec(m).update(shape=[1] * 40), "more than 16 dimensions"),
        (lambda m: spec(m).update(shape=[-1]), "expected a number from 0"),
        (lambda m: spec(m).update(dtype="f7"), "'f7' is no element type"),
        (lambda m: spec(m).update(name=7), "expected text, found int"),
        (lambda m: m["code"]["add_relu"].update(file="../../etc/passwd"), "malformed file name"),
        (
            lambda m: m["code"]["add_relu"].update(sha256="0" * 64),
            "code/0.o does not match its checksum",
        ),
        (lambda m: m["code"].pop("tilesmith_main"), "there is no tilesmith_main"),
        (lambda m: m["main"].update(constant_bytes=1), "the manifest says 1 bytes of weights"),
        (lambda m: m.pop("weights_checksum"), "the weights do not match their checksum"),
        (lambda m: m.update(parts={"../x.tsm": ""}), "a part has a malformed file name"),
        (lambda m: m.update(parts={"parts/0.tsm": ""}), "there are 1 parts of 0"),
        (
            lambda m: m["main"]["steps"].append(
                {"step": "part", "part": 0, "inputs": [], "outputs": []}
            ),
            r"only a program of parts has this step: part 0\(\) -> \(\)",
        ),
        (lambda m: m["main"].update(parts=1), "there are 0 parts|no such step"),
        (lambda m: m.update(metadata=[]), "metadata is not an object"),
    ),
)
def test_a_bad_manifest_is_refused(
    saved: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        load_program(rewrite(saved, change))


def test_a_program_for_another_cpu_is_read_but_not_run(saved: Path) -> None:
    """The cache keeps programs that are exported to other machines."""
    changed = rewrite(saved, lambda m: m["target"]["features"].append("avx9"))
    assert "avx9" in load_program(changed).target.features
    with pytest.raises(ModelError, match="needs CPU features that this machine lacks: avx9"):
        Executable.load(changed)


def test_entries_must_be_those_listed(saved: Path) -> None:
    for arguments in (
        {"drop": "code/0.o"},
        {"drop": "weights.bin"},
        {"drop": "manifest.json"},
        {"extra": "more"},
    ):
        with pytest.raises(ModelError, match=r"not a sound \.tsm file"):
            load_program(rewrite(saved, lambda m: None, **arguments))


def test_a_repacked_archive_still_loads(saved: Path) -> None:
    assert load_program(rewrite(saved, lambda m: None)).constants.ctypes.data % 64 == 0


def test_compressed_entries_are_refused(saved: Path) -> None:
    path = saved.with_name("deflated.tsm")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    with pytest.raises(ModelError, match="compressed or encrypted"):
        load_program(path)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.tsm"
    for content in (b"", b"PK\x03\x04", b"\x7fELF" * 100, b"{}" * 50):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"expected a \.tsm file"):
            load_program(path)
    with pytest.raises(ModelError, match="no such file"):
        load_program(tmp_path / "absent.tsm")
    with pytest.raises(ModelError):
        load_program(tmp_path)


def test_every_truncation_is_refused(saved: Path) -> None:
    data = saved.read_bytes()
    short = saved.with_name("short.tsm")
    for n in range(0, len(data), 97):
        short.write_bytes(data[:n])
        with pytest.raises(ModelError):
            load_program(short)


def test_flipped_bytes_never_give_a_wrong_program(saved: Path) -> None:
    """Every byte matters or is unused: a changed file is refused or loads as the same program."""
    data = saved.read_bytes()
    p = load_program(saved)
    flipped = saved.with_name("flipped.tsm")
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(data), 300):
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        flipped.write_bytes(changed)
        try:
            q = load_program(flipped)
        except ModelError:
            continue
        assert dict(q.objects) == dict(p.objects) and bytes(q.constants) == bytes(p.constants)
        assert (q.inputs, q.outputs, q.calls, q.arena_bytes) == (
            p.inputs,
            p.outputs,
            p.calls,
            p.arena_bytes,
        )


def test_a_program_for_a_lower_level_runs(tmp_path: Path) -> None:
    if not target("x86-64").features <= host().features:
        pytest.skip("not an x86-64 machine")
    p, c = program("x86-64")
    save_program(p, tmp_path / "old.tsm")
    x = np.ones((ROWS, COLS), np.float32)
    np.testing.assert_allclose(
        Executable.load(tmp_path / "old.tsm")(x)[0], expected(x, c)[0], rtol=1e-5
    )


def test_bytes_and_streams(saved: Path) -> None:
    content = saved.read_bytes()
    stream = io.BytesIO()
    Executable.load(content).save(stream)
    assert stream.getvalue() == content
    with pytest.raises(UsageError, match="save it to a path"):
        Executable.load(content).save(stream, stubs=True)
    with pytest.raises(UsageError, match="give the file's path"):
        load_program(content, require_signature=saved)
    with pytest.raises(ModelError, match="the given bytes: expected a"):
        load_program(content[:-9])
    for thing in (3, None, [content]):
        with pytest.raises(UsageError, match="expected a path"):
            load_program(thing)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(UsageError, match="expected a path"):
            Executable.load(content).save(thing)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("names", "call"),
    [
        (["archive/data.pkl", "archive/version"], "torch.load"),
        (["archive/archive_format", "archive/models/model.json"], "torch.export; give its path to"),
        (None, "models go to tilesmith.compile"),
    ],
)
def test_files_of_other_kinds_name_the_call_that_takes_them(
    tmp_path: Path, names: list[str] | None, call: str
) -> None:
    path = tmp_path / "model.tsm"
    if names is None:
        path.write_bytes(b"\x08\x08\x12\x07pytorch")  # an ONNX model
    else:
        with zipfile.ZipFile(path, "w") as z:
            for name in names:
                z.writestr(name, b"x")
    with pytest.raises(ModelError, match=call):
        load_program(path)
