"""`tilesmith migrate`: a program for TVM with Tilesmith's own names, or one for Halide with the
shim's.

Names that are imported are replaced by the table `OURS` if ours has the arguments of the call, and
calls whose arguments differ by the table `_FORMS`.  What has no counterpart stays, with the shim's
import, and is listed with its line; the text is that of the error that the shim raises.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import importlib
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst
import numpy as np
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor
from libcst.helpers import get_full_name_for_node
from libcst.metadata import (
    ImportAssignment,
    MetadataWrapper,
    PositionProvider,
    QualifiedNameProvider,
    ScopeProvider,
)

from tilesmith import te
from tilesmith.support.errors import TilesmithError, UsageError
from tilesmith.support.folders import write_text

from . import tvm
from .halide.schedules import ELSEWHERE as HALIDE
from .tvm.schedule import SCOPES
from .tvm.target import Target

_OTHERS = ("Schedule", "Stage", "decl_tensor_intrin", "extern")
"""Names that TVM and Tilesmith have for different things."""

OURS = {
    **{
        f"{path}.{name}": f"te.{name}"
        for path, module in (("tvm", tvm), ("tvm.te", tvm.te), ("tvm.tir", tvm.tir))
        for name in te.__all__
        if name in vars(module) and name not in _OTHERS
    },
    "tvm.te.size_var": "te.var",
    "tvm.tir.max": "te.maximum",
    "tvm.tir.min": "te.minimum",
    "tvm.max": "te.maximum",
    "tvm.min": "te.minimum",
    "tvm.tir.Select": "te.select",
    "tvm.testing.assert_allclose": "np.testing.assert_allclose",
}
"""Tilesmith's names of TVM's, for those that differ in the name alone."""


@dataclass(frozen=True)
class _Form:
    """A call whose arguments differ from TVM's.

    ours: the function.
    places, named: TVM's parameters that ours has, by their place and by their name.
    dropped: parameters without an effect here.
    defaults: for parameters whose default differs, TVM's as source.
    """

    ours: str
    places: tuple[str, ...]
    named: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)

    def made(self, args: Mapping[str, cst.Arg]) -> cst.BaseExpression:
        values = {n: _native(a) if n == "target" else _source(a.value) for n, a in args.items()}
        values = {**self.defaults, **values}
        places = [values[n] for n in self.places if n in values]
        named = [f"{n}={values[n]}" for n in self.named if values.get(n)]
        return cst.parse_expression(f"{self.ours}({', '.join([*places, *named])})")


_FORMS = {
    "tvm.lower": _Form("te.lower", ("inp", "args"), ("name",), ("simple_mode",)),
    "tvm.build": _Form("ts.build", ("inputs", "args"), ("target", "name")),
    "tvm.nd.array": _Form("np.array", ("arr",), (), ("device",)),
    "tvm.nd.empty": _Form("np.empty", ("shape",), ("dtype",), ("device",), {"dtype": '"float32"'}),
    "tvm.tir.Cast": _Form("te.cast", ("value", "dtype")),
}

_INDICES = ("tvm.te.thread_axis", "tvm.thread_axis")

_METHODS = {
    "time_evaluator": "run = f.bind(...), then time run()",
    "get_source": "f.source, or f.assembly for machine code",
    "export_library": "tilesmith.export_op(schedule, folder, args=args)",
}
"""Methods of TVM's objects without a counterpart of the same form."""

_IMPORTS = {
    "ts": ("tilesmith", None, "ts"),
    "te": ("tilesmith", "te", None),
    "np": ("numpy", None, "np"),
    "tvm": ("tilesmith.compat.tvm", None, "tvm"),
}
"""For the names that a migrated program uses: module, object and alias of their import."""

_SCOPED = {"cache_read": 1, "cache_write": 1, "set_scope": 0}
"""The place of the scope among the arguments of schedules' methods."""


