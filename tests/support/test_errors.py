"""Messages quote what users give, however long that is."""

from __future__ import annotations

import pickle

from tilesmith.support.errors import ModelError, UsageError, brief


def test_the_middle_of_a_long_word_is_left_out() -> None:
    said = str(UsageError(f"unknown target '{'a' * 100_000}'; targets are native, c"))
    assert len(said) < 300
    assert said.startswith("unknown target 'aaa") and said.endswith("aaa'; targets are native, c")
    assert "... (99803 more letters) ..." in said


def test_the_middle_of_a_long_line_is_left_out() -> None:
    said = str(ModelError(f"expected a list, found {' + '.join(['n'] * 100_000)}\nsee the guide"))
    assert len(said) < 1300
    assert said.startswith("expected a list, found n + n") and said.endswith("n\nsee the guide")


def test_a_value_is_bounded_where_other_words_follow() -> None:
    value = "[" + ", ".join(["*"] * 1000) + "]"
    assert len(brief(value)) < 250 and brief(value).endswith("*]")
    assert brief("[*, *]") == "[*, *]"


def test_other_messages_stay_as_they_are() -> None:
    words = "\n".join(["word" * 100 + " word" * 100] * 100)
    assert str(ModelError(words)) == words
    again = pickle.loads(pickle.dumps(ModelError("no input", 3)))
    assert again.args == ("no input", 3)
