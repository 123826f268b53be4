"""Arguments that several verbs share, and options derived from the fields of dataclasses."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

import typer

from tilesmith.driver.request import Request
from tilesmith.support.array_files import read_array
from tilesmith.support.errors import UsageError
from tilesmith.support.options import COMPILING, Options

ModelArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A model of any format (docs/formats.md lists them), or a .tsm program.",
    ),
]
SourceArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A model of any format (docs/formats.md lists them)."),
]
JsonFlag: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def levels(target: str) -> tuple[str, ...]:
    """The targets in a list such as `x86-64-v4,v3`.  A bare level belongs to the same architecture
    as the first target.
    """
    first, *others = target.split(",")
    kind = re.sub(r"-?v\d\b.*$", "", first)
    return (first, *(f"{kind}-{t}" if re.match(r"v\d\b", t) else t for t in others))


def _info(f: Field[Any]) -> Any:
    """The command-line option of a field, made from its metadata."""
    is_flag = f.type == "bool"
    name = f.name.replace("_", "-")
    flag = f.metadata["flag"] or f"--{name}"
    shown = "" if f.default in (None, ()) or is_flag else f" Default: {f.default}."
    return typer.Option(
        f"{flag}/--no-{name}" if is_flag else flag,
        help=f.metadata["help"] + shown,
        show_default=False,
        rich_help_panel=f.metadata["group"],
        metavar=f.metadata["metavar"],
    )


def _files_of(what: str) -> Any:
    """The command-line option for Python files that register templates or operators."""
    flag, registered = f"--{what}", {"templates": "schedules"}.get(what, what)
    option = typer.Option(
        flag,
        rich_help_panel=COMPILING,
        metavar="FILE.py",
        help=f"Run this Python file first, which registers {registered} of your own (repeatable).",
    )
    return Annotated[list[Path] | None, option]


SignOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--sign", metavar="KEY.pem", help="Sign what is written with this secret key."),
]
InputOption: TypeAlias = Annotated[
    Path | None, typer.Option("--input", "-i", help="Input file (default: random input).")
]
DeviceOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="tls://HOST:PORT",
        help="Compile for this device and run there: the address of its agent (docs/devices.md).",
    ),
]
SeedOption: TypeAlias = Annotated[int, typer.Option("--seed", min=0, help="Seed of random inputs.")]


def parse_shapes(given: Sequence[str] | None) -> dict[str, tuple[int, ...]] | None:
    """`["x=1,3", "y="]` as `{"x": (1, 3), "y": ()}`; None if there are none.

    Raises UsageError if an option is not of the form NAME=NUMBERS.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in given or ():
        name, equals, dims = text.rpartition("=")
        numbers = [d.strip() for d in dims.replace("x", ",").split(",")] if dims.strip() else []
        if not equals or not name or not all(d.isdecimal() for d in numbers):
            raise UsageError(f"--shape wants NAME=1,3,224,224 (whole numbers), not {text!r}")
        if name in shapes:
            raise UsageError(f"--shape was given twice for input {name!r}")
        shapes[name] = tuple(map(int, numbers))
    return shapes or None


def parse_dynamic(given: Sequence[str] | None) -> dict[str, tuple[int, int]] | None:
    """`["batch=1:64", "seq=512"]` as ranges by name; None without options.  A range without a start
    starts at 1.

    Raises UsageError if an option does not have that form.
    """
    ranges: dict[str, tuple[int, int]] = {}
    for text in given or ():
        name, equals, sizes = text.rpartition("=")
        low, colon, high = sizes.rpartition(":")
        low = low if colon else "1"
        if not equals or not name or not (low.isdecimal() and high.isdecimal()):
            raise UsageError(f"--dynamic wants NAME=LOW:HIGH (whole numbers), not {text!r}")
        ranges[name] = int(low), int(high)
    return ranges or None


def parse_expected(given: Sequence[str] | None) -> dict[str, int] | None:
    """`["batch=1", "seq=128"]` as sizes by name; None if there are none.

    Raises UsageError if an option does not have that form.
    """
    return _sizes("--expected", given or ()) or None


def parse_specialise(given: Sequence[str] | None) -> list[dict[str, int]] | Literal["auto"] | None:
    """`["batch=8", "batch=1,seq=128"]` as sizes by name, one set for each program; None if there
    are none.

    Raises UsageError if an option does not have that form.
    """
    if given and any(text == "auto" for text in given):
        if len(given) > 1:
            raise UsageError("--specialise auto stands alone")
        return "auto"
    return [_sizes("--specialise", text.split(",")) for text in given or ()] or None


