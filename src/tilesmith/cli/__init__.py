"""The command line: `tilesmith VERB ...`, one file per verb.

A verb's module is imported when the verb is used, so that `tilesmith --help` answers at once.  Each
module has a function `command`.  `VERBS` below has the first line of help of each verb, for the
program's own help.

Exit codes: 0 done, 1 wrong usage or something that the system refuses, 2 bad model or input, 3 our
own bug, 4 accuracy failure, 5 a device that fails, 130 interrupted, 143 ended by SIGTERM, 129 ended
by SIGHUP.  A program ended by a signal cleans up as an interrupted one does. A user sees one line
per error, never a traceback.  For our own bugs, a report file contains the traceback.
"""

from __future__ import annotations

import codecs
import importlib
import io
import json
import os
import platform
import signal
import stat
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from inspect import cleandoc  # `inspect` would be overwritten by the submodule `cli.inspect`
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from tilesmith import __version__
from tilesmith.support.errors import TilesmithError, UsageError
from tilesmith.support.signals import forget, interrupt_once, note, noted

VERBS = {
    "compile": "Compile a model into one file that runs without its source.",
    "export": "Write a model as a C library that needs no Python.",
    "op": "Write one operator as C source with a test and a benchmark.",
    "keygen": "Make a pair of keys that sign compiled models.",
    "verify": "Check the signature of a compiled model or library.",
    "run": "Run a model on an input file or random input.",
    "bench": "Measure how long a model takes.",
    "compare": "Measure every installed engine, taking turns.",
    "check": "Compare every compiled kernel with its reference.",
    "explain": "Show where a model's time goes, kernel by kernel, and why.",
    "convert": "Write a model of any format as an ONNX model.",
    "quantize": "Quantise a trained model, calibrated on samples.",
    "train": "Train a model, or a part of its weights, in compiled code.",
    "tune": "Spend some seconds on making a model faster on this machine.",
    "agent": "Serve this machine as a device that runs and measures models.",
    "records": "List, move and prune what tuning measured.",
    "accel": "Compare accelerators for a model: cycles against area.",
    "opt": "Run chosen passes and print any stage of the IR.",
    "inspect": "Say what a model's file is.",
    "ops": "List the operators that are supported.",
    "migrate": "Show a program for TVM or Halide with our own names.",
    "doctor": "Show what was detected about this machine.",
}

# Depending on its version, typer uses click or a copy of its own.
_CLICK_ERROR: type[Exception] = next(
    c
    for c in typer.BadParameter.__mro__
    if issubclass(c, Exception) and c.__name__ == "ClickException"
)


_SETTINGS = {"help_option_names": ["-h", "--help"]}


class _ReaderGone(Exception):
    """The process that reads our output has closed the pipe."""


class _Verb(TyperCommand):
    """A verb.  Its help lists arguments and options without a group first, then each group of
    options under a heading.  Indented paragraphs of the help text keep their lines.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as e:  # otherwise typer would end the program with exit code 1
            raise _ReaderGone from e

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        for paragraph in cleandoc(self.help or "").split("\n\n"):
            formatter.write_paragraph()
            with formatter.indentation():
                if paragraph.startswith(" "):
                    indent = " " * formatter.current_indent
                    formatter.write("".join(f"{indent}{line}\n" for line in paragraph.split("\n")))
                else:
                    formatter.write_text(paragraph)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for p in self.get_params(ctx):
            row = p.get_help_record(ctx)
            if row is not None:
                own = "Arguments" if p.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(p, "rich_help_panel", None) or own, []).append(row)
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class _Verbs(TyperGroup):
    """The verbs.  Each is a stub with one line of help until it is used."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, line in VERBS.items():
            self.commands[name] = TyperCommand(name, help=line)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in VERBS:
            verb = typer.Typer(
                add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS
            )
            module = importlib.import_module(f"tilesmith.cli.{args[0]}")
            about = {"help": module.__doc__, "context_settings": _SETTINGS}
            verb.command(args[0], cls=_Verb, **about)(module.command)
            self.commands[args[0]] = typer.main.get_command(verb)
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=_Verbs, rich_markup_mode=None, context_settings=_SETTINGS)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tilesmith {__version__}")
        raise typer.Exit


