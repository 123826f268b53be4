"""A request for one compilation; `compile`, `export` and the command line make it.

This module does not import the compiler, since a program from the cache does not need it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options, option
from tilesmith.support.precision import precision_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from tilesmith.ir.sizes import ExpectedSizes, Ranges

Specialise: TypeAlias = Mapping[str, int] | Sequence[Mapping[str, int]] | Literal["auto"]
"""Sizes for which separate programs are compiled; see `compile`."""


def _repeated_option(flag: str, metavar: str, help: str, default: Any = None) -> Any:
    """A dataclass field that is a command-line option which may be repeated."""
    return option(default, f"{help} (repeatable).", flag=flag, metavar=metavar)


@dataclass(frozen=True, slots=True)
class Request:
    """A model to compile.  `compile` explains the fields that have the names of its arguments.
    Fields with metadata are also options of the command line; the metadata describe the options.

    model: the source.
    options: target, threads, accuracy and all other options.
    example_inputs, example_kwargs: arguments that a module of PyTorch is traced with.
    samples: inputs by name for the choice of a precision.
    sizes: numbers for symbols of the model, by the name that they have in its inputs' shapes.
    weights: new contents of weights, by name.
    target: the target, if it was given apart from the options.
    """

    model: Any
    options: Options
    shapes: Mapping[str, Sequence[int] | int] | None = _repeated_option(
        "--shape",
        "NAME=1,3,224,224",
        "Shape of an input whose dimensions the model leaves open, or the size of a dimension "
        "by its name",
    )
    dynamic: Ranges | None = _repeated_option(
        "--dynamic", "NAME=LOW:HIGH", "Sizes that an open dimension may have in a run"
    )
    expected: ExpectedSizes | None = _repeated_option(
        "--expected", "NAME=SIZE", "Size of an open dimension for which the program is made fast"
    )
    specialise: Specialise | None = _repeated_option(
        "--specialise",
        "NAME=SIZE,...",
        "Sizes of open dimensions that get a program of their own beside the one for all "
        "sizes, or auto",
    )
    in_place: Mapping[str, str] | None = _repeated_option(
        "--in-place", "OUTPUT=INPUT", "Output that lives in the memory of an input, such as a cache"
    )
    optional: Sequence[str] = _repeated_option(
        "--optional",
        "NAME",
        "Initialiser of the model that becomes an input, with its value as the default",
        (),
    )
    signature: str | None = option(
        None,
        "Signature to compile, of a model that has several functions (default: its main one).",
        metavar="NAME",
    )
    require_signature: str | PathLike[str] | None = option(
        None,
        "Load a .tsm file only if it was signed with the key that belongs to this one.",
        metavar="PUBLIC.pem",
    )
    values: Mapping[str, ArrayLike] | None = _repeated_option(
        "--value",
        "NAME=VALUE",
        "Fix an input that shapes depend on: a number, a JSON list or @FILE.npy",
    )
    pins: Mapping[str, Any] | None = _repeated_option(
        "--pin", "NAME=VALUE", "Wherever a kernel or the model has this choice, only this value"
    )
    forbid: Mapping[str, Collection[Any]] | None = _repeated_option(
        "--forbid", "NAME=VALUE", "Never this value"
    )
    example_inputs: Any = None
    example_kwargs: Mapping[str, Any] | None = None
    samples: Mapping[str, Any] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] | None = None
    target: str | None = None

    @staticmethod
    def of(model: Any, options: Options | None = None, **arguments: Any) -> Request:
        """The request for the arguments of a function.  `arguments` are fields of the request, and
        options, which take precedence over `options`.  Raises UsageError for impossible options.
        """
        own = {f.name for f in fields(Request)}
        named = {name: value for name, value in arguments.items() if name not in own}
        asked = {name: value for name, value in arguments.items() if name in own}
        target, precision = asked.get("target"), named.pop("precision", None)
        if precision is not None:
            named["precision"] = precision_text(precision)
        options = (options or Options.from_environment()).with_(target=target, **named)
        asked["optional"] = tuple(asked.get("optional", ()))
        return Request(model, options, **asked)

    def levels(self, targets: Sequence[str]) -> Sequence[Request]:
        """A request for the same model for each target (default: the target in `options`)."""
        named = targets or (self.options.target,)
        options = (self.options.with_(target=t) for t in named)
        return [replace(self, options=o) for o in options]

    def check_only(self, what: str, known: Collection[str]) -> None:
        """Raises UsageError if fields are given of which `what` reads none.

        known: the fields that it reads, besides the model and the options.
        """
        known = ("model", "options", "target", *known)
        unread = [f.name for f in fields(self) if f.name not in known and getattr(self, f.name)]
        if unread:
            raise UsageError(f"{', '.join(unread)}: {what} does not read it; leave it out")

    def on_cpu(self) -> Request:
        """A request for the same model on this machine's CPU, without the limits of a device."""
        options = replace(self.options, target="native", memory_limit=None, time_limit=None)
        return replace(self, options=options)
