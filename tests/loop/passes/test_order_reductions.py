from __future__ import annotations

from tilesmith.loop.parse import parse_func
from tilesmith.loop.passes.order_reductions import order_reductions
from tilesmith.loop.text import print_func

TEXT = """\
def main(x: f32[4, 8], s: f32[4], y: f32[4, 8]) -> s, y:
    for i in range(4):
        for k in vectorized(8):
            s[i] = s[i] + x[i, k]
        for j in vectorized(8):
            y[i, j] = y[i, j] + x[i, j]
    for l in vectorized(4):
        for m in range(8):
            s[l] = max(s[l], x[l, m])
"""


def test_loops_that_update_one_element_are_unrolled() -> None:
    func = order_reductions(parse_func(TEXT))
    assert print_func(func) == TEXT.replace("k in vectorized", "k in unrolled")
    assert order_reductions(func) is func
