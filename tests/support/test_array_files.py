"""Files of arrays: what NumPy writes is read, and what is damaged or hostile is one clear error."""

from __future__ import annotations

import contextlib
import io
import os
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tilesmith.support import array_files
from tilesmith.support.array_files import read_array, read_arrays
from tilesmith.support.errors import UsageError

ARRAYS = {
    "rows": np.arange(12, dtype=np.int64).reshape(3, 4),
    "columns": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "scalar": np.float64(2.5),
    "nothing": np.zeros((0, 3), np.uint8),
    "flags": np.array([True, False]),
}


@pytest.mark.parametrize("save", (np.savez, np.savez_compressed))
def test_archives_are_read(save, tmp_path: Path) -> None:
    save(tmp_path / "a.npz", **ARRAYS)
    found = read_arrays(tmp_path / "a.npz")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    found["rows"][0, 0] = 7  # it is the caller's own


def test_single_arrays_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ARRAYS["columns"])
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), ARRAYS["columns"])
    np.savez(tmp_path / "a.npz", **ARRAYS)
    with pytest.raises(UsageError, match="one array"):
        read_array(tmp_path / "a.npz")


@pytest.mark.parametrize("descr", ("'|O'", "'<f4'", "'<f4", "[" * 3000, "('<f4', (1 << 40,))"))
def test_hostile_headers(descr: str, tmp_path: Path) -> None:
    shape = "(4611686018427387904,)" if "O" in descr else "(2, 4611686018427387904)"
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"
    raw = header.encode() + b"\n"
    (tmp_path / "a.npy").write_bytes(
        np.lib.format.MAGIC_PREFIX + b"\x01\x00" + len(raw).to_bytes(2, "little") + raw + b"12"
    )
    with pytest.raises(UsageError, match="plain arrays"):
        read_arrays(tmp_path / "a.npy")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    memory = io.BytesIO()
    np.savez_compressed(memory, **ARRAYS)
    whole = memory.getvalue()
    file = tmp_path / "a.npz"
    for seed in range(300):
        draw = random.Random(seed)
        damaged = bytearray(whole[: draw.choice((len(whole), draw.randrange(len(whole))))])
        for _ in range(draw.randint(0, 4)):
            if damaged:
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        file.write_bytes(damaged)
        with contextlib.suppress(UsageError):
            read_arrays(file)


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "_MOST_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1 << 21, np.uint8))
    with pytest.raises(UsageError, match=r"would become 2\d+; save such arrays with numpy.savez"):
        read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.zeros(1 << 21, np.uint8))
    assert read_arrays(tmp_path / "b.npz")["x"].size == 1 << 21


def test_what_is_no_file_of_arrays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        read_arrays(tmp_path / "pipe")
    with pytest.raises(UsageError, match="plain arrays"):
        read_arrays(tmp_path)
    with pytest.raises(UsageError, match="no file"):
        read_arrays(tmp_path / "other")
    with zipfile.ZipFile(tmp_path / "text.zip", "w") as z:
        z.writestr("readme.txt", "text")
    with pytest.raises(UsageError, match=r"'readme\.txt', which is no array"):
        read_arrays(tmp_path / "text.zip")
