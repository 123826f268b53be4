"""Attention on devices: one launch, whose answers are the reference's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.device_groups import attention, heads
from tilesmith.cli.explain_device import counts_of
from tilesmith.codegen.targets import target
from tilesmith.driver import Session, optimise
from tilesmith.graph.builder import Builder
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import bool_, f16, f32
from tilesmith.ir.expr import const
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.launches import launches
from tilesmith.loop.nodes import Allocate, Func
from tilesmith.loop.visit import walk
from tilesmith.ops.elementwise import Add, Div, Equal, Exp, Where
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.norm import Softmax
from tilesmith.ops.reduce import ReduceMax, ReduceSum
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.strategy.device import RULES
from tilesmith.support.options import Options

GPU, CUDA = target("opencl-gpu"), target("cuda-sm_80")


def units(number: int, gpu: Target = GPU) -> Target:
    """A device that runs so many blocks at the same time: with one, tiles of rows are tall."""
    assert gpu.device is not None
    return replace(gpu, device=replace(gpu.device, units=number))


def small(shared_bytes: int, gpu: Target = GPU) -> Target:
    """A device whose blocks have so much shared memory: long rows are computed in chunks."""
    assert gpu.device is not None
    return replace(gpu, device=replace(gpu.device, shared_bytes=shared_bytes))


def fused(graph: Graph) -> Graph:
    """The one kernel that a model is for `CUDA`."""
    session = Session.of(Options(use_cache=False, threads=1), target="cuda-sm_80")
    (node,) = optimise(graph, session).nodes
    assert isinstance(node.op, Fused)
    return node.op.body


def joined(rows: int, keys: int, size: int, width: int) -> Graph:
    """Attention of two heads that are joined before and behind it, as in models."""
    b = Builder("joined")
    shapes = {"q": (rows, size), "k": (keys, size), "v": (keys, width)}
    q, k, v = (
        b.add(
            Transpose((0, 2, 1, 3)),
            b.add(Reshape((1, n, 2, w)), b.input(x, TensorType(f32, (1, n, 2 * w)))),
        )
        for x, (n, w) in shapes.items()
    )
    scores = b.add(MatMul(transpose_b=True), q, k)
    scores = b.add(Add(), scores, b.input("mask", TensorType(f32, (1, 1, 1, keys))))
    y = b.add(MatMul(), b.add(Softmax(-1), scores), v)
    return b.finish([b.add(Reshape((1, rows, 2 * width)), b.add(Transpose((0, 2, 1, 3)), y))])


def arrays(graph: Graph, seed: int) -> list[np.ndarray]:
    """Inputs; a mask of bools allows the first keys, as many as chance has it, and in the second
    row none.
    """
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for v in graph.inputs:
        shape = v.type.static_shape
        if v.dtype.is_bool:
            rows, keys = shape
            allowed = np.arange(keys) <= rng.integers(0, keys, (rows, 1))
            allowed[1] = False
            found.append(allowed)
        else:
            found.append(rng.standard_normal(shape).astype(np.float32))
    return found


def check(graph: Graph, gpu: Target = GPU, seed: int = 0) -> Func:
    """Compare the kernel of a whole graph with the reference."""
    func = RULES.lower_group(graph, gpu, "k")
    given = arrays(graph, seed)
    (wanted,) = evaluate(graph, given).values()
    found = np.full_like(wanted, np.inf)
    interpret(func, [*given, found])
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    return func


def check_one_launch(func: Func) -> None:
    assert len(launches(func)) == 1
    assert not any(isinstance(s, Allocate) and s.buffer.scope == "heap" for s in walk(func.body))


def is_in_chunks(func: Func) -> bool:
    names = {s.buffer.name for s in walk(func.body) if isinstance(s, Allocate)}
    return "running" in names


@pytest.mark.parametrize(
    ("graph", "gpu", "threads", "blocks"),
    [
        (attention((2, 32, 16), 64, 16), GPU, (16, 8, 1), 4),
        (attention((2, 37, 20), 50, 13, mask=True), GPU, (16, 8, 1), 5),
        (attention((1, 2, 9, 33), 41, 70, added=True), GPU, (16, 8, 1), 2),
        (attention((64, 16), 20, 48), units(1), (8, 16, 1), 2),
        (attention((63, 24), 65, 40, True, True, turned=True), units(1), (8, 16, 1), 2),
    ],
    ids=["even", "tails and a mask", "few rows, a wide result", "tall tiles", "keys turned"],
)
def test_one_launch(graph: Graph, gpu: Target, threads: tuple[int, int, int], blocks: int):
    func = check(graph, gpu)
    check_one_launch(func)
    assert not is_in_chunks(func)
    (launch,) = launches(func)
    assert launch.threads == threads and launch.blocks[0] is const(blocks)


SMALL = small(10 << 10)


@pytest.mark.parametrize(
    ("graph", "gpu"),
    [
        (attention((2, 16, 16), 320, 16), SMALL),
        (attention((2, 21, 20), 290, 13, mask=True), SMALL),
        (attention((1, 2, 9, 33), 291, 30, added=True), SMALL),
        (attention((19, 24), 300, 40, True, True, turned=True), SMALL),
        (attention((1, 40, 20), 440, 13, mask=True), units(1, small(18 << 10))),
        (fused(heads((1, 4, 13), (2, 290), mask=bool_)), SMALL),
        (fused(heads((1, 2, 16), (2, 300), causal=True)), SMALL),
        (fused(heads((1, 1, 18), (1, 330), causal=True, mask=f32)), SMALL),
    ],
    ids=[
        "even", "tails and a mask", "a result of two sums", "keys turned", "tall tiles",
        "shared heads, and no key is allowed", "causal", "causal, and a mask",
    ],
)  # fmt: skip
def test_keys_in_chunks(graph: Graph, gpu: Target):
    """Rows of scores that do not fit shared memory: one launch, without scores in memory."""
    func = check(graph, gpu)
    check_one_launch(func)
    assert is_in_chunks(func)


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(seed: int):
    rng = np.random.default_rng(seed)
    lead = tuple(int(n) for n in rng.integers(1, 3, int(rng.integers(0, 3))))
    rows, size, keys, width = (int(rng.integers(*x)) for x in ((8, 24), (1, 40), (8, 320), (1, 40)))
    flags = [bool(n) for n in rng.integers(0, 2, 3)]
    memory, number = int(rng.integers(7, 14)) << 10, int(rng.choice([1, 16, 100]))
    print(f"seed {seed}: {lead} {rows} {size} {keys} {width} {flags} {memory} {number}")
    graph = attention((*lead, rows, size), keys, width, *flags)
    check(graph, units(number, small(memory)), seed)


@pytest.mark.parametrize("width", [32, 24, 20])
@pytest.mark.parametrize("keys", [70, 300], ids=["whole rows", "in chunks"])
def test_joined_heads(keys: int, width: int):
    """Tiles are those of a head: 16 or 8 threads have the same number of columns."""
    func = check(fused(joined(24, keys, 16, width)), SMALL)
    if width % 8:
        assert len(launches(func)) > 1
    else:
        check_one_launch(func)
        assert is_in_chunks(func) == (keys == 300)
        assert launches(func)[0].threads[0] == (8 if width % 16 else 16)


def test_a_row_without_keys_that_is_zero():
    """As ONNX has it: the rows of a softmax are replaced where the mask allows nothing."""
    b = Builder("zero")
    q, k = b.input("q", TensorType(f32, (20, 16))), b.input("k", TensorType(f32, (300, 16)))
    v = b.input("v", TensorType(f32, (300, 16)))
    mask = b.input("mask", TensorType(bool_, (20, 300)))
    lowest, zero = (b.constant(np.float32(n)) for n in (-np.inf, 0))
    scores = b.add(Where(), mask, b.add(MatMul(transpose_b=True), q, k), lowest)
    nothing = b.add(Equal(), b.add(ReduceMax((1,), True), scores), lowest)
    weights = b.add(Where(), nothing, zero, b.add(Softmax(-1), scores))
    body = fused(b.finish([b.add(MatMul(), weights, v)]))
    func = check(body, SMALL)
    check_one_launch(func)
    assert is_in_chunks(func)


@pytest.mark.parametrize(
    ("graph", "chunks"),
    [
        (heads((1, 12, 128), (12, 128), 64), False),
        (heads((1, 12, 384), (12, 384), 64), False),
        (heads((1, 12, 512), (12, 512), 64, causal=True), True),
        (heads((1, 12, 2048), (12, 2048), 64), True),
        (heads((1, 12, 2048), (4, 2048), 128, causal=True), True),
        (joined(384, 384, 64, 64), False),
        (joined(1024, 1024, 40, 40), True),
    ],
    ids=["128", "384", "512 causal", "2048", "2048 causal", "joined", "joined, 8 threads"],
)
def test_memory_accesses(graph: Graph, chunks: bool):
    """Global accesses are coalesced, and no banks are in each other's way."""
    func = RULES.lower_group(fused(graph), CUDA, "k")
    check_one_launch(func)
    assert is_in_chunks(func) == chunks
    (counts,) = counts_of(func, CUDA)
    assert (counts.uncoalesced, counts.bank_conflicts, counts.unknown) == (0, 0, 0)


def test_long_rows_that_are_no_softmax():
    """Their reductions can't be combined, so scores lie in global memory."""
    b = Builder("sums")
    q, k = b.input("q", TensorType(f32, (8, 8))), b.input("k", TensorType(f32, (600, 8)))
    v = b.input("v", TensorType(f32, (600, 8)))
    e = b.add(Exp(), b.add(MatMul(transpose_b=True), q, k))
    graph = b.finish([b.add(MatMul(), b.add(Div(), e, b.add(ReduceSum((-1,), True), e)), v)])
    assert len(launches(RULES.lower_group(graph, SMALL, "k"))) > 1
    check_one_launch(check(graph, small(48 << 10)))


def test_other_products_are_not_joined():
    """One query and three keys are too few; matrix instructions take products of halves."""
    assert len(launches(RULES.lower_group(attention((4, 1, 16), 64, 16), GPU, "k"))) > 1
    assert len(launches(check(attention((2, 9, 16), 3, 16)))) > 1
    halves = attention((2, 64, 32), 64, 32, low=f16)
    assert "tensor mma_f16_t" in str(RULES.lower_group(halves, target("cuda-sm_80"), "k"))
