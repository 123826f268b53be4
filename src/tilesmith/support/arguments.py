"""Checks of users' arguments against the annotations of public functions, before the function runs.

    @checked(ScheduleError)
    def lower(schedule: Schedule, args: Sequence[Tensor], name: str = "main") -> Func: ...

A call with `args=5` raises `ScheduleError: lower: args: expected a list of Tensor, found 5`.  NumPy
integers become Python integers.  The function itself checks conditions that an annotation can't
express (ranges, names that exist), protocols, and annotations whose names exist only for type
checkers.

`shown` formats a value for a message.  It does not call the object's `repr`, which may have many
lines, fail, or read invalid memory.
"""

from __future__ import annotations

import collections.abc
import inspect
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path, PurePath
from typing import (
    IO,
    Annotated,
    Any,
    BinaryIO,
    ForwardRef,
    Literal,
    ParamSpec,
    TextIO,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import TilesmithError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=type)

_MOST_LETTERS = 80
_MOST_ITEMS = 4
_LONGEST_PATH = 4096  # in bytes; no operating system allows a longer path
_DEPTH = 2
_OURS = "tilesmith."


def each(items: Iterable[T], what: str) -> Iterator[T]:
    """The items of an iterable that a caller passed.  Raises UsageError if it can't be iterated
    over.

    what: the items' name in the message.
    """
    try:
        yield from items
    except (TypeError, ValueError, RuntimeError) as e:  # errors of files, NumPy and PyTorch
        raise UsageError(f"expected {what}, found {shown(items)}: {e}") from e


def shown(value: object, depth: int = _DEPTH) -> str:
    """A value as text for a message: one short line for any value."""
    kind = type(value)
    if kind is int and value.bit_length() > 128:  # type: ignore[attr-defined]
        return f"an integer of {value.bit_length()} bits"  # type: ignore[attr-defined]
    if value is None or kind in (bool, int, float, complex):
        return repr(value)
    if kind in (str, bytes):
        text = repr(value[:_MOST_LETTERS])  # type: ignore[index]
        return text if len(value) <= _MOST_LETTERS else f"{text[:-1]}...{text[-1]}"  # type: ignore[arg-type]
    if kind in (list, tuple, dict, set, frozenset):
        return _items(value, kind, depth)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if kind.__module__.startswith(_OURS) and kind.__str__ is not object.__str__:
        try:
            text = str(value)
        except Exception:  # the object is nested too deeply, or incomplete
            text = ""
        if 0 < len(text) <= _MOST_LETTERS and text.isprintable():
            return text
    return f"an object of class {kind.__name__}"


def _items(value: Any, kind: type, depth: int) -> str:
    empty = {list: "[]", tuple: "()", dict: "{}"}.get(kind, f"{kind.__name__}()")
    if not value:
        return empty
    first, last = ("{", "}") if kind in (dict, set, frozenset) else (empty[0], empty[1])
    if depth == 0:
        return f"{first}...{last}"
    texts: list[str] = []
    for item in value:
        if len(texts) == _MOST_ITEMS:
            texts.append("...")
            break
        text = shown(item, depth - 1)
        texts.append(f"{text}: {shown(value[item], depth - 1)}" if kind is dict else text)
    comma = "," if kind is tuple and len(value) == 1 else ""
    return f"{first}{', '.join(texts)}{comma}{last}"


class _Unfit(Exception):
    """A value does not match its annotation.

    place: path of the item, such as `['x'][0]`.
    expected, found: description of the expected value, and the value found there.
    """

    def __init__(self, place: str = "", expected: str = "", found: object = None) -> None:
        super().__init__(place)
        self.place, self.expected, self.found = place, expected, found


_STAND_INS: dict[type, tuple[str, tuple[type, ...]]] = {}


def stand_ins(cls: type, expected: str, *others: type) -> None:
    """Accept objects of the classes `others` for parameters with the annotation `cls`.

    expected: description of these parameters' values in messages.
    """
    _STAND_INS[cls] = expected, others


