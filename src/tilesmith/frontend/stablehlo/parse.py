"""The parser of StableHLO's text, as `jax.jit(f).lower(x).as_text()` and MLIR's printer write it.

An operation is in MLIR's generic form, or in its custom assembly form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.support.errors import ModelError, UnsupportedError

from .syntax import OPEN, Function, Module, Operation, Region, Tensor, Type
from .types import ELEMENTS, elements, tensor_type

_TOKEN = re.compile(
    r'(?P<skip>\s+|//[^\n]*)|(?P<text>"(?:[^"\\]|\\.)*")|'
    r"(?P<type>(?:tensor|memref|tuple|complex|vector)<(?:[^<>\"]|<[^<>\"]*>)*>|![\w.]+)|"
    r'(?P<value>%[\w$.-]+)|(?P<symbol>@(?:[\w$.-]+|"[^"]*"))|(?P<alias>#[\w.]+)|'
    r"(?P<number>-?(?:0x[0-9a-fA-F]+(?![\w.])|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![\w])))|"
    r"(?P<word>\^?[A-Za-z_][\w$.]*)|(?P<mark>->|.)",
    re.DOTALL,
)
_WORDS = {"true": True, "false": False, "unit": True}
_OPENING, _CLOSING = "([{<", ")]}>"
_STRUCTURES = frozenset({"dimension_numbers", "dot_dimension_numbers", "scatter_dimension_numbers"})
"""Attributes that are structures.  Their fields become attributes of the operation."""

_WINDOW = {
    "stride": "window_strides", "pad": "padding", "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation", "reverse": "window_reversal",
}  # fmt: skip
_AXES = (
    {"b": "input_batch_dimension", "f": "input_feature_dimension"},
    {"i": "kernel_input_feature_dimension", "o": "kernel_output_feature_dimension"},
    {"b": "output_batch_dimension", "f": "output_feature_dimension"},
)
"""The axes of a convolution's input, kernel and output by their letters."""

_LONG = {
    ("broadcast_in_dim", "dims"): "broadcast_dimensions",
    ("dynamic_broadcast_in_dim", "dims"): "broadcast_dimensions",
    ("transpose", "dims"): "permutation",
    ("reverse", "dims"): "dimensions",
    ("concatenate", "dim"): "dimension",
    ("get_dimension_size", "dim"): "dimension",
    ("iota", "dim"): "iota_dimension",
    ("dynamic_iota", "dim"): "iota_dimension",
    ("pad", "low"): "edge_padding_low",
    ("pad", "high"): "edge_padding_high",
    ("pad", "interior"): "interior_padding",
    ("dynamic_slice", "sizes"): "slice_sizes",
}
"""The full names of attributes, by operator and by the name in its custom assembly form."""


