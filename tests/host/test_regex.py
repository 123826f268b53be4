"""Regular expressions that match in linear time: as Python's, but for the time."""

from __future__ import annotations

import random
import re

import pytest

from tilesmith.host.regex import full_match
from tilesmith.support.errors import ModelError


def pattern(source: random.Random, depth: int) -> str:
    if depth == 0:
        return source.choice(("a", "b", "[ab]", "[^a]", ".", r"\d", r"\w", "ab", "1"))
    kind, one = source.random(), pattern(source, depth - 1)
    if kind < 0.35:
        return one + pattern(source, depth - 1)
    if kind < 0.55:
        return f"(?:{one}|{pattern(source, depth - 1)})"
    if kind < 0.9:
        return f"({one}){source.choice(('*', '+', '?', '{1,3}', '{2}', '*?', '{2,}'))}"
    return source.choice(("^", "$", r"\b", "")) + one


def test_random_patterns_match_as_in_python() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    source = random.Random(seed)
    for _ in range(400):
        made = source.choice(("", "(?i)")) + "(c*)*" + pattern(source, source.randint(1, 3))
        matches, known = full_match(made), re.compile(made)
        for _ in range(5):
            text = "".join(source.choice("abAB1 \n") for _ in range(source.randint(0, 7)))
            assert matches(text) == (known.fullmatch(text) is not None), (made, text)


@pytest.mark.parametrize("made", ["(a+)+b", "(a|a)*b", ".*.*.*.*.*x", "(a?){30}a{30}b", "(a*)*b"])
def test_nothing_takes_exponential_time(made: str) -> None:
    assert not full_match(made)("a" * 500)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("(", "expected a regular expression"),
        ("(" * 300 + "a" + ")*" * 300, "expected a regular expression"),
        ("(a{1000}){1000}(b*)*", "too large"),
        (r"(a)\1", "groupref"),
        ("(?>(a+)+b)", "atomic_group"),
    ],
)
def test_what_cannot_match_in_linear_time_is_refused(made: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        full_match(made)
