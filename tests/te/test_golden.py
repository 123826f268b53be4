"""The loops that each primitive makes, as text; `--update-golden` rewrites them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilesmith import te
from tilesmith.loop.text import print_func

from .examples import EXAMPLES, Example, padded_window, scan
from .random_schedule import pasted


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.__name__)
def test_loops(example: Example, golden: Callable[[str], None]) -> None:
    s, args = example()
    steps = "".join(f"# {line}\n" for line in s.text().splitlines())
    loops = print_func(te.lower(s, args, example.__name__))
    golden(steps + loops)
    assert print_func(te.lower(pasted(s), args, example.__name__)) == loops


@pytest.mark.parametrize("example", [padded_window, scan], ids=lambda e: e.__name__)
def test_expression(example: Example, golden: Callable[[str], None]) -> None:
    s, _ = example()
    golden(te.print_ops(s.ops))
