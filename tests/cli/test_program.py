"""The program as such: help, versions, errors and exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilesmith.cli import VERBS


def test_help_shows_every_verb(tilesmith):
    for arguments in (["--help"], []):
        shown = tilesmith(*arguments)
        assert shown.code == 0
        for verb, line in VERBS.items():
            assert f"{verb} " in shown.out and line.split(".")[0] in shown.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_json(tilesmith, verb):
    shown = tilesmith(verb, "--help")
    assert shown.code == 0
    assert f"tilesmith {verb}" in shown.out
    assert "Example" in shown.out
    assert "--json" in shown.out


def test_help_imports_nothing_heavy():
    program = (
        "import sys\n"
        "from tilesmith.cli import execute as run\n"
        "assert run(['--help']) == 0\n"
        "print([m for m in ('onnx', 'llvmlite', 'torch', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_short_help(tilesmith):
    for arguments in (("-h",), ("run", "-h")):
        short, long = (tilesmith(*arguments[:-1], flag) for flag in ("-h", "--help"))
        assert short.code == long.code == 0 and short.out == long.out


def test_version(tilesmith):
    assert tilesmith("--version").out.startswith("tilesmith ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "frobnicate"),
        (["run"], "MODEL"),
        (["run", "nothing.onnx"], "no file 'nothing.onnx'"),
        (["run", "{model}", "--frob"], "--frob"),
        (["run", "{model}", "--opt-level", "9"], "opt_level must be 0, 1, 2 or 3"),
        (["run", "{model}", "--threads", "0"], "threads must be"),
        (["run", "{model}", "--target", "z80"], "unknown target 'z80'"),
        (["run", "{model}", "--shape", "x"], "--shape wants NAME=1,3,224,224"),
        (["run", "{model}", "--input", "nothing.npz"], "no file 'nothing.npz'"),
        (["run", "{model}", "--input", "{model}"], "can't be read as an .npz"),
        (["run", "{model}", "--check"], "--check needs an --input"),
        (["bench", "{model}", "--seconds", "-1"], "--seconds must be"),
        (["compile", "{model}", "-o", "/no/such/folder/x.tsm"], "does not exist"),
        (["compare", "{model}", "--engine", "abacus"], "unknown engine 'abacus'"),
        (["opt", "{model}", "--passes", "fold,frob"], "unknown pass 'frob'"),
        (["opt", "{model}", "--passes", "fold", "--to", "loops"], "no fused groups"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_1(tilesmith, model, arguments, says):
    outcome = tilesmith(*(str(model) if a == "{model}" else a for a in arguments))
    assert outcome.code == 1, outcome.err
    complaint = [line for line in outcome.err.splitlines() if "error" in line]
    assert len(complaint) == 1 and complaint[0].startswith("tilesmith: error: ")
    assert says in complaint[0]


@pytest.mark.parametrize("content", [b"", b"\x00", b"hello, world", b"\x08\x07"])
@pytest.mark.parametrize("suffix", [".onnx", ".tsm"])
def test_a_bad_model_is_one_line_and_exit_code_2(tilesmith, tmp_path, content, suffix):
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    outcome = tilesmith("run", path)
    assert outcome.code == 2, outcome.err
    assert len([line for line in outcome.err.splitlines() if "error" in line]) == 1


def test_a_truncated_model_is_exit_code_2(tilesmith, model, tmp_path):
    path = tmp_path / "cut.onnx"
    path.write_bytes(model.read_bytes()[:-100])
    assert tilesmith("run", path).code == 2


def test_our_own_bugs_leave_a_report(tilesmith, model, monkeypatch):
    from tilesmith.cli import models

    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(models, "compiled", broken)
    outcome = tilesmith("run", model)
    assert outcome.code == 3
    assert "this is a bug in tilesmith: ZeroDivisionError: oh" in outcome.err
    report = outcome.err.split("are in ")[1].strip()
    with open(report) as f:
        assert "in broken" in f.read()


def test_the_environment_is_read(tilesmith, model, monkeypatch):
    monkeypatch.setenv("TILESMITH_TARGET", "pdp11")
    outcome = tilesmith("run", model)
    assert outcome.code == 1 and "pdp11" in outcome.err
    assert tilesmith("run", model, "--target", "native").code == 0


def test_help_lists_common_options_under_their_own_headings(tilesmith):
    text = tilesmith("run", "--help").out
    sections = {part.split(":\n")[0]: part for part in text.split("\n\n")}
    places = {
        "Options": ("--input", "--json", "-h, --help"),
        "Compilation": ("--shape", "--pin", "--target", "--accuracy"),
        "Cache and records": ("--cache-dir", "--use-records"),
        "Watching the compiler": ("--dump", "--time-passes"),
    }
    for heading, options in places.items():
        assert all(option in sections[heading] for option in options), heading
    assert text.count("--target") == 1


def test_lists_in_help_keep_their_lines(tilesmith):
    text = tilesmith("opt", "--help").out
    assert "\n    nest          each kernel's loops as lowered\n" in text
    assert all(len(line) <= 80 for line in text.split("\n"))
