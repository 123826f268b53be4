"""Regular expressions that match in linear time: as Python's, but for the time."""

from __future__ import annotations

import random
import re

import pytest

from tilesmith.host_functions.regex import ascii_table, full_match
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


def test_tables_match_as_in_python() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    source = random.Random(seed)
    count = 0
    for _ in range(150):
        made = source.choice(("", "(?s)")) + pattern(source, source.randint(1, 3))
        known, found = re.compile(made), ascii_table(made)
        if found is None:
            continue
        count += 1
        table, accepts = found
        assert len(table) == 128 * len(accepts)
        for _ in range(20):
            text = "".join(source.choice("abAB1 \n") for _ in range(source.randint(0, 7)))
            state = 0
            for c in text:
                state = table[128 * state + ord(c)] if state != 255 else state
            is_match = state != 255 and bool(accepts[state])
            assert is_match == (known.fullmatch(text) is not None), (made, text)
    assert count > 20


def test_patterns_without_a_table() -> None:
    assert ascii_table("^a") is None and ascii_table(r"a\b") is None
    assert ascii_table("(?i)a") is None and ascii_table("(?i:a)") is None
    assert ascii_table("a{200}") is None and ascii_table("(a|b)*a(a|b){20}") is None
    assert ascii_table("(a") is None and ascii_table(r"(a)\1") is None


@pytest.mark.parametrize("made", ["(){4000000000}a", "(?:(a{0}){2000000000}()){2000000000}a"])
def test_repetitions_of_nothing_take_no_time(made: str) -> None:
    matches = full_match(made)
    assert ascii_table(made) is not None
    assert matches("a") and not matches("") and not matches("ä") and not matches("aa")


@pytest.mark.parametrize("made", ["(a+)+b", "(a|a)*b", ".*.*.*.*.*x", "(a?){30}a{30}b", "(a*)*b"])
def test_nothing_takes_exponential_time(made: str) -> None:
    assert not full_match(made)("a" * 500)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("(", "expected a regular expression"),
        ("(" * 300 + "a" + ")*" * 300, "expected a regular expression"),
        ("(a{1000}){1000}(b*)*", "too large"),
        ("(?:(^){9999999}){999}a", "too large"),
        (r"(a)\1", "groupref"),
        ("(?>(a+)+b)", "atomic_group"),
    ],
)
def test_what_cannot_match_in_linear_time_is_refused(made: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        full_match(made)
