"""A rule that meets a step it can't apply gives way to the next one, and the log says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from tilesmith.driver.places import target_of
from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.passes.fuse import fuse
from tilesmith.ir.dtypes import f32
from tilesmith.ir.target import Target
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.ops.activation import Relu
from tilesmith.ops.matmul import MatMul
from tilesmith.ops.shape import Reshape, Transpose
from tilesmith.strategy import attempts
from tilesmith.strategy.cpu import expressions, lower_by_rule, lower_scheduled
from tilesmith.strategy.group import Group
from tilesmith.support.errors import ScheduleError
from tilesmith.support.options import Options
from tilesmith.te.knobs import ANALYTIC, Config
from tilesmith.te.schedule import Schedule


def relu() -> Graph:
    b = Builder("relu")
    return b.finish(b.add(Relu(), b.input("x", TensorType(f32, (4, 5)))))


def _fails(cfg: Config) -> tuple[Schedule, Group] | None:
    raise ScheduleError("these loops are no neighbours")


def _fails_if_decided(cfg: Config, group: Group) -> tuple[Schedule, Group]:
    if cfg.chosen:
        raise ScheduleError("no such factor")
    return group.schedule(), group


def test_the_next_rule_serves_where_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    body = relu()
    group = expressions(body)
    rules = (
        ("tiles", _fails),
        ("nothing like this", lambda cfg: None),
        ("loops", lambda cfg: (group.schedule(), group)),
    )
    with caplog.at_level(logging.INFO, "tilesmith.schedule"):
        found = list(attempts.schedules(rules, body, ANALYTIC))
    assert [g for _, g in found] == [group]
    assert [r.getMessage() for r in caplog.records] == [
        "relu: the rule for tiles does not fit: these loops are no neighbours"
    ]


def test_impossible_decisions_are_reported() -> None:
    body = relu()
    group = expressions(body)
    rules = (
        ("tiles", partial(_fails_if_decided, group=group)),
        ("loops", lambda cfg: (group.schedule(), group)),
    )
    with pytest.raises(ScheduleError, match="no such factor"):
        next(attempts.schedules(rules, body, Config({"factor": 3})))
    # the same decisions are about the second rule where the first one never fits
    found = attempts.schedules((("tiles", _fails), *rules[1:]), body, Config({"factor": 3}))
    assert next(found)[1] is group


def test_a_schedule_that_cant_be_lowered_gives_way(caplog: pytest.LogCaptureFixture) -> None:
    body = relu()
    target = target_of(Options())
    group = expressions(body)
    first, second = group.schedule(), group.schedule()

    def lowered(s: Schedule, g: Group):
        if s is first:
            raise ScheduleError("not there")
        return lower_scheduled(s, g, target, "k")

    both = [(first, group), (second, group)]
    with caplog.at_level(logging.INFO, "tilesmith.schedule"):
        func = attempts.first_lowered(both, lowered, body, ANALYTIC)
    assert "relu: a schedule can't be carried out: not there" in caplog.text
    x = np.random.default_rng(0).standard_normal((4, 5)).astype("f")
    y = np.empty_like(x)
    interpret(func, [x, y])
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    with pytest.raises(ScheduleError, match="not there"):
        attempts.first_lowered(both, lowered, body, Config({"factor": 3}))


def _product(m: int, k: int, n: int, moved: tuple[str, ...]) -> Graph:
    """x @ f(w): `w` is an input whose dimensions are moved to (k, n)."""
    b = Builder("p")
    x = b.input("x", TensorType(f32, (m, k)))
    shape = (n, k) if "transpose" in moved else (k, n)
    w = b.input("w", TensorType(f32, (1, *shape) if "reshape" in moved else shape))
    for step in moved:
        w = b.add(Reshape(shape), w) if step == "reshape" else b.add(Transpose((1, 0)), w)
    return b.finish(b.add(MatMul(), x, w))


def _groups(graph: Graph) -> Iterator[Graph]:
    return (n.op.body for n in fuse(graph).nodes if isinstance(n.op, Fused))


@pytest.mark.parametrize("target", ("x86-64", "x86-64-v3", "native"))
@pytest.mark.parametrize("moved", (("reshape",), ("transpose",), ("reshape", "transpose")))
def test_products_with_moved_operands_have_a_rule(
    target: str, moved: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    machine: Target = target_of(Options(target=target))
    with caplog.at_level(logging.INFO, "tilesmith.schedule"):
        for m, k, n in ((1, 5, 6), (3, 4, 12), (2, 8, 24), (4, 64, 64), (33, 64, 48)):
            for body in _groups(_product(m, k, n, moved)):
                lower_by_rule(body, machine, "k")
    assert not caplog.records, caplog.text
