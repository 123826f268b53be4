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
from .damage import NUMBERS, Alike, other_text
from .judge import CRASHED, MEMORY, REFUSED, RIGHT, SECONDS, Verdict

MODELS = 40
"""Random models whose texts are damaged."""

_STAGES = ("decompose", "layout", "graph", "nest", "flatten", "vectorize", "loops")
"""What `--to` names for a sound text."""

_AFTER = {"nest": "nest", "flatten": "flatten", "vectorize": "vectorize"}
"""What `--from` names for the text of a stage, where it has to be said."""

_VALUES = ("True", "None", "()", "(1,)", "(1, 2)", '"x"', "f32", "f32[2]", '@"0 1"', "((),)",
           "graph g() {return }", "`n`", "-1", "1.5", "nan")  # fmt: skip
_WORDS = ("x", "mask", "let", "ramp", "broadcast", "select", "not", "true", "reduce_add", "exp",
          "fma", "bitcast", "prefetch", "in", "as", "pass", "else", "const", "return", "parallel",
          "vectorized", "unrolled", "thread.x", "block.x", "stack", "heap", "registers", "barrier",
          "f32x4", "i64x0", "bool", "tensor.x", "wave_reduce", "likely")  # fmt: skip
_ALIKE: Alike = (
    ("type", tuple(BY_NAME)),
    ("number", NUMBERS),
    ("number", ()),
    ("word", ()),
    ("", tuple(OPS)),
    ("", tuple(INTRINSICS)),
    ("", tuple(symbol for symbol, _ in INFIX.values())),
    ("", ("range", "parallel", "vectorized", "unrolled", "block_x", "thread_x", "thread_y")),
    ("", ("heap", "stack", "register", "shared", "fragment")),
    ("", ("True", "False", "None")),
)


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
        text = other_text(text, source, _ALIKE, (*_VALUES, *_WORDS))
    return stage, text, constants


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
