"""Lines of each room of `src`, against the budgets in `budget.toml`.

`python .ci/budget.py` prints a row for each room and exits with 1 if a room has more lines of code
than its budget, or if rooms and rows differ.  Blank lines, comments and docstrings are no code:
nobody should save on them.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("budget.toml")
C_SOURCES = {".c", ".h", ".hpp", ".in"}
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def python_lines(text: str) -> int:
    """Lines of a Python file that hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def c_lines(text: str) -> int:
    """Lines of a C or C++ file that hold code."""
    return sum(bool(line.strip()) for line in _C_COMMENT.sub("", text).splitlines())


def code_lines(path: Path) -> int:
    """Lines of code of a file; 0 for data."""
    if path.suffix == ".py":
        return python_lines(path.read_text(encoding="utf-8"))
    if path.suffix in C_SOURCES:
        return c_lines(path.read_text(encoding="utf-8"))
    return 0


def rooms(package: Path) -> dict[str, tuple[int, int]]:
    """Room of `package` -> number of its source files, lines of code in them."""
    counted = {}
    for room in sorted(package.iterdir()):
        files = [p for p in room.rglob("*") if p.suffix in {".py", *C_SOURCES}]
        if files:
            counted[room.name] = len(files), sum(map(code_lines, files))
    return counted


def problems(counted: dict[str, tuple[int, int]], budgets: dict[str, dict]) -> list[str]:
    """Rooms past their budgets, rooms without a row, rows without a room or a reason."""
    found = []
    for room in sorted({*counted, *budgets}):
        if room not in budgets:
            found.append(f"{room} has no row in .ci/budget.toml; add its lines and a reason")
        elif room not in counted:
            found.append(f"{room} has a row in .ci/budget.toml and no folder; remove the row")
        elif counted[room][1] > budgets[room]["lines"]:
            found.append(
                f"{room} has {counted[room][1]} lines of code, its budget is "
                f"{budgets[room]['lines']}; make it smaller, or raise the budget and say why"
            )
        elif not budgets[room]["reason"].strip():
            found.append(f"{room} has a budget in .ci/budget.toml without a reason; say why")
    return found


def main() -> int:
    """Prints the table and the problems; returns the exit status."""
    counted = rooms(ROOT / "src" / "tilesmith")
    budgets = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    print(f"{'room':14}{'files':>6}{'lines':>8}{'budget':>8}")
    for room, (files, lines) in counted.items():
        print(f"{room:14}{files:6}{lines:8}{budgets.get(room, {}).get('lines', '-'):>8}")
    files, lines = (sum(column) for column in zip(*counted.values()))
    print(f"{'all':14}{files:6}{lines:8}{sum(b['lines'] for b in budgets.values()):8}")
    found = problems(counted, budgets)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
