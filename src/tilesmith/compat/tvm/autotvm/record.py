"""TVM's logs: a line of JSON for each measurement.

{"input": ["llvm", "matmul", [512, 512], {}], "config": {"entity": [["tile", "sp", [-1, 8]]]},
 "result": [[0.0012], 0, 0.5, 1700000000.0], "version": 0.2}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tilesmith.support.errors import DAMAGED, ModelError, UsageError
from tilesmith.support.folders import write_text
from tilesmith.te.knobs import Decisions

from .config import decisions_of
from .measure import MeasureInput, MeasureResult

_VERSION = 0.2
"""The format of lines that TVM 0.6 to 0.16 writes."""

_Key = tuple[str, str]
_BEST: list[dict[_Key, Decisions]] = []
"""The best decisions of each entered log, by template and arguments."""


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """A measurement as a line of a log."""
    if protocol != "json":
        raise UsageError(f"logs have the protocol 'json', found {protocol!r}")
    target = "llvm" if inp.target is None else str(inp.target)
    entities = [[name, *e.encode()] for name, e in inp.config.entities.items()]
    config = {"index": None, "code_hash": None, "entity": entities}
    return json.dumps(
        {
            "input": [target, inp.task.name, list(inp.task.args), {}],
            "config": config,
            "result": [list(result.costs), *result[1:]],
            "version": _VERSION,
        }
    )


def decode(row: str) -> tuple[_Key, Decisions, MeasureResult]:
    """The template and arguments, the decisions and the result in a line.  Raises ModelError."""
    try:
        line = json.loads(row)
        _, name, args, *_ = line["input"]
        costs, error, all_cost, when = line["result"]
        result = MeasureResult(tuple(map(float, costs)), int(error), float(all_cost), float(when))
        return _key(str(name), args), decisions_of(line["config"]["entity"]), result
    except DAMAGED as e:
        raise ModelError(
            f"expected a line of an AutoTVM log, found {row[:80]!r} ({type(e).__name__}: {e})"
        ) from None


def load_from_file(filename: str | Path) -> Iterator[tuple[_Key, Decisions, MeasureResult]]:
    """The measurements in a log.  Raises ModelError for a line of another form."""
    yield from map(decode, _rows(filename))


def _rows(filename: str | Path) -> Iterator[str]:
    try:
        rows = Path(filename).read_text(encoding="utf-8").splitlines()
    except OSError as e:
        raise UsageError(f"{filename}: expected an AutoTVM log, found {e.strerror}") from None
    return (row for row in rows if row and not row.startswith("#"))


def _best(filenames: Sequence[str | Path]) -> dict[_Key, tuple[float, Decisions, str]]:
    """The least time in logs, the decisions and the line, by template and arguments."""
    least: dict[_Key, tuple[float, Decisions, str]] = {}
    for row in (row for f in filenames for row in _rows(f)):
        key, decisions, result = decode(row)
        if result.error_no or not result.costs:
            continue
        cost = sum(result.costs) / len(result.costs)
        if key not in least or cost < least[key][0]:
            least[key] = cost, decisions, row
    return least


class apply_history_best:  # named as in TVM
    """Let templates take the best decisions of a log, inside a `with`."""

    def __init__(self, records: Any) -> None:
        files = records if isinstance(records, (list, tuple)) else (records,)
        self._best = {key: decisions for key, (_, decisions, _) in _best(files).items()}

    def __enter__(self) -> apply_history_best:
        _BEST.append(self._best)
        return self

    def __exit__(self, *_: object) -> None:
        _BEST.remove(self._best)


def best_of(name: str, args: Sequence[Any]) -> Decisions | None:
    """The best known decisions for a template and its arguments; None if there are none."""
    key = _key(name, json.loads(json.dumps(list(args))))
    return next((b[key] for b in reversed(_BEST) if key in b), None)


def pick_best(in_file: str | Path, out_file: str | Path) -> None:
    """Write the best line for each template and its arguments to another log."""
    rows = (row for _, _, row in _best([in_file]).values())
    write_text(Path(out_file), "".join(f"{row}\n" for row in rows))


def _key(name: str, args: Any) -> _Key:
    return name, json.dumps(args)
