"""The steps of `examples/gemm_gpu.py`: right answers without races, and the counts they promise."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from tilesmith import te
from tilesmith.cli.explain_device import counts_of
from tilesmith.codegen.targets import target
from tilesmith.loop.interpret import interpret

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "gemm_gpu.py"))
STEPS = {step.__name__: step for step in EXAMPLE["STEPS"]}
SIZE = 64


@pytest.mark.parametrize("name", STEPS)
def test_answers(name: str):
    s, args = STEPS[name](SIZE)
    a, b = np.random.default_rng(1).integers(-4, 5, (2, SIZE, SIZE)).astype(np.float16)
    found = np.empty((SIZE, SIZE), np.float32)
    interpret(te.lower(s, args), [a, b, found])
    np.testing.assert_array_equal(found, a.astype(np.float32) @ b.astype(np.float32))


def test_counts():
    found = {}
    for name, step in STEPS.items():
        s, args = step(1024)
        (found[name],) = counts_of(te.lower(s, args), target("cuda-sm_80"))
    assert all(not c.uncoalesced and not c.unknown for c in found.values())
    conflicts = {name for name, c in found.items() if c.bank_conflicts}
    assert conflicts == {"tiles_in_registers"}
    by_warps = {"tensor_cores", "copies_ahead", "by_rule"}
    assert {name for name, c in found.items() if c.matrix} == by_warps
    assert {name for name, c in found.items() if c.vector_bytes == 16} == by_warps - {
        "tensor_cores"
    }
    assert found["copies_ahead"].barriers == found["tensor_cores"].barriers - 1
