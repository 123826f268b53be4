"""TVM's command line: `python -m tilesmith.compat.tvm.tvmc compile --target llvm -o out.tsm MODEL`.

Each verb is translated to the verb of `tilesmith`, which is shown on stderr.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence

from tilesmith.cli import execute
from tilesmith.support.errors import UsageError

from .searches import NO_LIMIT
from .target import Target

_SHAPE = re.compile(r"\s*([^:\s]+):\[([\d,\s]+)\]")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tvmc", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    compile_, run, tune = (verbs.add_parser(v, help=h) for v, h in (
        ("compile", "Write a compiled model."), ("run", "Run a compiled model."),
        ("tune", "Search faster schedules of a model."),
    ))  # fmt: skip
    for verb in (compile_, tune):
        verb.add_argument("--target", default="llvm")
        verb.add_argument("--input-shapes", default="", metavar="NAME:[1,3,224,224]")
        verb.add_argument("--model-format", help="Not needed: a file's format is recognised.")
        verb.add_argument("--tuning-records", metavar="FILE", help="What a search found.")
    compile_.add_argument("-o", "--output", default="module.tsm")
    compile_.add_argument("-O", "--opt-level", help="Not needed: all passes run.")
    run.add_argument("-i", "--inputs", metavar="FILE.npz")
    run.add_argument("-o", "--outputs", metavar="FILE.npz")
    run.add_argument("--print-top", type=int, default=0, metavar="N")
    run.add_argument("--print-time", action="store_true")
    run.add_argument("--repeat", type=int, default=1)
    run.add_argument("--number", type=int, default=10)
    run.add_argument("--device", choices=("cpu",), default="cpu")
    tune.add_argument("-o", "--output", default="records.sqlite")
    tune.add_argument("--trials", type=int, default=100)
    for verb in (compile_, run, tune):
        verb.add_argument("FILE")
    return parser


def translated(arguments: Sequence[str]) -> list[list[str]]:
    """The command lines of `tilesmith` for one of tvmc.  Raises UsageError for bad shapes."""
    a = _parser().parse_args(arguments)
    if a.verb == "run":
        words = ["run", a.FILE]
        words += ["--input", a.inputs] if a.inputs else []
        words += ["--output", a.outputs] if a.outputs else []
        words += ["--top", str(a.print_top)] if a.print_top else []
        timing = ["bench", a.FILE, "--iters", str(a.repeat * a.number)]
        return [words, timing] if a.print_time else [words]
    native = Target(a.target).native
    words = [a.verb, a.FILE, *(["--target", native] if native else []), *_shapes(a.input_shapes)]
    records = a.tuning_records
    if a.verb == "compile":
        return [[*words, "-o", a.output, *(["--records", records] if records else [])]]
    where = records or a.output
    return [[*words, "--records", where, "--trials", str(a.trials), "--seconds", str(NO_LIMIT)]]


def _shapes(text: str) -> list[str]:
    """Options for shapes in TVM's form, `name:[1,3] other:[2]`."""
    found = _SHAPE.findall(text)
    if _SHAPE.sub("", text).strip():
        raise UsageError(f"--input-shapes: expected NAME:[1,3,224,224] ..., found {text!r}")
    return [w for name, sizes in found for w in ("--shape", f"{name}={sizes.replace(' ', '')}")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run tvmc's command line; returns the exit code."""
    try:
        lines = translated(sys.argv[1:] if arguments is None else arguments)
    except UsageError as e:
        print(f"tvmc: {e}", file=sys.stderr)
        return e.exit_code
    for words in lines:
        print(f"tvmc: tilesmith {shlex.join(words)}", file=sys.stderr)
        code = execute(words)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
