"""Machines that are described: named ones and files, which say what is wrong with them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tilesmith.codegen.targets import target
from tilesmith.ir.target import CpuModel, Target
from tilesmith.support.errors import UsageError

SERVER = """name = "a server"
base = "x86-64-v4"
cores = 64
l2_bytes = 2_097_152
ghz = 2
"""


def written(folder: Path, text: str, name: str = "m.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_file_changes_what_it_names(tmp_path):
    t, base = target(written(tmp_path, SERVER)), target("x86-64-v4")
    assert t == replace(base, name="a server", model=t.model)
    assert t.model == replace(base.model, cores=64, l2_bytes=2 << 20, ghz=2.0)
    as_json = json.dumps({"base": "server-64", "cores": 32})
    assert target(written(tmp_path, as_json, "half.json")).model.cores == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l2_byte = 1", "no field 'l2_byte'.*did you mean l2_bytes"),
        ("cores = -1", "cores: expected a whole number from 0"),
        ("cores = true", "cores: expected a whole number"),
        ("l1_ways = 0", "l1_ways: expected a whole number from 1"),
        ("ghz = nan", "ghz: expected a number above 0"),
        ("ghz = 0.0", "ghz: expected a number above 0"),
        ("run_cycles = [1, 2]", "run_cycles: expected 4 numbers"),
        ("run_cycles = [1, 2, 3, 'x']", "run_cycles: expected numbers from 0"),
        ("base = 'pentium'", "unknown target 'pentium'"),
        ("base = 'm.toml'", "base must be the name of a target"),
        ("name = 1", "name must be the name"),
        ("cores =", "is no TOML file"),
    ],
)
def test_a_file_that_cannot_be(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        target(written(tmp_path, text))


def test_files_that_are_none(tmp_path):
    for path in (str(tmp_path / "no.toml"), written(tmp_path, "[1]", "m.json")):
        with pytest.raises(UsageError):
            target(path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is no TOML file"):
        target(str(tmp_path / "binary.toml"))


@pytest.mark.parametrize("name", ["native", "x86-64-v3", "avx2-laptop", "server-16", "server-64"])
def test_targets_are_data(name):
    t = target(name).for_threads(5)
    assert Target.from_json(json.loads(json.dumps(t.to_json()))) == t
    assert t.threads == 8 and t.text == target(name).text
    for change in ({"threads": 0}, {"vector_bits": "x"}, {"cpu": 1}, {"model": {"cores": 1.5}}):
        with pytest.raises((ValueError, TypeError)):
            Target.from_json(t.to_json() | change)


def test_numbers_of_threads_are_rounded_up_to_powers_of_two():
    t = target("x86-64-v3")
    assert [t.for_threads(n).threads for n in (1, 2, 3, 4, 9, 64)] == [2, 2, 4, 4, 16, 64]
    assert [t.for_threads(n).shared_trips for n in (1, 2, 16)] == [16, 16, 128]


def test_every_field_is_described_and_checked():
    model = CpuModel()
    assert CpuModel.from_json(model.to_json()) == model
    for name in model.to_json():
        assert re.search(rf"^ *(\w+, )*{name}(, \w+)*: ", CpuModel.__doc__ or "", re.MULTILINE), (
            name
        )
        with pytest.raises(ValueError, match=name):
            CpuModel.from_json({name: "x"})
