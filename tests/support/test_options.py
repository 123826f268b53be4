"""Options: validation, the environment, and the key that goes into cache keys."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tilesmith.support.errors import UsageError
from tilesmith.support.options import (
    Options,
    cache_dir_from_environment,
    threads_from_environment,
)


def test_environment_is_read_and_overridden():
    env = {
        "TILESMITH_TARGET": "x86-64-v3",
        "TILESMITH_NUM_THREADS": "3",
        "TILESMITH_CACHE_DIR": "/somewhere",
        "TILESMITH_USE_CACHE": "off",
        "TILESMITH_VERIFY_EACH": "1",
    }
    o = Options.from_environment(env)
    assert (o.target, o.threads, o.cache_dir) == ("x86-64-v3", 3, Path("/somewhere"))
    assert not o.use_cache and o.verify_each and not o.time_passes
    o = Options.from_environment(env, threads=1, target=None, dump="d")
    assert (o.target, o.threads, o.dump) == ("x86-64-v3", 1, Path("d"))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, None),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OMP_NUM_THREADS": "what"}, None),
        ({"OMP_NUM_THREADS": "4", "TILESMITH_NUM_THREADS": "2"}, 2),
    ],
)
def test_threads(env, expected):
    assert threads_from_environment(env) == expected


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/tilesmith"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/tilesmith"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "TILESMITH_CACHE_DIR": "/t"}, "/t"),
    ],
)
def test_cache_folder(env, folder):
    assert cache_dir_from_environment(env) == Path(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TILESMITH_NUM_THREADS", "0"),
        ("TILESMITH_NUM_THREADS", "many"),
        ("TILESMITH_USE_CACHE", "perhaps"),
        ("TILESMITH_CACHE_BYTES", "-1"),
    ],
)
def test_bad_environment_names_the_variable(name, value):
    with pytest.raises(UsageError, match=name):
        Options.from_environment({name: value})


@pytest.mark.parametrize(
    "bad",
    [
        {"opt_level": 7},
        {"threads": 0},
        {"threads": True},
        {"threads": 1.5},
        {"jobs": -1},
        {"precision": "int3"},
        {"accuracy": "sloppy"},
        {"cache_bytes": -1},
    ],
)
def test_impossible_values_are_refused(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        Options(**bad)


def test_unknown_option_lists_the_known():
    with pytest.raises(UsageError, match=r"'thread'.*threads"):
        Options.from_environment({}, thread=2)


def test_key_depends_on_exactly_what_affects_code():
    assert {f.name for f in fields(Options) if f.metadata["affects_code"]} == {
        "target",
        "opt_level",
        "precision",
        "accuracy",
        "unsafe",
        "memory_limit",
    }
    plain = Options()
    assert plain.key() == Options(threads=7, dump=Path("d"), verify_each=True, jobs=2).key()
    assert plain.key() != Options(opt_level=3).key()
    assert plain.key() != Options(target="x86-64-v2").key()


def test_bounds():
    assert Options().bound("f64") < Options().bound("f32") < Options().bound("f16")
    assert Options().bound("i64") == 0


def test_with_leaves_none_alone():
    o = Options(threads=2)
    assert o.with_(threads=None) is o
    assert o.with_(threads=3).threads == 3
