"""The loops that measure peaks: the best instruction of each type, and nothing else beside it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly
from tilesmith.codegen.targets import host, target
from tilesmith.ir.target import Target
from tilesmith.loop.parse import parse_func
from tilesmith.runtime.peaks import TYPES, fastest, loop_text, peak_of, type_peaks

SERVER = "x86-64-v4+avx512vnni+avx512bf16"
ARM = Target(
    "arm", "aarch64-unknown-linux-gnu", "generic",
    frozenset({"neon", "fp-armv8", "dotprod", "i8mm", "bf16"}), 128, 32,
)  # fmt: skip
BEST = {
    "x86-64-v3": {"f32": "fma_f32_8", "int16": "pmaddwd_8", "int8": "pmaddwd_8"},
    SERVER: {
        "f32": "fma_f32_16", "bf16": "vdpbf16ps_16", "int16": "vpdpwssd_16", "int8": "vpdpbusd_16",
    },
    SERVER + "+amx-tile+amx-bf16+amx-int8+amx-fp16": {
        "f32": "fma_f32_16", "bf16": "tdpbf16ps", "f16": "tdpfp16ps", "int16": "vpdpwssd_16",
        "int8": "tdpbuud",
    },
}  # fmt: skip
INSTRUCTION = {
    "fma_f32_8": "vfmadd", "fma_f32_16": "vfmadd", "pmaddwd_8": "vpmaddwd",
    "vpdpwssd_16": "vpdpwssd", "vpdpbusd_16": "vpdpbusd",
    "vdpbf16ps_16": "vdpbf16ps",
}  # fmt: skip
"""The names of instructions that are not those of their intrinsics."""


@pytest.mark.parametrize("name", [*BEST, "arm"])
def test_loops_hold_sums_in_registers(name: str) -> None:
    machine = ARM if name == "arm" else target(name)
    found = fastest(machine)
    if name in BEST:
        assert {t: i.name for t, i in found.items()} == BEST[name]
    else:
        assert {"bf16": "bfmmla", "int8": "smmla"}.items() <= {
            t: i.name for t, i in found.items()
        }.items()
    for kind, intrinsic in found.items():
        text = assembly(
            emit(parse_func(loop_text(intrinsic, machine, 9, 1)), machine).text, machine
        )
        loops = re.findall(r"^(\.LBB\w+):(.*?)^\t(?:j|b\.)\w+\t\1$", text, re.S | re.M)
        (body,) = (b for _, b in loops if b.count("\n") > 8)
        stored = re.findall(r"%[xyz]mm\d+, \S*\(%rsp\)|tilestored|st[rp]\tq.*\[sp", body)
        assert not stored, (kind, intrinsic.name)
        calls = len(re.findall(INSTRUCTION.get(intrinsic.name, intrinsic.name), body))
        assert calls == (4 if intrinsic.registers else 8 if machine.vector_registers < 32 else 20)


def test_peaks_of_this_machine() -> None:
    found = type_peaks(rounds=1)
    assert [p.type for p in found] == [t for t in TYPES if t in fastest(host())]
    assert all(p.rate > 1e8 for p in found)
    assert peak_of("no_such_intrinsic", 1) is None
    lacking = next(i for t, i in fastest(replace(ARM, name="other")).items() if t == "bf16")
    if "bf16" not in fastest(host()):
        assert peak_of(lacking.name, 1) is None