def parse(text: str) -> Module:
    """The module of a text.  Raises ModelError, with a line, for any other text."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        for m in _TOKEN.finditer(text):
            if m.lastgroup != "skip":
                self._tokens.append((m.lastgroup or "", m.group(), m.start()))
        self._tokens.append(("end", "", len(text)))
        self._at = self._depth = self._unnamed = 0

    # Tokens

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _token(self) -> str:
        return self._tokens[self._at][1]

    def _line(self) -> int:
        return self._text.count("\n", 0, self._tokens[self._at][2]) + 1

    def _bad(self, expected: str) -> NoReturn:
        token = self._token[:40] or "the end of the text"
        raise ModelError(f"line {self._line()}: expected {expected}, found {token!r}")

    def _next(self) -> str:
        if self._kind == "end":
            self._bad("more text")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _is(self, token: str) -> bool:
        return self._token == token and self._kind in ("mark", "word")

    def _take(self, token: str) -> bool:
        """Whether the next token is `token`, which is then taken."""
        is_it = self._is(token)
        self._at += is_it
        return is_it

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._bad(repr(token))

    def _of(self, kind: str, what: str) -> str:
        if self._kind != kind:
            self._bad(what)
        return self._next()

    def _listed(self, end: str, item: Callable[[], Any]) -> list[Any]:
        """Items with commas between them, up to `end`, which is taken."""
        items = []
        while not self._take(end):
            items.append(item())
            if not self._take(","):
                self._expect(end)
                break
        return items

    def _nested(self) -> _Depth:
        return _Depth(self)

    def _skip_balanced(self) -> None:
        """Skip a bracket and what it holds."""
        depth = 0
        while True:
            token = self._next()
            depth += (token in _OPENING) - (token in _CLOSING) if len(token) == 1 else 0
            if depth <= 0:
                return

    def _skip_location(self) -> None:
        if self._is("loc"):
            self._next()
            self._skip_balanced()

    # Modules and functions

    def module(self) -> Module:
        functions: dict[str, Function] = {}
        self._aliases()
        is_wrapped = self._take("module") or self._take("builtin.module")
        if is_wrapped:
            if self._kind == "symbol":
                self._next()
            self._attribute_keyword()
            self._expect("{")
        while not (is_wrapped and self._is("}")) and self._kind != "end":
            function = self._function()
            if function.name in functions:
                self._bad(f"one function @{function.name}; it is defined twice before this")
            functions[function.name] = function
            self._aliases()
        if is_wrapped:
            self._expect("}")
            self._skip_location()
            self._aliases()
        if self._kind != "end":
            self._bad("the end of the text")
        return Module("StableHLO text", functions)

    def _aliases(self) -> None:
        """Skip definitions of locations."""
        while self._kind == "alias":
            self._next()
            self._expect("=")
            if self._kind != "word":
                self._bad("a location")
            self._skip_location()

    def _attribute_keyword(self) -> dict[str, Any]:
        return self._dictionary() if self._take("attributes") else {}

    def _function(self) -> Function:
        if not (self._take("func.func") or self._take("func")):
            self._bad("a function, func.func")
        _ = self._take("public") or self._take("private") or self._take("nested")
        name = self._of("symbol", "a function's name")[1:].strip('"')
        self._expect("(")
        arguments = self._listed(")", self._argument)
        results: list[Type] = []
        if self._take("->"):
            results = self._listed(")", self._result) if self._take("(") else [self._type()]
        self._attribute_keyword()
        body = self._region(tuple(arguments))
        self._skip_location()
        return Function(name, body, tuple(results))

    def _argument(self) -> tuple[str, Type]:
        name = self._of("value", "an argument's name")
        self._expect(":")
        type_ = self._type()
        if self._is("{"):
            self._dictionary()
        self._skip_location()
        return name, type_

    def _result(self) -> Type:
        type_ = self._type()
        if self._is("{"):
            self._dictionary()
        return type_

    def _region(self, arguments: tuple[tuple[str, Type], ...] = ()) -> Region:
        with self._nested():
            self._expect("{")
            if self._kind == "word" and self._token.startswith("^"):
                self._next()
                if self._take("("):
                    arguments = tuple(self._listed(")", self._argument))
                self._expect(":")
            operations = []
            while not self._take("}"):
                operations.append(self._operation())
            return Region(arguments, tuple(operations))

    # Operations

    def _operation(self) -> Operation:
        line, results, count = self._line(), [], 0
        while self._kind == "value":
            base = self._next()
            number = 1
            if self._take(":"):
                number = self._int()
                if not 0 < number <= 1 << 16:
                    self._bad("a number of results")
            results += [base] if number == 1 else [f"{base}#{i}" for i in range(number)]
            count += number
            if not self._take(","):
                self._expect("=")
                break
        if self._kind == "text":
            made = self._generic(line, tuple(results))
        else:
            made = self._pretty(line, tuple(results))
        self._skip_location()
        if len(made.types) != count:
            raise ModelError(
                f"line {line}: expected {count} types of results of {made.name}, found "
                f"{len(made.types)}"
            )
        return made

    def _generic(self, line: int, results: tuple[str, ...]) -> Operation:
        name = _plain(self._next()[1:-1])
        self._expect("(")
        operands = self._listed(")", self._value)
        attributes: dict[str, Any] = {}
        if self._take("<"):
            attributes |= self._dictionary()
            self._expect(">")
        regions: list[Region] = []
        if self._take("("):
            regions = self._listed(")", self._region)
        if self._is("{"):
            attributes |= self._dictionary()
        self._expect(":")
        types = self._signature(len(results))
        return Operation(name, tuple(operands), results, types, attributes, tuple(regions),
                         f"line {line}")  # fmt: skip

    def _pretty(self, line: int, results: tuple[str, ...]) -> Operation:
        name = _plain(self._of("word", "an operation"))
        operands: list[str] = []
        attributes: dict[str, Any] = {}
        words: list[str] = []
        bound: list[str] = []
        self._items(name, operands, attributes, words, bound)
        regions: list[Region] = []
        types: tuple[Type, ...] = ()
        if "type" in attributes:
            types = (attributes.pop("type"),)
        elif self._take(":"):
            types = self._signature(len(results))
        if name == "while":
            attributes |= self._attribute_keyword()
            carried = tuple(zip(bound, types, strict=False))
            for word in ("cond", "do"):
                self._expect(word)
                regions.append(self._region(carried))
        elif self._take("reducer"):
            pairs = []
            while self._take("("):
                pairs.append(self._listed(")", self._argument))
            if any(len(p) != 2 for p in pairs):
                self._bad("two arguments for each reduced tensor")
            arguments = (*(p[0] for p in pairs), *(p[1] for p in pairs))
            regions.append(self._region(arguments))
        if "init" in words:
            words.remove("init")
            operands = [*operands[::2], *operands[1::2]]
        if "applies" in attributes:
            regions.append(_applied(attributes.pop("applies"), types, line))
        if name == "compare" and words:
            attributes["comparison_direction"], attributes["compare_type"] = words[0], words[-1]
        return Operation(name, tuple(operands), results, types, attributes, tuple(regions),
                         f"line {line}")  # fmt: skip

    def _items(
        self,
        name: str,
        operands: list[str],
        attributes: dict[str, Any],
        words: list[str],
        bound: list[str],
    ) -> None:
        """The parts between an operation's name and its types."""
        while True:
            if self._kind == "value":
                value = self._value()
                if name == "while" and self._take("="):
                    bound.append(value)
                    value = self._value()
                operands.append(value)
                if self._is("init"):
                    words[:] = [self._next()]
                    self._expect(":")
            elif self._kind == "symbol":
                attributes["callee"] = self._next()[1:].strip('"')
            elif self._kind == "word" and self._token in ("dense", "dense_resource"):
                attributes["value"], constant = self._dense()
                attributes["type"] = constant
                return
            elif self._kind == "word" and self._token == "applies":
                self._next()
                attributes["applies"] = _plain(self._of("word", "an operation"))
            elif self._kind == "end" or self._is("loc"):
                return
            elif self._take("across"):
                pass
            elif self._kind == "word" and self._tokens[self._at + 1][1] == "=":
                self._named(name, attributes)
            elif self._kind == "word":
                words.append(self._next())
            elif self._kind == "text":
                attributes["name"] = self._attribute()
            elif self._is("{"):
                attributes |= self._dictionary()
            elif self._is("["):
                self._ranges(attributes)
            elif self._is("("):
                self._next()
                with self._nested():
                    self._items(name, operands, attributes, words, bound)
                self._expect(")")
            elif not self._take(","):
                return

    def _ranges(self, attributes: dict[str, Any]) -> None:
        """The ranges of a slice, such as [0:4, 1:9:2]."""
        self._expect("[")
        ranges = self._listed("]", self._range)
        for i, key in enumerate(("start_indices", "limit_indices", "strides")):
            attributes[key] = [r[i] for r in ranges]

    def _range(self) -> tuple[int, int, int]:
        start = self._int()
        self._expect(":")
        return start, self._int(), self._int() if self._take(":") else 1

    def _named(self, name: str, attributes: dict[str, Any]) -> None:
        """Read an attribute `KEY = VALUE` of an operation's custom assembly form."""
        key = self._next()
        self._expect("=")
        if key == "dim_numbers":
            attributes |= self._convolution_axes()
        elif key == "window":
            window = self._dictionary()
            for short, long in _WINDOW.items():
                if short in window:
                    attributes[long] = window[short]
        elif name == "dot_general" and key in ("batching_dims", "contracting_dims"):
            kind = key.split("_")[0]
            attributes[f"lhs_{kind}_dimensions"] = self._attribute()
            self._expect("x")
            attributes[f"rhs_{kind}_dimensions"] = self._attribute()
        else:
            attributes[_LONG.get((name, key), key)] = self._attribute()

    def _convolution_axes(self) -> dict[str, Any]:
        """Axes of a convolution, such as [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]."""
        sides = [self._attribute_list()]
        self._expect("x")
        sides.append(self._attribute_list())
        self._expect("->")
        sides.append(self._attribute_list())
        axes: dict[str, Any] = {}
        for side, names in zip(sides, _AXES, strict=True):
            for letter, key in names.items():
                if letter not in side:
                    self._bad(f"axis {letter!r} of a convolution before this")
                axes[key] = side.index(letter)
            spatial = [n for n in side if isinstance(n, int)]
            if sorted(spatial) != list(range(len(side) - 2)):
                self._bad(f"axes 0 to {len(side) - 3} of a convolution before this")
            prefix = next(iter(names.values())).split("_")[0]
            axes[f"{prefix}_spatial_dimensions"] = [side.index(i) for i in range(len(spatial))]
        return axes

    def _attribute_list(self) -> list[Any]:
        self._expect("[")
        return self._listed("]", self._attribute)

    def _value(self) -> str:
        name = self._of("value", "a value")
        if self._kind == "alias" and self._token[1:].isdecimal():
            return name + self._next()
        return name

    # Types

    def _signature(self, count: int) -> tuple[Type, ...]:
        """The types of the results at the end of an operation."""
        if self._take("("):
            types = self._listed(")", self._type)
            self._expect("->")
        else:
            types = [self._type()]
            while self._take(","):
                types.append(self._type())
            if not self._take("->"):
                if count != len(types):
                    types = types[-1:] * count
                return tuple(types)
        if self._take("("):
            return tuple(self._listed(")", self._type))
        return (self._type(),)

    def _type(self) -> Type:
        if self._kind == "word" and self._token in ELEMENTS:
            return self._next()
        if self._kind not in ("type", "word"):
            self._bad("a type")
        line, text = self._line(), self._next()
        if not text.startswith("tensor<"):
            if self._is("<"):
                self._skip_balanced()
            return text
        return tensor_type(text, line)

    # Attributes

    def _dictionary(self) -> dict[str, Any]:
        self._expect("{")
        attributes: dict[str, Any] = {}
        for key, value in self._listed("}", self._entry):
            if key in _STRUCTURES and isinstance(value, dict):
                attributes |= value
            else:
                attributes[key] = value
        return attributes

    def _entry(self) -> tuple[str, Any]:
        if self._kind not in ("word", "text"):
            self._bad("an attribute's name")
        key = self._next().strip('"')
        return key, self._attribute() if self._take("=") else True

    def _int(self) -> int:
        text = self._of("number", "an integer")
        try:
            return int(text, 0)
        except ValueError:
            self._at -= 1
            self._bad("an integer")

    def _attribute(self) -> Any:
        with self._nested():
            return self._one_attribute()

    def _one_attribute(self) -> Any:
        match self._kind:
            case "number":
                text = self._next()
                try:
                    number = int(text, 0)
                except ValueError:
                    number = float(text)
                if self._is(":") and self._tokens[self._at + 1][1] in (*ELEMENTS, "index"):
                    self._next()
                    self._type()
                return number
            case "text":
                return self._next()[1:-1].replace('\\"', '"')
            case "symbol":
                return self._next()[1:].strip('"')
            case "type":
                return self._type()
            case "alias":
                return self._structure()
        if self._is("["):
            return self._attribute_list()
        if self._is("{"):
            return self._dictionary()
        if self._token in ("dense", "dense_resource"):
            array, type_ = self._dense()
            return np.broadcast_to(array, type_.dims or ())
        if self._take("array"):
            self._expect("<")
            self._type()
            items = []
            if self._take(":"):
                items = self._listed(">", self._attribute)
            else:
                self._expect(">")
            return items
        word = self._of("word", "an attribute")
        return _WORDS.get(word, word)

    def _structure(self) -> Any:
        """An attribute of a dialect: #stablehlo<kind NAME>, #stablehlo.gather<name = value>."""
        kind = self._next()
        if not self._take("<"):
            return kind
        if self._kind == "mark" or kind.endswith(".conv"):
            if kind.endswith(".conv"):
                axes = self._convolution_axes()
                self._expect(">")
                return axes
            self._at -= 1
            self._skip_balanced()
            return kind
        word = self._of("word", "an attribute")
        if self._take("="):
            fields = {word: self._attribute()}
            while self._take(","):
                key, value = self._entry()
                fields[key] = value
            self._expect(">")
            return fields
        last: Any = word
        while not self._take(">"):
            last = self._attribute()
        return last

    def _dense(self) -> tuple[np.ndarray, Tensor]:
        line = self._line()
        if self._next() == "dense_resource":
            raise UnsupportedError(f"line {line}: contents in a resource of the text")
        self._expect("<")
        held: Any = [] if self._is(">") else self._elements()
        self._expect(">")
        self._expect(":")
        type_ = self._type()
        if not isinstance(type_, Tensor) or type_.dims is None or OPEN in type_.dims:
            raise ModelError(f"line {line}: expected a constant of a known shape, found {type_}")
        return elements(held, type_, line), type_

    def _elements(self) -> Any:
        if self._kind == "text":
            return self._next()[1:-1].encode()
        if self._take("["):
            with self._nested():
                return self._listed("]", self._elements)
        if self._take("("):
            raise UnsupportedError(f"line {self._line()}: complex numbers")
        if self._kind == "word":
            word = self._next()
            if word not in ("true", "false"):
                self._at -= 1
                self._bad("a number")
            return word == "true"
        return self._of("number", "a number")


class _Depth:
    """A level of nesting."""

    def __init__(self, parser: _Parser) -> None:
        self._parser = parser

    def __enter__(self) -> None:
        self._parser._depth += 1
        if self._parser._depth > MAX_DEPTH:
            raise ModelError(f"line {self._parser._line()}: nested more than {MAX_DEPTH} deep")

    def __exit__(self, *_: object) -> None:
        self._parser._depth -= 1


def _plain(name: str) -> str:
    """An operator's name without the dialect StableHLO."""
    return name.removeprefix("stablehlo.")


def _applied(name: str, types: tuple[Type, ...], line: int) -> Region:
    """The region of a reduction that combines two elements by the operation `name`."""
    kind = types[0] if types else ""
    if not isinstance(kind, Tensor):
        raise ModelError(f"line {line}: expected a reduction of a tensor, found {kind!r}")
    one, place = Tensor(kind.dtype, ()), f"line {line}"
    both = ("%a", "%b")
    made = Operation(name, both, ("%c",), (one,), {}, (), place)
    end = Operation("return", ("%c",), (), (), {}, (), place)
    return Region(tuple((v, one) for v in both), (made, end))
