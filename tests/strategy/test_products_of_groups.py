"""The product and the attention that a group of tensor expressions computes."""

from __future__ import annotations

import pytest

from tilesmith import te
from tilesmith.codegen.targets import target
from tilesmith.ir.layout import Layout
from tilesmith.ops.structure import stages
from tilesmith.strategy.attention import attention_in
from tilesmith.strategy.cpu.product import product_of
from tilesmith.strategy.group import Group
from tilesmith.te.tensor import Tensor


def group_of(*outputs: Tensor, **layouts: str) -> Group:
    made = stages(outputs)
    named = {t.name: t for op in made for t in (*op.inputs, *op.outputs)}
    inputs = tuple(t for t in named.values() if isinstance(t.op, te.Placeholder))
    return Group(inputs, outputs, made, {named[n]: Layout.parse(x) for n, x in layouts.items()})


def matmul(a: Tensor, b: Tensor, name: str) -> Tensor:
    k = te.reduce_axis(a.shape[-1], "k")
    shape = (*a.shape[:-1], b.shape[-1])
    return te.compute(shape, lambda *i: te.sum(a[(*i[:-1], k)] * b[k, i[-1]], axis=k), name)


def rectified(x: Tensor) -> Tensor:
    return te.compute(x.shape, lambda *i: te.maximum(x[i], 0.0), "relu", list("xyz"[: x.rank]))


def operands() -> tuple[Tensor, Tensor]:
    return te.placeholder((2, 24, 8), name="a"), te.placeholder((8, 40), name="b")


def test_a_product_knows_its_rows_columns_and_epilogue() -> None:
    y = matmul(*operands(), "y")
    z = rectified(y)
    product = product_of(group_of(z), target("x86-64-v3"))
    assert product is not None
    assert (product.rows, product.columns, product.lanes) == (48, 40, 8)  # both axes are one loop
    assert (product.row_at, product.vector_at) == ([0, 1], 2)
    assert product.sums is y.op and product.epilogue == (z.op,)


def test_rows_apart_in_memory_are_no_run() -> None:
    z = rectified(matmul(*operands(), "y"))
    product = product_of(group_of(z, relu="1 0 2"), target("x86-64-v3"))
    assert product is not None and (product.rows, product.row_at) == (24, [1])


def test_a_group_with_another_result_is_no_product() -> None:
    y = matmul(*operands(), "y")
    turned = te.compute((40, 2, 24), lambda i, j, k: y[j, k, i], "turned")
    assert product_of(group_of(turned), target("x86-64-v3")) is None
    assert product_of(group_of(y, rectified(y)), target("x86-64-v3")) is None


@pytest.mark.parametrize("by_rows", [True, False])
def test_an_attention_has_reductions_of_rows_between_its_products(by_rows: bool) -> None:
    q, k = te.placeholder((6, 8), name="q"), te.placeholder((8, 10), name="k")
    v, n = te.placeholder((10, 4), name="v"), te.reduce_axis(10, "n")
    scores = matmul(q, k, "scores")
    scaled = te.compute((6, 10), lambda i, j: scores[i, j] * 0.5, "scaled")
    most = te.compute((6,), lambda i: te.max(scaled[i, n], axis=n), "most")
    shifted = te.compute((6, 10), lambda i, j: scaled[i, j] - most[i], "shifted")
    y = rectified(matmul(shifted if by_rows else scaled, v, "y"))
    attention = attention_in(group_of(y))
    assert (attention is not None) == by_rows
    if attention is not None:
        assert attention.logits is scaled.op and attention.rows == (most.op,)
        assert [op.name for op in attention.chain] == ["scaled", "most", "shifted"]
        assert attention.epilogue == (y.op,)
