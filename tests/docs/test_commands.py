"""Command lines in pages have verbs and options that there are; blocks of Python are Python."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown import PAGES, ROOT

from common.command_lines import option_names
from tilesmith.cli import VERBS

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> Iterator[str]:
    for margin, found, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if found == language:
            yield re.sub(rf"^{margin}", "", text, flags=re.MULTILINE)


def options(verb: str) -> set[str]:
    """The names of a verb's options."""
    command = importlib.import_module(f"tilesmith.cli.{verb}").command
    found = {"--help", "-h"}
    for p in inspect.signature(command, eval_str=True).parameters.values():
        found |= set(option_names(p))
    return found


def problems(line: str) -> Iterator[str]:
    """What is wrong with each `tilesmith` command of a line."""
    words = shlex.split(line, comments=True)
    for at, word in enumerate(words):
        if word != "tilesmith" or words[at + 1 : at + 2] in ([], ["--help"], ["--version"]):
            continue
        verb = words[at + 1]
        if verb not in VERBS:
            if not verb.isupper() and (at == 0 or words[at - 1] in ("&&", "|", ";")):
                yield f"there is no verb {verb!r}"
            continue
        for option in words[at + 2 :]:
            if option in ("&&", "|", ";"):
                break
            if option.startswith("-") and option.partition("=")[0] not in options(verb):
                yield f"{verb} has no option {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands(page: Path) -> None:
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    wrong = [f"{line}: {why}" for line in text.splitlines() for why in problems(line)]
    inline = re.findall(r"`(tilesmith [^`]+)`", page.read_text(encoding="utf-8"))
    wrong += [f"{line}: {why}" for line in inline for why in problems(line)]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python(page: Path) -> None:
    for text in blocks(page, "python"):
        ast.parse(text, str(page))


def test_a_wrong_line_is_found() -> None:
    assert list(problems("tilesmith rum x.onnx")) == ["there is no verb 'rum'"]
    assert list(problems("a && tilesmith run x.onnx --tops 3 | head -1")) == [
        "run has no option --tops"
    ]
    assert not list(problems("tilesmith run x.onnx --top=3 -i x.npz  # --what"))
