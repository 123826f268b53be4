"""The parser of the main program's text.  `program.text` explains the grammar."""

from __future__ import annotations

import re
from dataclasses import MISSING
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from tilesmith.ir.dtypes import DType, by_name
from tilesmith.ir.grammar import Line, lines_of, tokens
from tilesmith.ir.tokens import TokenReader, tokens_of

from .main import Main
from .nodes import BY_WORD, Arg, Node, Step, hints_of
from .operands import PATTERN, parse_operand
from .text import NUMBERED, declarations_of, default_of, form_of

N = TypeVar("N", bound=Node)

_TOKEN = re.compile(
    rf"""(?P<space>[ ]+|\#[^\n]*)
      |(?P<newline>\n)
      |(?P<operand>{PATTERN})
      |(?P<name>[A-Za-z_][A-Za-z0-9_.$]*)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<symbol>->|[=()\[\],:])
    """,
    re.VERBOSE,
)


def parse_program(text: str) -> Main:
    """The main program with this text.  Raises ParseError, with line and column."""
    parser = _Parser(tokens_of(_TOKEN, text))
    main = parser.node(Main, parser.next_column())
    if parser.token.kind != "end":
        raise parser.error("expected the end of the program")
    return main


class _Parser(TokenReader):
    """A recursive descent parser.  The column of a line's first token is the line's indentation."""

    # --- lines ---

    def next_column(self) -> int:
        """The indentation of the next line; 0 at the end."""
        while self.token.kind == "newline":
            self.position += 1
        return 0 if self.token.kind == "end" else self.token.column

    def end_line(self) -> None:
        if self.token.kind not in ("newline", "end"):
            raise self.error("expected the end of the line")

    def node(self, kind: type[N], column: int) -> N:
        """Read a node of the class `kind`, whose lines begin in `column`."""
        values: dict[str, Any] = {}
        for i, line in enumerate(lines_of(kind)):
            if i:
                before = self.position
                if self.next_column() != column or not self.at(line.literals[0]):
                    self.position = before
                    values[str(line.body)] = ()
                    continue
            self.items(line, kind, values)
            self.end_line()
            if line.body:
                declared = () if i else declarations_of(kind)
                steps = self.block(column)
                for f in declared:
                    (made,) = get_args(hints_of(kind)[f.name])[:1]
                    values[f.name] = tuple(s for s in steps if isinstance(s, made))
                    steps = [s for s in steps if not isinstance(s, made)]
                for s in steps:
                    if not isinstance(s, Step):
                        raise self.error(f"a {type(s).__name__} does not belong here")
                values[line.body] = tuple(steps)
        return kind(**values)

    def block(self, outside: int) -> list[Node]:
        """Read the nodes in the following lines, while these are indented more than `outside`."""
        column = self.next_column()
        if column <= outside:
            raise self.error("expected an indented block")
        nodes: list[Node] = []
        while (here := self.next_column()) > outside:
            if here != column:
                raise self.error(f"expected a step at column {column}")
            if self.accept("pass"):
                self.end_line()
                continue
            kind = BY_WORD.get(self.token.text)
            if kind is None:
                raise self.error(f"expected a step ({', '.join(BY_WORD)})")
            nodes.append(self.node(kind, column))
        return nodes

    def items(self, line: Line, kind: type[Node], values: dict[str, Any]) -> None:
        """Read the literal text and the fields of a line into `values`."""
        for item in line.items:
            if isinstance(item, str):
                for text in tokens(item):
                    self.expect(text)
                continue
            name, is_keyed, form = form_of(item)
            hint = hints_of(kind)[name]
            if not is_keyed:
                read = self.several if _is_many(hint) else self.value
                values[name] = read(hint, form)
            elif not self.accept(name):
                values[name] = self.absent(kind, name, hint)
            elif hint is bool:
                values[name] = True
            else:
                self.expect("=")
                values[name] = self.value(hint, form)

    def absent(self, kind: type[Node], name: str, hint: Any) -> Any:
        """The value of a field that the text omits."""
        default = default_of(kind, name)
        if hint is bool:
            return False
        if NoneType in get_args(hint):
            return None
        if default is MISSING:
            raise self.error(f"expected '{name}='")
        return default

    # --- values ---

    def several(self, hint: Any, form: str) -> tuple[Any, ...]:
        """Read values that are separated by commas."""
        of = get_args(hint)
        if len(of) == 2 and of[1] is not Ellipsis:  # a pair of values, each of its own type
            values = [self.value(of[0], form)]
            for item in of[1:]:
                self.expect(",")
                values.append(self.value(item, form))
            return tuple(values)
        values = []
        while self.token.kind not in ("newline", "end") and self.token.text not in (")", "]", "->"):
            values.append(self.value(of[0], form))
            if not self.accept(","):
                break
        return tuple(values)

    def value(self, hint: Any, form: str) -> Any:
        if _is_many(hint):
            self.expect("[")
            inside = self.several(hint, form)
            self.expect("]")
            return inside
        if form in NUMBERED:
            return self.numbered(form)
        if isinstance(hint, type) and issubclass(hint, Node):
            values: dict[str, Any] = {}
            self.items(lines_of(hint)[0], hint, values)
            return hint(**values)
        kinds = _kinds(hint)
        if self.token.kind == "string" and str in kinds:
            return self.string()
        token = self.next()
        if form == "word" and re.fullmatch(r"[A-Za-z_][\w.$]*", token.text):
            return token.text
        if token.kind == "operand" and (Arg in kinds or int in kinds):
            arg = parse_operand(token.text)
            if int in kinds and arg.kind == "scalar":
                return arg.index
            if Arg in kinds:
                return arg
        if token.kind == "name" and hint is DType and (dtype := by_name(token.text)) is not None:
            return dtype
        wanted = " or ".join(_WANTED[k] for k in kinds if k in _WANTED)
        raise self.error(f"expected {'a word' if form == 'word' else wanted}", token)

    def numbered(self, form: str) -> int:
        token = self.token
        m = re.fullmatch(rf"{form}(\d+)", token.text)
        if m is None:
            raise self.error(f"expected {form} and a number")
        self.position += 1
        return int(m[1])


_WANTED = {int: "a number", Arg: "an argument", str: "text in quotes", DType: "an element type"}


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_many(hint: Any) -> bool:
    return get_origin(hint) is tuple
