"""Python modules for compiled models: a loader with named inputs and outputs, and its type stub.

`NAME.py` loads `NAME.tsm` in the same folder.  `NAME.pyi` describes its inputs and outputs for
editors and type checkers.  Names that are not Python identifiers are changed.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tilesmith.runtime.program import Program, TensorSpec
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import write_text
from tilesmith.support.version import VERSION

_NOT_INPUTS = {"self", "Outputs"}
_NOT_OUTPUTS = {*dir(tuple), "Any", "np", "npt"}
"""`_NOT_INPUTS`: names that the parameters of a call must not have.  `_NOT_OUTPUTS`: names that the
fields of a call's result must not have.
"""

_LOADER = '''"""{about}"""

from pathlib import Path
from typing import Any, NamedTuple

import tilesmith

FILE = Path(__file__).with_name("{file}")


class Outputs(NamedTuple):
    """{outputs_doc}"""

{any_fields}


class Model:
    """{model_doc}"""

    def __init__(self, path=FILE, threads=None, require_signature=None):
        self.executable = tilesmith.load(path, threads, require_signature)

    def __call__(self{names}):
        """{call_doc}"""
        found = self.executable({arguments})
        return Outputs({results})
'''

_STUB = '''"""{about}"""

from pathlib import Path
from typing import {typing}

import numpy as np
import numpy.typing as npt
import tilesmith

FILE: Path

class Outputs(NamedTuple):
    """{outputs_doc}"""

{typed_fields}

class Model:
    """{model_doc}"""

    executable: tilesmith.Executable
    def __init__(
        self,
        path: str | Path = ...,
        threads: int | None = None,
        require_signature: str | Path | None = None,
    ) -> None: ...
    def __call__(self{typed_names}) -> Outputs:
        """{call_doc}"""
'''


def write_stubs(program: Program, path: str | Path) -> tuple[Path, Path]:
    """Write `NAME.py` and `NAME.pyi` beside the program's file `NAME.tsm`, and return their paths.

    Raises UsageError if NAME is not a valid module name, or the files can't be written.
    """
    path = Path(path)
    check_module_name(path)
    values = _values(program, path.name)
    written = path.with_suffix(".py"), path.with_suffix(".pyi")
    try:
        for to, text in zip(written, (_LOADER, _STUB), strict=True):
            write_text(to, text.format_map(values))
    except OSError as e:
        raise UsageError(f"{str(path.parent)!r} can't be written: {e.strerror or e}") from e
    return written


def check_module_name(path: Path) -> None:
    """Raises UsageError if the file name of `path` is not a valid module name."""
    if not path.stem.isidentifier() or keyword.iskeyword(path.stem):
        raise UsageError(
            f"a module beside {str(path)!r} could not be imported: expected a file whose name is "
            f"an identifier of Python, found {path.stem!r}"
        )


def _values(program: Program, file: str) -> dict[str, str]:
    """The replacements of the placeholders in braces in the templates."""
    inputs = _identifiers((s.name for s in program.caller_inputs), _NOT_INPUTS)
    outputs = _identifiers((s.name for s in program.caller_outputs), _NOT_OUTPUTS)
    pairs = zip(inputs, program.caller_inputs, strict=True)
    optional = {n: s.name for n, s in pairs if s.name in program.optional_arrays}
    about = f"{file}: a model compiled by Tilesmith {VERSION} for {program.target.name}."
    asked = [n for n in inputs if n not in optional]
    example = f"Example: {Path(file).stem}.Model()({', '.join(asked)})"
    sizes = [f"{_quoted(s.name)}: from {s.sizes.low} to {s.sizes.high}" for s in program.symbols]
    call = _lines(
        "Run the model.  Arrays that NumPy views are not copied.",
        ("Arguments", _listed(inputs, program.caller_inputs, optional)),
        ("Open sizes", sizes),
        ("Result", _listed(outputs, program.caller_outputs)),
        (
            "Raises",
            ["tilesmith.ModelError: an input has another type or shape, or an assertion failed"],
        ),
    )
    typed = [_array(s) for s in program.caller_inputs]
    results = [_array(s) for s in program.caller_outputs]
    return {
        "typing": "Any, NamedTuple" if "Any" in "".join(typed + results) else "NamedTuple",
        "about": _lines(about, "", example + (f".{outputs[0]}" if outputs else ""), ""),
        "file": _quoted(file),
        "outputs_doc": _lines(
            "What the model computes, in order.",
            ("Fields", _listed(outputs, program.caller_outputs)),
            depth=1,
        ),
        "model_doc": _lines(
            "The model in memory, for any number of calls.",
            (
                "Arguments",
                [
                    "path: its file; default: the one beside this module",
                    "threads: that a run uses; default: as many as there are cores",
                    "require_signature: the public key of whoever must have signed the file",
                ],
            ),
            depth=1,
        ),
        "call_doc": call,
        "names": "".join(f", {n}{'=None' * (n in optional)}" for n in inputs),
        "typed_names": "".join(
            f", {n}: {t}{' | None = None' * (n in optional)}"
            for n, t in zip(inputs, typed, strict=True)
        ),
        "any_fields": "\n".join(f"    {n}: Any" for n in outputs) or "    pass",
        "typed_fields": "\n".join(f"    {n}: {t}" for n, t in zip(outputs, results, strict=True))
        or "    ...",
        "arguments": _arguments(inputs, optional),
        "results": "found" if len(outputs) == 1 else "*found",
    }


def _arguments(inputs: Sequence[str], optional: Mapping[str, str]) -> str:
    """The arguments of the executable's call, as text.

    optional: for each parameter that may be None, the input's name in the model.
    """
    shown = [n for n in inputs if n not in optional]
    if optional:
        pairs = ", ".join(f'("{_quoted(name)}", {n})' for n, name in optional.items())
        shown.append(f"**{{k: v for k, v in ({pairs},) if v is not None}}")
    return ", ".join(shown)


def _identifiers(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Names as identifiers, all different from one another and from `taken`."""
    identifiers: list[str] = []
    used = set(taken)
    for name in names:
        made = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "value"
        if made[0].isdigit():
            made = f"value_{made}"
        if keyword.iskeyword(made):
            made += "_"
        base, number = made, 2
        while made in used:
            made, number = f"{base}_{number}", number + 1
        used.add(made)
        identifiers.append(made)
    return identifiers


