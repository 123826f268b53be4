"""Recipes of statements that write to values, inputs and state, also through views."""

from __future__ import annotations

from .draw import ANY, BOOL, NUMBERS, Draw, recipe

UNARY = ("relu_", "sigmoid_", "tanh_", "neg_", "abs_", "zero_", "sin_", "exp_", "square_", "floor_")
BINARY = ("add_", "sub_", "mul_", "copy_", "div_", "copy_", "add_", "mul_", "clamp_min_")


def _owned(d: Draw, allowed: tuple = NUMBERS, rank: tuple[int, int] = (0, 4)) -> str:
    """A value to write to: sometimes a copy, so that little else sees it."""
    x = d.pick(allowed, rank)
    leaf = d.of(x).requires_grad and d.of(x).is_leaf
    return d.add("{0}.clone()", x)[0] if leaf or d.chance(0.3) else x


def _place(d: Draw, x: str) -> str:
    """An index of a value, for a view."""
    t = d.of(x)
    kept = t.shape[: d.number(1, max(t.ndim, 1))]
    parts = [
        d.choose([":", "1:", ":-1", "::2", "-1", "0", ":1", f"{d.number(0, max(extent - 1, 0))}:"])
        for extent in kept
    ]
    return ", ".join(parts) or "..."


@recipe(2)
def whole(d: Draw) -> None:
    x = _owned(d)
    if d.chance(0.4):
        d.add(f"{{0}}.{d.choose(UNARY)}()", x, results=0)
    elif d.chance(0.4):
        d.add(f"{{0}}.{d.choose(BINARY)}({d.number(1, 3)})", x, results=0)
    else:
        d.add(f"{{0}}.{d.choose(BINARY)}({{1}})", x, d.like(x, d.of(x).dtype), results=0)


@recipe(3)
def through_view(d: Draw) -> None:
    """A view is named, written to, and what it is a view of is used later."""
    x = _owned(d, rank=(1, 4))
    form = d.choose(
        [
            f"{{0}}[{_place(d, x)}]",
            "{0}.view(-1)",
            f"{{0}}.transpose({d.axis(x)}, {d.axis(x)})",
            "{0}.diagonal()",
            "{0}.unsqueeze(0)",
            "{0}.squeeze()",
            f"{{0}}.select({d.axis(x)}, 0)",
            "{0}.flatten()",
            "{0}.reshape(-1)",
            "{0}.detach()",
            f"{{0}}.unfold({d.axis(x)}, 1, 2)",
            f"{{0}}.chunk(2, {d.axis(x)})[0]",
            "{0}.expand_as({0})",
        ]
    )
    (v,) = d.add(form, x)
    if d.chance(0.3):
        (v,) = d.add(f"{{0}}[{_place(d, v)}]", v)
    if d.chance(0.5):
        d.add(f"{{0}}.{d.choose([*BINARY, 'fill_'])}({d.number(1, 3)})", v, results=0)
    elif d.chance(0.4):
        d.add(f"{{0}}.{d.choose(UNARY)}()", v, results=0)
    else:
        d.add(f"{{0}}.{d.choose(BINARY)}({{1}})", v, d.like(v, d.of(v).dtype), results=0)
    if d.chance(0.4):
        d.add("{0} + 1" if d.of(x).dtype != BOOL else "~{0}", x)


@recipe(2)
def at_index(d: Draw) -> None:
    x = _owned(d, ANY, (1, 4))
    place = _place(d, x)
    if d.chance(0.5):
        d.add(f"{{0}}[{place}] = {d.choose([0, 1, 2.5, True])}", x, results=0)
        return
    (v,) = d.add(f"{{0}}[{place}]", x)
    y = d.new(d.of(v).shape, d.of(x).dtype) if d.chance(0.5) else d.like(v)
    op = d.choose(["=", "=", "+=", "*=", "-="])
    d.add(f"{{0}}[{place}] {op} {{1}}", x, y, results=0)


@recipe(1.5)
def by_mask(d: Draw) -> None:
    x = _owned(d, NUMBERS, (1, 4))
    limit = d.choose([0, 1, 0.5])
    form = d.choose(
        [
            f"{{0}}[{{0}} > {limit}] = {d.number(0, 2)}",
            f"{{0}}[{{0}} < {limit}] *= 2",
            f"{{0}}.masked_fill_({{1}}, {d.number(0, 2)})",
            f"{{0}}[{{1}}] = {d.number(0, 2)}",
            "{0}.copy_(torch.where({1}, {0}, -{0}))",
        ]
    )
    mask = d.like(x, BOOL) if "{1}" in form else x
    d.add(form, x, mask, results=0)


@recipe()
def augmented(d: Draw) -> None:
    x = _owned(d, ANY)
    op = d.choose(["+=", "*=", "-=", "/=", "//=", "|=", "&="])
    y = str(d.number(1, 3)) if d.chance(0.5) else d.like(x)
    d.add(f"{{0}} {op} {{1}}", x, y, results=0)


@recipe(0.5)
def to_shape(d: Draw) -> None:
    """A view of it has other sizes for itself."""
    x = _owned(d, ANY, (1, 4))
    (v,) = d.add("{0}.detach()" if not d.of(x).requires_grad else "{0}.clone()", x)
    form = d.choose(
        [
            "{0}.unsqueeze_(0)",
            f"{{0}}.squeeze_({d.axis(v)})",
            f"{{0}}.transpose_({d.axis(v)}, {d.axis(v)})",
        ]
    )
    d.add(form, v, results=0)


@recipe(0.5)
def state(d: Draw) -> None:
    """A buffer that counts or averages."""
    name = d._kept("b", d.buffers, d.values[d.pick((NUMBERS[0],), (0, 2))].detach().clone())
    y = d.like(name, d.of(name).dtype)
    d.add(
        d.choose(
            [
                "{0}.mul_(0.9).add_({1}.detach(), alpha=0.1)",
                "{0}.add_(1)",
                "{0}.copy_({1}.detach())",
            ]
        ),
        name,
        y,
        results=0,
    )
    d.add("{0} * 2", name)


@recipe(0.7)
def into_out(d: Draw) -> None:
    x = d.pick((NUMBERS[0],))
    (o,) = d.add("torch.zeros_like({0}).detach()", x)
    d.add(
        d.choose(
            [
                "torch.add({0}, 1, out={1})",
                "torch.exp({0}.detach(), out={1})",
                "torch.mul({0}.detach(), 2, out={1})",
            ]
        ),
        x,
        o,
        results=0,
    )
