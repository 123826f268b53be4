"""The command line of a benchmark of cases: one line a case and number of threads, or JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


def run(
    doc: str,
    makers: Iterable[Callable[[], Iterator[C]]],
    measure: Callable[[C, int, int], dict[str, Any]],
    line: Callable[[dict[str, Any]], str],
    rounds: int,
) -> None:
    """Measures the cases whose names contain a word of the command line, with 1 and 2 threads.

    measure: the row of a case, of a number of threads and of rounds; line: that row as text.
    rounds: by default.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for case in (c for make in makers for c in make()):
        if given.words and not any(w in case.name for w in given.words):
            continue
        for threads in given.threads or (1, 2):
            rows.append(row := measure(case, threads, given.rounds))
            if not given.json:
                print(line(row), flush=True)
    if given.json:
        print(json.dumps(rows))
