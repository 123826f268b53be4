"""Files appear whole or not at all, and what is no file is written to, never replaced."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tilesmith.support.folders import written


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
