"""Arguments of public functions are checked against their annotations."""

from __future__ import annotations

import io
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pytest

from tilesmith.support.arguments import check_fields, checked, checked_methods, shown
from tilesmith.support.errors import UsageError


@checked(UsageError)
def function(
    n: int,
    sizes: Sequence[int] = (),
    *names: str,
    path: str | Path | IO[bytes] | None = None,
    share: float | None = None,
    on: bool = False,
    call: Callable[..., Any] | None = None,
    given: Mapping[str, int] | None = None,
    mode: Literal["a", "b"] = "a",
    things: Iterable[str] = (),
    pair: tuple[int, str] = (0, ""),
    anything: Any = None,
) -> Any:
    return n, sizes, names, path, share, on, call, given, mode, things, anything


GOOD: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, [2, 3], "x", "y"), {}),
    ((1, (2,)), {"path": Path("p"), "share": 2, "on": True, "call": len}),
    ((1, range(3)), {"given": {"a": 1}, "mode": "no such", "things": {"a"}}),
    ((1,), {"things": {"x": 1}.keys(), "anything": object(), "path": "p"}),
]


@pytest.mark.parametrize(("args", "named"), GOOD)
def test_what_annotations_say_passes_as_it_is(args, named):
    function_itself = function.__wrapped__
    assert function(*args, **named) == function_itself(*args, **named)


def test_numbers_of_numpy_become_those_of_python():
    n, sizes, *_, on, _, given, _, _, _ = function(
        np.int64(3), [np.int8(2), 1], on=np.bool_(True), given={"a": np.uint8(4)}
    )
    assert (n, sizes, on, given) == (3, [2, 1], True, {"a": 4})
    assert type(n) is int and type(sizes[0]) is int and on is True and type(given["a"]) is int


BAD: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("1",), {}, "function: n: expected an integer, found '1'"),
    ((True,), {}, "n: expected an integer, found True"),
    ((1.0,), {}, "n: expected an integer, found 1.0"),
    ((np.ones(1),), {}, "n: expected an integer, found an object of class ndarray"),
    ((1, "ab"), {}, "sizes: expected a list of integers, found 'ab'"),
    ((1, [1, None]), {}, r"sizes\[1\]: expected an integer, found None"),
    ((1, [], 5), {}, "expected a string, found 5"),
    ((1,), {"path": 3}, "path: expected a path, a stream or None, found 3"),
    ((1,), {"path": "a\0b"}, "path: expected a path, a stream or None"),
    ((1,), {"share": "x"}, "share: expected a number or None, found 'x'"),
    ((1,), {"on": 1}, "on: expected True or False, found 1"),
    ((1,), {"call": 1}, "call: expected a function or None"),
    ((1,), {"given": [1]}, r"given: expected a mapping or None, found \[1\]"),
    ((1,), {"given": {"a": "b"}}, r"given\['a'\]: expected an integer, found 'b'"),
    ((1,), {"mode": 1}, "mode: expected a string, found 1"),
    ((1,), {"things": io.StringIO("a")}, "things: expected a list of strings, found an object"),
    ((1,), {"path": "a" * 5000}, "path: expected a path, a stream or None, found 'aaa"),
    ((1,), {"given": UserDict(a="b")}, r"given\['a'\]: expected an integer, found 'b'"),
    ((1,), {"pair": (1,)}, r"pair: expected a tuple of 2, found \(1,\)"),
    ((1,), {"pair": (1, 2)}, r"pair\[1\]: expected a string, found 2"),
    ((1,), {"things": "ab"}, "things: expected a list of strings, found 'ab'"),
]


@pytest.mark.parametrize(("args", "named", "message"), BAD)
def test_what_annotations_do_not_say_is_refused(args, named, message):
    with pytest.raises(UsageError, match=message):
        function(*args, **named)


def test_wrong_numbers_of_arguments_and_unknown_names_are_pythons_affair():
    for call in (lambda: function(), lambda: function(1, no_such=2)):
        with pytest.raises(TypeError, match="function"):
            call()


def test_fields_and_methods_are_checked():
    @checked_methods(UsageError)
    @dataclass(frozen=True)
    class Record:
        n: int

        def __post_init__(self) -> None:
            check_fields(self, UsageError)

        def more(self, by: int) -> int:
            return self.n + by

    assert type(Record(np.int32(3)).n) is int
    assert Record(3).more(np.int8(4)) == 7
    with pytest.raises(UsageError, match="Record: n: expected an integer, found 'x'"):
        Record("x")
    with pytest.raises(UsageError, match="more: by: expected an integer, found 'x'"):
        Record(3).more("x")


def repr_of_class(value: Any) -> str:
    return type(value).__name__


class _Failing:
    def __repr__(self) -> str:
        raise ValueError


def _in_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (1 << 200, "an integer of 201 bits"),
        ("a" * 1000, "'" + "a" * 80 + "...'"),
        ("a\nb", r"'a\nb'"),
        ([1, "x", None], "[1, 'x', None]"),
        ((1,), "(1,)"),
        (list(range(9)), "[0, 1, 2, 3, ...]"),
        ({"a": [[1]]}, "{'a': [[...]]}"),
        (set(), "set()"),
        (_in_itself(), "[[[...]]]"),
        (np.ones(3), "an object of class ndarray"),
        (_Failing(), "an object of class _Failing"),
        (int, "the class int"),
    ],
    ids=repr_of_class,
)
def test_values_are_shown_on_one_line(value, text):
    assert shown(value) == text


def test_an_integer_of_too_many_digits_is_shown():
    assert shown(10**5000) == "an integer of 16610 bits"


def test_text_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match=r"function: an argument: .*, found '\\ud800'"):
        function(1, (), "\ud800")
    assert function(1, (), "é")[2] == ("é",)
