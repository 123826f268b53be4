"""Damaged texts of graphs and of loops, as `tilesmith opt` takes them.

The sound texts are those of random models, at several stages.  A mutant has tokens changed: types,
numbers, names, operators, whole lines, and depth.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import children
from tilesmith.cli import execute
from tilesmith.ir.dtypes import BY_NAME
from tilesmith.ir.functions import INTRINSICS
from tilesmith.ir.operations import INFIX
from tilesmith.ops.table import OPS

from .cases import random_case
from .judge import CRASHED, MEMORY, REFUSED, RIGHT, SECONDS, Verdict

MODELS = 40
"""Random models whose texts are damaged."""

_STAGES = ("decompose", "layout", "graph", "nest", "flatten", "vectorize", "loops")
"""What `--to` names for a sound text."""

_AFTER = {"nest": "nest", "flatten": "flatten", "vectorize": "vectorize"}
"""What `--from` names for the text of a stage, where it has to be said."""

_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//|<<|>>|[A-Za-z_][A-Za-z0-9_.]*|\$?\d+(?:\.\d*)?(?:e[+-]?\d+)?|\s+|:=|->|\S'
)
_NUMBERS = (0, 1, -1, 2, 3, 7, 16, 255, 256, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1,
            1 << 63, -(1 << 63), 1 << 64, 1 << 70, -(1 << 70), 0.5, "nan", "inf")  # fmt: skip
_VALUES = ("True", "None", "()", "(1,)", "(1, 2)", '"x"', "f32", "f32[2]", '@"0 1"', "((),)",
           "graph g() {return }", "`n`", "-1", "1.5", "nan")  # fmt: skip
_WORDS = ("x", "mask", "let", "ramp", "broadcast", "select", "not", "true", "reduce_add", "exp",
          "fma", "bitcast", "prefetch", "in", "as", "pass", "else", "const", "return", "parallel",
          "vectorized", "unrolled", "thread.x", "block.x", "stack", "heap", "registers", "barrier",
          "f32x4", "i64x0", "bool", "tensor.x", "wave_reduce", "likely")  # fmt: skip
_ALIKE: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("type", tuple(BY_NAME)),
    ("number", _NUMBERS),
    ("number", ()),
    ("word", ()),
    ("", tuple(OPS)),
    ("", tuple(INTRINSICS)),
    ("", tuple(symbol for symbol, _ in INFIX.values())),
    ("", ("range", "parallel", "vectorized", "unrolled", "block_x", "thread_x", "thread_y")),
    ("", ("heap", "stack", "register", "shared", "fragment")),
    ("", ("True", "False", "None")),
)
"""Tokens that are replaced by each other: their kind, or what they are."""
_AROUND = (("(", ")"), ("[", "]"), ("-", ""), ("~", ""), ("not ", ""))
_DEPTHS = (3, 100, 10_000)


@cache
def _sound(seed: int) -> tuple[tuple[str, str, bytes], ...]:
    """The stage, the text and the constants of the texts of a random model."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m.onnx"
        model.write_bytes(random_case(seed).model.SerializeToString())
        for stage in _STAGES:
            text = Path(folder) / f"{stage}.txt"
            code, _ = _execute(["opt", str(model), "--to", stage, "-o", str(text)])
            if code == 0 and text.is_file():
                beside = text.with_suffix(".npz")
                constants = beside.read_bytes() if beside.is_file() else b""
                kernels = re.split(r"(?m)^(?=# kernel)", text.read_text())
                found += [(stage, k, constants) for k in kernels if k.strip()]
    return tuple(found)


def _execute(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code of a command line, and what it says on stderr."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        return execute(arguments), said.getvalue()


def text_mutant(seed: int) -> tuple[str, str, bytes]:
    """The stage, the text and the constants of the mutant of a seed."""
    source = random.Random(seed)
    while not (sound := _sound(source.randrange(MODELS))):
        pass
    stage, text, constants = source.choice(sound)
    for _ in range(source.choice((1, 1, 2, 3))):
        text = _changed(text, source)
    return stage, text, constants


def _changed(text: str, source: random.Random) -> str:
    if source.random() < 0.15:
        return _other_lines(text, source)
    tokens = _TOKEN.findall(text)
    places = [i for i, t in enumerate(tokens) if not t.isspace()]
    if source.random() < 0.5:
        _change_alike(tokens, places, source)
    else:
        _change_one(tokens, places, source)
    return "".join(tokens)


def _change_alike(tokens: list[str], places: Sequence[int], source: random.Random) -> None:
    """Replace a token by one of its kind: at one place, or wherever it stands."""
    kind, others = source.choice(_ALIKE)
    found = [i for i in places if tokens[i] in others or _kind(tokens[i]) == kind]
    if not found:
        return
    at = source.choice(found)
    new, old = str(source.choice(others or [tokens[i] for i in found])), tokens[at]
    for i in found if source.random() < 0.5 else [at]:
        if tokens[i] == old:
            tokens[i] = new


def _change_one(tokens: list[str], places: Sequence[int], source: random.Random) -> None:
    """Replace a token by anything, leave it out, say it twice or nest it."""
    at = source.choice(places)
    match source.randrange(5):
        case 0:
            tokens[at] = ""
        case 1:
            tokens[at] += " " + tokens[at]
        case 2:
            other = source.choice(places)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case 3:
            tokens[at] = source.choice((*_VALUES, *_WORDS))
        case _:
            depth = source.choice(_DEPTHS)
            before, after = source.choice(_AROUND)
            tokens[at] = before * depth + tokens[at] + after * depth


def _kind(token: str) -> str:
    if token in BY_NAME:
        return "type"
    return "word" if token[0].isalpha() else "number" if token[0].isdigit() else "symbol"


def _other_lines(text: str, source: random.Random) -> str:
    lines = text.splitlines()
    a, b = (source.randrange(len(lines)) for _ in range(2))
    match source.randrange(4):
        case 0:
            del lines[a]
        case 1:
            lines.insert(a, lines[b])
        case 2:
            lines[a], lines[b] = lines[b], lines[a]
        case _:
            lines[a] = source.choice(("", " ", "    ")) + lines[a].lstrip()
    return "\n".join(lines) + "\n"


def judge_text(seed: int) -> Verdict:
    """What becomes of the mutant of a seed in this process."""
    stage, text, constants = text_mutant(seed)
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.txt"
        path.write_text(text)
        if constants:
            path.with_suffix(".npz").write_bytes(constants)
        end = source.choice(([], ["--print"], ["--to", "loops"], ["--to", "asm"]))
        start = ["--from", _AFTER[stage]] if stage in _AFTER and end else []
        code, said = _execute(["opt", str(path), *start, *end])
    if code == 3:
        return Verdict(CRASHED, f"{stage} {end}: {said[:400]}")
    return Verdict(REFUSED if code else RIGHT, said)


def text_verdicts(seeds: Sequence[int]) -> Iterator[Verdict]:
    """What becomes of the mutants of seeds, each in a child process."""
    for model in range(MODELS):
        _sound(model)  # once, for all children
    for v in children.each(seeds, judge_text, SECONDS, MEMORY):
        yield Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v
