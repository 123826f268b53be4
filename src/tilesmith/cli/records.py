"""List, move and prune what tuning measured.

  list         the best trial of each workload; with --all every trial
  export FILE  write every trial as a JSON line (- for stdout)
  import FILE  add trials from JSON lines (- for stdin)
  merge FILE   add the trials of another record file; of two trials of one
               candidate the later one stays
  prune        keep only what is used

A trial that was measured with another version of the schedules is marked "old": no compilation uses
it, and tuning measures it again first.

Example: tilesmith records export trials.jsonl
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.cli.console import print_json, print_table
from tilesmith.search_space.record_lines import json_lines, read_families, read_lines
from tilesmith.search_space.records import Records, Trial
from tilesmith.support.errors import ModelError, UsageError
from tilesmith.support.folders import read_regular, write_text
from tilesmith.support.options import Options, records_path

ACTIONS = ("list", "export", "import", "merge", "prune")


def command(
    action: Annotated[str, typer.Argument(help=f"One of {', '.join(ACTIONS)}.")],
    file: Annotated[Path | None, typer.Argument(help="For export, import and merge.")] = None,
    every: Annotated[bool, typer.Option("--all", help="List every trial.")] = False,
    keep: Annotated[int, typer.Option(help="Trials of a workload that prune keeps.")] = 1,
    records: Annotated[
        Path | None, typer.Option(help="The record file (default: in the cache folder).")
    ] = None,
    json: JsonFlag = False,
) -> None:
    if action not in ACTIONS:
        raise UsageError(f"records: {action!r} is none of {', '.join(ACTIONS)}")
    if (file is None) == (action in ("export", "import", "merge")):
        raise UsageError(f"records {action} takes {'a file' if file is None else 'no file'}")
    if keep < 0:
        raise UsageError(f"--keep must not be negative, not {keep}")
    path = records_path(Options.from_environment(records=records))
    with Records(path) as store:
        if action == "list":
            _list(store.trials(), every, json)
        elif action == "prune":
            print(f"removed {store.prune(keep)} trials")
        elif file is not None:
            _move(store, action, file)


def _move(store: Records, action: str, file: Path) -> None:
    """Export to, import from or merge with a file."""
    if action == "export":
        lines = [f"{line}\n" for line in json_lines(store)]
        if str(file) == "-":
            sys.stdout.writelines(lines)
            return
        try:
            write_text(file, "".join(lines))
        except OSError as e:
            raise UsageError(f"trials can't be written to {str(file)!r}: {e.strerror}") from e
        print(f"wrote {len(store.trials())} trials")
        return
    if action == "merge":
        if not file.is_file():
            raise UsageError(f"there is no file {str(file)!r}")
        with Records(file) as other:
            lines = list(json_lines(other))
    else:
        lines = _read(file).splitlines()
    trials, families = list(read_lines(lines)), read_families(lines)
    store.describe(families)
    print(f"added {_add_newer(store, trials)} trials")


def _read(file: Path) -> str:
    try:
        if str(file) == "-":
            return sys.stdin.read()
        return read_regular(file).decode("utf-8")
    except OSError as e:
        raise UsageError(f"{str(file)!r} can't be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ModelError(f"{str(file)!r} is no text of JSON lines: {e}") from e


def _add_newer(store: Records, trials: Iterable[Trial]) -> int:
    known = {(t.key, t.decisions): t.when for t in store.trials()}
    new = [t for t in trials if t.when > known.get((t.key, t.decisions), -1.0)]
    store.add(*new)
    return len(new)


def _list(trials: Iterable[Trial], every: bool, json: bool) -> None:
    shown = list(trials)
    if not every:
        best: dict[object, Trial] = {}
        for t in shown:
            if t.key not in best or t.ratio < best[t.key].ratio:
                best[t.key] = t
        shown = list(best.values())
    if json:
        print_json([
            {"workload": t.key.workload, "label": t.label, "status": t.status, "ratio": t.ratio,
             "threads": t.key.threads, "version": t.key.version, "is_current": t.key.is_current,
             "decisions": t.decisions, "cause": t.cause}
            for t in shown
        ])  # fmt: skip
        return
    rows = [
        (
            t.key.workload,
            t.label,
            t.key.threads,
            "" if t.key.is_current else "old",
            t.status,
            f"{t.seconds * 1e3:.4f}" if t.ratio < math.inf else "",
            f"{t.ratio:.3f}" if t.ratio < math.inf else "",
            t.decisions,
            t.cause,
        )
        for t in shown
    ]
    columns = (
        "workload",
        "kernel",
        ">threads",
        "",
        "status",
        ">ms",
        ">of analytic",
        "decisions",
        "",
    )
    print_table(columns, rows)
