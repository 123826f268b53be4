"""Libraries of operators: programs that an engine calls by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tilesmith.runtime.program import Program
from tilesmith.support.errors import UsageError

from .objects import (
    check_extents,
    check_programs,
    check_shapes_known,
    check_system,
    places_of,
    program_objects,
)
from .tables import tables
from .toolchain import Toolchain


def check_operator(name: str, programs: Sequence[Program]) -> None:
    """Raises UsageError for programs that can't be operators of another engine."""
    check_programs(programs)
    check_system(programs)
    check_extents(programs[0])
    check_shapes_known(programs[0], f"operator {name}")
    if states := programs[0].states:
        kept = ", ".join(repr(programs[0].inputs[i].name) for _, i in states)
        raise UsageError(
            f"operator {name}: the model keeps {kept} from run to run, and an operator keeps "
            "nothing; export it as a shared or static library"
        )
    if programs[0].in_place:
        raise UsageError(
            f"operator {name}: its outputs can't live in inputs, which belong to the engine; "
            "compile it without in_place="
        )
    if programs[0].defaults:
        raise UsageError(
            f"operator {name}: engines give all inputs of an operator; compile it without optional="
        )


def operator_objects(
    ops: Mapping[str, Sequence[Program]],
    scratch: Path,
    tools: Toolchain,
    text: Callable[[int, str, str], str],
) -> list[Path]:
    """The object files of operators: code, weights and tables.

    ops: by operator name, a program for each level.
    scratch: the folder to write to.
    text: makes the C file of an operator from the operator's number, its name, and the C definition
        of `description`.
    """
    objects: dict[Path, None] = {}
    for i, (name, programs) in enumerate(ops.items()):
        places, _ = places_of(programs, f"op{i}", "inside")
        objects |= dict.fromkeys(program_objects(programs, f"op{i}", places, scratch, tools))
        own = scratch / f"op{i}.c"
        own.write_text(text(i, name, tables(f"op{i}", programs, places, 0)), encoding="utf-8")
        tools.compile(own, own.with_suffix(".o"))
        objects[own.with_suffix(".o")] = None
    return list(objects)
