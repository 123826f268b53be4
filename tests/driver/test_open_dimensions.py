"""Every operator with all of its dimensions open, at two sizes each: a share of the cases of
`python -m benchmarks.open_sizes`, drawn anew in each run.

A case is right, or refused as the table `benchmarks/open_sizes/refused.txt` says.  The environment
variable TILESMITH_OPEN_SIZES says how many cases of each family are run; "all": those of the table.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from open_sizes import table
from open_sizes.outcome import APART, CRASHED, PART, REFUSED, WRONG, outcome_of
from open_sizes.sizes import freedom, remade
from tilesmith.support.errors import InternalError, ModelError

SHARES = {"operators": 12, "nodes": 4, "programs": 2}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", table.FAMILIES)
def test_every_operator_with_open_dimensions(family: str) -> None:
    if family == "programs":
        pytest.importorskip("torch")
        pytest.importorskip("expecttest")  # what PyTorch's own samples need
    cases, known = table.family(family), table.read()
    wanted = os.environ.get("TILESMITH_OPEN_SIZES", str(SHARES[family]))
    seed = random.randrange(1 << 30)
    print("seed", seed)
    names = sorted(cases.listed())
    if wanted != "all":
        names = random.Random(seed).sample(names, int(wanted))
    found = {n: (table.shown(o), o) for n, o in table.lines_of(cases, names)}
    assert not {n: o for n, (_, o) in found.items() if table.is_defect(o)}
    assert {n: line for n, (line, _) in found.items()} == {
        n: known.get((family, n), "") for n in names
    }


def test_the_table_holds_refusals_alone() -> None:
    """No case in it is wrong or crashes."""
    rows = table.read()
    assert {kind for kind, _ in rows} == {*table.FAMILIES}
    for row, line in rows.items():
        results = [part.split(":")[0].split()[-1] for part in line.split(" | ")]
        assert {*results} <= {REFUSED, PART, APART}, (row, line)


def test_dimensions_that_change_together() -> None:
    """Of a product [a, b] x [b, c]: b has one size; a split in pairs stays even."""

    def product(shapes):
        (_, b), (d, _) = shapes
        return b == d

    found = freedom(((2, 3), (3, 5)), product)
    names = [[found.name((i, a)) for a in range(2)] for i in range(2)]
    assert names[0][1] == names[1][0] and len({*names[0], *names[1]}) == 3
    assert product(found.others) and all(
        n != m for s, t in zip(found.others, found.shapes, strict=True) for n, m in zip(s, t)
    )
    assert freedom(((4,),), lambda s: s[0][0] % 2 == 0).others == ((6,),)
    fixed = freedom(((4, 2),), lambda s: s[0][0] == 4)
    assert fixed.name((0, 0)) is None and fixed.others[0][0] == 4 != fixed.others[0][1]


def test_arrays_of_other_sizes() -> None:
    rng = np.random.default_rng(0)
    made = remade(np.array([0.5, 2.5], np.float32), (9,), rng)
    assert made.shape == (9,) and (made[1:] >= made[:-1]).all() and made.max() <= 2.5
    assert remade(np.array([3, 1, 2]), (5,), rng).tolist() == [3, 1, 2, 3, 1]


def test_what_an_error_means() -> None:
    assert outcome_of(ModelError("axis 0 is open"), "compiling").result == REFUSED
    assert outcome_of(InternalError("a pass failed"), "compiling").result == CRASHED
    hidden = ModelError("node 'y': ExpressionError: n has no truth value")
    assert outcome_of(hidden, "compiling").result == CRASHED
    assert outcome_of(AssertionError("not equal"), "sizes [3]").result == WRONG
