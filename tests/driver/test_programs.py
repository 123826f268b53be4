"""Programs in the cache are what compiling would make, or they are not there."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from small_models import model, node

import tilesmith as ts
from tilesmith import driver
from tilesmith.codegen.targets import host
from tilesmith.driver.saved import identity
from tilesmith.driver.saved.program import SavedProgram
from tilesmith.runtime.tsm import to_manifest
from tilesmith.search_space.records import Key, Records, Trial
from tilesmith.support.cache import Cache, Room, content_key
from tilesmith.support.errors import ModelError
from tilesmith.support.options import records_path

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def scaled(factor: float, dims: tuple[int | str, ...] = (3, 4)) -> onnx.ModelProto:
    """relu(x) * factor, factor an array as large as x."""
    weights = {"c": np.full((3, 4), factor, np.float32)}
    nodes = [node("Relu", "x", "r"), node("Mul", "r c", "y")]
    return model(nodes, {"x": dims}, ["y"], weights)


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path / "cache")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(scaled(2.0).SerializeToString())
    return path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The models that were compiled, whose programs were not there."""
    from tilesmith.driver import compiler

    seen: list[object] = []
    original = compiler.compile_model

    def note(model: object, *rest: object) -> object:
        seen.append(model)
        return original(model, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "compile_model", note)
    return seen


def test_the_same_program(path: Path, options: ts.Options, compiled: list[object]) -> None:
    first, second = (ts.compile(path, options=options) for _ in range(2))
    assert len(compiled) == 1
    one, two = (to_manifest(e.program, {s: s for s in e.program.objects}) for e in (first, second))
    assert one == two
    assert first.program.objects == second.program.objects
    np.testing.assert_array_equal(first.program.constants, second.program.constants)
    np.testing.assert_array_equal(first(X), 2 * X)
    np.testing.assert_array_equal(second(X), 2 * X)


def test_by_content(path: Path, options: ts.Options, compiled: list[object]) -> None:
    before = path.stat()
    ts.compile(path, options=options)
    path.write_bytes(scaled(3.0).SerializeToString())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    np.testing.assert_array_equal(ts.compile(path, options=options)(X), 3 * X)
    ts.compile(path.read_bytes(), options=options)  # the same bytes, not from a file
    assert len(compiled) == 2


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[int]:
    """The size of the model, once for each time that it was hashed."""
    seen: list[int] = []

    def note(content: memoryview) -> str:
        if len(content) == path.stat().st_size:
            seen.append(len(content))
        return content_key(content)

    monkeypatch.setattr(identity, "content_key", note)
    return seen


def test_an_unchanged_file_is_hashed_once(
    path: Path, options: ts.Options, hashed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "SETTLED_SECONDS", 0)
    assert options.cache_dir is not None
    options.cache_dir.mkdir(mode=0o700)
    for _ in range(3):
        np.testing.assert_array_equal(ts.compile(path, options=options)(X), 2 * X)
    assert len(hashed) == 1
    before = path.stat()
    path.write_bytes(scaled(3.0).SerializeToString())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    np.testing.assert_array_equal(ts.compile(path, options=options)(X), 3 * X)
    assert len(hashed) == 2


def test_a_file_that_just_changed_is_hashed_again(
    path: Path, options: ts.Options, hashed: list[int]
) -> None:
    for _ in range(2):
        ts.compile(path, options=options)
    assert len(hashed) == 2


def test_by_shapes_and_options(tmp_path: Path, options: ts.Options, compiled: list[object]) -> None:
    content = scaled(2.0, (3, "n")).SerializeToString()
    for n in (4, 1, 4):
        exe = ts.compile(content, shapes={"n": n}, options=options)
        assert exe.inputs[0].shape == (3, n)
    assert len(compiled) == 2
    ts.compile(content, shapes={"x": (3, 4)}, target="x86-64-v2", options=options)
    assert len(compiled) == 3
    for also in ({"use_cache": False}, {"verify_each": True}, {"dump": tmp_path / "dump"}):
        ts.compile(content, shapes={"n": 4}, options=options.with_(**also))
    assert len(compiled) == 6
    assert any((tmp_path / "dump").iterdir())


def weights_of(exe: ts.Executable, options: ts.Options) -> list[Path]:
    """The files in the cache that hold the constants of a program."""
    constants = exe.program.constants.tobytes()
    assert options.cache_dir is not None
    files = [p for p in options.cache_dir.rglob("*") if p.is_file()]
    return [p for p in files if constants in p.read_bytes()]


@pytest.mark.parametrize("damage", ["code", "weights", "size", "absent"])
def test_a_damaged_program_is_compiled_again(
    path: Path,
    options: ts.Options,
    compiled: list[object],
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    exe = ts.compile(path, options=options)
    saved = SavedProgram.of(driver.Request(path, options))
    assert saved is not None
    entry = saved.cache.file(saved.key)
    (weights,) = weights_of(exe, options)
    assert entry is not None and entry != weights
    if damage == "absent":
        weights.unlink()
    else:
        file = entry if damage == "code" else weights
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content + b"0" * 8 if damage == "size" else content)
    with caplog.at_level(logging.WARNING, "tilesmith"):
        np.testing.assert_array_equal(ts.compile(path, options=options)(X), 2 * X)
    assert "damaged" in caplog.text
    assert len(compiled) == 2
    assert saved.load() is not None  # the new one


