"""Cases on an OpenCL device, in a process of their own: a fault of a driver ends only that.

`python child.py` prints, as JSON, what is wrong with each case by name: null where nothing is.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("opencl", "codegen", "te", "driver", "")]


def outcome(case: Callable[[], None]) -> str | None:
    """What is wrong with a case."""
    try:
        case()
    except (Exception, pytest.fail.Exception):  # whatever it is, the parent shows it
        return traceback.format_exc()
    return None


def main() -> None:
    from cases import calls, kernels
    from part_cases import part_calls

    cases = {**kernels(), **calls(), **part_calls()}
    print(json.dumps({name: outcome(case) for name, case in cases.items()}))


if __name__ == "__main__":
    main()
