"""Regular expressions that match in time linear in the text, as RE2 does.

Python's `re` backtracks: on `(a+)+b` its time doubles with each letter of the text.  A model may
contain any pattern.  So a pattern that may backtrack much is matched by following all states of an
automaton at once (Thompson 1968).  The syntax tree comes from Python's parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from re import _constants as code  # type: ignore[attr-defined]  # the parser has no public name
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from tilesmith.support.errors import ModelError

Test = Callable[[str], bool]
"""Whether a character belongs to a set."""
Matcher = Callable[[str], object]
"""Matches a text as a whole: the result is neither None nor False if it matches."""

_MOST_STATES = 20_000
_MOST_TABLE_STATES = 64
_NONE = 255
"""Table entry for no next state: no text with this prefix matches."""
_SAFE_REPEATS = 2
"""Number of adjacent repetitions up to which backtracking takes at most quadratic time."""
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT)
_PLAIN = (code.LITERAL, code.NOT_LITERAL, code.IN, code.ANY, code.AT)
_CATEGORIES = {
    code.CATEGORY_DIGIT: r"\d", code.CATEGORY_NOT_DIGIT: r"\D", code.CATEGORY_SPACE: r"\s",
    code.CATEGORY_NOT_SPACE: r"\S", code.CATEGORY_WORD: r"\w", code.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def full_match(pattern: str) -> Matcher:
    """The predicate whether a whole text matches `pattern`.

    Raises ModelError for a pattern that is not a regular expression, or that needs backtracking.
    """
    try:
        compiled, tree = re.compile(pattern), parser.parse(pattern)
        if _variable_repeats(tree) <= _SAFE_REPEATS:
            return compiled.fullmatch
        automaton = _Automaton(compiled.flags)
        return automaton.matcher(automaton.sequence(tree, _ACCEPT))
    except (re.error, RecursionError, OverflowError) as e:
        raise ModelError(f"expected a regular expression, found {pattern!r} ({e})") from None


def ascii_table(pattern: str) -> tuple[bytes, bytes] | None:
    """A pattern's automaton on ASCII letters, as two tables.  The first holds the next state for
    each state and letter.  The second holds for each state whether a text that ends in this state
    matches.  State 0 is the start; `_NONE` is no state.

    None for patterns that have assertions, ignore case or lead to many states.
    """
    try:
        compiled, tree = re.compile(pattern), parser.parse(pattern)
        automaton = _Automaton(compiled.flags, _MOST_TABLE_STATES)
        first = automaton.sequence(tree, _ACCEPT)
    except (ModelError, re.error, RecursionError, OverflowError):
        return None
    if compiled.flags & re.IGNORECASE or automaton.places:
        return None
    return automaton.table(first)


def _variable_repeats(tree: Iterable[Any], inside: bool = False) -> float:
    """Number of the pattern's repetitions with a variable count.  Infinite if a repetition contains
    a choice or a variable count, and for patterns that RE2 lacks.
    """
    repeats = 0.0
    for op, arg in tree:
        if op in _REPEATS:
            low, high, body = arg
            varies = high != low
            if high != 1 and body.getwidth()[1] == 0:
                return float("inf")  # Python repeats even a part that only matches ""
            repeats += varies + _variable_repeats(body, inside or high != 1)
            if inside and varies:
                return float("inf")
        elif op is code.SUBPATTERN:
            repeats += _variable_repeats(arg[3], inside)
        elif op is code.BRANCH:
            repeats += float("inf") if inside else max(_variable_repeats(b) for b in arg[1])
        elif op not in _PLAIN:
            return float("inf")
    return repeats


_ACCEPT = 0


@dataclass(slots=True)
class _Automaton:
    """States by number; state 0 accepts.

    flags: flags of the pattern.
    most: upper bound on the states.
    tests: for each state, the characters that lead to its next states; None if the next states
        are reached without a character.
    after: the states that follow each state.
    places: for each state that is an assertion, the kind of position in the text that it requires.
    """

    flags: int
    most: int = _MOST_STATES
    tests: list[Test | None] = field(default_factory=lambda: [None])
    after: list[list[int]] = field(default_factory=lambda: [[]])
    places: dict[int, Any] = field(default_factory=dict)

    def _state(self, test: Test | None, *after: int) -> int:
        if len(self.tests) >= self.most:
            raise ModelError("the regular expression is too large")
        self.tests.append(test)
        self.after.append([*after])
        return len(self.tests) - 1

    def sequence(self, tree: Iterable[Any], then: int) -> int:
        """The first state of a part that matches `tree` and continues at `then`."""
        for op, arg in reversed([*tree]):
            then = self._one(op, arg, then)
        return then

    def _one(self, op: Any, arg: Any, then: int) -> int:
        if op in _REPEATS:
            low, high, body = arg
            return self._repeat(low, high, body, then)
        if op is code.SUBPATTERN:
            if arg[1] or arg[2]:
                raise ModelError("flags of a part of a regular expression are not supported")
            return self.sequence(arg[3], then)
        if op is code.BRANCH:
            return self._state(None, *(self.sequence(b, then) for b in arg[1]))
        if op is code.AT:
            state = self._state(None, then)
            self.places[state] = arg
            return state
        return self._state(self._test(op, arg), then)

    def _repeat(self, low: int, high: int, body: Any, then: int) -> int:
        if high is code.MAXREPEAT:
            loop = self._state(None, then)
            self.after[loop].append(self.sequence(body, loop))
            then = loop
        else:
            end = then
            for _ in range(high - low):
                then = self._state(None, end, self.sequence(body, then))
        for _ in range(low):
            states = len(self.tests)
            then = self.sequence(body, then)
            if len(self.tests) == states:  # the part only matches "": no need to repeat it
                break
        return then

    def _test(self, op: Any, arg: Any) -> Test:
        if op is code.IN:
            negated = bool(arg) and arg[0][0] is code.NEGATE
            tests = [self._test(*a) for a in arg[negated:]]
            return lambda c: any(t(c) for t in tests) != negated
        if op is code.ANY:
            return lambda c: c != "\n" or bool(self.flags & re.DOTALL)
        if op is code.CATEGORY:
            category = re.compile(_CATEGORIES[arg], self.flags & re.ASCII)
            return lambda c: category.match(c) is not None
        if op is code.NOT_LITERAL:
            return lambda c: not self._is_in(c, arg, arg)
        if op in (code.LITERAL, code.RANGE):
            low, high = arg if op is code.RANGE else (arg, arg)
            return lambda c: self._is_in(c, low, high)
        raise ModelError(f"a regular expression with {str(op).lower()} can't match in linear time")

    def _is_in(self, c: str, low: int, high: int) -> bool:
        """Whether a character is in a range; if case is ignored, also its other case."""
        forms = {c, c.lower(), c.upper()} if self.flags & re.IGNORECASE else (c,)
        return any(len(f) == 1 and low <= ord(f) <= high for f in forms)

    def matcher(self, start: int) -> Matcher:
        def matches(text: str) -> bool:
            now = self._reached((start,), text, 0)
            for position, c in enumerate(text):
                left = (s for s in now if (test := self.tests[s]) is not None and test(c))
                now = self._reached([n for s in left for n in self.after[s]], text, position + 1)
                if not now:
                    return False
            return _ACCEPT in now

        return matches

    def table(self, start: int) -> tuple[bytes, bytes] | None:
        """See `ascii_table`; None for more than `_MOST_TABLE_STATES` sets of states."""
        letters = [chr(i) for i in range(128)]
        passes = [None if t is None else [t(c) for c in letters] for t in self.tests]
        first = frozenset(self._reached((start,), "", 0))
        numbers, waiting, rows = {first: 0}, [first], bytearray()
        for states in waiting:  # the loop appends to `waiting`
            left = [(p, self.after[s]) for s in states if (p := passes[s]) is not None]
            for letter in range(128):
                following = [n for p, after in left if p[letter] for n in after]
                successors = frozenset(self._reached(following, "", 0))
                if successors and successors not in numbers:
                    if len(numbers) == _MOST_TABLE_STATES:
                        return None
                    numbers[successors] = len(numbers)
                    waiting.append(successors)
                rows.append(numbers[successors] if successors else _NONE)
        return bytes(rows), bytes(_ACCEPT in states for states in waiting)

    def _reached(self, states: Iterable[int], text: str, position: int) -> set[int]:
        """`states`, and all states that `states` reach without a character."""
        reached = set[int]()
        stack = [*states]
        while stack:
            s = stack.pop()
            if s in reached or (s in self.places and not _holds(self.places[s], text, position)):
                continue
            reached.add(s)
            if self.tests[s] is None:
                stack += self.after[s]
        return reached


_PLACES = {
    code.AT_BEGINNING: "^", code.AT_BEGINNING_STRING: r"\A", code.AT_END: "$",
    code.AT_END_STRING: r"\Z", code.AT_BOUNDARY: r"\b", code.AT_NON_BOUNDARY: r"\B",
}  # fmt: skip


def _holds(place: Any, text: str, position: int) -> bool:
    return re.compile(_PLACES[place]).match(text, position) is not None