def test_weights_are_packed_into_the_file_that_keeps_them(
    path: Path, options: ts.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = ts.compile(path, options=options)
    assert isinstance(owner_of(exe.program.constants), Room)
    assert not exe.program.constants.flags.writeable
    np.testing.assert_array_equal(exe(X), 2 * X)
    monkeypatch.setattr(Cache, "room", lambda cache, size: None)  # a system without such files
    other = ts.compile(path, options=options.with_(cache_dir=path.parent / "other"))
    assert not isinstance(owner_of(other.program.constants), Room)
    np.testing.assert_array_equal(other(X), 2 * X)
    again = ts.compile(path, options=options.with_(cache_dir=path.parent / "other"))
    np.testing.assert_array_equal(again.program.constants, exe.program.constants)


def owner_of(blob: np.ndarray) -> object:
    return blob.base.obj if isinstance(blob.base, memoryview) else blob.base


def test_weights_are_stored_once(path: Path, options: ts.Options, compiled: list[object]) -> None:
    for opt_level in (1, 2, 3):
        exe = ts.compile(path, options=options.with_(opt_level=opt_level))
        np.testing.assert_array_equal(exe(X), 2 * X)
    assert len(compiled) == 3
    assert len(weights_of(exe, options)) == 1
    for opt_level in (1, 2, 3):
        again = ts.compile(path, options=options.with_(opt_level=opt_level))
        np.testing.assert_array_equal(again(X), 2 * X)
    assert len(compiled) == 3


def test_weights_outlive_the_programs_that_use_them(path: Path, options: ts.Options) -> None:
    ts.compile(path, options=options)
    exe = ts.compile(path, options=options)
    saved = SavedProgram.of(driver.Request(path, options))
    assert saved is not None
    entry = saved.cache.file(saved.key)
    ts.compile(path, options=options)
    (weights,) = weights_of(exe, options)
    assert entry is not None and weights.stat().st_mtime_ns >= entry.stat().st_mtime_ns


def test_external_data_is_read_each_time(
    tmp_path: Path, options: ts.Options, compiled: list[object]
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(scaled(2.0), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    np.testing.assert_array_equal(ts.compile(path, options=options)(X), 2 * X)
    (tmp_path / "w.bin").write_bytes(np.full((3, 4), 5.0, np.float32).tobytes())
    np.testing.assert_array_equal(ts.compile(path, options=options)(X), 5 * X)
    assert len(compiled) == 2


def test_a_model_that_changes_while_it_is_compiled(path: Path, options: ts.Options) -> None:
    saved = SavedProgram.of(driver.Request(path, options))
    assert saved is not None
    program = driver.compile_model(driver.Request(path, options))
    path.write_bytes(scaled(3.0).SerializeToString())
    saved.keep(program)
    assert saved.load() is None


def test_one_program_does_not_fill_the_cache(
    path: Path, options: ts.Options, compiled: list[object]
) -> None:
    program = ts.compile(path, options=options.with_(use_cache=False)).program
    size = program.constants.nbytes + sum(map(len, program.objects.values()))
    small = options.with_(cache_bytes=4 * size - 1)
    for _ in range(2):
        ts.compile(path, options=small)
    assert len(compiled) == 3
    for _ in range(2):
        ts.compile(path, options=options)
    assert len(compiled) == 4


def test_new_records_are_heeded(path: Path, options: ts.Options, compiled: list[object]) -> None:
    def record(workload: str) -> None:
        with Records(records_path(options)) as records:
            records.add(Trial(Key.of(workload, host().text, 1), "{}", "ok", 1.0, 2.0))

    options = options.with_(records=options.cache_dir / "records.sqlite")  # type: ignore[operator]
    record("one")
    for _ in range(2):
        ts.compile(path, options=options)
    assert len(compiled) == 1
    record("two")
    ts.compile(path, options=options)
    assert len(compiled) == 2
    ts.compile(path, threads=2, options=options.with_(use_records=False))
    ts.compile(path, threads=1, options=options.with_(use_records=False))
    assert len(compiled) == 3


def test_a_model_that_changes_while_it_is_compiled_is_refused(
    tmp_path: Path, options: ts.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are mapped: nobody knows which of them were packed before they changed."""
    from tilesmith.driver import compiler

    path, original = tmp_path / "m.onnx", compiler.assemble
    weights = {"c": np.full((64, 64), 2.0, np.float32)}
    made = model([node("Mul", "x c", "y")], {"x": (64, 64)}, ["y"], weights)
    path.write_bytes(made.SerializeToString())

    def assemble(*args: Any) -> Any:
        with path.open("r+b") as f:
            f.write(path.read_bytes())
        return original(*args)

    monkeypatch.setattr(compiler, "assemble", assemble)
    with pytest.raises(ModelError, match=r"m\.onnx' changed while it was compiled"):
        ts.compile(path, options=options)
    monkeypatch.undo()
    np.testing.assert_array_equal(
        ts.compile(path, options=options)(np.ones((64, 64), np.float32)), 2.0
    )


def test_each_part_of_a_request_makes_a_key(path: Path, options: ts.Options) -> None:
    """Also if two parts have the same value: a largest size is no expected one."""
    n: dict[str, Any] = {"n": 4}
    requests = [
        driver.Request(path, options, **{part: n})
        for part in ("shapes", "dynamic", "expected", "sizes", "values", "pins")
    ]
    requests += [driver.Request(path, options), driver.Request(path, options, forbid={"n": [4]})]
    requests += [driver.Request(path, options.with_(fallback="error"))]
    keys = {saved.key for r in requests if (saved := SavedProgram.of(r)) is not None}
    assert len(keys) == len(requests)
