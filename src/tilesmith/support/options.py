"""All options of a compilation, as one frozen value.

The public functions pass `Options` down explicitly; no other module reads the environment.  Fields
whose metadata says `affects_code` are part of `key()`, which is in every cache key.  The other
fields (the dump folder, the number of threads at the start) cannot change the generated code.  The
command line derives its options from these fields.

Environment: `TILESMITH_TARGET`, `TILESMITH_NUM_THREADS` (else `OMP_NUM_THREADS`),
`TILESMITH_CACHE_DIR` (else `XDG_CACHE_HOME/tilesmith`, else `~/.cache/tilesmith`),
`TILESMITH_CACHE_BYTES`, `TILESMITH_USE_CACHE`, `TILESMITH_RECORDS`, `TILESMITH_USE_RECORDS`,
`TILESMITH_NEAREST`, `TILESMITH_DUMP`, `TILESMITH_VERIFY_EACH`, `TILESMITH_TIME_PASSES`,
`TILESMITH_LOGS`, `TILESMITH_JOBS`, `TILESMITH_WATCH_PAGES`; `CC`, the command of a C compiler.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tilesmith.support.arguments import check_fields, checked
from tilesmith.support.errors import UsageError
from tilesmith.support.logs import TOPICS, parse_topics, show
from tilesmith.support.precision import precision_text

Accuracy: TypeAlias = Literal["default", "strict"]
Fallback: TypeAlias = Literal["warn", "error", "cpu"]

_ONE_STEP = {
    "f8e4m3fn": 0.125, "f8e4m3fnuz": 0.125, "f8e5m2": 0.25, "f8e5m2fnuz": 0.25, "f8e8m0": 1.0,
    "f6e2m3": 0.125, "f6e3m2": 0.25, "f4e2m1": 0.5,
}  # fmt: skip
"""Relative distance of neighbouring numbers of a type.  Near a tie, rounding may yield either
neighbour.
"""

BOUNDS: dict[Accuracy, dict[str, float]] = {
    "default": {"f64": 1e-10, "f32": 1e-4, "f16": 1e-2, "bf16": 5e-2} | _ONE_STEP,
    "strict": {"f64": 1e-10, "f32": 5e-6, "f16": 1e-2, "bf16": 5e-2} | _ONE_STEP,
}
"""Accuracy policies: by element type, the largest error of a compiled kernel against its reference,
relative to the largest magnitude in the reference's result.  Integers and bools are exact.  Sums
inside a declared reduction may be added in any order; the bounds allow for that.  An algorithm
whose error on random data may exceed the bound is not chosen.

