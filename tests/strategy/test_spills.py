"""Register tiles fit the vector registers: their loops move no vector to or from the stack."""

from __future__ import annotations

import re

import numpy as np
import pytest
from assembly_loops import innermost_loops

from tilesmith import driver
from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly
from tilesmith.codegen.math import expand_math
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.conv import Conv
from tilesmith.ops.matmul import MatMul
from tilesmith.support.options import Options

_PRODUCT = re.compile(r"^\t(vfn?madd|mulps|fmla|vfmacc)", re.MULTILINE)
_STACK = re.compile(
    r"^\t.*\(%rsp\).*%[xyz]mm.*|^\t.*%[xyz]mm.*\(%rsp\).*"  # x86-64
    r"|^\t(?:ld|st)[rpu]+\tq.*\[sp.*"  # AArch64
    r"|^\tv[ls][1248]re?\d*\.v.*",  # RISC-V: whole registers
    re.MULTILINE,
)


def graph_of(op: Op, x: tuple[int, ...], w: tuple[int, ...]) -> Graph:
    b = Builder()
    weights = b.constant(np.ones(w, np.float32))
    return b.finish(b.add(op, b.input("x", TensorType(f32, x)), weights))


def assemblies(graph: Graph, level: str) -> list[str]:
    """The assembly text of each kernel of a graph."""
    session = driver.Session.of(Options(target=level, threads=2, use_records=False))
    found = []
    for node in driver.optimise(graph, session).nodes:
        assert isinstance(node.op, Fused)
        nest = session.group(driver.canonical(node.op.body)).lower("k")
        final = expand_math(driver.run_loop_passes(nest, session), session.target)
        found.append(assembly(emit(final, session.target).text, session.target))
    return found


CASES = {
    "product": graph_of(MatMul(), (96, 256), (256, 512)),
    "product with tails": graph_of(MatMul(), (101, 63), (63, 150)),
    "few rows": graph_of(MatMul(), (3, 512), (512, 512)),
    "matrix and vector": graph_of(MatMul(), (1, 512), (512, 512)),
    "1x1": graph_of(Conv(), (1, 64, 28, 28), (96, 64, 1, 1)),
    "3x3, stride 2": graph_of(
        Conv(strides=(2, 2), pads=(1, 1, 1, 1)), (1, 32, 29, 29), (64, 32, 3, 3)
    ),
    "3x3 depthwise": graph_of(Conv(groups=96, pads=(1, 1, 1, 1)), (1, 96, 28, 28), (96, 1, 3, 3)),
    "5x5 depthwise": graph_of(Conv(groups=96, pads=(2, 2, 2, 2)), (1, 96, 28, 28), (96, 1, 5, 5)),
    "groups": graph_of(Conv(groups=4, pads=(1, 1, 1, 1)), (1, 64, 28, 28), (64, 16, 3, 3)),
}


LEVELS = ["x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64", "riscv64-v"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_loops_of_products_keep_their_tile_in_registers(case: str, level: str) -> None:
    loops = [x for text in assemblies(CASES[case], level) for x in innermost_loops(text)]
    products = [x for x in loops if _PRODUCT.search(x)]
    assert products
    for loop in products:
        assert not _STACK.findall(loop), loop


@pytest.mark.parametrize(
    "line",
    [
        "\tstr\tq3, [sp, #16]",
        "\tldp\tq0, q1, [sp]",
        "\tvs1r.v\tv8, (a0)",
        "\tvl2re32.v\tv8, (a0)",
        "\tvmovups\t64(%rsp), %zmm3",
    ],
)
def test_spills_of_every_level_are_seen(line: str) -> None:
    assert _STACK.findall(line) == [line]


def test_traffic_with_the_stack_is_seen() -> None:
    text = """\t.text
.LBB0_1:
\tvmovups\t(%rdi), %ymm0
.LBB0_2:
\tvfmadd231ps\t(%rsi), %ymm0, %ymm1
\tvmovups\t%ymm1, 32(%rsp)
\tvmovups\t64(%rsp,%rax,4), %ymm1
\tjne\t.LBB0_2
\tjne\t.LBB0_1
"""
    (loop,) = innermost_loops(text)
    assert loop.startswith(".LBB0_2") and _PRODUCT.search(loop)
    assert _STACK.findall(loop) == ["\tvmovups\t%ymm1, 32(%rsp)"]
