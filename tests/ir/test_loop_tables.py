"""Loop kinds, buffer scopes and intrinsics are declared in one place each."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import tilesmith
from tilesmith.ir import loop_tables
from tilesmith.ir.loop_tables import LOOP_KINDS, SCOPES, BufferScope, ForKind, Scope
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import verify
from tilesmith.support.errors import InternalError

SRC = Path(tilesmith.__file__).parent
TABLES = Path(loop_tables.__file__)
FEATURES = {"parallel", "unrolled"}  # two features of the cost model have names of loop kinds


def enumerations(source: str) -> list[set[str]]:
    """The names of loop kinds or scopes in each display, `Literal`, or chain of `and` or `or`
    that has at least two of them.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            parts = [k for k in node.keys if k is not None]
        elif isinstance(node, ast.BoolOp):
            compared = (v for v in node.values if isinstance(v, ast.Compare))
            parts = [e for v in compared for e in v.comparators]
        else:
            continue
        texts = {p.value for p in parts if isinstance(p, ast.Constant)}
        found += [both for t in (LOOP_KINDS, SCOPES) if len(both := texts & t.keys()) > 1]
    return found


def test_the_tables_have_a_row_for_each_name():
    assert tuple(LOOP_KINDS) == get_args(ForKind)
    declared = get_args(Scope)
    assert tuple(SCOPES)[: len(declared)] == declared  # targets declare further ones


def test_no_other_module_enumerates_kinds_or_scopes():
    paths = sorted(SRC.rglob("*.py"))
    assert len(paths) > 100
    found: dict[str, list[set[str]]] = {}
    for path in paths:
        allowed = FEATURES if "features" in path.parts else None
        names = [n for n in enumerations(path.read_text()) if n != allowed]
        if names and path != TABLES:
            found[str(path.relative_to(SRC))] = names
    assert not found, f"ask for a property of ir/loop_tables.py instead of listing names: {found}"


@pytest.mark.parametrize(
    "source",
    [
        'KINDS = ("serial", "parallel", "other")',
        'X: Literal["heap", "stack"]',
        '{"heap": 1, "register": 2}',
        'kind in {"unrolled", "vectorized"}',
        'kind == "unrolled" or kind == "vectorized"',
    ],
)
def test_an_enumeration_is_found(source: str):
    assert len(enumerations(source)) == 1


def test_one_name_is_no_enumeration():
    assert enumerations('kind == "serial" or scope == "heap" or n in ("serial", 1)') == []


def test_a_scope_has_one_declaration():
    row = BufferScope("near", is_allocated=True, is_sized=True, is_addressed=True)  # type: ignore[arg-type]  # not in the Literal
    assert loop_tables.declare_scope(row) is loop_tables.declare_scope(replace(row))
    try:
        assert "near" in loop_tables.ALLOCATED
        with pytest.raises(InternalError, match="'near' is declared"):
            loop_tables.declare_scope(replace(row, is_sized=False))
    finally:
        del SCOPES["near"], loop_tables.ALLOCATED["near"]


def test_a_new_scope_is_one_row(monkeypatch: pytest.MonkeyPatch):
    """Parser, printer and verifier know a scope that has a row."""
    text = (
        "def f(A: f32[4], B: f32[4]) -> B:\n"
        "    alloc T: f32[4] far\n"
        "    T[0] = A[0]\n"
        "    B[0] = T[0]\n"
    )
    row = BufferScope("far", is_allocated=True, is_sized=True, is_addressed=True)  # type: ignore[arg-type]  # not in the Literal
    monkeypatch.setitem(SCOPES, "far", row)
    monkeypatch.setitem(loop_tables.ALLOCATED, "far", row.name)  # derived when imported
    func = parse_func(text)
    verify(func, "nest")
    assert print_func(func) == text
