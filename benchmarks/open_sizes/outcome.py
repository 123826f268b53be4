"""What becomes of a case with open sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.support.errors import ModelError

RIGHT, REFUSED, WRONG, CRASHED = "right", "refused", "wrong", "crashed"
PART = "part"
"""Right, with a dimension that is a number since the compiler refuses it open."""
APART = "apart"
"""No dimension can be opened, or there is nothing to compare with."""


_DEFECT = re.compile(r"\b(?!Model|Unsupported)[A-Z]\w+Error: ")
"""An error of Python or of expressions that a frontend reports with its node."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    result: one of the names above.
    reason: empty for one that is right.
    """

    result: str
    reason: str = ""

    @property
    def line(self) -> str:
        """The result and its reason without names and numbers of the case."""
        text = re.split(r"; |, or --|\. Give", self.reason)[0]
        text = re.sub(r"'[^']*'|\[[^]]*\]|\d+", "_", text.rsplit(": ", 1)[-1])
        return f"{self.result}: {text.strip()[:100]}" if text else self.result


def outcome_of(error: Exception, when: str) -> Outcome:
    """What an error means: those of the model or of sizes are refusals, all others defects."""
    if isinstance(error, AssertionError):
        return Outcome(WRONG, f"{when}: {_one_line(str(error))}")
    if isinstance(error, ModelError) and not _DEFECT.search(str(error)):
        return Outcome(REFUSED, f"{when}: {_one_line(str(error))}")
    return Outcome(CRASHED, f"{when}: {type(error).__name__}: {_one_line(str(error))}")


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()[:600]


def compare(found: Any, wanted: Any, relative: float) -> None:
    """Raises AssertionError where arrays, or lists of them, differ in type, shape or value."""
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted), f"expected {len(wanted)} tensors, found {len(found)}"
        for f, w in zip(found, wanted, strict=True):
            compare(f, w, relative)
        return
    found, wanted = np.asarray(found), np.asarray(wanted)
    kinds = [f"{a.dtype}{list(a.shape)}" for a in (wanted, found)]
    assert kinds[0] == kinds[1], f"expected {kinds[0]}, found {kinds[1]}"
    if wanted.dtype.kind not in "fVc":
        np.testing.assert_array_equal(found, wanted)
        return
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    name = wanted.dtype.name
    relative = max(relative, {"bfloat16": 2e-2, "float16": 4e-3}.get(name, 2e-5))
    absolute = 1e-3 if wanted.dtype.itemsize <= 2 else 2e-5
    np.testing.assert_allclose(
        found.astype(wide), wanted.astype(wide), relative, absolute, equal_nan=True
    )