@app.callback(
    help="Tilesmith compiles a trained model (ONNX) into native code tuned for one machine."
)
def _program(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    del version  # the option's callback has printed the version


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    forget()
    try:
        code = app(words, prog_name="tilesmith", standalone_mode=False)
        sys.stdout.flush()
        if code == 130:  # some versions of typer catch KeyboardInterrupt
            _complain("interrupted")
        return code if isinstance(code, int) else 0
    except _CLICK_ERROR as e:
        message = e.format_message()  # type: ignore[attr-defined]  # whichever click typer uses
        _complain(f"{message.rstrip('.')} (see: tilesmith {_verb(words)}--help)")
        return UsageError.exit_code
    except TilesmithError as e:
        if e.exit_code == 3 and (number := noted()):
            return _ended_by(number)
        _complain(str(e), e)
        return e.exit_code
    except (_ReaderGone, BrokenPipeError):  # the reader of a pipe has ended, such as `head`
        _drop_output((1, 2))
        return 0
    except _Ended as e:
        return _ended_by(e.signal)
    except (KeyboardInterrupt, typer.Abort):
        return _ended_by(signal.SIGINT)
    except MemoryError:
        _complain("out of memory")
        return UsageError.exit_code
    except OSError as e:
        _complain(_refused(e))
        return UsageError.exit_code
    except Exception as e:
        if number := noted():
            return _ended_by(number)
        _complain(f"this is a bug in tilesmith: {type(e).__name__}: {e}", e)
        return 3
    finally:
        forget()  # the program that called us may continue


def _ended_by(number: signal.Signals) -> int:
    """Print which signal ended the program; returns the exit code."""
    is_interrupt = number == signal.SIGINT
    _complain("interrupted" if is_interrupt else f"ended by {number.name}")
    return 128 + number


def _refused(e: OSError) -> str:
    """The message of an operating system's error.  If the error names no file, it concerns
    stdout.
    """
    why = e.strerror or str(e)
    if e.filename is not None:
        return f"{os.fsdecode(e.filename)!r}: {why}"
    _drop_output((1,))  # Python writes what is left in its buffers when it ends
    return f"the output can't be written: {why}"


def main() -> None:
    """The `tilesmith` program."""
    _open_standard_streams()
    _escape_on_stdout()
    for wanted in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(wanted) is signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(wanted, _end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_once)
    sys.exit(execute())


class _Ended(BaseException):
    """A signal asked the program to end.  `with` statements clean up while this exception
    propagates.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


def _end(number: int, _frame: FrameType | None) -> None:
    """Raises _Ended.  The same signal again does nothing, so that cleaning up can finish."""
    signal.signal(number, signal.SIG_IGN)
    if number == signal.SIGHUP:
        _drop_output(
            (1, 2), only_terminals=True
        )  # the terminal is gone, and writing to it would fail
    raised = _Ended(number)
    note(number, raised)
    raise raised


def _open_standard_streams() -> None:
    """Open the standard streams that the parent process closed.

    Otherwise the next opened file would get the descriptor of a closed stream.  Code that writes to
    that stream (a C library, a child process) would then write to the file.  Writing to a closed
    stdout is an error, as in other programs: its descriptor is open for reading only.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            flags = os.O_WRONLY if name == "stderr" else os.O_RDONLY
            descriptor = os.open(os.devnull, flags)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _escape_on_stdout() -> None:
    """Escape characters that the encoding of stdout lacks, for instance in names of a model in
    locale C.

    Bytes of a file name that can't be decoded are written unchanged.
    """
    codecs.register_error("tilesmith.escape", _escape)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="tilesmith.escape")


def _escape(error: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    escaped = [
        bytes([ord(c) - 0xDC00])
        if "\udc80" <= c <= "\udcff"
        else c.encode("ascii", "backslashreplace")
        for c in text
    ]
    return b"".join(escaped), error.end


def _drop_output(streams: Sequence[int], only_terminals: bool = False) -> None:
    """Discard all further output to the descriptors in `streams`."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in streams:
        # `isatty` returns False for a terminal that is gone.
        if not only_terminals or stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _verb(words: Sequence[str]) -> str:
    return f"{words[0]} " if words and words[0] in VERBS else ""


def _complain(message: str, bug: BaseException | None = None) -> None:
    """Print one line to stderr.  For a bug of our own, also write a report file with the traceback,
    and print its path.
    """
    _tell(f"tilesmith: error: {' '.join(message.split())}")
    if bug is not None and getattr(bug, "exit_code", 3) == 3:
        folder = Path(tempfile.mkdtemp(prefix="tilesmith-report-"))
        report = folder / "report.txt"
        report.write_text(
            f"tilesmith: {__version__}\ncommand: {json.dumps(sys.argv)}\n"
            f"python: {sys.version}\n"
            f"platform: {platform.platform()}\n\n" + "".join(traceback.format_exception(bug))
        )
        _tell(f"tilesmith: details for a bug report are in {report}")


def _tell(line: str) -> None:
    """Print a line to stderr, if that is possible."""
    with suppress(OSError):
        print(line, file=sys.stderr)
