"""What becomes of every case, and the table of those that are not right.

A family is a source of cases.  Of the large ones a share is in the table, chosen by the checksums
of names: these are the cases that `python -m benchmarks.open_sizes` and the tests run.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import children

from .outcome import CRASHED, RIGHT, WRONG, Outcome

TABLE = Path(__file__).with_name("refused.txt")
SECONDS, MEMORY = 60.0, 8 << 30


@dataclass(frozen=True)
class Family:
    """Cases of one kind.

    names: of all of them.
    case: the case of a name.
    judged: what becomes of a case, by road.
    share: one of so many is in the table.
    """

    names: Callable[[], Iterable[str]]
    case: Callable[[str], Any]
    judged: Callable[[Any], dict[str, Outcome]]
    share: int

    def listed(self) -> list[str]:
        """The names of the cases in the table."""
        return [n for n in self.names() if zlib.crc32(n.encode()) % self.share == 0]


def family(name: str) -> Family:
    """The family `name`: "operators", "nodes" or "programs"; imports what it needs."""
    if name == "operators":
        from . import operators

        cases = dict(operators.cases())
        return Family(
            lambda: cases, lambda n: (n, cases[n]), lambda c: {"": operators.judged(c)}, 3
        )
    if name == "nodes":
        from . import nodes

        tests = {t.name: t for t in nodes.tests()}
        return Family(
            lambda: tests,
            tests.__getitem__,
            lambda t: dict(zip(("own", "shared"), nodes.judged(t), strict=True)),
            9,
        )
    from . import programs

    entries = {programs.shown_name(*e): e for e in programs.entries()}
    return Family(lambda: entries, entries.__getitem__, programs.judged_entry, 4)


FAMILIES = ("operators", "nodes", "programs")


def lines_of(kind: Family, names: Iterable[str]) -> Iterator[tuple[str, dict[str, Outcome]]]:
    """What becomes of cases, each with its name; a process that ends ends one case."""
    wanted = list(names)
    found = children.each(wanted, lambda n: kind.judged(kind.case(n)), SECONDS, MEMORY)
    for name, outcomes in zip(wanted, found, strict=True):
        if isinstance(outcomes, children.Died):
            yield name, {"": Outcome(CRASHED, outcomes.reason)}
        else:
            yield name, outcomes


def shown(outcomes: dict[str, Outcome]) -> str:
    """A case's line in the table: its roads that are not right; empty if all are."""
    return " | ".join(
        f"{road} {o.line}".strip() for road, o in outcomes.items() if o.result != RIGHT
    )


def is_defect(outcomes: dict[str, Outcome]) -> bool:
    return any(o.result in (WRONG, CRASHED) for o in outcomes.values())


def read() -> dict[tuple[str, str], str]:
    """The table: by family and name the line of each case that is not right."""
    rows = TABLE.read_text(encoding="utf-8").splitlines()
    parts = (row.split("\t") for row in rows if row and not row.startswith("#"))
    return {(kind, name): line for kind, name, line in parts}


def write(rows: dict[tuple[str, str], str]) -> None:
    head = (
        "# Cases with open sizes that are not right: `python -m benchmarks.open_sizes --write`.\n"
    )
    body = "".join(f"{k}\t{n}\t{line}\n" for (k, n), line in sorted(rows.items()))
    TABLE.write_text(head + body, encoding="utf-8")
