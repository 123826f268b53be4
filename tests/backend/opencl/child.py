"""Cases on an OpenCL device, in a process of their own: a fault of a driver ends only that.

`python child.py` prints, as JSON, what is wrong with each case by name: null where nothing is.
`python child.py operators FIRST END STEP` does so for these operators of the table, and `schedules
FIRST END STEP` for random schedules of these seeds; with `plain` at the end, the driver's compiler
does not optimise.  `tuning` runs the cases of tuning.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]


def outcome(case: Callable[[], None]) -> str | None:
    """What is wrong with a case."""
    try:
        case()
    except (Exception, pytest.fail.Exception):  # whatever it is, the parent shows it
        return traceback.format_exc()
    return None


def main(
    what: str = "", first: str = "0", end: str = "0", step: str = "1", plain: str = ""
) -> None:
    numbers = range(int(first), int(end), int(step))
    used: dict[str, int] = {}
    if what == "operators":
        from operators import OWN, operators

        found = operators([n for n in numbers if n < len(OWN)], not plain)
    elif what == "schedules":
        from random_schedules import schedules

        found, used = schedules(numbers, not plain)
    elif what == "tuning":
        from tuning_cases import tuning

        found = {name: outcome(case) for name, case in tuning().items()}
    else:
        from cases import calls, kernels
        from fault_cases import faults
        from line_cases import line_calls
        from part_cases import part_calls

        cases = {**kernels(), **calls(), **part_calls(), **line_calls(), **faults()}
        found = {name: outcome(case) for name, case in cases.items()}
    print(json.dumps({"found": found, "used": used}))


if __name__ == "__main__":
    main(*sys.argv[1:])
