"""Bundles: one model compiled for several levels of a processor, in one `.tsm` file.

Weights that the levels pack alike are stored once.  The constants of a level are divided at the
offsets that its main function uses.  Pieces with equal contents have one place in the bundle's
weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from tilesmith.codegen.targets import host, missing_features
from tilesmith.ir.target import Target
from tilesmith.program.visit import args_of
from tilesmith.support.errors import ModelError, UsageError

from .program import Program

Span: TypeAlias = tuple[int, int]
"""Bytes of a bundle's weights: the offset of the first one, and their number."""


def check_levels(programs: Sequence[Program]) -> None:
    """Raises UsageError for programs that can't be in one bundle."""
    for p in programs:
        if p.parts or p.target.backend != "cpu":
            raise UsageError(
                "a .tsm file for several targets is for levels of a CPU; found the target "
                f"{p.target.name!r}; write a file of its own for it"
            )
    kinds = sorted({p.target.triple for p in programs})
    if len(kinds) > 1:
        raise UsageError(
            f"one .tsm file is for one kind of processor, not {', '.join(kinds)}; write a file "
            "for each"
        )


def pooled(programs: Sequence[Program]) -> tuple[list[memoryview], list[list[Span]]]:
    """The distinct pieces of all programs' constants, in order, and for each program the spans of
    which its constants consist.
    """
    places: dict[bytes, Span] = {}
    pieces: list[memoryview] = []
    spans: list[list[Span]] = []
    end = 0
    for program in programs:
        own: list[Span] = []
        for piece in _pieces(program):
            digest = hashlib.sha256(piece).digest()
            if digest not in places:
                places[digest] = (end, len(piece))
                pieces.append(piece)
                end += len(piece)
            own.append(places[digest])
        spans.append(own)
    return pieces, spans


def _pieces(program: Program) -> Iterator[memoryview]:
    """The constants of a program, divided at each offset that its main function or a default
    uses.
    """
    used = {a.index for a in args_of(program.steps) if a.kind == "constant"}
    cuts = {0, *used, *(offset for _, offset in program.defaults)}
    edges = [*sorted(c for c in cuts if c < program.constants.nbytes), program.constants.nbytes]
    for begin, end in pairwise(edges):
        yield program.constants.data[begin:end]


def best_level(path: Path, targets: Sequence[Target]) -> int:
    """The number of the first target whose code this machine can run.

    path: the bundle, for the message.

    Raises ModelError if this machine can run the code for none of them.
    """
    lacking: list[str] = []
    for number, target in enumerate(targets):
        missing = missing_features(host(), target)
        if not missing:
            return number
        lacking.append(f"{target.name} needs {', '.join(missing)}")
    raise ModelError(
        f"{path} has code for {', '.join(t.name for t in targets)}; this machine lacks features "
        f"of each: {'; '.join(lacking)}; compile the model for a lower level, too, such as x86-64"
    )
