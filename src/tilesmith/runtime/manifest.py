"""The manifest of a `.tsm` file: a program without its code and weights, as JSON values.

Everything in it is checked when it is read.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np

from tilesmith.codegen.context import ABI
from tilesmith.ir.sizes import LARGEST
from tilesmith.ir.target import Target
from tilesmith.perf.info import KernelInfo
from tilesmith.program.functions import ENTRY, OUTPUTS, SIZES
from tilesmith.program.json_values import from_json, to_json
from tilesmith.program.main import Main
from tilesmith.program.verify import DEPTH, verify
from tilesmith.support.cgroup import usable_memory

from .native import ALIGNMENT, aligned_bytes
from .program import Program

FORMAT = 15
_SUMMED = 64 << 10  # bytes per step of a checksum
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]{0,255}")


def to_manifest(program: Program, files: dict[str, str]) -> dict[str, Any]:
    """`program` without its code and weights, as JSON values.

    files: archive name of each object.
    """
    return {
        "format": FORMAT,
        "abi": ABI,
        "target": program.target.to_json(),
        "main": to_json(program.main),
        "weights_checksum": checksum(program.constants),
        "code": {
            s: {"file": files[s], "sha256": hashlib.sha256(data).hexdigest()}
            for s, data in program.objects.items()
        },
        "metadata": dict(program.metadata),
        "kernels": {s: info.to_json() for s, info in program.kernels.items()},
        "defaults": [list(pair) for pair in program.defaults],
        "bounds": [[i, list(shape)] for i, shape in program.bounds],
    }  # fmt: skip


def from_manifest(m: dict[str, Any]) -> tuple[Program, dict[str, dict[str, str]], int]:
    """The program without code and weights, the archive names of its code, and the size of the
    weights.

    Raises ValueError, KeyError, TypeError, ParseError or VerifyError for anything that
    `to_manifest` does not write.
    """
    target, main, code = Target.from_json(m["target"]), from_json(Main, m["main"]), m["code"]
    verify(main, code, usable_memory() or 1 << 46, DEPTH)
    inputs, outputs, weights = main.inputs, main.outputs, main.constant_bytes
    for symbol, c in code.items():
        if not _SYMBOL.fullmatch(symbol):
            raise ValueError(f"{symbol!r} is not a symbol")
        if not re.fullmatch(r"code/[0-9]{1,9}\.o", c["file"]) or not re.fullmatch(
            r"[0-9a-f]{64}", c["sha256"]
        ):
            raise ValueError(f"the code of {symbol} has a malformed file name or checksum")
    if ENTRY not in code and target.device is None:
        raise ValueError(f"there is no {ENTRY}")
    if not all(re.fullmatch(r"parts/[0-9]{1,9}\.tsm", name) for name in m["parts"]):
        raise ValueError("a part has a malformed file name")
    if len(m["parts"]) != main.parts:
        raise ValueError(f"there are {len(m['parts'])} parts of {main.parts}")
    if main.symbols and not main.parts and (SIZES not in code or main.size_values < OUTPUTS):
        raise ValueError(f"there is no {SIZES}")
    if not isinstance(m["metadata"], dict):
        raise ValueError("metadata is not an object")
    kernels = {s: KernelInfo.from_json(k) for s, k in m["kernels"].items() if s in code}
    defaults = tuple(
        (number(i, len(inputs) - 1), number(offset, weights)) for i, offset in m["defaults"]
    )
    for i, offset in defaults:
        spec = inputs[i]
        if (
            not spec.is_static
            or spec.dtype.is_host
            or offset % ALIGNMENT
            or offset + spec.bytes > weights
        ):
            raise ValueError(f"the default of input {spec} does not lie in the weights")
    bounds = tuple(
        (
            number(i, len(outputs) - 1),
            tuple(d if isinstance(d, str) else number(d, LARGEST) for d in shape),
        )
        for i, shape in m["bounds"]
    )
    if any(len(shape) != len(outputs[i].shape) for i, shape in bounds):
        raise ValueError("the largest shape of an output has another rank")
    program = Program(
        inputs, outputs, main.steps, main.arena_bytes, main.scratch_bytes, aligned_bytes(0), {},
        target, m["metadata"], kernels, main.symbols, main.size_values, main.in_place, (), defaults,
        bounds,
    )  # fmt: skip
    return program, code, weights


def number(value: Any, limit: int) -> int:
    """A number from 0 to a limit.  Raises ValueError for anything else."""
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"expected a number from 0 to {limit}, found {value!r}")
    return value


def checksum(weights: np.ndarray) -> str:
    """A checksum that detects damage, computed at memory speed: a hash of the sums of 64 KB
    pieces.
    """
    whole = weights.size // _SUMMED * _SUMMED
    sums = weights[:whole].view(np.uint64).reshape(-1, _SUMMED // 8).sum(1)
    return hashlib.sha256(sums.tobytes() + weights[whole:].tobytes()).hexdigest()
