"""A model whose kernels never end: the CPU answers in their place, and the process ends."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from fault_cases import relu

import tilesmith as ts
from tilesmith.codegen.opencl.emit import translation_unit
from tilesmith.runtime import opencl


def endless(kernels: object) -> str:
    """The text of kernels with a loop that does not end at the beginning of the first."""
    text = translation_unit(kernels)  # type: ignore[arg-type]  # as it was called
    at = text.index("{", text.index("__kernel")) + 1
    return f"{text[:at]}volatile int on = 1; while (on) {{}}{text[at:]}"


def main() -> None:
    given = np.linspace(-1, 1, 100, dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opencl, "translation_unit", endless)
        exe = ts.compile(relu(), target="opencl", time_limit=1.0, fallback="cpu")
    np.testing.assert_array_equal(exe(given), np.maximum(given, 0))
    del exe
    gc.collect()
    print("answered")


if __name__ == "__main__":
    main()
