"""Tokens of the text of an IR, and their reader for parsers by recursive descent."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from tilesmith.support.errors import ParseError


class Token(NamedTuple):
    """A piece of the text; `kind` is a group of the pattern, or "end"."""

    kind: str
    text: str
    line: int
    column: int


def tokens_of(pattern: re.Pattern[str], text: str, first_line: int = 1) -> list[Token]:
    """The tokens of `text` without tokens of kind "space", followed by a token of kind "end".

    pattern: has a named group for each kind of token; tokens of kind "newline" end lines.

    Raises ParseError where no group matches.
    """
    tokens: list[Token] = []
    line, start, position = first_line, 0, 0
    while position < len(text):
        m = pattern.match(text, position)
        column = position - start + 1
        if m is None:
            raise ParseError(
                f"line {line}, column {column}: unexpected character {text[position]!r}"
            )
        kind = str(m.lastgroup)
        if kind != "space":
            tokens.append(Token(kind, m.group(), line, column))
        position = m.end()
        if kind == "newline":
            line, start = line + 1, position
    tokens.append(Token("end", "", line, position - start + 1))
    return tokens


class TokenReader:
    """A list of tokens, and the position of the next one."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def next(self) -> Token:
        token = self.token
        self.position += 1
        return token

    def at(self, text: str) -> bool:
        """Whether the next token is this symbol or word."""
        token = self.token
        return token.text == text and token.kind != "string"

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected '{text}'")

    def string(self) -> str:
        token = self.next()
        if token.kind != "string":
            raise self.error("expected a text in double quotes", token)
        try:
            return json.loads(token.text)
        except ValueError:
            raise self.error("the text in quotes has a bad escape", token) from None

    def error(self, what: str, token: Token | None = None) -> ParseError:
        token = token or self.token
        ends = {"end": "the end", "newline": "the end of the line"}
        shown = ends.get(token.kind, f"'{token.text}'")
        return ParseError(f"line {token.line}, column {token.column}: {what}, found {shown}")