@dataclass(frozen=True, slots=True)
class _Kind:
    """The values that an annotation allows.

    expected: description of the values.
    convert: maps a value to the argument that the function receives.  Raises _Unfit.
    """

    expected: str
    convert: Callable[[Any], Any]


def _unfit(*_: object) -> Any:
    raise _Unfit


def _of_class(cls: type | tuple[type, ...], expected: str) -> _Kind:
    def convert(value: Any) -> Any:
        return value if isinstance(value, cls) else _unfit()

    return _Kind(expected, convert)


def _whole(value: Any) -> Any:
    # an instance of a subclass of int stays unchanged
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    raise _Unfit


def _real(value: Any) -> Any:
    if type(value) is float or type(value) is int:
        return value
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    raise _Unfit


def _truth(value: Any) -> Any:
    if value is True or value is False:
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise _Unfit


def _text(value: Any) -> Any:
    """Convert to a plain `str` that can be written to a text file."""
    if not isinstance(value, str):
        raise _Unfit
    if type(value) is not str and type(value).__str__ is not str.__str__:
        value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # a lone surrogate
            raise _Unfit from None
    return value


def _path(value: Any) -> Any:
    name = value if isinstance(value, str) else None
    if name is None and isinstance(value, os.PathLike):
        try:
            name = os.fspath(value)
        except TypeError:  # __fspath__ returned another type
            raise _Unfit from None
    if not isinstance(name, str) or "\0" in name:
        raise _Unfit
    try:
        length = len(os.fsencode(name))
    except UnicodeError:
        raise _Unfit from None
    if length > _LONGEST_PATH:
        raise _Unfit
    return value


def _stream(value: Any) -> Any:
    return value if hasattr(value, "write") or hasattr(value, "read") else _unfit()


_SIMPLE: dict[Any, _Kind] = {
    None: _Kind("None", lambda v: v if v is None else _unfit()),
    type(None): _Kind("None", lambda v: v if v is None else _unfit()),
    bool: _Kind("True or False", _truth),
    int: _Kind("an integer", _whole),
    float: _Kind("a number", _real),
    str: _Kind("a string", _text),
}
_LISTS = (list, tuple, collections.abc.Sequence)
_ITERABLES = (collections.abc.Iterable, collections.abc.Collection, set, frozenset,
              collections.abc.Set)  # fmt: skip
_PATHS = (os.PathLike, Path, PurePath)


