"""A smaller program that shows the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import torch

from ..judge import Verdict
from ..shrink import smallest
from .draw import _ROOM
from .judge import judge_apart
from .program import Program, copied

_MOST_TRIES = 80


def shrunk(program: Program, road: str, verdict: Verdict) -> tuple[Program, Verdict]:
    """The smallest program that was found with the same result by the road, and its verdict."""

    def judged(smaller: Program) -> Verdict:
        (found,) = judge_apart([(smaller, road)])
        return found

    return smallest(program, verdict, _candidates, judged, _MOST_TRIES)


def _candidates(program: Program) -> Iterator[Program]:
    """Programs with fewer runs, outputs and statements, and simpler inputs."""
    if len(program.runs) > 1:
        yield from (replace(program, runs=(r,), open_axes={}) for r in program.runs)
    if program.gradients:
        yield replace(program, gradients=False)
    if len(program.outputs) > 1:
        yield from (_needed(replace(program, outputs=(o,))) for o in program.outputs)
    count = len(program.statements)
    if count > 3:
        yield from filter(None, (_part(program, k) for k in _halves(count)))
    for gone in reversed(range(count)):
        if made := _part(program, [i for i in range(count) if i != gone]):
            yield made
    for name, axes in program.open_axes.items():
        for axis in axes if len(program.runs) == 1 else ():
            kept = {a: d for a, d in axes.items() if a != axis}
            yield replace(program, open_axes={**program.open_axes, name: kept})
    if len(program.runs) == 1:
        for room in ("parameters", "buffers"):
            for name in getattr(program, room):
                rest = {n: t for n, t in getattr(program, room).items() if n != name}
                moved = {**program.inputs, name: getattr(program, room)[name].detach()}
                yield replace(program, **{room: rest}, runs=(moved,))
        for name, t in program.inputs.items():
            for simpler in _simpler(t):
                yield replace(program, runs=({**program.inputs, name: simpler},))


def _halves(count: int) -> list[list[int]]:
    return [list(range(count // 2)), list(range(count // 2, count))]


def _simpler(t: torch.Tensor) -> Iterator[torch.Tensor]:
    plain = t.detach()
    if t.requires_grad:
        yield plain
    if not plain.is_contiguous() or plain.storage_offset():
        yield plain.contiguous().clone().requires_grad_(t.requires_grad)
    elif plain.numel() > 1 and (plain != plain.flatten()[0]).any():
        yield torch.full_like(plain, plain.flatten()[0].item()).requires_grad_(t.requires_grad)


def _part(program: Program, kept: list[int]) -> Program | None:
    """The program of some statements; what the others compute becomes inputs.  None where eager
    mode does not take it.
    """
    statements = [program.statements[i] for i in kept]
    made = {r for s in statements for r in s.results}
    outputs = [o for o in program.outputs if o in made] or [
        r for s in statements[-1:] for r in s.results
    ]
    known = program.parameters.keys() | program.buffers.keys() | program.inputs.keys() | made
    lost = {o for s in statements for o in s.operands if o not in known and _is_name(program, o)}
    try:
        runs = tuple({**run, **_computed(program, run, lost)} for run in program.runs)
    except Exception:  # whatever eager mode raises
        return None
    if not outputs:
        written = [s.operands[0] for s in statements if not s.results]
        outputs = written[-1:]
    if not outputs or not statements:
        return None
    return _needed(
        replace(program, statements=tuple(statements), outputs=tuple(outputs), runs=runs)
    )


def _is_name(program: Program, operand: str) -> bool:
    return any(operand in s.results for s in program.statements)


def _computed(
    program: Program, run: dict[str, torch.Tensor], names: set[str]
) -> dict[str, torch.Tensor]:
    """Values when they are made, in a run of the first module."""
    start = {**program.parameters, **program.buffers, **run}
    room = {n: copied(t).detach() for n, t in start.items()} | _ROOM
    found = {}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for s in program.statements:
            exec(s.text, room)
            for n in s.results:
                if n in names:
                    found[n] = room[n].clone()
    return found


def _needed(program: Program) -> Program:
    """The program without tensors that no statement uses."""
    used = {o for s in program.statements for o in s.operands} | {*program.outputs}
    named = " ".join(s.text for s in program.statements)

    def kept(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {n: t for n, t in tensors.items() if n in used or n in named}

    runs = tuple(kept(r) for r in program.runs)
    runs = tuple(r or dict(list(w.items())[:1]) for r, w in zip(runs, program.runs, strict=True))
    return replace(
        program,
        parameters=kept(program.parameters),
        buffers=kept(program.buffers),
        runs=runs,
        open_axes={n: a for n, a in program.open_axes.items() if n in runs[0]},
    )
