"""What a run that failed says to its caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesmith.codegen.context import Code

from .native import Failure
from .program import Program
from .sizes import unfit_extent


def explained(program: Program, failure: Failure, given: Sequence[Any]) -> str:
    """Why a run of `program` failed; `given`: the arrays for results, if the caller gave some."""
    if failure.code == Code.EXTENT:
        return unfit_extent(program.measurements[failure.call], failure.values)
    if failure.code == Code.GROWTH:
        needed, slot = failure.values
        if slot < len(given) and given[slot] is not None:
            return (
                f"output {program.outputs[slot].name!r}: the result has {needed} bytes, the array "
                f"given for it {given[slot].nbytes}; give a larger one"
            )
        what = repr(program.outputs[slot].name) if slot < len(program.outputs) else "the run"
        return (
            f"{what} needs {needed} bytes more, as its data say, than the machine has; give "
            "smaller inputs"
        )
    call = program.calls[failure.call]
    return f"{call.label or call.symbol}: {failure.text(call.messages)}"
