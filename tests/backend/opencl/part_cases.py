"""Models of which parts run on an OpenCL device and parts on the CPU."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from common.part_models import SIDE, branching, detector
from tilesmith.cli.explain_device import rows
from tilesmith.driver.entry import FallbackWarning
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.ir.dtypes import f32
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import TensorType
from tilesmith.ops.activation import Relu
from tilesmith.program.nodes import PartCall
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.parts_runner import PartsRunner
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError


def compiled(model: Any) -> Executable:
    with pytest.warns(FallbackWarning, match="on the CPU, not on 'opencl'"):
        return ts.compile(model, target="opencl")


def suppression() -> None:
    """Nine copies: the image up; boxes, scores and three counts of candidates down; the mean of the
    boxes that are left up; the order and the image down.  The sort stays on the device.
    """
    model = detector()
    made = compiled(model)
    program = made.program
    down = [False] * 5
    assert [t.to_device for t in program.transfers] == [True, *down, True, *down[3:]]
    calls = [s for s in program.steps if isinstance(s, PartCall)]
    targets = [program.parts[c.part].target.name for c in calls]
    assert targets == ["opencl", "native", "opencl"]
    assert {t.name for t in program.places} == {"opencl", "native"}
    on_cpu = {k.operators for k in program.parts[1].kernels.values()}
    assert ("non_max_suppression",) in on_cpu and ("top_k",) not in on_cpu
    x = np.random.default_rng(1).standard_normal((1, 3, SIDE, SIDE), np.float32)
    wanted = ts.compile(model)(x)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder, "model.tsm"))
        again = ts.load(Path(folder, "model.tsm"))
    for exe in (made, made, again):
        for a, b in zip(exe(x), wanted, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    out = np.empty_like(wanted[2])
    assert made(x, out=(None, None, out))[2] is out
    np.testing.assert_allclose(out, wanted[2], rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="expected shape"):
        made(x[:, :2])
    for wrong in (program.steps[1:], program.steps[:-1] + program.steps[:1]):
        with pytest.raises(ModelError, match="do not fit its parts"):
            PartsRunner(replace(program, steps=wrong))
    profile = made.profile(x, repeats=2)
    told = rows(made, profile)
    assert all(0 < k.seconds < 60 for k in profile) and profile.whole > 0
    assert {r["place"] for r in told if r["launches"]} == {"opencl"}
    assert {r["place"] for r in told if not r["launches"]} == {"native"}
    checks = ts.check(model, target="opencl")
    assert len(checks) == len(program.calls) and all(c.passed for c in checks)
    with pytest.raises(UnsupportedError, match=r'non_max_suppression .*fallback="warn" runs these'):
        ts.compile(model, target="opencl", fallback="error")


def open_sizes() -> None:
    """Sizes of a run: on the CPU, without copies; the caller's arrays are not results."""
    b = Builder("g")
    x = b.input("x", TensorType(f32, (symbol("n"),)))
    graph = b.finish([b.add(Relu(), x), x])
    made = compiled(graph)
    assert not made.program.transfers
    for n in (1, 5):
        given = np.arange(n, dtype=np.float32) - 2
        found, same = made(given)
        np.testing.assert_array_equal(found, np.maximum(given, 0))
        assert same is not given
        np.testing.assert_array_equal(same, given)
    with pytest.raises(UsageError, match="shares memory"):
        made(given, out=(given, None))


def branches() -> None:
    """A branch behind a convolution: its condition and what it reads go to the CPU."""
    rng, model = np.random.default_rng(2), branching()
    made = compiled(model)
    cpu = ts.compile(model)
    assert len(made.program.transfers) == 5  # x, the condition, what the branch reads, its result
    for sign in (1, -1):
        x = sign * rng.random((1, 1, 8, 8), np.float32)
        np.testing.assert_allclose(made(x), cpu(x), rtol=1e-4, atol=1e-4)


def unwarned() -> None:
    """A model that the device runs alone has no parts, and nothing is said."""
    b = Builder("g")
    graph = b.finish([b.add(Relu(), b.input("x", TensorType(f32, (4,))))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = ts.compile(graph, target="opencl", fallback="error")
    given = np.array([-1, 0, 1, 2], np.float32)
    assert not made.program.parts
    (wanted,) = evaluate(graph, [given]).values()
    np.testing.assert_array_equal(made(given), wanted)


def part_calls() -> dict[str, Callable[[], None]]:
    """The cases by name."""
    return {f.__name__: f for f in (suppression, open_sizes, branches, unwarned)}
