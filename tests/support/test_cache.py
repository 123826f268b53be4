"""The kernel cache: round trips, damage, eviction, sharing between processes."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys

import llvmlite.binding
import pytest

from tilesmith.support.cache import (
    STORES,
    Cache,
    cache_key,
    compiler_fingerprint,
    content_key,
    total,
)
from tilesmith.support.errors import UsageError

A, B, C = (cache_key(letter) for letter in "abc")


def test_round_trip_and_counters(tmp_path):
    cache = Cache(tmp_path / "c")
    assert cache.get(A) is None
    cache.put(A, b"hello")
    cache.put(B, b"")
    assert (cache.get(A), cache.get(B)) == (b"hello", b"")
    assert (cache.hits, cache.misses) == (2, 1)
    assert Cache(tmp_path / "c").get(A) == b"hello"
    assert cache.stats().entries == 2
    assert cache.clear().entries == 2
    assert cache.get(A) is None


def test_an_empty_folder_that_exists_is_filled(tmp_path):
    cache = Cache(tmp_path)
    assert cache.get(A) is None  # finds the folder usable though nothing is in it
    cache.put(A, b"hello")
    assert cache.get(A) == b"hello"


def test_memory_becomes_an_entry_without_a_copy(tmp_path):
    cache = Cache(tmp_path / "c")
    room = cache.room(10_000)
    assert room is not None and bytes(room) == bytes(10_000)
    room[:5] = b"hello"
    room.complete()
    assert room.key == content_key(memoryview(b"hello" + bytes(9_995)))
    assert cache.stats().entries == 0  # it has no name yet
    cache.put_room(room, room.key)
    cache.put_room(room, room.key)  # as when another process was faster
    path = cache.file(room.key)
    assert path is not None and path.read_bytes() == bytes(room)
    assert cache.stats().entries == 1
    cache.clear()
    assert room[:5] == b"hello"  # the memory lives on


def test_memory_that_is_not_stored_leaves_no_file(tmp_path):
    cache = Cache(tmp_path)
    assert cache.room(10_000) is not None
    gc.collect()
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == []


def test_memory_is_refused_where_the_disk_has_no_room(tmp_path):
    assert Cache(tmp_path).room(1 << 60) is None


def test_reading_makes_no_folder(tmp_path):
    assert Cache(tmp_path / "c").get(A) is None
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("damage", [b"", b"x", b"TSC1" + bytes(32) + b"hello"])
def test_damaged_entries_are_removed(tmp_path, damage):
    cache = Cache(tmp_path)
    cache.put(A, b"hello")
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    path.write_bytes(damage)
    assert cache.get(A) is None
    assert not path.exists()
    cache.put(A, b"again")
    assert cache.get(A) == b"again"


def test_the_longest_unused_go_first(tmp_path):
    cache = Cache(tmp_path, max_bytes=12_000)
    cache.put(A, bytes(1000))
    cache.put(B, bytes(1000))
    for n, key in enumerate((A, B)):
        os.utime(tmp_path / "kernels" / key[:2] / key, (n, n))
    cache.get(A)  # now B is the longest unused
    cache.put(C, bytes(1000))
    assert cache.get(B) is None
    assert cache.get(A) == cache.get(C) == bytes(1000)
    assert cache.stats().bytes <= 3000


def test_blobs_over_the_limit_are_not_stored(tmp_path):
    cache = Cache(tmp_path, max_bytes=40)
    cache.put(A, bytes(11))
    assert cache.get(A) is None


def test_programs_never_push_kernels_out(tmp_path):
    kernels, programs = (Cache(tmp_path, 40_000, store) for store in STORES)
    kernels.put(A, bytes(1000))
    for n in range(100):
        programs.put_file(f"{n:040x}", lambda f: f.write(bytes(5000)))
        assert total(c.stats() for c in (kernels, programs)).bytes <= 40_000
    assert kernels.get(A) == bytes(1000)
    assert programs.file(f"{99:040x}") is not None and programs.file(f"{0:040x}") is None


@pytest.mark.parametrize("size", [0, 1, (8 << 20) - 1, (8 << 20) + 1])
def test_contents_are_known_by_every_byte(size):
    content = bytearray(size)
    key = content_key(memoryview(content))
    assert key == content_key(memoryview(bytes(size)))
    assert key != content_key(memoryview(bytes(size + 1)))
    for at in {0, size // 2, size - 1} if size else ():
        content[at] = 1
        assert key != content_key(memoryview(content))
        content[at] = 0


def test_keys_are_hexadecimal(tmp_path):
    with pytest.raises(UsageError, match="hexadecimal"):
        Cache(tmp_path).get("../../etc/passwd")


def test_key_separates_its_parts():
    assert cache_key("ab", "c") != cache_key("a", "bc")
    assert cache_key("a") == cache_key(b"a")


@pytest.mark.parametrize(
    "level", [".", "..", "kernels", f"kernels/{A[:2]}", f"kernels/{A[:2]}/{A}"]
)
@pytest.mark.parametrize(
    ("mode", "says"), [(0o777, "anybody may write"), (0o770, "the group"), (0, "another user")]
)
def test_what_others_may_write_to_is_not_used(tmp_path, caplog, monkeypatch, level, mode, says):
    folder = tmp_path / "above" / "cache"
    Cache(folder).put(A, b"hello")
    assert Cache(folder).get(A) == b"hello"
    place = (folder / level).resolve()
    if mode:
        os.chown(place, -1, os.getegid() + 1) if os.geteuid() == 0 else None
        place.chmod(mode)
    else:
        owner = place.stat().st_uid
        monkeypatch.setattr(os, "stat", owned(os.stat, place, owner + 1))
        monkeypatch.setattr(os, "lstat", owned(os.lstat, place, owner + 1))
    cache = Cache(folder)
    assert cache.get(A) is None and cache.file(A) is None
    assert says in caplog.text and "executed" in caplog.text
    if mode:
        place.chmod(0o700)
        assert Cache(folder).get(A) == b"hello"


def owned(look, place, user):
    """`look`, to which `place` belongs to another user."""

    def changed(path, *rest, **more):
        found = look(path, *rest, **more)
        if os.fspath(path) != str(place):
            return found
        return os.stat_result((*found[:4], user, *found[5:]))

    return changed


def test_a_sticky_folder_above_and_a_group_of_ones_own_are_trusted(tmp_path):
    above = tmp_path / "shared"
    above.mkdir()
    above.chmod(0o1777)
    cache = Cache(above / "cache")
    cache.put(A, b"hello")
    if os.getegid() in (0, os.geteuid()):
        (above / "cache").chmod(0o770)
    assert Cache(above / "cache").get(A) == b"hello"


def test_folders_are_made_for_the_user_alone(tmp_path):
    before = os.umask(0)
    try:
        Cache(tmp_path / "a" / "b").put(A, b"hello")
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in tmp_path.rglob("*") if p.is_dir()} == {0o700}
    assert Cache(tmp_path / "a" / "b").get(A) == b"hello"


def test_folders_that_were_removed_are_made_again_for_the_user_alone(tmp_path):
    folder = tmp_path / "a" / "b"
    cache = Cache(folder)
    cache.put(A, b"hello")  # from now on, the cache knows that its folder can be used
    before = os.umask(0)
    try:
        shutil.rmtree(tmp_path / "a")
        room = cache.room(100)
        assert room is not None
        assert {p.stat().st_mode & 0o777 for p in tmp_path.rglob("*")} == {0o700}
        shutil.rmtree(tmp_path / "a")
        cache.put_room(room, B)
    finally:
        os.umask(before)
    path = cache.file(B)
    assert path is not None
    made = [p for p in path.parents if p.is_relative_to(tmp_path / "a")]
    assert [p.stat().st_mode & 0o777 for p in made] == [0o700] * 4
    assert Cache(folder).file(B) == path


def test_an_impossible_folder_never_fails_a_compilation(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    cache.put(A, b"hello")
    assert cache.get(A) is None
    assert "not used" in caplog.text


def test_stores_of_one_folder_give_one_warning(tmp_path, caplog):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    for store in STORES:
        assert Cache(folder, store=store).get(A) is None
    assert caplog.text.count("is not used") == 1


_WRITER = """
import sys
from tilesmith.support.cache import Cache
cache = Cache(sys.argv[1], max_bytes=800_000)
for turn in range(40):
    for n in range(8):
        key = f"{n:040x}"
        cache.put(key, bytes([n]) * 20_000)
        found = cache.get(key)
        assert found in (None, bytes([n]) * 20_000), "half an entry"
"""


def test_processes_share_a_folder(tmp_path):
    workers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)]) for _ in range(3)]
    assert [w.wait(timeout=120) for w in workers] == [0, 0, 0]
    assert not [p for p in tmp_path.rglob(".*") if p.is_file()], "temporary files left"


@pytest.mark.parametrize(
    "package,name,value",
    ((llvmlite, "__version__", "0.0.1"), (llvmlite.binding, "llvm_version_info", (1, 2, 3))),
)
def test_another_llvm_has_other_keys(monkeypatch, package, name, value):
    """The same sources make other code with another LLVM: its kernels must not be found."""
    monkeypatch.setattr(package, name, value)
    compiler_fingerprint.cache_clear()
    try:
        assert cache_key("a") != A
    finally:
        compiler_fingerprint.cache_clear()