def _sizes(option: str, texts: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for text in texts:
        name, equals, size = text.rpartition("=")
        if not equals or not name or not size.isdecimal():
            raise UsageError(f"{option} wants NAME=SIZE (a whole number), not {text!r}")
        sizes[name] = int(size)
    return sizes


def parse_in_place(given: Sequence[str] | None) -> dict[str, str] | None:
    """`["present=past"]` as a mapping from each output to the input whose memory it uses; None if
    there are none.

    Raises UsageError if an option does not have that form, or if an output is given twice.
    """
    homes: dict[str, str] = {}
    for text in given or ():
        out, equals, home = text.partition("=")
        if not equals or not out or not home:
            raise UsageError(f"--in-place wants OUTPUT=INPUT, not {text!r}")
        if out in homes:
            raise UsageError(f"--in-place was given twice for {out!r}")
        homes[out] = home
    return homes or None


def parse_values(given: Sequence[str] | None) -> dict[str, Any] | None:
    """`["k=5", "axes=[1, 2]", "x=@x.npy"]` as one value by name; None if there are none.

    Raises UsageError if an option does not have that form.
    """
    values: dict[str, Any] = {}
    for name, (value, *more) in _named_values("--value", given).items():
        if more:
            raise UsageError(f"--value was given twice for {name!r}")
        if isinstance(value, str) and value.startswith("@"):
            value = read_array(Path(value[1:]))
        if isinstance(value, (str, dict)) or value is None:
            raise UsageError(
                f"--value {name} wants a number, a JSON list or @FILE.npy, not {value!r}"
            )
        values[name] = value
    return values or None


def parse_pins(given: Sequence[str] | None) -> dict[str, Any] | None:
    """`["unroll=1", "rows=[4, 2]", "schedule=sketch"]` as one value by name: JSON, else text; None
    if there are none.

    Raises UsageError if an option is not of the form NAME=VALUE, or if a name is given twice.
    """
    values = _named_values("--pin", given)
    for name, several in values.items():
        if len(several) > 1:
            raise UsageError(f"--pin was given twice for {name!r}")
    return {name: value for name, (value,) in values.items()} or None


def parse_forbid(given: Sequence[str] | None) -> dict[str, list[Any]] | None:
    """Like `parse_pins`, with any number of values by name."""
    return _named_values("--forbid", given) or None


def _named_values(option: str, texts: Sequence[str] | None) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} wants NAME=VALUE, not {text!r}")
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = value
        values.setdefault(name, []).append(parsed)
    return values


_SINGLE: dict[str, type] = {"signature": str, "require_signature": Path}
"""The fields of `Request` whose option is given at most once, with its type."""

_PARSERS: dict[str, Callable[[Any], Any]] = {
    "shapes": parse_shapes,
    "dynamic": parse_dynamic,
    "expected": parse_expected,
    "specialise": parse_specialise,
    "in_place": parse_in_place,
    "optional": tuple,
    "signature": str,
    "require_signature": Path,
    "values": parse_values,
    "pins": parse_pins,
    "forbid": parse_forbid,
}
"""The fields of `Request` that are on the command line, each with the reader of its option."""


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb that compiles its command-line options: --operators, --templates, and one for
    each field of its parameters of type `Options`, `TuneOptions` or `Request`.

    `Request` contributes the fields of its `Options`, too.  `Annotated[Request, "shapes", ...]`
    selects fields of `Request`.  If the verb has a parameter with a field's name, the verb defines
    that option itself.

    A field that is not on the command line keeps its default.  The environment overrides the
    defaults of `Options`.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type] = {}
    named: dict[str, tuple[str, ...]] = {}
    for p in signature.parameters.values():
        kind = get_args(p.annotation)[0] if get_args(p.annotation) else p.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[p.name] = kind
            named[p.name] = get_args(p.annotation)[1:]
    own = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in signature.parameters.values()
        if p.name not in groups
    ]
    derived = {
        group: [p for p in _parameters(kind, named[group]) if p.name not in signature.parameters]
        for group, kind in groups.items()
    }
    compiles = Request in groups.values() or Options in groups.values()
    names = ("operators", "templates") if compiles else ()
    files = [_parameter(what, _files_of(what)) for what in names]

    @functools.wraps(command)
    def wrapper(
        operators: list[Path] | None = None, templates: list[Path] | None = None, **given: Any
    ) -> Any:
        if operators:
            # imported here, since it imports the compiler
            from tilesmith.frontend.onnx.custom import load_operators

            for path in operators:
                load_operators(path)
        if templates:
            from tilesmith.search_space.templates import load_templates

            for path in templates:
                load_templates(path)
        for group, kind in groups.items():
            values = {p.name: given.pop(p.name) for p in derived[group]}
            given[group] = _made(kind, {k: v for k, v in values.items() if v is not None})
        return command(**given)

    # options of this command alone come before the common ones
    first = [p for group, names in named.items() for p in derived[group][: len(names)]]
    rest = [p for ps in derived.values() for p in ps if p not in first]
    parameters = [*own, *first, *files, *rest]
    del wrapper.__wrapped__  # typer would otherwise read the annotations of the wrapped function
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # PEP 362
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _made(kind: type, values: dict[str, Any]) -> Any:
    """The dataclass of options with the values from the command line.  A `Request` gets no
    model.
    """
    if kind is Request:
        asked = {f.name: values.pop(n) for n, f in _request_fields() if n in values}
        parsed = {name: _PARSERS[name](value) for name, value in asked.items()}
        return Request(None, _options(values), **parsed, target=values.get("target"))
    return _options(values) if kind is Options else kind(**values)


def _request_fields(names: Collection[str] = ()) -> list[tuple[str, Field[Any]]]:
    """The fields of `Request` that are on the command line, each with its parameter's name.

    names: names of the fields to return (default: all).
    """
    named = [f for f in fields(Request) if f.metadata and (not names or f.name in names)]
    return [((f.metadata["flag"] or f.name).strip("-").replace("-", "_"), f) for f in named]


def _options(values: dict[str, Any]) -> Options:
    options = Options.from_environment(**values)
    options.show_logs()
    return options


def _parameters(options: type, names: Collection[str] = ()) -> list[inspect.Parameter]:
    """The command-line options for the fields of a dataclass of options.

    names: fields of `Request` to include (default: all).
    """
    if options is Request:
        own = [
            _parameter(
                name,
                Annotated[_SINGLE.get(f.name, list[str]) | None, _info(f)],
            )
            for name, f in _request_fields(names)
        ]
        return [*own, *_parameters(Options)]
    hints = get_type_hints(options)
    parameters: list[inspect.Parameter] = []
    for f in fields(options):
        if not f.metadata["cli"]:
            continue
        hint = Path | None if Path in get_args(hints[f.name]) else hints[f.name] | None
        parameters.append(_parameter(f.name, Annotated[hint, _info(f)]))
    return parameters


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=annotation)
