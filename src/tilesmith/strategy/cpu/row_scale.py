"""Row scales moved from operands to results: sum_k(p[m, k] * s[m] * v[k, n]) = s[m] * sum_k(p[m, k]
* v[k, n]).

A softmax divides each row by its sum.  If only a contraction reads the rows, it is less work to
divide the rows of the contraction's result.  This also saves a pass over the rows.
"""

from __future__ import annotations

from tilesmith.ir.expr import Binary, Const, Expr, Load, Var, index_of, same
from tilesmith.ops.structure import product_of_loads
from tilesmith.strategy.group import Group
from tilesmith.te.rewrite import map_loads
from tilesmith.te.tensor import Compute, Reduce, Tensor


def scale_results(group: Group, contraction: Compute) -> Group:
    """`group` with the row scale of a factor of `contraction` moved to the result of `contraction`.

    The group is unchanged if there is no such scale.  It is also unchanged if the result's type is
    narrower than that of the sums (16-bit floats), because an unscaled result might overflow.
    """
    scaling = _scaled_factor(group, contraction)
    if scaling is None:
        return group
    factor, product, rows, scale = scaling
    body = contraction.body[0]
    assert isinstance(body, Reduce)
    axes = contraction.axis

    def unscaled(load: Load) -> Expr:
        return Load(rows.buffer, load.indices) if load is factor else load

    sources = map_loads(body.sources, unscaled)
    plain = Compute(
        contraction.name,
        axes,
        (Reduce(body.reducer, sources, body.axes, body.index),),
        contraction.reduce_axis,
    )
    own = dict(zip((a.var for a in product.op.axis), factor.indices, strict=True))  # type: ignore[union-attr]
    place = tuple(own[i] if isinstance(i, Var) else i for i in scale.indices)
    whole = plain.outputs[0][tuple(a.var for a in axes)]
    operation = product.op.body[0]  # type: ignore[union-attr]
    assert isinstance(operation, Binary)
    scaled = Compute("scaled", axes, (Binary(operation.op, whole, Load(scale.buffer, place)),), ())
    return group.with_tensor(contraction.outputs[0], scaled.outputs[0])


def _scaled_factor(group: Group, contraction: Compute) -> tuple[Load, Tensor, Load, Load] | None:
    """A factor of `contraction` that is a product or quotient of rows and a scale.  The scale is
    constant in the sum.  Returns (load of the factor, its tensor, load of the rows, load of the
    scale), or None if there is no such factor.
    """
    factors = product_of_loads(contraction)
    assert factors is not None
    (k,) = contraction.reduce_axis if len(contraction.reduce_axis) == 1 else (None,)
    if k is None:
        return None
    for factor in factors:
        product = factor.buffer
        if not isinstance(product, Tensor) or not isinstance(product.op, Compute):
            continue
        operation = product.op.body[0]
        if not isinstance(operation, Binary) or operation.op not in ("mul", "div"):
            continue
        if not isinstance(operation.a, Load) or not isinstance(operation.b, Load):
            continue
        if len(group.consumers(product.op)) != 1 or k.var not in set(factor.indices):
            continue
        # The sum has a wider type than the result.
        if product.dtype is not contraction.outputs[0].dtype:
            continue
        own = tuple(a.var for a in product.op.axis)
        summed = own[index_of(factor.indices, k.var)]
        for rows, scale in ((operation.a, operation.b), (operation.b, operation.a)):
            constant = all(
                isinstance(i, Const) or (i in set(own) and i is not summed) for i in scale.indices
            )
            first = rows is operation.a or operation.op == "mul"
            if first and constant and same(rows.indices, own):
                return factor, product, rows, scale
    return None