def _source(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _native(target: cst.Arg) -> str:
    """Our name of a target as source; empty for this machine."""
    if not isinstance(target.value, cst.SimpleString):
        raise UsageError("write the target as a text such as 'llvm -mcpu=haswell', or leave it out")
    native = Target(target.value.raw_value).native
    return "" if native is None else repr(native)


def _index(call: cst.Call) -> cst.BaseExpression:
    """The name of an index of blocks or threads."""
    texts = [a.value for a in call.args if isinstance(a.value, cst.SimpleString)]
    if not texts:
        raise UsageError("write the name of the index, such as 'threadIdx.x'")
    return texts[-1]


def _bound(call: cst.Call, function: Any) -> dict[str, Any]:
    """The arguments of a call by the names of parameters.  Raises UsageError for others."""
    if any(a.star for a in call.args):
        raise UsageError("write out the arguments that * stands for")
    places = [a for a in call.args if a.keyword is None]
    named = {a.keyword.value: a for a in call.args if a.keyword is not None}
    signature = inspect.signature(function)
    try:
        return signature.bind(*places, **named).arguments
    except TypeError as e:
        raise UsageError(f"expected {signature}, and found {e}") from None


def _check_same(call: cst.Call, name: str) -> None:
    """Raises UsageError if ours lacks an argument of the call."""
    shim = _shim(name)
    root, *parts = OURS[name].split(".")
    theirs, ours = _bound(call, shim), _bound(call, _value({"te": te, "np": np}[root], parts))
    for p in inspect.signature(shim).parameters.values():
        if p.default is not p.empty and theirs.get(p.name) is not ours.get(p.name):
            raise UsageError(f"{OURS[name]} has no argument {p.name}")


def _shim(name: str) -> Any:
    """What a name of TVM means in the shim."""
    return _value(tvm, name.split(".")[1:])


def _value(root: Any, parts: Sequence[str]) -> Any:
    return functools.reduce(getattr, parts, root)


def _taken(wrapper: MetadataWrapper) -> set[str]:
    """The names in `_IMPORTS` that a program binds to something else."""
    taken: set[str] = set()
    for scope in {*wrapper.resolve(ScopeProvider).values()} - {None}:
        for a in scope.assignments:  # type: ignore[union-attr]
            if a.name not in _IMPORTS:
                continue
            sources = a.get_qualified_names_for(a.name) if isinstance(a, ImportAssignment) else ()
            same = ".".join(filter(None, _IMPORTS[a.name][:2])), f"tvm.{a.name}"
            if not any(q.name in same or q.name == a.name == "tvm" for q in sources):
                taken.add(a.name)
    return taken


class _Renamed(cst.CSTTransformer):
    """Replaces names.

    taken: the names in `_IMPORTS` that the program binds to something else.
    left: the line of what stays, and why.
    used: the names in `_IMPORTS` that the new program uses.
    kept: the local names of TVM's imports that it uses.
    """

    METADATA_DEPENDENCIES = (QualifiedNameProvider, PositionProvider)

    def __init__(self, taken: set[str]) -> None:
        super().__init__()
        self._taken = taken
        self.left: set[tuple[int, str]] = set()
        self.used: set[str] = set()
        self.kept: set[str] = set()
        self._of: set[str] = set()
        self._inner: set[cst.CSTNode] = set()
        self._refused: set[cst.CSTNode] = set()

    def _name(self, node: cst.CSTNode) -> str:
        """The full name that a dotted name stands for; empty if it isn't imported."""
        first = node
        while isinstance(first, cst.Attribute):
            first = first.value
        if not isinstance(first, cst.Name):
            return ""  # such as an attribute of a call's result
        names = self.get_metadata(QualifiedNameProvider, node, set())
        return next((n.name for n in names if n.source.name == "IMPORT"), "")  # type: ignore[union-attr]

    def _check_free(self, ours: str) -> None:
        """Raises UsageError if the program binds the first part of a name of ours itself."""
        root = ours.split(".")[0]
        if root in self._taken:
            raise UsageError(f"ours is {ours}, but the program has its own {root!r}: rename that")

    def _leave(self, node: cst.CSTNode, text: str) -> None:
        where: Any = self.get_metadata(PositionProvider, node)
        self.left.add((where.start.line, text))

    def visit_Import(self, node: cst.Import) -> bool:
        self._of |= {_package(a.name) for a in node.names}
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        self._of.add(_package(node.module))
        if isinstance(node.names, cst.ImportStar) and _package(node.module) == "tvm":
            self._leave(node, "import *: write out the names")
        return False

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._inner.add(node.value)

    def visit_Call(self, node: cst.Call) -> None:
        name = self._name(node.func)
        try:
            if name in _FORMS:
                self._check_free(_FORMS[name].ours)
                self._check(name, node)
            elif name in _INDICES:
                _index(node)
            elif name in OURS:
                _check_same(node, name)
        except TilesmithError as e:
            self._leave(node.func, f"{name}: {e}")
            self._refused.add(node.func)
        else:
            if name in _FORMS or name in _INDICES:
                self._inner.add(node.func)

    def _check(self, name: str, node: cst.Call) -> None:
        """Raises UsageError if ours lacks an argument that has an effect."""
        form, args = _FORMS[name], _bound(node, _shim(name))
        form.made(args)
        for key in args.keys() - {*form.places, *form.named}:
            value = args[key].value
            device = value.func if isinstance(value, cst.Call) else None
            is_cpu = device is not None and self._name(device) == "tvm.cpu"
            is_flag = isinstance(value, cst.Name) and value.value in ("True", "False", "None")
            if key not in form.dropped or not (is_cpu or is_flag):
                raise UsageError(f"{form.ours} has no argument {key}")
            if device is not None:
                self._inner.add(device)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        name, func = self._name(original_node.func), updated_node.func
        if name in _INDICES and original_node.func not in self._refused:
            return _index(updated_node)
        if name in _FORMS and original_node.func not in self._refused:
            self.used.add(_FORMS[name].ours.split(".")[0])
            return _FORMS[name].made(_bound(updated_node, _shim(name)))
        if not isinstance(func, cst.Attribute):
            return updated_node
        method = func.attr.value
        if "tvm" in self._of:
            if method in ("asnumpy", "numpy") and not updated_node.args:
                if "np" in self._taken:
                    self._leave(original_node.func, f".{method}(): use numpy.asarray")
                    return updated_node
                self.used.add("np")
                return cst.Call(cst.parse_expression("np.asarray"), [cst.Arg(func.value)])
            if method in _SCOPED:
                return self._with_scope(original_node, updated_node, _SCOPED[method])
            if method in _METHODS:
                self._leave(original_node.func, f".{method}: use {_METHODS[method]}")
        elif "halide" in self._of and method in HALIDE:
            self._leave(original_node.func, f".{method}: use {HALIDE[method]}")
        return updated_node

    def _with_scope(
        self, original_node: cst.Call, updated_node: cst.Call, place: int
    ) -> cst.BaseExpression:
        """A call whose scope, argument `place`, has Tilesmith's name of a memory."""
        args = [*updated_node.args]
        for i, a in enumerate(args):
            if (a.keyword.value == "scope") if a.keyword is not None else i == place:
                if not isinstance(a.value, cst.SimpleString):
                    self._leave(original_node.func, "scope: write one of Tilesmith's names")
                elif a.value.raw_value in SCOPES:
                    value = a.value.with_changes(value=repr(SCOPES[str(a.value.raw_value)]))
                    args[i] = a.with_changes(value=value)
        return updated_node.with_changes(args=args)

    def _renamed(self, original_node: Any, updated_node: Any) -> cst.BaseExpression:
        name = self._name(original_node)
        if original_node in self._inner or name.split(".")[0] not in ("tvm", "halide"):
            return updated_node
        is_refused = original_node in self._refused
        if name in OURS and not is_refused:
            try:
                self._check_free(OURS[name])
            except UsageError as e:
                self._leave(original_node, f"{name}: {e}")
                is_refused = True
        if name in OURS and not is_refused:
            self.used.add(OURS[name].split(".")[0])
            return cst.parse_expression(OURS[name])
        text = "" if is_refused else why(name)
        if text:
            self._leave(original_node, f"{name}: {text}")
        local = get_full_name_for_node(original_node).split(".")[0]  # type: ignore[union-attr]
        if local in _IMPORTS:  # a name that is ours now
            self.used.add("tvm")
            return cst.parse_expression(name)
        self.kept.add(local)
        return updated_node

    leave_Attribute = leave_Name = _renamed


class _Imports(cst.CSTTransformer):
    """Imports the shim: instead of TVM for the local names that are `kept`, always of Halide."""

    def __init__(self, kept: set[str]) -> None:
        super().__init__()
        self._kept = kept
        self._gone: set[cst.CSTNode] = set()

    def _is_kept(self, package: str, local: str) -> bool:
        return package == "halide" or local in self._kept

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> Any:
        kept = []
        for a in updated_node.names:
            package, local = _package(a.name), a.evaluated_alias or ""
            if package not in ("tvm", "halide"):
                kept.append(a)
            elif self._is_kept(package, local):
                name = cst.AsName(cst.Name(local or package))
                kept.append(a.with_changes(name=_in_shim(a.name), asname=name))
        return _of(updated_node, kept)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> Any:
        package, names = _package(updated_node.module), updated_node.names
        if package not in ("tvm", "halide"):
            return updated_node
        made = updated_node.with_changes(module=_in_shim(updated_node.module), lpar=None, rpar=None)
        if isinstance(names, cst.ImportStar):
            return made
        kept = [a for a in names
                if self._is_kept(package, a.evaluated_alias or a.evaluated_name)]  # fmt: skip
        return _of(made, kept)

    def leave_SimpleStatementLine(self, original_node: Any, updated_node: Any) -> Any:
        if not updated_node.body:
            self._gone.add(original_node)
        return updated_node

    def _with_comments(self, original_node: Any, updated_node: Any) -> Any:
        """The comments of a line that is gone stay, before the next line."""
        body: list[Any] = []
        comments: list[cst.EmptyLine] = []
        rest = iter(updated_node.body)
        for s in original_node.body:
            if s in self._gone:
                comments += [n for n in s.leading_lines if n.comment]
                continue
            new = next(rest)
            body.append(new.with_changes(leading_lines=[*comments, *new.leading_lines]))
            comments = []
        return updated_node.with_changes(body=body, footer=[*comments, *updated_node.footer])

    leave_Module = leave_IndentedBlock = _with_comments


def _package(name: Any) -> str:
    """The first part of a module's name."""
    return "" if name is None else (get_full_name_for_node(name) or "").split(".")[0]


def _in_shim(name: Any) -> Any:
    return cst.parse_expression(f"tilesmith.compat.{get_full_name_for_node(name)}")


def _of(node: Any, names: Sequence[cst.ImportAlias]) -> Any:
    """An import of these names; without names, none."""
    plain = [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in names]
    return node.with_changes(names=plain) if plain else cst.RemoveFromParent()


def why(name: str) -> str:
    """Why a name of TVM or Halide stays: what the shim says of it."""
    package, *parts = name.split(".")
    try:
        _value(importlib.import_module(f"tilesmith.compat.{package}"), parts)
    except UsageError as e:
        return str(e)
    except AttributeError:
        return "there is no counterpart"
    kept = f"import tilesmith.compat.{package} as {package}"
    return "" if package == "halide" or not parts else f"no name of ours; it runs with {kept}"


def migrated(text: str) -> tuple[str, list[tuple[int, str]]]:
    """The program with Tilesmith's names, and the lines that stay with the reasons.

    Raises UsageError for a text that is no Python.
    """
    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as e:
        raise UsageError(f"expected a program in Python: {e.message}, line {e.raw_line}") from None
    wrapper = MetadataWrapper(module)
    renamed = _Renamed(_taken(wrapper))
    tree = wrapper.visit(renamed).visit(_Imports(renamed.kept))
    context = CodemodContext()
    for name, wanted in _IMPORTS.items():
        if name in renamed.used:
            AddImportsVisitor.add_needed_import(context, *wanted)
    return AddImportsVisitor(context).transform_module(tree).code, sorted(renamed.left)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the diff of a program, then what stays."""
    parser = argparse.ArgumentParser(prog="tilesmith migrate", description=__doc__)
    parser.add_argument("script", type=Path)
    parser.add_argument("--write", action="store_true", help="Change the file, too.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    before = given.script.read_text(encoding="utf-8")
    after, left = migrated(before)
    names = str(given.script), f"{given.script} (migrated)"
    old, new = (t.splitlines(keepends=True) for t in (before, after))
    diff = "".join(difflib.unified_diff(old, new, *names))
    if given.write:
        write_text(given.script, after)
    if given.json:
        print(json.dumps({"diff": diff, "left": [{"line": n, "why": t} for n, t in left]}))
        return
    print(diff, end="")
    for line, text in left:
        print(f"line {line}: {text}")


if __name__ == "__main__":
    try:
        main()
    except (TilesmithError, OSError, UnicodeDecodeError) as e:
        sys.exit(str(e))
