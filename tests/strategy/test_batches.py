"""Products whose batch is open have loops for the few rows that are expected, and for many."""

from __future__ import annotations

import numpy as np
import pytest

from tilesmith import driver
from tilesmith.driver.kernels import canonical
from tilesmith.driver.passes import optimise
from tilesmith.graph.builder import Builder
from tilesmith.graph.control import kernels_in
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.expr import Var, compare, free_vars
from tilesmith.ir.symbols import symbol
from tilesmith.ir.types import Dim, TensorType
from tilesmith.loop.nodes import Allocate, Buffer, For, Func, If, Stmt
from tilesmith.loop.text import print_func
from tilesmith.loop.visit import declared, own_exprs, walk
from tilesmith.ops.activation import Relu
from tilesmith.ops.conv import Conv
from tilesmith.ops.elementwise import Add
from tilesmith.ops.matmul import MatMul
from tilesmith.search_space.groups import lower_group
from tilesmith.strategy.cpu.versions import FEW, MANY, batch_versions
from tilesmith.strategy.versions import renamed
from tilesmith.support.options import Options
from tilesmith.te.knobs import Config

SESSION = driver.Session.of(Options())
SIZES = (1, 2, 3, 7, 8, 15, 16, 17, 31, MANY, MANY + 1, 1000)


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def _layer(batch: Dim, reduced: int, columns: int) -> Graph:
    b = Builder("g")
    x = b.input("x", TensorType(f32, (batch, reduced)))
    w = b.constant(_weights(reduced, columns), "w")
    c = b.constant(_weights(columns), "c")
    return b.finish([b.add(Relu(), b.add(Add(), b.add(MatMul(), x, w), c))], ["y"])


def _kernels(graph: Graph) -> list[Graph]:
    nodes = (n for _, n in kernels_in(optimise(graph, SESSION)))
    return [canonical(n.op.body) for n in nodes if isinstance(n.op, Fused)]


def _kernel(graph: Graph) -> Graph:
    (body,) = _kernels(graph)
    return body


def _nest(body: Graph, cfg: Config | None = None) -> Func:
    return lower_group(body, SESSION.target, SESSION.backend.rules, "k", cfg or Config())


@pytest.mark.parametrize(("reduced", "columns"), [(180, 3), (64, 1), (50, 10), (33, 40), (96, 130)])
@pytest.mark.parametrize("usual", [1, FEW])
def test_any_number_of_rows(reduced: int, columns: int, usual: int) -> None:
    graph = _layer(symbol("n", 1, expected=usual), reduced, columns)
    exe = driver.compile(graph, options=Options(use_cache=False))
    for n in SIZES:
        x = np.random.default_rng(n).standard_normal((n, reduced)).astype(np.float32)
        want = np.maximum(x @ _weights(reduced, columns) + _weights(columns), 0)
        np.testing.assert_allclose(exe.run({"x": x})["y"], want, rtol=1e-4, atol=1e-4)


def test_a_few_rows_and_tiles_of_many() -> None:
    body = _kernel(_layer(symbol("n", 1, expected=1), 180, 3))
    (batch,) = body.symbols
    func = _nest(body)
    assert isinstance(func.body, If)
    assert func.body.cond is compare("le", batch, 1)
    assert func.body.otherwise is not None
    few, many = (_allocated(s) for s in (func.body.then, func.body.otherwise))
    assert [b.shape[0] for b in few] == [1]
    assert all(b.scope == "register" for b in many)  # of constant size
    assert isinstance(many[0].shape[0], int)
    assert many[0].shape[0] > FEW


def test_each_kernel_has_one_variable_for_a_symbol() -> None:
    body = _kernel(_layer(symbol("n", 1, expected=1), 180, 3))
    (batch,) = body.symbols
    func = _nest(body)
    own = {v for s in walk(func.body) for v in _variables(s)}
    assert func.params[-1] is batch
    for s in walk(func.body):
        for e in own_exprs(s):
            assert free_vars(e) <= own | {batch}


def test_enough_rows_are_shared_among_threads() -> None:
    session = driver.Session.of(Options(threads=2))
    body = _kernel(_layer(symbol("n", 1, expected=1), 784, 300))
    func = lower_group(body, session.target, session.backend.rules, "k")
    assert isinstance(func.body, If)
    assert func.body.otherwise is not None
    assert any(isinstance(s, For) and s.kind == "parallel" for s in walk(func.body.otherwise))


def test_decisions_for_one_row_are_none_for_many() -> None:
    body = _kernel(_layer(symbol("n", 1, expected=1), 180, 3))
    func = _nest(body, Config({"rows": 1}))
    assert isinstance(func.body, If)
    assert func.body.otherwise is not None
    height = _allocated(func.body.otherwise)[0].shape[0]
    assert isinstance(height, int)
    assert height > FEW


@pytest.mark.parametrize(
    ("batch", "has_both"),
    [
        (symbol("n", 1, expected=1), True),
        (symbol("n", 0, expected=FEW), True),
        (symbol("n", 1, expected=128), False),
        (symbol("n", 1, FEW, 1), False),
        (8, False),
    ],
)
def test_only_small_expected_batches_need_both(batch: Dim, has_both: bool) -> None:
    assert (batch_versions(_kernel(_layer(batch, 20, 3))) is not None) == has_both


def test_pixels_are_rows_enough() -> None:
    b = Builder("g")
    x = b.input("x", TensorType(f32, (symbol("n", 1, expected=1), 8, 6, 6)))
    graph = b.finish([b.add(Conv(), x, b.constant(_weights(4, 8, 1, 1), "w"))], ["y"])
    bodies = _kernels(graph)
    assert bodies
    assert all(batch_versions(body) is None for body in bodies)


def test_a_short_range_ends_below_many() -> None:
    exe = driver.compile(_layer(symbol("n", 1, 9, 1), 20, 3), options=Options(use_cache=False))
    for n in (1, 2, 9):
        x = np.ones((n, 20), np.float32)
        want = np.maximum(x @ _weights(20, 3) + _weights(3), 0)
        np.testing.assert_allclose(exe.run({"x": x})["y"], want, rtol=1e-4, atol=1e-4)


def test_symbols_of_a_kernel_are_renamed_in_all_its_extents() -> None:
    func = _nest(_kernel(_layer(symbol("n", 1, expected=1), 20, 3)))
    (old,) = (p for p in func.params if isinstance(p, Var))
    new = symbol("size")
    found = renamed(func, {old: new})
    assert print_func(found) == print_func(func).replace(old.name, "size")
    assert all(old not in free_vars(e) for s in walk(found.body) for e in own_exprs(s))
    assert renamed(func, {}) is func


def _allocated(stmt: Stmt) -> list[Buffer]:
    return [s.buffer for s in walk(stmt) if isinstance(s, Allocate)]


def _variables(stmt: Stmt) -> list[Var]:
    return [v for v in declared(stmt) if isinstance(v, Var)]
