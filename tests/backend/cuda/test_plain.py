"""A kernel for whose schedule there is no code gets a thread for each element instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.backend import CUDA
from tilesmith.codegen.kernel import Kernel
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Func
from tilesmith.loop.text import print_func
from tilesmith.ops.matmul import MatMul
from tilesmith.support.errors import InternalError


def product() -> Graph:
    b = Builder("g")
    weights = b.constant(np.ones((64, 64), np.float32), "w")
    return b.finish([b.add(MatMul(), b.input("x", TensorType(f32, (64, 64))), weights)])


def refusing(word: str) -> Any:
    """A writer without text for loops in which a word is."""

    def emit(func: Func, target: Target, **how: Any) -> Kernel:
        if word in print_func(func):
            raise InternalError(f"no text for {word}, as the test says")
        return CUDA.emit(func, target, **how)

    return emit


UNCACHED: Mapping[str, Any] = {"target": "cuda-sm_80", "options": ts.Options(use_cache=False)}


def test_a_plain_schedule(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    own = ts.compile(product(), **UNCACHED)
    monkeypatch.setattr("tilesmith.backend.cuda.CUDA", replace(CUDA, emit=refusing(" shared")))
    exe = ts.compile(product(), **UNCACHED)
    assert "gets a plain schedule, since there is no code for its own: no text" in caplog.text
    (found,), (before,) = (e.program.kernels.values() for e in (exe, own))
    assert " shared" in before.loops and " shared" not in found.loops
    assert found.operators == before.operators


def test_no_code_at_all(monkeypatch: pytest.MonkeyPatch):
    """Then the error is that of the plain schedule, and names the kernel."""
    monkeypatch.setattr("tilesmith.backend.cuda.CUDA", replace(CUDA, emit=refusing("def ")))
    with pytest.raises(InternalError, match="no text for def") as failed:
        ts.compile(product(), **UNCACHED)
    assert any("while compiling" in note for note in failed.value.__notes__)
