"""Recognition of attention in tensor expressions: two matrix products with row reductions between
them.

scores = q * k
logits = scale and mask, for each score
most, total = reductions of rows of the logits
y = f(logits, most, total) * v
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.te.tensor import Compute

from .group import Group, upstream


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """The stages of an attention.  Each tuple lists producers before their readers.

    scores: the first product.
    logits: the stage that the row reductions read.  It is `scores`, or computes a function of each
        score.
    chain: the stages between the products.  They include `logits`, unless `logits` is `scores`.
    values: the second product.
    epilogue: the stages after the second product.
    """

    scores: Compute
    logits: Compute
    chain: tuple[Compute, ...]
    values: Compute
    epilogue: tuple[Compute, ...]

    @property
    def rows(self) -> tuple[Compute, ...]:
        """The row reductions."""
        return tuple(st for st in self.chain if st.reduce_axis)


def attention_in(group: Group) -> Attention | None:
    """The attention that a group computes; None if it computes something else."""
    if len(group.products) != 2:
        return None
    scores, values = group.products
    after = [st for st in group.stages if scores in upstream(st)]
    epilogue = tuple(st for st in after if values in upstream(st))
    chain = tuple(st for st in after if st is not values and st not in epilogue)
    logits = scores
    while len(readers := group.consumers(logits)) == 1 and readers[0] in chain:
        if readers[0].reduce_axis:
            break
        (logits,) = readers
    attention = Attention(scores, logits, chain, values, epilogue)
    return attention if values in after and attention.rows else None
