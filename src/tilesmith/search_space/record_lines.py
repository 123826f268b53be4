"""Tuning records as JSON lines, the format for moving them between machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields

from tilesmith.support.errors import ModelError

from .family import Family
from .records import Key, Records, Trial

_FAMILY = '"anchor": "'
"""Text that occurs in the JSON line of a family only: in the line of a trial its quotes are
escaped.
"""


def json_lines(records: Records) -> Iterator[str]:
    """The contents of a file: families of workloads first, then trials."""
    for key, family in records.families().items():
        yield json.dumps({**asdict(key), **asdict(family)})
    yield from (t.to_json() for t in records.trials())


def read_lines(lines: Iterable[str]) -> Iterator[Trial]:
    """The trials of JSON lines.  Blank lines and families are skipped.  Raises ModelError for a bad
    line.
    """
    return (Trial.from_json(line) for line in lines if line.strip() and _FAMILY not in line)


def read_families(lines: Iterable[str]) -> dict[Key, Family]:
    """The families of JSON lines.  Raises ModelError for a bad line."""
    families: dict[Key, Family] = {}
    for line in lines:
        if _FAMILY not in line:
            continue
        try:
            row = json.loads(line)
            extents = " ".join(map(str, row["extents"]))
            key = Key.of_row([row[f.name] for f in fields(Key)])
            families[key] = Family.of_row(row["anchor"], row["group"], extents)
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise ModelError(f"this is no tuning record: {line[:80]!r} ({e})") from e
    return families
