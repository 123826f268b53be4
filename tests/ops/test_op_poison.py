"""No poison value and no undefined behaviour is reachable in the LLVM text of any operator.

`RULES` holds every instruction that the code generator writes and that has such a result for some
operands (LLVM's language reference), with what makes it safe.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

import pytest

from common.op_cases import CASES, Case
from tilesmith import driver
from tilesmith.codegen.emit import emit
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.ir.types import TensorType
from tilesmith.ops.structure import stages
from tilesmith.te import lower

NEVER = re.compile(
    r"\bundef\b|\bfptoui\b|\bnuw\b|\bexact\b|\binbounds\b|\bnusw\b|\bdisjoint\b|\bnneg\b"
    r"|\bsamesign\b|\bnnan\b|\bninf\b|\bfast\b|!range|!nonnull|!noundef|\bllvm\.assume\b"
    r"|\bunreachable\b|@llvm\.abs[^(]*\([^)]*i1 true"
)
"""Flags and instructions that are not written: what they promise would have to be proved."""

NUMBER = r"(?:splat \(i\d+ (-?\d+)\)|(-?\d+))"


def _constant(text: str) -> int | None:
    """The number that every lane of an operand is."""
    found = re.fullmatch(NUMBER, text)
    if text == "zeroinitializer":
        return 0
    return None if found is None else int(found[1] or found[2])


def _operands(text: str) -> tuple[str, str]:
    """The last two operands of `op type a, b`."""
    words = re.sub(r"splat \(i\d+ -?\d+\)|<[^<>]*>", lambda m: m[0].replace(", ", ",\0"), text)
    first, second = words.rsplit(", ", 1)
    return first.split(" ")[-1], second.replace("\0", " ")


def _division(text: str, made: Callable[[str], str]) -> bool:
    """The divisor is a constant but 0, and -1 where signs count, or 1 was chosen in its place."""
    divisor = _operands(text)[1]
    known = _constant(divisor)
    if known is not None:
        return known != 0 and (known != -1 or text.startswith("u"))
    return made(divisor).startswith("select ")


def _shift(text: str, made: Callable[[str], str]) -> bool:
    """The amount is a constant below the width, or was cut to that."""
    amount = _operands(text)[1]
    bits = int(re.search(r"i(\d+)>? ", text)[1])  # type: ignore[index]
    known = _constant(amount)
    if known is not None:
        return 0 <= known < bits
    origin = made(amount)
    cut = _constant(_operands(origin)[1]) if origin.startswith("and ") else None
    return origin.startswith("select ") or (cut is not None and 0 <= cut < bits)


def _to_integer(text: str, made: Callable[[str], str]) -> bool:
    """A number that fits was chosen in the place of others."""
    operand = re.search(r"(%\S+) to ", text)
    return operand is not None and made(operand[1]).startswith("select ")


def _no_wrap(text: str, _: Callable[[str], str]) -> bool:
    """The counter of a loop, which stays below its end."""
    return re.fullmatch(r"add nsw i64 %\S+, 1", text) is not None


def _zeros(text: str, made: Callable[[str], str]) -> bool:
    """Of a mask of lanes, behind a branch that some lane has taken."""
    operand = re.search(r"(%\S+), i1 true", text)
    return operand is not None and made(operand[1]).startswith("bitcast <")


def _lane(text: str, made: Callable[[str], str]) -> bool:
    """A lane that there is: a constant, or the first of a mask."""
    lane = text.rsplit(" ", 1)[1]
    known = _constant(lane)
    lanes = int(re.search(r"<(\d+) x", text)[1])  # type: ignore[index]
    return (known is not None and 0 <= known < lanes) or "llvm.cttz" in made(lane)


def _poison(text: str, _: Callable[[str], str]) -> bool:
    """Lanes that no result reads: the rest of a vector that is put together or picked from."""
    return text.startswith(("shufflevector ", "insertelement "))


RULES: list[tuple[str, Callable[[str, Callable[[str], str]], bool]]] = [
    (r"(s|u)(div|rem) ", _division),
    (r"(shl|lshr|ashr) ", _shift),
    (r"fptosi ", _to_integer),
    (r".*\bnsw\b", _no_wrap),
    (r"call i\d+ @llvm\.(cttz|ctlz)\.", _zeros),
    (r"(extract|insert)element ", _lane),
    (r".*\bpoison\b", _poison),
]


def unguarded(text: str) -> list[str]:
    """The lines of LLVM text that break a rule."""
    wrong: list[str] = []
    for function in re.split(r"\n(?=define )", text):
        lines = [line.strip().split(", !")[0].split(" ;")[0] for line in function.splitlines()]
        named = (line.split(" = ", 1) for line in lines if line.startswith("%") and " = " in line)
        made = defaultdict(str, ((name, text) for name, text in named))
        for line in lines:
            instruction = line.split(" = ", 1)[-1]
            if line.startswith((";", "declare", "attributes", "define")):
                continue
            broken = NEVER.search(line) or any(
                re.match(pattern, instruction) and not rule(instruction, made.__getitem__)
                for pattern, rule in RULES
            )
            if broken:
                wrong.append(line)
    return wrong


def _text(case: Case, session: driver.Session) -> str:
    types = [TensorType(to_dtype(a.dtype), a.shape) for a in case.arrays()]
    if case.op.is_irregular():
        func = case.op.loops(*types)
    else:
        tensors = case.op.tensors(*types)
        read = {t for stage in stages(tensors.outputs) for t in stage.inputs}
        args = [*(t for t in tensors.inputs if t in read), *tensors.outputs]
        func = lower(session.backend.auto_schedule(args, session.target, 0.0), args)
    return emit(driver.lower_loops(func, session), session.target).text


OWN = [c for c in CASES if not c.op.is_composite()]
OPERATORS = {
    "native": {str((type(c.op), c.arrays()[0].dtype)): c for c in OWN if c.arrays()},
    "x86-64": {str(type(c.op)): c for c in OWN if c.arrays()},
}
"""For each target: cases of every operator and type of its first input, or of every operator."""


@pytest.mark.parametrize("target", OPERATORS)
def test_every_operator(target: str) -> None:
    session = driver.Session.of(None, target=target)
    cases = OPERATORS[target].values()
    wrong = {f"{case}: {line}" for case in cases for line in unguarded(_text(case, session))}
    assert not wrong, "\n".join(sorted(wrong)[:20])


@pytest.mark.parametrize(
    "line",
    [
        "%1 = sdiv i32 %a, %b",
        "%1 = srem <4 x i32> %a, splat (i32 -1)",
        "%1 = udiv i32 %a, 0",
        "%1 = shl i32 %a, 32",
        "%1 = lshr <4 x i16> %a, %b",
        "%1 = fptosi float %a to i32",
        "%1 = fptoui float %a to i32",
        "%1 = add nsw i64 %a, %b",
        "%1 = add i64 undef, 1",
        "%1 = add <4 x i32> poison, %a",
        "%1 = extractelement <4 x i32> %a, i64 4",
        "%1 = extractelement <4 x i32> %a, i64 %b",
        "%1 = call i32 @llvm.cttz.i32(i32 %a, i1 true)",
        "%1 = call i32 @llvm.abs.i32(i32 %a, i1 true)",
        "%1 = fadd nnan float %a, %b",
        "%1 = getelementptr inbounds i8, ptr %a, i64 1",
    ],
)
def test_what_is_refused(line: str) -> None:
    assert unguarded(f"define void @f(i32 %a, i32 %b) {{\nentry:\n  {line}\n}}") == [line]


@pytest.mark.parametrize(
    "lines",
    [
        ["%s = select i1 %z, i32 1, i32 %b", "%1 = sdiv i32 %a, %s"],
        ["%1 = sdiv <4 x i32> %a, splat (i32 7)"],
        ["%s = and i32 %b, 31", "%1 = shl i32 %a, %s"],
        ["%1 = lshr <4 x i16> %a, splat (i16 15)"],
        ["%1 = shufflevector <4 x i32> %a, <4 x i32> poison, <4 x i32> zeroinitializer"],
    ],
)
def test_what_is_allowed(lines: list[str]) -> None:
    body = "\n  ".join(lines)
    assert unguarded(f"define void @f(i32 %a, i32 %b) {{\nentry:\n  {body}\n}}") == []
