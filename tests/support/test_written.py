"""Files appear whole or not at all, and what is no file is written to, never replaced."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
import threading
from pathlib import Path

import pytest

import tilesmith
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import scratch_folder, written


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with written(path) as f:
        f.write(b"one")
        assert not path.exists()
    old = path.open("rb")
    with pytest.raises(ZeroDivisionError), written(path) as f:
        f.write(b"two")
        raise ZeroDivisionError
    assert path.read_bytes() == b"one"
    with written(path) as f:
        f.write(b"three")
    assert (path.read_bytes(), old.read()) == (b"three", b"one")
    assert os.listdir(tmp_path) == ["a"]
    old.close()


def test_permissions_are_those_of_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    with written(tmp_path / "a"):
        pass
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "new").stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    link, real = tmp_path / "link", tmp_path / "deep" / "real"
    link.symlink_to(real)
    for text in (b"1", b"2"):
        with written(link) as f:
            f.write(text)
        assert link.is_symlink() and real.read_bytes() == text


def test_devices_and_pipes_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    for path in (pipe, Path("/dev/null")):
        with written(path) as f:
            f.write(b"some")
        assert not stat.S_ISREG(path.stat().st_mode)
    reader.join()
    assert got == [b"some"]


IN_PLACE = {
    "cli/__init__.py": "a report in a new folder",
    "accel/doc.py": "a page of this project, by its developers",
    "accel/header.py": "a header of this project, by its developers",
    "accel/rtl/verilate.py": "in the folder of a simulation",
    "agent/settings.py": "new files, exclusively, as secret from their first byte",
    "agent/store.py": "renames by itself, in the folder of objects",
    "codegen/c/compiler.py": "in a scratch folder",
    "compat/tvm/auto_scheduler.py": "appends to a log",
    "compat/tvm/autotvm/callback.py": "appends to a log",
    "frontend/torch/script.py": "the null device",
    "ops/doc.py": "a page of this project, by its developers",
    "engines/ort/library.py": "in a scratch folder",
    "engines/tengine/plugin.py": "in the folder of `written_in`",
    "engines/torch/packages.py": "in a scratch folder",
    "runtime/rates.py": "renames by itself; failing is no error",
    "runtime/signing.py": "a new file, exclusively, as secret from its first byte",
    "runtime/standalone/c_source.py": "in the folder of `filled`",
    "runtime/standalone/export.py": "in the folder of `filled`",
    "runtime/standalone/objects.py": "in a scratch folder",
    "runtime/standalone/operator.py": "in the folder of `filled`",
    "runtime/standalone/operators.py": "in a scratch folder",
    "runtime/standalone/program.py": "in a scratch folder",
    "runtime/standalone/plugin.py": "in the folder of `filled`",
    "runtime/standalone/wasm.py": "in the folder of `filled`",
    "runtime/tsm.py": "an entry of the archive that `written` writes",
    "support/cache.py": "renames by itself, in the cache",
    "support/child.py": "a pipe",
    "support/dump.py": "text for developers, one file a stage",
    "support/folders.py": "what the others use",
    "tuning/jobs.py": "in a scratch folder",
    "tuning/static.py": "in a scratch folder",
    "tuning/station.py": "in a scratch folder",
}
"""Sources that write files in place, and why they may."""

WRITER = re.compile(
    r"""\.write_text\(|\.write_bytes\(|open\([^\n]*["'][wax]b?["']|np\.save\w*\((?!f,)"""
)


def test_whoever_writes_a_file_of_a_user_writes_beside_it() -> None:
    """Others use `written`, `write_text` and `filled`."""
    top = Path(tilesmith.__file__).parent
    sources = {p.relative_to(top).as_posix(): p.read_text() for p in top.rglob("*.py")}
    found = {name for name, text in sources.items() if WRITER.search(text)}
    assert found == set(IN_PLACE)


def test_temporary_files_name_their_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no room for them, the folder of the result is not blamed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match=r"absent': .*set TMPDIR"), scratch_folder():
        pass
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="No space left"), scratch_folder() as made:
        assert made.parent == tmp_path
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not any(tmp_path.iterdir())
