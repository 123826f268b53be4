"""Show a program for TVM with our own names, or one for Halide that runs here, as a diff.

After the diff come the lines that stay, with what to use instead.

Example: tilesmith migrate tutorial.py
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.arguments import JsonFlag
from tilesmith.support.errors import UsageError


def command(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT.py", help="The program.")],
    write: Annotated[bool, typer.Option("--write", help="Change the file, too.")] = False,
    json: JsonFlag = False,
) -> None:
    if importlib.util.find_spec("libcst") is None:
        raise UsageError("migrate needs the package libcst: pip install 'tilesmith[migrate]'")
    # Nothing imports the interfaces of other compilers, so they run in a process of their own.
    flags = [f for f, is_set in (("--write", write), ("--json", json)) if is_set]
    program = [sys.executable, "-m", "tilesmith.compat.migrate", *flags, "--", str(script)]
    done = subprocess.run(program, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(done.stderr.strip() or f"{script}: the tool ended with {done.returncode}")
    print(done.stdout, end="")