def _kind(hint: Any) -> _Kind | None:
    """The values that an annotation allows; None if it can't be checked."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Union or origin is types.UnionType:
        return _either([_kind(p) for p in parts])
    if origin is Literal:
        return _either([_SIMPLE.get(cls) for cls in dict.fromkeys(map(type, parts))])
    cls = origin or hint
    if cls is collections.abc.Callable:
        return _Kind("a function", lambda v: v if callable(v) else _unfit())
    if cls in (IO, BinaryIO, TextIO):
        return _Kind("a stream", _stream)
    if not isinstance(cls, type) or getattr(cls, "_is_protocol", False):
        return None
    if cls in _PATHS:
        return _Kind("a path", _path)
    if cls is collections.abc.Mapping or issubclass(cls, dict):
        return _mapping(parts)
    if cls is tuple and len(parts) > 1 and parts[-1] is not ...:
        return _fixed(parts)
    if cls in _LISTS or cls in _ITERABLES:
        return _several(cls, parts)
    if cls in (Any, object) or hasattr(
        cls, "__total__"
    ):  # for a TypedDict, the function checks the keys
        return None
    if cls in _STAND_INS:
        expected, others = _STAND_INS[cls]
        return _of_class(others, expected)
    article = "an" if cls.__name__[0] in "AEIOU" else "a"
    return _of_class(cls, f"{article} {cls.__name__}")


def _either(kinds: Sequence[_Kind | None]) -> _Kind | None:
    known: list[_Kind] = []
    for kind in kinds:
        if kind is None:
            return None
        known.append(kind)
    if any(k.convert is _path for k in known):  # an annotation for paths accepts strings as well
        known = [k for k in known if k.convert is not _text]
    if len(known) == 1:
        return known[0]

    def convert(value: Any) -> Any:
        unfit = _Unfit()
        for kind in known:
            try:
                return kind.convert(value)
            except _Unfit as e:
                unfit = e if e.place else unfit
        raise unfit

    words = list(dict.fromkeys(k.expected for k in known))
    return _Kind(f"{', '.join(words[:-1])} or {words[-1]}", convert)


def _several(cls: Any, parts: tuple[Any, ...]) -> _Kind:
    """A sequence, a collection or an iterable.  If it has a length, the items are checked too."""
    item = _kind(parts[0]) if parts and (len(parts) == 1 or parts[1:] == (...,)) else None
    wanted = collections.abc.Sequence if cls in _LISTS else collections.abc.Collection
    if cls is collections.abc.Iterable:
        wanted = cls

    def convert(value: Any) -> Any:
        if isinstance(value, (str, bytes, bytearray, memoryview)) or not isinstance(value, wanted):
            raise _Unfit
        if hasattr(value, "readline"):  # iterating over a file gives its lines, which nobody wants
            raise _Unfit
        # don't consume an iterator
        if item is None or not isinstance(value, collections.abc.Sized):
            return value
        try:
            elements = list(value)
        except (TypeError, ValueError, RuntimeError):  # an array without dimensions or memory
            raise _Unfit from None
        items = [_item(item, v, n) for n, v in enumerate(elements)]
        if all(map(_is, items, elements)):
            return value
        remade: Any = type(value)
        return remade(items) if remade in (list, tuple, set, frozenset) else items

    of = item.expected.split(" ", 1) if item is not None else []
    if len(of) == 2 and of[0] in ("a", "an") and " or " not in of[1]:
        return _Kind(f"a list of {of[1]}s" if of[1].islower() else f"a list of {of[1]}", convert)
    return _Kind("a list" if item is None else f"a list, each {item.expected}", convert)


def _fixed(parts: tuple[Any, ...]) -> _Kind:
    """A tuple with a fixed number of items, each with a kind of its own."""
    kinds = [_kind(p) for p in parts]

    def convert(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(kinds):
            raise _Unfit
        pairs = zip(kinds, value, strict=True)
        items = [_item(k, v, n) if k else v for n, (k, v) in enumerate(pairs)]
        return value if all(map(_is, items, value)) else tuple(items)

    return _Kind(f"a tuple of {len(kinds)}", convert)


def _item(kind: _Kind, value: Any, key: object) -> Any:
    try:
        return kind.convert(value)
    except _Unfit as e:
        place = f"[{shown(key)}]{e.place}"
        raise _Unfit(place, e.expected or kind.expected, e.found if e.place else value) from None


def _is(a: object, b: object) -> bool:
    return a is b


def _mapping(parts: tuple[Any, ...]) -> _Kind:
    key, item = (_kind(p) for p in parts) if len(parts) == 2 else (None, None)

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _Unfit
        if key is None and item is None:
            return value
        made: dict[Any, Any] = {}
        for k, v in value.items():
            name = _item(_named(key), k, k) if key else k
            made[name] = _item(item, v, k) if item else v
        return value if all(made[k] is v for k, v in value.items() if k in made) else made

    return _Kind("a mapping", convert)


def _hints(thing: Any) -> dict[str, Any]:
    """The annotations of a function or class, without those that can't be evaluated."""
    try:
        return get_type_hints(thing, include_extras=True)
    except (NameError, TypeError):  # some names or aliases exist only for type checkers
        names = getattr(thing, "__globals__", None) or vars(inspect.getmodule(thing))
        hints: dict[str, Any] = {}
        for name, text in getattr(thing, "__annotations__", {}).items():
            try:
                ref = ForwardRef(text) if isinstance(text, str) else text
                holder = type("_", (), {"__annotations__": {name: ref}})
                hints[name] = get_type_hints(holder, names, include_extras=True)[name]
            except (NameError, TypeError):
                continue
        return hints


