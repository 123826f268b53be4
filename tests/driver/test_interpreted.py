"""The interpreter of main programs gives what executables give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import conformance
import tilesmith as ts
from common.interpreted import OPTIONS, recorded
from common.pass_models import MODELS
from tilesmith.graph.nodes import Graph
from tilesmith.ir.symbols import value_of
from tilesmith.program.visit import steps_in

CONTROL = ("test_loop11", "test_loop13_seq", "test_if", "test_if_seq", "test_scan9_sum",
           "test_range_float_type_positive_delta_expanded", "test_sequence_map_add_2_sequences",
           "test_sequence_map_extract_shapes_expanded", "test_nonzero_example",
           "test_compress_0", "test_unique_sorted_with_axis")  # fmt: skip
"""Tests of ONNX whose programs branch, repeat, measure, grow memory or call the host."""


def both(model: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], set[str]]:
    """What an executable and the interpreter give, and the kinds of steps that there are."""
    with recorded() as recording:
        exe = ts.compile(model, options=OPTIONS)
    main = exe.program.main
    wanted = exe.run({s.name: x for s, x in zip(main.inputs, inputs, strict=True)})
    found = recording.interpret(exe.program, inputs)
    return [*wanted.values()], found, {type(s).__name__ for s in steps_in(main.steps)}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_golden_networks(make: Callable[[], Graph]) -> None:
    graph, rng = make(), np.random.default_rng(0)
    sizes = {v: v.sizes.expected for v in graph.symbols if v.sizes is not None}
    inputs = [
        rng.uniform(0, 2, [value_of(d, sizes) for d in v.shape]).astype(v.dtype.numpy)
        for v in graph.inputs
    ]
    wanted, found, _ = both(graph, inputs)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_programs_of_onnx() -> None:
    kinds: set[str] = set()
    for test in conformance.tests():
        if test.name in CONTROL:
            for inputs, _ in test.data:
                wanted, found, used = both(test.model, inputs)
                conformance.compare(found, wanted, test)
                kinds |= used
    assert kinds == {"KernelCall", "Copy", "Branch", "Repeat", "HostCall", "Measurement", "Grow",
                     "Store", "Report"}  # fmt: skip
