"""`tilesmith migrate`: a program for TVM with Tilesmith's own names, or one for Halide with the
shim's.

Names that are imported are replaced by the table `OURS`, and calls whose arguments differ by the
functions in `_CALLS`.  What has no counterpart stays and is listed with its line; the text is that
of the error that the shim raises.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, QualifiedNameProvider

from tilesmith.support.errors import TilesmithError, UsageError
from tilesmith.support.folders import write_text

from . import tvm
from .halide.schedules import ELSEWHERE as HALIDE
from .tvm import te, tir
from .tvm.target import Target

_SAME = [
    "placeholder", "compute", "create_schedule", "reduce_axis", "sum", "comm_reducer", "scan",
    "var", "abs", "exp", "exp2", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh",
    "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "sigmoid", "floor",
    "ceil", "round", "trunc", "power", "if_then_else", "all", "any", "const", "isnan", "isinf",
]  # fmt: skip

OURS = {
    **{
        f"{shim}.{name}": f"te.{name}"
        for shim, module in (("tvm", tvm), ("tvm.te", te), ("tvm.tir", tir))
        for name in _SAME
        if name in vars(module)
    },
    **{f"tvm.te.{name}": f"te.{name}" for name in ("max", "min", "prod")},
    "tvm.te.size_var": "te.var",
    "tvm.tir.max": "te.maximum",
    "tvm.tir.min": "te.minimum",
    "tvm.max": "te.maximum",
    "tvm.min": "te.minimum",
    "tvm.tir.Select": "te.select",
    "tvm.tir.Cast": "te.cast",
    "tvm.te.Tensor": "te.Tensor",
    "tvm.testing.assert_allclose": "np.testing.assert_allclose",
    "tvm.nd.array": "np.array",
    "tvm.nd.empty": "np.empty",
}
"""Tilesmith's names of TVM's, for those that differ in the name alone."""

_METHODS = {
    "time_evaluator": "run = f.bind(...), then time run()",
    "get_source": "f.source, or f.assembly for machine code",
    "export_library": "tilesmith.export_op(schedule, folder, args=args)",
}
"""Methods of TVM's objects without a counterpart of the same form."""

_SCOPES = {"'global'": "'heap'", "'local'": "'register'"}


def _arguments(call: cst.Call, names: str) -> dict[str, cst.Arg]:
    """The arguments of a call by name; `names` are those of its parameters in order."""
    order = names.split()
    return {
        a.keyword.value if a.keyword is not None else order[n]: a for n, a in enumerate(call.args)
    }


def _call(name: str, args: Sequence[cst.Arg]) -> cst.Call:
    plain = [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in args]
    return cst.Call(cst.parse_expression(name), plain)


def _lowered(call: cst.Call) -> cst.BaseExpression:
    args = _arguments(call, "inp args name binds simple_mode")
    return _call("te.lower", [args[n] for n in ("inp", "args", "name") if n in args])


def _built(call: cst.Call) -> cst.BaseExpression:
    args = _arguments(call, "inputs args target target_host runtime name")
    kept = [args[n] for n in ("inputs", "args") if n in args]
    target = args.get("target")
    if target is not None:
        if not isinstance(target.value, cst.SimpleString):
            raise UsageError("write the target as a text such as 'avx2', or leave it out")
        native = Target(target.value.raw_value).native
        if native is not None:
            kept.append(cst.Arg(cst.SimpleString(repr(native)), cst.Name("target"),
                                equal=cst.AssignEqual(cst.SimpleWhitespace(""),
                                                      cst.SimpleWhitespace(""))))  # fmt: skip
    return _call("ts.build", [*kept, *([args["name"]] if "name" in args else [])])


def _array(call: cst.Call) -> cst.BaseExpression:
    return _call("np.array", [_arguments(call, "arr device")["arr"]])


def _empty(call: cst.Call) -> cst.BaseExpression:
    args = _arguments(call, "shape dtype device")
    return _call("np.empty", [args["shape"], args.get("dtype", cst.Arg(cst.SimpleString("'f4'")))])


def _thread_axis(call: cst.Call) -> cst.BaseExpression:
    texts = [a.value for a in call.args if isinstance(a.value, cst.SimpleString)]
    if not texts:
        raise UsageError("write the name of the index, such as 'threadIdx.x'")
    return texts[-1]


_CALLS: dict[str, Callable[[cst.Call], cst.BaseExpression]] = {
    "tvm.lower": _lowered,
    "tvm.build": _built,
    "tvm.nd.array": _array,
    "tvm.nd.empty": _empty,
    "tvm.te.thread_axis": _thread_axis,
    "tvm.thread_axis": _thread_axis,
}