@cache
def field_kinds(cls: type) -> dict[str, _Kind]:
    """The kinds of a dataclass's fields, by their annotations."""
    hints = _hints(cls)
    kinds = ((f.name, _kind(hints.get(f.name, Any))) for f in fields(cls))
    return {name: kind for name, kind in kinds if kind is not None}


def check_fields(record: Any, error: type[TilesmithError]) -> None:
    """Raises `error` if a field of a frozen dataclass does not match its annotation."""
    for name, kind in field_kinds(type(record)).items():
        value = getattr(record, name)
        fit = _fit(kind, value, type(record).__name__, name, error)
        if fit is not value:
            object.__setattr__(record, name, fit)


def _fit(kind: _Kind, value: Any, where: str, name: str, error: type[TilesmithError]) -> Any:
    try:
        return kind.convert(value)
    except _Unfit as e:
        actual = e.found if e.place else value
        text = f"{name}{e.place}: expected {e.expected or kind.expected}, found {shown(actual)}"
        raise error(f"{where}: {text}") from None
    except RecursionError:
        raise error(f"{where}: {name}: expected {kind.expected}, found it too deep") from None


def _named(kind: _Kind) -> _Kind:
    """`kind` for the keys of a mapping; its description says that a key is expected."""
    return _Kind(f"{kind.expected} as a key", kind.convert)


def checked(
    error: type[TilesmithError], besides: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function raise `error` for arguments that do not match its annotations.

    besides: parameters that are not checked here, since the function's own check has better
        messages.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known: list[tuple[list[tuple[str, _Kind | None]], _Kind | None, dict[str, _Kind]]] = []

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            # Annotations are evaluated at the first call, since they may name classes that are
            # defined after the function.
            if not known:
                known.append(_parameters(function, besides))
            places, rest, named = known[0]
            where = function.__qualname__.removesuffix(".__init__")
            values: list[Any] = list(args)
            for n, value in enumerate(args):
                name, kind = places[n] if n < len(places) else ("an argument", rest)
                if kind is not None:
                    values[n] = _fit(kind, value, where, name, error)
            for name, value in kwargs.items():
                if name in named:
                    kwargs[name] = _fit(named[name], value, where, name, error)
            return function(*values, **kwargs)  # type: ignore[arg-type]

        return call

    return decorate


def _parameters(
    function: Callable[..., Any], besides: Collection[str]
) -> tuple[list[tuple[str, _Kind | None]], _Kind | None, dict[str, _Kind]]:
    """The kinds of the positional parameters, of `*args`, and of the keyword parameters."""
    hints = {name: hint for name, hint in _hints(function).items() if name not in besides}
    places: list[tuple[str, _Kind | None]] = []
    rest: _Kind | None = None
    named: dict[str, _Kind] = {}
    for p in inspect.signature(function).parameters.values():
        kind = _kind(hints[p.name]) if p.name in hints else None
        if p.kind is p.VAR_POSITIONAL:
            rest = kind
        elif p.kind is not p.VAR_KEYWORD:
            if p.kind is not p.KEYWORD_ONLY:
                places.append((p.name, kind))
            if kind is not None:
                named[p.name] = kind
    return places, rest, named


def checked_methods(error: type[TilesmithError]) -> Callable[[C], C]:
    """Make all public methods of a class raise `error` for arguments that do not match their
    annotations.
    """

    def decorate(cls: C) -> C:
        for name, member in list(vars(cls).items()):
            if name.startswith("_") and name not in ("__getitem__", "__setitem__"):
                continue
            if isinstance(member, staticmethod):
                setattr(cls, name, staticmethod(checked(error)(member.__func__)))
            elif inspect.isfunction(member):
                setattr(cls, name, checked(error)(member))
        return cls

    return decorate
