"""Calls that write to tensors become calls that make new ones."""

from __future__ import annotations

import pytest

from tilesmith.frontend.aten.functional import functional
from tilesmith.frontend.aten.program import Call, Ref
from tilesmith.support.errors import UnsupportedError


def shown(call):
    def text(argument):
        return argument.name if isinstance(argument, Ref) else repr(argument)

    return (
        f"{call.results} = {call.target.removeprefix('aten.')}({', '.join(map(text, call.args))})"
    )


def rewritten(text, *names):
    """The calls of `text`, "result = operator(arguments)" in each line, rewritten; and what `names`
    hold at the end.
    """
    calls = []
    for line in text.strip().splitlines():
        result, _, call = line.strip().partition(" = ")
        target, _, args = call.rstrip(")").partition("(")
        parsed = [int(a) if a.lstrip("-").isdigit() else Ref(a) for a in args.split(", ")]
        several = tuple(result.split(", "))
        calls.append(Call(f"aten.{target}", parsed, {}, several if several[1:] else result))
    made = functional(calls)
    ends = [made.current(n) for n in names]
    return [shown(c) for c in made.calls], ends


def test_a_write_makes_a_new_tensor():
    calls, ends = rewritten(
        """
        a = relu.default(x)
        b = add_.Tensor(a, x)
        c = mul.Tensor(a, b)
        d = mul_.Tensor(x, c)
        """,
        "x",
    )
    assert calls == [
        "a = relu.default(x)", "b = add.Tensor(a, x)", "c = mul.Tensor(b, b)",
        "d = mul.Tensor(x, c)",
    ]  # fmt: skip
    assert ends == ["d"]


def test_a_write_through_views_reaches_the_tensor_and_its_other_views():
    calls, ends = rewritten(
        """
        other = select.int(x, 0, 1)
        row = select.int(x, 0, 1)
        part = slice.Tensor(row, 0, 2, 4)
        new = copy_.default(part, y)
        sum = add.Tensor(other, row)
        """,
        "x",
    )
    assert calls[3:] == [
        "new = copy.default(part, y)",
        "row'1 = slice_scatter.default(row, new, 0, 2, 4)",
        "x'2 = select_scatter.default(x, row'1, 0, 1)",
        "other'3 = select.int(x'2, 0, 1)",
        "sum = add.Tensor(other'3, row'1)",
    ]
    assert ends == ["x'2"]


def test_views_in_another_order():
    calls, ends = rewritten(
        """
        a = transpose.int(x, 0, 1)
        b = view.default(a, 6)
        c = relu_.default(b)
        """,
        "x",
    )
    assert calls[2:] == [
        "c = relu.default(b)",
        "a'1 = view_as.default(c, a)",
        "x'2 = transpose.int(a'1, 0, 1)",
    ]
    assert ends == ["x'2"]


def test_views_of_what_was_written_before():
    calls, _ = rewritten(
        """
        a = relu_.default(x)
        p, q = split.Tensor(x, 2)
        b = neg_.default(x)
        c = add.Tensor(p, q)
        """
    )
    assert calls[1:] == [
        "('p', 'q') = split.Tensor(a, 2)", "b = neg.default(a)",
        "(\"p'1\", '') = split.Tensor(b, 2)", "('', \"q'2\") = split.Tensor(b, 2)",
        "c = add.Tensor(p'1, q'2)",
    ]  # fmt: skip


def test_what_may_be_a_copy_is_not_used_after_a_write():
    before = "a = reshape.default(x, 6)\nb = relu_.default(a)\n"
    calls, _ = rewritten(before + "c = neg.default(a)")
    assert calls[-1] == "c = neg.default(b)"
    with pytest.raises(
        UnsupportedError, match="'x' is used after a write to a tensor that is a co"
    ):
        rewritten(before + "c = neg.default(x)")


def test_views_that_nothing_can_be_written_to():
    with pytest.raises(UnsupportedError, match=r"written to through aten\.expand\.default"):
        rewritten("a = expand.default(x, 6)\nb = relu_.default(a)")