_IMPORTS = {"ts": "import tilesmith as ts", "te": "from tilesmith import te",
            "np": "import numpy as np"}  # fmt: skip


class _Renamed(cst.CSTTransformer):
    """Replaces names; `left` has the line of what stays, why, and its source."""

    METADATA_DEPENDENCIES = (QualifiedNameProvider, PositionProvider)

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[int, str, str]] = []
        self.is_tvm = self.is_halide = False
        self.imports: list[str] = []
        self._inner: set[cst.CSTNode] = set()

    def _name(self, node: cst.CSTNode) -> str:
        names = self.get_metadata(QualifiedNameProvider, node, set())
        return next((n.name for n in names if n.source.name == "IMPORT"), "")  # type: ignore[union-attr]

    def _leave(self, node: cst.CSTNode, text: str) -> None:
        where: Any = self.get_metadata(PositionProvider, node)
        self.left.append((where.start.line, text, cst.Module([]).code_for_node(node)))

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._inner.add(node.value)

    def visit_Call(self, node: cst.Call) -> None:
        if self._name(node.func) in _CALLS:
            self._inner.add(node.func)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        make, func = _CALLS.get(self._name(original_node.func)), updated_node.func
        try:
            if make is not None:
                return make(updated_node)
        except TilesmithError as e:
            self._leave(original_node.func, f"{self._name(original_node.func)}: {e}")
        if self.is_tvm and isinstance(func, cst.Attribute):
            method = func.attr.value
            if method == "asnumpy":
                return func.value
            if method in ("cache_read", "cache_write", "set_scope"):
                return updated_node.visit(_Scopes())  # type: ignore[return-value]
            if method in _METHODS:
                self._leave(original_node.func, f".{method}: use {_METHODS[method]}")
        elif isinstance(func, cst.Attribute) and func.attr.value in HALIDE and self.is_halide:
            self._leave(original_node.func, f".{func.attr.value}: use {HALIDE[func.attr.value]}")
        return updated_node

    def _renamed(self, original_node: Any, updated_node: Any) -> cst.BaseExpression:
        node, name = original_node, self._name(original_node)
        if name in OURS and "(" not in cst.Module([]).code_for_node(node):
            return cst.parse_expression(OURS[name])
        if node not in self._inner and name.split(".")[0] in ("tvm", "halide"):
            text = why(name)
            if text:
                self._leave(node, f"{name}: {text}")
        return updated_node

    leave_Attribute = leave_Name = _renamed

    def visit_Import(self, node: cst.CSTNode) -> bool:
        return False

    visit_ImportFrom = visit_Import

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        text = cst.Module([]).code_for_node(original_node.body[0])
        found = re.match(r"(?:import|from)\s+(tvm|halide)\b", text)
        if found is None:
            return updated_node
        if found[1] == "tvm":
            self.is_tvm = True
            self.imports.append(text)
            return cst.parse_statement("import __ours__")  # type: ignore[return-value]
        self.is_halide = True
        ours = re.sub(r"\bhalide\b", "tilesmith.compat.halide", text, count=1)
        return cst.parse_statement(ours + (" as halide" if " as " not in ours else ""))  # type: ignore[return-value]


class _Scopes(cst.CSTTransformer):
    """TVM's names of memories to Tilesmith's."""

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        ours = _SCOPES.get(repr(updated_node.raw_value))
        return updated_node if ours is None else updated_node.with_changes(value=ours)


def why(name: str) -> str:
    """Why a name of TVM or Halide stays: what the shim says of it."""
    package, *parts = name.split(".")
    value: object = importlib.import_module(f"tilesmith.compat.{package}")
    try:
        for part in parts:
            value = getattr(value, part)
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
    renamer = _Renamed()
    code = MetadataWrapper(module).visit(renamer).code
    lines = [line for name, line in _IMPORTS.items()
             if re.search(rf"\b{name}\.", code) and line not in code]  # fmt: skip
    for name in dict.fromkeys(re.findall(r"(\w+)(?=\s*(?:,|$))", "\n".join(renamer.imports), re.M)):
        if name != "te" and re.search(rf"(?<![.\w]){name}\.", code):  # the shim's, for what stays
            path = "import tilesmith.compat.tvm as" if name == "tvm" else (
                "from tilesmith.compat.tvm import")  # fmt: skip
            lines.append(f"{path} {name}")
    first = ["".join(f"{line}\n" for line in lines)]  # in the place of the first import of TVM
    code = re.sub(r"^import __ours__\n", lambda _: first.pop() if first else "", code, flags=re.M)
    return code, sorted({(n, reason) for n, reason, source in renamer.left if source in code})


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