"strict" also determines every bit of a kernel's results: they equal the interpreter's results for
the kernel's loop nest (docs/accuracy.md).
"""


COMPILING, REUSE, WATCHING = "Compilation", "Cache and records", "Watching the compiler"
"""Groups of options in the help of the command line."""


def option(
    default: Any,
    help: str,
    group: str | None = COMPILING,
    *,
    affects_code: bool = False,
    cli: bool = True,
    flag: str | None = None,
    metavar: str | None = None,
) -> Any:
    """A field of a dataclass that is an option.

    default: value of an option that is not given.
    help: text in the help of the command line.
    group: heading in that help; None: among the verb's own options.
    affects_code: whether it can change the generated code.
    cli: whether the option is on the command line.
    flag: name on the command line, if it differs from the field's name.
    metavar: placeholder for the value in the help of the command line.
    """
    about = {"help": help, "group": group, "affects_code": affects_code, "cli": cli}
    return field(default=default, metadata={**about, "flag": flag, "metavar": metavar})


def option_table(options: type) -> str:
    """A Markdown table of the fields of a dataclass of options, for the documentation."""
    lines = ["| option | default | meaning |", "| --- | --- | --- |"]
    for f in fields(options):
        flag = f.metadata["flag"] or f"--{f.name.replace('_', '-')}"
        called = f"`{f.name}`" + (f", `{flag}`" if f.metadata["cli"] else "")
        lines.append(f"| {called} | {f.default} | {f.metadata['help']} |")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one compilation.  The metadata of a field describes it.

    precision: see `support.precision`; types by pattern may also be given as a mapping.
    accuracy: names a policy of `BOUNDS`.

    Raises UsageError if a value is impossible.
    """

    target: str = option(
        "native",
        "CPU to compile for: native, x86-64[-v2|-v3|-v4], an extension (sse, sse4, avx2, "
        "avx512), a named machine (server-64) or a description file (.toml, .json).",
        affects_code=True,
    )
    threads: int | None = option(
        None, "Threads to run with (default: the physical cores this process may use)."
    )
    opt_level: int = option(
        2,
        "LLVM's effort: 0 none, 1 or 2 what scheduled kernels need, 3 its whole pipeline.",
        affects_code=True,
    )
    precision: str = option(
        "f32",
        "Type in which products of float32 models read their operands where that is faster: "
        "f32, bf16, f16, auto, or PATTERN=TYPE,... for nodes by name.",
        affects_code=True,
    )
    accuracy: Accuracy = option(
        "default",
        "strict: each kernel's results are the interpreter's, bit by bit; or default.",
        affects_code=True,
    )
    fallback: Fallback = option(
        "warn",
        "Operators without native code: warn and run them on the host, by ONNX's reference "
        "evaluator, or error. So for those that a device can't run: on the CPU. cpu: as warn, "
        "and the CPU answers where a device is not there or fails.",
    )
    memory_limit: int | None = option(
        None,
        "Most bytes: of a device's memory, or on a CPU of intermediate values that are alive at "
        "one time.  Values are computed again where that costs the least (default: none is).",
        affects_code=True,
        metavar="BYTES",
    )
    time_limit: float | None = option(
        None, "Most seconds that a call may take on a device (default: as many as it needs)."
    )
    unsafe: bool = option(
        False,
        "Clamp indices that are out of range (Gather, Scatter and their relatives), and report "
        "none.",
        affects_code=True,
    )
    cache_dir: Path | None = option(None, "Folder of the cache of compiled kernels.", REUSE)
    cache_bytes: int = option(2 << 30, "Size the cache may grow to, in bytes.", None, cli=False)
    use_cache: bool = option(True, "Read and write the cache of compiled kernels.", REUSE)
    records: Path | None = option(
        None, "File of tuning records (default: in the cache folder).", REUSE
    )
    use_records: bool = option(True, "Use what tuning found.", REUSE)
    nearest: bool = option(
        True, "Use what tuning found for the nearest shape where a shape was never tuned.", REUSE
    )
    dump: Path | None = option(
        None, "Write the text of each stage that changed to this folder.", WATCHING
    )
    verify_each: bool = option(
        False, "Verify the IR after every pass, not only between stages.", WATCHING
    )
    time_passes: bool = option(False, "Print where compile time went.", WATCHING)
    logs: str = option(
        "",
        f"Show messages of these topics on stderr: all, or some of {', '.join(TOPICS)}.",
        WATCHING,
    )
    jobs: int | None = option(None, "Kernels to compile at the same time (default: cores).")

    def __post_init__(self) -> None:
        check_fields(self, UsageError)
        if self.opt_level not in (0, 1, 2, 3):
            raise UsageError(f"opt_level must be 0, 1, 2 or 3, not {self.opt_level!r}")
        if self.accuracy not in get_args(Accuracy):
            raise UsageError(
                f"accuracy must be one of {', '.join(get_args(Accuracy))}, not {self.accuracy!r}"
            )
        object.__setattr__(self, "precision", precision_text(self.precision))
        if self.is_strict and self.precision != "f32":
            raise UsageError(
                f"precision={self.precision!r} rounds operands, which accuracy='strict' does not "
                "allow: use precision='f32' or accuracy='default'"
            )
        parse_topics(self.logs)
        for name in ("threads", "jobs"):
            count = getattr(self, name)
            if count is not None and (
                not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 4096
            ):
                raise UsageError(f"{name} must be a whole number from 1 to 4096, not {count!r}")
        if self.fallback not in get_args(Fallback):
            raise UsageError(
                f"fallback must be one of {', '.join(get_args(Fallback))}, not {self.fallback!r}"
            )
        seconds = self.time_limit
        if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds < inf):
            raise UsageError(f"time_limit must be a number of seconds above 0, not {seconds!r}")
        limit = self.memory_limit
        if limit is not None and (type(limit) is not int or limit < 1):
            raise UsageError(f"memory_limit must be a number of bytes from 1 on, not {limit!r}")
        if self.cache_bytes < 0:
            raise UsageError(f"cache_bytes must not be negative, found {self.cache_bytes}")
        for name in ("cache_dir", "records", "dump"):
            path = getattr(self, name)
            if path is not None and not isinstance(path, Path):
                object.__setattr__(self, name, Path(path))

    @staticmethod
    @checked(UsageError)
    def from_environment(environ: Mapping[str, str] | None = None, **overrides: Any) -> Options:
        """The options from the environment; `overrides` (where not None) take precedence.

        Raises UsageError that names the variable if its value can't be read.
        """
        env = os.environ if environ is None else environ
        values: dict[str, Any] = {
            "target": env.get("TILESMITH_TARGET") or None,
            "threads": threads_from_environment(env),
            "cache_dir": cache_dir_from_environment(env),
            "cache_bytes": _number(env, "TILESMITH_CACHE_BYTES", minimum=0),
            "use_cache": _flag(env, "TILESMITH_USE_CACHE"),
            "records": env.get("TILESMITH_RECORDS") or None,
            "use_records": _flag(env, "TILESMITH_USE_RECORDS"),
            "nearest": _flag(env, "TILESMITH_NEAREST"),
            "dump": env.get("TILESMITH_DUMP") or None,
            "verify_each": _flag(env, "TILESMITH_VERIFY_EACH"),
            "time_passes": _flag(env, "TILESMITH_TIME_PASSES"),
            "logs": env.get("TILESMITH_LOGS") or None,
            "jobs": _number(env, "TILESMITH_JOBS"),
        }
        known = {f.name for f in fields(Options)}
        for name, value in overrides.items():
            if name not in known:
                raise UsageError(
                    f"there is no option {name!r}; options are {', '.join(sorted(known))}"
                )
            if value is not None:
                values[name] = value
        return Options(**{k: v for k, v in values.items() if v is not None})

    @checked(UsageError)
    def with_(self, **changes: Any) -> Options:
        """A copy of the options with some changes.  None leaves a field unchanged."""
        changes = {k: v for k, v in changes.items() if v is not None}
        return replace(self, **changes) if changes else self

    @property
    def is_strict(self) -> bool:
        """Whether the accuracy policy determines every bit of the results."""
        return self.accuracy == "strict"

    @property
    def algorithm_bound(self) -> float:
        """The largest error for f32 that a substitute algorithm, such as Winograd's, may have."""
        return 0.0 if self.is_strict else self.bound("f32")

    def show_logs(self) -> None:
        """Show the messages selected by `logs` from now on, in the whole process."""
        show(parse_topics(self.logs))

    @checked(UsageError)
    def bound(self, dtype: str) -> float:
        """The largest relative error allowed for an element type, by name (`f32`); 0: exact."""
        return BOUNDS[self.accuracy].get(dtype, 0.0)

    @lru_cache(maxsize=16)  # noqa: B019 - few in use at a time, and each kernel asks for this
    def key(self) -> str:
        """A stable hash (16 hex digits) of every option that can change the generated code."""
        text = ";".join(
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)
            if f.metadata["affects_code"]
        )
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def threads_from_environment(environ: Mapping[str, str] | None = None) -> int | None:
    """The number in `TILESMITH_NUM_THREADS`, else the first number in `OMP_NUM_THREADS`, else None.
    `OMP_NUM_THREADS` may have a number for each nesting level.
    """
    env = os.environ if environ is None else environ
    ours = _number(env, "TILESMITH_NUM_THREADS")
    if ours is not None:
        return ours
    # The variable is meant for OpenMP programs, so an invalid value is not an error here.
    first = env.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def cache_dir_from_environment(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the cache of compiled kernels."""
    env = os.environ if environ is None else environ
    if env.get("TILESMITH_CACHE_DIR"):
        return Path(env["TILESMITH_CACHE_DIR"]).expanduser()
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]) / "tilesmith"
    home = env.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache" / "tilesmith"


def devices_dir_from_environment(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the keys of devices: `TILESMITH_DEVICES`, or one among the user's settings."""
    env = os.environ if environ is None else environ
    if env.get("TILESMITH_DEVICES"):
        return Path(env["TILESMITH_DEVICES"]).expanduser()
    return _settings(env) / "devices"


def agent_dir_from_environment(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of this machine's agent, among the user's settings."""
    return _settings(os.environ if environ is None else environ) / "agent"


def _settings(env: Mapping[str, str]) -> Path:
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "tilesmith"


def watches_pages_from_environment(environ: Mapping[str, str] | None = None) -> bool:
    """`TILESMITH_WATCH_PAGES`: whether the operating system may watch weights for writes."""
    env = os.environ if environ is None else environ
    return _flag(env, "TILESMITH_WATCH_PAGES") is not False


def compiler_from_environment(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The words of `CC`, the command of a C compiler; empty if it is not set."""
    env = os.environ if environ is None else environ
    return tuple(shlex.split(env.get("CC", "")))


def records_path(options: Options) -> Path:
    """The file of tuning records."""
    return options.records or (options.cache_dir or cache_dir_from_environment()) / "records.sqlite"


def _number(env: Mapping[str, str], name: str, minimum: int = 1) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < minimum:
        raise UsageError(
            f"environment variable {name} must be a whole number >= {minimum}, not {text!r}"
        )
    return int(text)


_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _flag(env: Mapping[str, str], name: str) -> bool | None:
    text = env.get(name, "").strip().lower()
    if not text:
        return None
    if text not in _WORDS:
        raise UsageError(f"environment variable {name} must be 1 or 0, not {text!r}")
    return _WORDS[text]
