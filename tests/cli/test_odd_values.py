"""Every option of every verb with odd values: exit code 0, 1 or 2, and one line that says why.

The options are read from the verbs themselves, so that a new one is tried too.
"""

from __future__ import annotations

import importlib
import inspect
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import onnx
import pytest
from onnx import helper

from common.command_lines import option_names
from tilesmith.cli import VERBS

HUGE = str(10**30)
NUMBERS = ("-1", "0", HUGE, "", "x", "1.5", "nan", "inf", "-inf", "1e400")
TEXTS = ("", "=", "x", "x=", "=1", "x=-1", "x=1", f"x={HUGE}", "x=[", "x=@absent.npy", "x=1,x=2")
FILES = ("", "absent", ".", "empty", "broken", "/dev/null", "absent/deeper", "unreadable")
ENDLESS = {"--seconds", "--trials", "--rounds", "--warmup", "--iters", "--port", "--jobs", "--top"}
"""Options of which large values ask for much work, rightly."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, and with files that are none."""
    folder = tmp_path_factory.mktemp("odd")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(made, folder / "m.onnx")
    (folder / "empty").touch()
    (folder / "broken").write_bytes(bytes(range(256)))
    (folder / "unreadable").touch(0o000)
    return folder


@dataclass(frozen=True)
class Option:
    """An option of a verb, or an argument (`flag` is empty), with values that it hardly expects."""

    flag: str
    values: tuple[str, ...]


def options_of(verb: str) -> Iterator[Option]:
    command = importlib.import_module(f"tilesmith.cli.{verb}").command
    for p in inspect.signature(command, eval_str=True).parameters.values():
        hint = get_args(p.annotation)[0]
        kinds = {hint, *get_args(hint)}
        flag = next((n for n in option_names(p) if n.startswith("--")), "")
        if kinds & {int, float}:
            values = tuple(v for v in NUMBERS if v != HUGE or flag not in ENDLESS)
        else:
            values = FILES if Path in kinds or list[Path] in kinds else TEXTS
        if bool not in kinds:
            yield Option(flag, values)


BASE = {
    "op": ["relu", "--shape", "4"],
    "tune": ["m.onnx", "--seconds", "0.01", "--trials", "0"],
    "bench": ["m.onnx", "--seconds", "0.01"],
    "compare": ["m.onnx", "--rounds", "1", "--engine", "onnxruntime"],
    "keygen": ["absent/key.pem"],
    "agent": ["init", "--folder", "absent/agent"],
    "verify": ["m.onnx"],
    "quantize": ["m.onnx", "--random", "1"],
    "train": ["m.onnx", "--data", "absent.npz", "-o", "t.onnx"],
    "records": ["list"],
    "accel": ["sweep", "--model", "m.onnx"],
    "ops": [],
    "doctor": [],
}
"""A verb's arguments beside the odd one; others take the model."""


def lines() -> list[Any]:
    """Verbs with an odd value each.  Of verbs that share an option, each value meets one."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for name in VERBS:
        for option in options_of(name):
            for value in option.values:
                kind = option.flag or f"argument of {name}"
                verbs.setdefault((kind, value), []).append(name)
    found = []
    for (kind, value), names in verbs.items():
        name = names[zlib.crc32(f"{kind}={value}".encode()) % len(names)]
        odd = [*BASE.get(name, ["m.onnx"]), f"{kind}={value}"] if kind[0] == "-" else ["--", value]
        found.append(pytest.param(name, odd, id=f"{name} {kind} {value!r}"))
    return found


@pytest.mark.parametrize(("name", "arguments"), lines())
def test_an_odd_value(tilesmith, place: Path, monkeypatch, name: str, arguments: list[str]) -> None:
    monkeypatch.chdir(place)
    done = tilesmith(name, *arguments)
    assert done.code in (0, 1, 2), done.err
    said = [line for line in done.err.splitlines() if line.startswith("tilesmith: error: ")]
    assert len(said) == (done.code != 0), done.err
    if said:
        assert len(said[0]) > 25 and done.err.splitlines()[-1] == said[0]
