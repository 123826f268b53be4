"""Every operator is complete: one definition, a meaning, types, documentation and cases in these
tests.
"""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import op_expressions
import pytest

from common.op_cases import CASES, Case, assert_close
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.ops.base import Op
from tilesmith.ops.doc import operators
from tilesmith.ops.eager import evaluate, infer
from tilesmith.ops.table import FAMILIES
from tilesmith.support.arrays import difference
from tilesmith.support.options import BOUNDS

OPERATORS = {c.name: c for m in FAMILIES for c in operators(m.__name__)}


def _types(arrays: list[np.ndarray]) -> list[TensorType]:
    return [TensorType(to_dtype(a.dtype), a.shape) for a in arrays]


def test_table_is_large() -> None:
    assert len(OPERATORS) > 120


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_operator_is_complete(name: str) -> None:
    cls = OPERATORS[name]
    assert cls.name == name
    assert dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    forms = (cls.is_primitive(), cls.is_composite(), cls.is_irregular())
    assert sum(forms) == 1, "one of compute, decompose and loops"
    assert cls.reference is not Op.reference
    if cls.is_irregular():
        assert cls.infer is not Op.infer
    doc = inspect.getdoc(cls)
    assert doc and not doc.startswith(f"{cls.__name__}("), "a docstring of its own"
    assert any(type(c.op) is cls for c in CASES), "a case in op_cases.py"
    hash(next(c.op for c in CASES if type(c.op) is cls))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_type_agrees_with_value(case: Case) -> None:
    arrays = case.arrays()
    types = infer(case.op, *_types(arrays))
    values = evaluate(case.op, *arrays)
    assert [str(t) for t in types] == [str(t) for t in _types(list(values))]


@pytest.mark.parametrize("case", [c for c in CASES if c.op.is_primitive()], ids=str)
def test_expression_agrees_with_reference(case: Case) -> None:
    arrays = case.arrays()
    tensors = case.op.tensors(*_types(arrays))
    found = op_expressions.evaluate(tensors.outputs, zip(tensors.inputs, arrays, strict=True))
    wanted = case.op.reference(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for f, w in zip(found, wanted, strict=True):
        assert_close(f, np.asarray(w))


@pytest.mark.parametrize("case", [c for c in CASES if c.op.is_composite()], ids=str)
def test_expansion_agrees_with_reference(case: Case) -> None:
    """The expansion rounds after each step, the reference once."""
    arrays = case.arrays()
    found = evaluate(case.op, *arrays)
    with np.errstate(all="ignore"):
        wanted = case.op.reference(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for f, w in zip(found, wanted, strict=True):
        assert (f.shape, f.dtype) == (w.shape, w.dtype)
        assert difference(f, w) <= BOUNDS["strict"].get(str(to_dtype(w.dtype)), 0.0)