def _array(spec: TensorSpec) -> str:
    """The type of an array in a stub."""
    if spec.dtype.is_host:
        return "Any"
    scalar = spec.dtype.numpy.type
    if scalar.__module__ != "numpy":  # a type that NumPy lacks
        return "npt.NDArray[Any]"
    return f"npt.NDArray[np.{scalar.__name__}]"


def _listed(
    names: Sequence[str], specs: Sequence[TensorSpec], optional: Collection[str] = ()
) -> list[str]:
    """Each name with its type and shape, and its name in the model."""
    return [
        f"{n}: {_quoted(s.type)}"
        + (f' ("{_quoted(s.name)}" of the model)' if n != s.name else "")
        + ("; None: the value that the model stores" if n in optional else "")
        for n, s in zip(names, specs, strict=True)
    ]


def _lines(*parts: str | tuple[str, Sequence[str]], depth: int = 2) -> str:
    """A docstring made of lines and of titled sections; sections without lines are omitted."""
    margin = "    " * depth
    text = [p for p in parts if isinstance(p, str)]
    sections = [p for p in parts if isinstance(p, tuple) and p[1]]
    for title, lines in sections:
        text += ["", f"{margin}{title}:", *(f"{margin}    {line}" for line in lines)]
    return "\n".join((*text, margin)) if sections else "\n".join(text)


def _quoted(name: str) -> str:
    """A name between quotes, as a Python literal."""
    return name.encode("unicode_escape").decode("ascii").replace('"', '\\"')
