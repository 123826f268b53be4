"""Whatever legal steps are applied, the answer is the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilesmith as ts
from tilesmith import te
from tilesmith.loop.interpret import interpret
from tilesmith.loop.verify import verify
from tilesmith.support.errors import ScheduleError

from .families import FAMILIES, Family
from .random_schedule import pasted, random_steps


def answers(family: Family, func, data: list[np.ndarray]) -> list[np.ndarray]:
    outputs = [
        np.full(t.shape, np.nan if t.dtype.is_float else -9, t.dtype.numpy) for t in family.outputs
    ]
    interpret(func, [*(d.copy() for d in data), *outputs])
    return outputs


def compare(family: Family, s: te.Schedule, found: list[np.ndarray]) -> None:
    for got, want in zip(found, family.reference(*family.data(seed=1)), strict=True):
        if family.exact:
            np.testing.assert_array_equal(got, want, err_msg=s.text())
        else:
            np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=s.text())


def check(family: Family, s: te.Schedule) -> None:
    func = te.lower(s, [*family.inputs, *family.outputs])
    verify(func, "nest")
    compare(family, s, answers(family, func, family.data(seed=1)))


def check_native(family: Family, s: te.Schedule, target: str) -> None:
    outputs = [np.zeros(t.shape, t.dtype.numpy) for t in family.outputs]
    function = ts.build(s, [*family.inputs, *family.outputs], target=target, threads=2)
    function(*family.data(seed=1), *outputs)
    compare(family, s, outputs)


@pytest.mark.parametrize("name", FAMILIES)
def test_unscheduled(name: str) -> None:
    family = FAMILIES[name]()
    check(family, te.create_schedule(family.ops))


@pytest.mark.parametrize("name", FAMILIES)
@settings(
    max_examples=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_random_schedules_keep_the_answer(name: str, data: st.DataObject) -> None:
    family = FAMILIES[name]()
    s = te.create_schedule(family.ops)
    random_steps(
        s, lambda options: data.draw(st.sampled_from(list(options))), data.draw(st.integers(1, 14))
    )
    again = te.Schedule.from_json(family.ops, s.to_json())
    assert again.steps == s.steps
    assert again.hash() == s.hash()
    assert pasted(s).steps == s.steps
    try:
        check(family, again)
    except ScheduleError:
        return  # refused at lowering, as allowed for what only regions can show


@pytest.mark.parametrize("name", FAMILIES)
@settings(
    max_examples=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_random_schedules_keep_the_answer_of_machine_code(name: str, data: st.DataObject) -> None:
    family = FAMILIES[name]()
    s = te.create_schedule(family.ops)
    random_steps(
        s, lambda options: data.draw(st.sampled_from(list(options))), data.draw(st.integers(1, 14))
    )
    try:
        check_native(family, s, data.draw(st.sampled_from(["native", "x86-64", "x86-64-v3"])))
    except ScheduleError:
        return


@pytest.mark.parametrize("name", FAMILIES)
def test_same_expression_same_hash(name: str) -> None:
    first, second = FAMILIES[name](), FAMILIES[name]()
    assert te.create_schedule(first.ops).hash() == te.create_schedule(second.ops).hash()
