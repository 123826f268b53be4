"""Roles of fields, and the lines of a node's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tilesmith.ir.expr import Expr, Var
from tilesmith.ir.grammar import (
    Binder,
    Body,
    Label,
    Operand,
    Role,
    Slot,
    fields_of,
    lines_of,
    tokens,
)
from tilesmith.ir.parse import parse_expr
from tilesmith.ir.text import reserved
from tilesmith.loop import nodes, parse, text
from tilesmith.loop.nodes import Stmt

STATEMENTS = [
    k for k in vars(nodes).values() if isinstance(k, type) and issubclass(k, Stmt) and k is not Stmt
]


@dataclass(frozen=True)
class Repeat:
    syntax: ClassVar[str] = "repeat {var:counter} {times}:\n{body}\nafter {name:word}:\n{last}"
    var: Binder[Var]
    times: Operand[tuple[Expr, ...]]
    body: Body[Stmt]
    last: Body[Stmt | None]
    name: Label[str] = ""


@dataclass(frozen=True)
class Unsaid:
    size: int


def test_roles():
    assert [f.role for f in fields_of(Repeat)] == [
        Role.BINDER, Role.OPERAND, Role.BODY, Role.BODY, Role.LABEL,
    ]  # fmt: skip
    assert [f.name for f in fields_of(Repeat) if f.is_many] == ["times"]
    assert [f.name for f in fields_of(Repeat) if f.is_optional] == ["last"]


def test_a_field_without_a_role_is_named():
    with pytest.raises(Exception, match=r"Unsaid\.size has no role"):
        fields_of(Unsaid)


def test_lines():
    first, second = lines_of(Repeat)
    assert first.literals == ("repeat",)
    assert first.items[1:] == (Slot("var", "counter"), " ", Slot("times", "expression"), ":")
    assert (first.body, second.body) == ("body", "last")
    assert first.is_block and not first.names_the_rest
    assert tokens("): ->wait_2,") == [")", ":", "->", "wait_2", ","]


@pytest.mark.parametrize("kind", STATEMENTS, ids=lambda k: k.__name__)
def test_each_statement_is_written_and_read(kind: type[Stmt]):
    assert fields_of(kind) is fields_of(kind)
    for line in lines_of(kind):
        for item in line.items:
            if isinstance(item, Slot):
                assert item.form in text._FORMS and item.form in parse._FORMS
            else:
                words = {t for t in tokens(item) if t.isidentifier()}
                assert words <= reserved()


def test_names_avoid_the_words_of_all_declarations():
    words = {"for", "else", "wave_reduce", "select", "reduce_max", "exp", "f32", "truncdiv", "not"}
    assert words | {"mask", "likely", "extent", "parallel", "true", "inf"} <= reserved()
    assert not {"tensor_", "reduce_", "name", "a", "size"} & reserved()
    for word in sorted(reserved()):
        v = Var(word)
        assert str(v) == f"{word}_1"
        assert parse_expr(str(v + 1), {str(v): v}) is v + 1


def test_the_words_of_a_new_kind_are_avoided():
    @dataclass(frozen=True, slots=True, eq=False)
    class Trap(Stmt):
        syntax = "breakpoint {code:number}"
        code: Label[int]

    assert str(Var("breakpoint")) == "breakpoint_1"
    assert str(Var("trap")) == "trap" and lines_of(Trap)[0].literals == ("breakpoint",)
