"""Record what the compiler does with many models, and compare two records.

A refactoring may change nothing that comes out: `record` writes, for each model, the text of every
stage (graphs after each pass, loops after each pass with their schedules, LLVM), the program and
the hashes of its objects.  `since` records a commit and the working tree, and compares.

Models are the golden networks, random graphs by their seeds, and every .onnx file of --zoo.

Example: python tests/replay/replay.py since main --zoo zoo

Example: python tests/replay/replay.py record before --graphs 20
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tilesmith import driver
from tilesmith.driver.request import Request
from tilesmith.ir.target import Target
from tilesmith.support import cache
from tilesmith.support.errors import TilesmithError
from tilesmith.support.options import Options

ROOT = Path(__file__).resolve().parents[2]

THREADS = 2
"""A number of threads that shows how work is divided."""


def models(zoo: Path | None, graphs: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and makers of all models."""
    sys.path += [str(ROOT / "tests"), str(ROOT / "benchmarks")]
    from common.pass_models import MODELS
    from fuzz.cases import random_case

    yield from ((f"golden-{name}", make) for name, make in MODELS.items())
    for seed in range(graphs):
        yield f"graph-{seed:04}", lambda seed=seed: random_case(seed).model
    if zoo is not None:
        yield from ((path.stem, lambda path=path: path) for path in sorted(zoo.glob("*.onnx")))


def record(folder: Path, zoo: Path | None, graphs: int, target: str) -> None:
    """Writes a folder for each model into `folder`, which is new."""
    folder.mkdir(parents=True)
    # names of kernels depend on both, which change with every commit and with each new number
    cache.compiler_fingerprint = lambda: "any"
    Target.text = property(lambda t: t.name)  # type: ignore[method-assign]
    for name, make in models(zoo, graphs):
        record_model(folder / name, make(), target)
        print(name, flush=True)


def record_model(folder: Path, model: Any, target: str) -> None:
    """Writes the text of each stage, the program and the hashes of its objects, or the refusal."""
    options = Options(
        target=target, threads=THREADS, dump=folder, use_cache=False, use_records=False, jobs=1
    )
    try:
        program = driver.compile_model(Request(model, options))
    except TilesmithError as e:
        folder.mkdir(exist_ok=True)
        (folder / "refused.txt").write_text(f"{type(e).__name__}: {e}\n", encoding="utf-8")
        return
    hashes = (f"{s} {hashlib.sha256(o).hexdigest()}\n" for s, o in sorted(program.objects.items()))
    (folder / "objects.txt").write_text("".join(hashes), encoding="utf-8")
    steps = (f"{step}\n" for step in program.steps)
    (folder / "program.txt").write_text("".join(steps), encoding="utf-8")


LINES = 20
"""Lines of a difference that are printed."""


def compare(old: Path, new: Path) -> int:
    """Prints the first stage of each model that differs; 1 if any does, otherwise 0."""
    names = sorted({p.name for folder in (old, new) for p in folder.iterdir()})
    different = [n for n in names if not _same(old / n, new / n)]
    print(f"{len(names) - len(different)} of {len(names)} models are the same")
    return 1 if different or not names else 0


def _same(old: Path, new: Path) -> bool:
    """Whether the folders of a model have the same files; prints the first that differs."""
    before, after = _files(old), _files(new)
    for name in sorted({*before, *after}):
        first, second = _lines(before.get(name)), _lines(after.get(name))
        if first != second:
            names = str(before.get(name)), str(after.get(name))
            diff = difflib.unified_diff(first, second, *names, lineterm="", n=1)
            print(*[line for line, _ in zip(diff, range(LINES), strict=False)], sep="\n")
            return False
    return bool(before)


def _files(folder: Path) -> dict[str, Path]:
    """The files of a model by their names without the numbers of stages, which change where a pass
    is added.
    """
    found = (p for p in folder.rglob("*") if p.is_file())
    return {re.sub(r"/\d+-", "/", f"/{p.relative_to(folder).as_posix()}"): p for p in found}


def _lines(file: Path | None) -> list[str]:
    return [] if file is None else file.read_text(encoding="utf-8").splitlines()


def parser() -> argparse.ArgumentParser:
    lines = (__doc__ or "").splitlines()
    found = argparse.ArgumentParser(
        description=lines[0],
        epilog="\n".join(lines[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = found.add_subparsers(dest="verb", required=True)
    record = verbs.add_parser("record", help="write a record into a new folder")
    record.add_argument("folder", type=Path)
    since = verbs.add_parser("since", help="compare a commit with the working tree")
    since.add_argument("commit")
    for verb in (record, since):
        verb.add_argument("--zoo", type=Path, help="folder of .onnx files")
        verb.add_argument("--graphs", type=int, default=200, help="random graphs (default: 200)")
        verb.add_argument("--target", default="x86-64-v4", help="default: x86-64-v4")
    compare = verbs.add_parser("compare", help="compare two records")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    return found


def since(commit: str, options: list[str]) -> int:
    """Records `commit`, in a tree of its own, and the working tree; the exit status."""
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        folder = Path(name)
        tree = folder / "tree"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--detach", str(tree), commit], check=True)
        try:
            build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
            subprocess.run(build, cwd=tree, check=True)
            for source, to in ((tree, "old"), (ROOT, "new")):
                run = [
                    sys.executable,
                    "tests/replay/replay.py",
                    "record",
                    str(folder / to),
                    *options,
                ]
                environment = {**_environment(), "PYTHONPATH": str(source / "src")}
                subprocess.run(run, cwd=source, check=True, env=environment)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
        return compare(folder / "old", folder / "new")


def _environment() -> dict[str, str]:
    """This process's environment without what changes how the compiler decides."""
    return {k: v for k, v in os.environ.items() if not k.startswith("TILESMITH_")}


def main() -> int:
    given = parser().parse_args()
    if given.verb == "compare":
        return compare(given.old, given.new)
    if given.verb == "since":
        options = ["--graphs", str(given.graphs), "--target", given.target]
        if given.zoo:
            options += ["--zoo", str(given.zoo.resolve())]
        return since(given.commit, options)
    record(given.folder, given.zoo, given.graphs, given.target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
