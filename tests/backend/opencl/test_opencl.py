"""Kernels on an OpenCL device, all in one child process."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("child.py")
CASES = (
    "rows in reverse", "fewer iterations than threads",
    "threads read what others wrote to global memory", "launches and one thread", "sizes of a run",
    "sizes of a run, the other way", "copies ahead with zeros", "loops that do not begin at zero",
    "product (14, 9, 10), guard", "product (13, 5, 12), peel", "product (8, 5, 7), roundup",
    "product (14, 9, 10), 2 buffers", "product (13, 5, 12), 3 buffers",
    "product (8, 5, 7), 4 buffers", "sums",
    "operations 0", "operations 1", "by_rule", "split_sums", "in_place", "sixteen_bits", "failures",
    "residual", "attention", "whole_attention", "attention_in_chunks", "wrong_index", "irregular",
    "explain", "suppression", "open_sizes", "branches", "unwarned", "memory_of_parts",
    "memory_limit", "time_limit", "fallback_of_parts", "fallback_of_memory", "no_code_for_a_rule",
    "fallback_of_call", "without_a_device", "other_weights", "other_weights_of_parts",
    "sort_and_sum", "random_lines", "scatters",
)  # fmt: skip
"""Written down, so that no case is lost; one that runs and is not here fails the first test."""


@lru_cache(maxsize=1)
def outcomes() -> dict[str, str | None]:
    """What is wrong with each case; empty where there is no device."""
    return child()


def child(*given: str) -> dict[str, str | None]:
    """What a child process finds."""
    command = [sys.executable, str(CHILD), *given]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not run.returncode, run.stderr
    return json.loads(run.stdout)["found"]


def device_is_there() -> bool:
    """Whether a child process finds a device whose driver can compile.  Drivers on CPUs need not
    know a new processor.
    """
    code = "from tilesmith.runtime.opencl import OpenClDevice as D; D(0).load(())"
    return not subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False
    ).returncode


pytestmark = pytest.mark.skipif(
    not device_is_there(),
    reason="needs an OpenCL device: pip install pyopencl, and a driver such as pocl-opencl-icd "
    "that knows this processor",
)


def test_all_cases_have_a_test():
    assert set(outcomes()) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    wrong = outcomes()[name]
    assert wrong is None, wrong


def test_a_kernel_that_never_ends():
    """Not in the other child, whose device would be busy from then on."""
    command = [sys.executable, str(CHILD.with_name("hanging.py"))]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0 and run.stdout == "answered\n", run.stderr
    assert "the CPU answers from now on" in run.stderr


def test_tuning():
    found = child("tuning")
    assert len(found) == 4
    wrong = {name: text for name, text in found.items() if text}
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())


@pytest.mark.parametrize("given", [("operators", "0", "1100", "27"), ("schedules", "0", "16", "1")])
def test_sample(given):
    """All of them: `python -m benchmarks.opencl --operators --schedules 500`.

    The driver's compiler does not optimise: PoCL aborts at the barriers of some schedules.
    """
    found = child(*given, "plain")
    assert len(found) >= 16
    wrong = {name: text for name, text in found.items() if text}
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
