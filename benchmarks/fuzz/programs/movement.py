"""Recipes of views, joins and repetitions."""

from __future__ import annotations

from .draw import ANY, Draw, Rejected, recipe


@recipe(3)
def reordered(d: Draw) -> None:
    x = d.pick(ANY, (1, 5))
    rank = d.of(x).ndim
    order = tuple(int(a) for a in d.random.permutation(rank))
    form = d.choose(
        [
            f"{{0}}.permute({order})",
            f"{{0}}.transpose({d.axis(x)}, {d.axis(x)})",
            f"{{0}}.movedim({d.axis(x)}, {d.axis(x)})",
            "{0}.mT",
            f"torch.swapaxes({{0}}, {d.axis(x)}, {d.axis(x)})",
        ]
    )
    d.add(form, x)


@recipe(3)
def reshaped(d: Draw) -> None:
    x = d.pick(ANY, (0, 5))
    t = d.of(x)
    forms = [
        "{0}.reshape(-1)",
        "{0}.unsqueeze(0)",
        "{0}.unsqueeze(-1)",
        "{0}.squeeze()",
        "{0}.flatten()",
    ]
    if t.ndim > 1:
        a = d.number(0, t.ndim - 2)
        forms += [
            f"{{0}}.flatten({a}, {d.number(a + 1, t.ndim - 1)})",
            f"{{0}}.reshape({d.size(x, 0)}, -1)",
            f"{{0}}.view({d.size(x, 0)}, -1)",
            f"{{0}}.squeeze({d.axis(x)})",
            f"{{0}}.reshape(-1, {d.size(x, -1)})",
            "{0}.view(-1)",
        ]
    if t.ndim:
        axis = d.axis(x, back=False)
        divisors = [k for k in (1, 2, 3, 4) if t.shape[axis] and t.shape[axis] % k == 0]
        if divisors:
            k = d.choose(divisors)
            forms += [f"{{0}}.unflatten({axis}, (-1, {k}))", f"{{0}}.unflatten({axis}, ({k}, -1))"]
    d.add(d.choose(forms), x)


@recipe(3)
def sliced(d: Draw) -> None:
    x = d.pick(ANY, (1, 5))
    t = d.of(x)
    parts = []
    for extent in t.shape:
        kind = d.random.random()
        if kind < 0.4:
            parts.append(":")
        elif kind < 0.55 and extent:
            parts.append(str(d.number(-extent, extent - 1)))
        elif kind < 0.9:
            low = d.choose(["", d.number(0, 2), d.number(-3, -1)])
            high = d.choose(["", "", d.number(-2, -1), d.number(1, extent + 2)])
            parts.append(f"{low}:{high}{d.choose(['', '', '::2'[1:], ':3'])}")
        else:
            parts.append("None, :")
    if d.chance(0.2):
        parts = [*parts[: d.number(0, len(parts))], "..."]
    d.add(f"{{0}}[{', '.join(parts)}]", x)


@recipe(1.5)
def part(d: Draw) -> None:
    x = d.pick(ANY, (1, 4))
    t, axis = d.of(x), d.axis(x)
    extent = t.shape[axis]
    start = d.number(0, extent)
    form = d.choose(
        [
            f"{{0}}.narrow({axis}, {start}, {d.number(0, extent - start)})",
            f"{{0}}.select({axis}, {d.number(0, extent - 1)})",
            "{0}.diagonal()",
            f"{{0}}.diagonal({d.number(-2, 2)}, {d.axis(x)}, {d.axis(x)})",
            f"{{0}}.unfold({axis}, {d.number(1, max(extent, 1))}, {d.number(1, 3)})",
            f"{{0}}.chunk(2, {axis})[0]",
            f"{{0}}.split(2, {axis})[-1]",
            f"{{0}}.unbind({axis})[-1]",
            f"torch.tensor_split({{0}}, 3, {axis})[1]",
        ]
    )
    d.add(form, x)


@recipe()
def pieces(d: Draw) -> None:
    x = d.pick(ANY, (1, 4))
    axis = d.axis(x)
    extent = d.of(x).shape[axis]
    if not 1 < extent <= 9:
        raise Rejected("no pieces")
    if d.chance(0.5):
        at = d.number(1, extent - 1)
        rest = f"{d.size(x, axis)} - {at}"
        d.add(f"{{0}}.split([{at}, {rest}], {axis})", x, results=2)
    else:
        d.add(f"{{0}}.chunk(2, {axis})", x, results=2)


@recipe()
def expanded(d: Draw) -> None:
    x = d.pick(ANY, (0, 4))
    t = d.of(x)
    sizes = [d.number(1, 3) if e == 1 else -1 for e in t.shape]
    if d.chance(0.4):
        sizes = [d.number(1, 3), *sizes]
    form = d.choose(
        [
            f"{{0}}.expand({tuple(sizes)})",
            "{0}.expand_as({1})",
            "torch.broadcast_to({0}, {1}.shape)",
        ]
    )
    d.add(form, x, d.like(x))


@recipe(2)
def joined(d: Draw) -> None:
    x = d.pick(ANY, (1, 4))
    if d.chance(0.6):
        axis = d.axis(x)
        shape = list(d.of(x).shape)
        shape[axis] = d.extent(6)
        y = (
            d.new(shape, d.of(x).dtype if d.chance(0.8) else d.dtype(ANY))
            if d.chance(0.6)
            else d.like(x)
        )
        d.add(
            f"torch.cat([{{0}}, {{1}}{', {0}' * d.chance(0.2)}], {axis})",
            *((x, y) if d.chance(0.5) else (y, x)),
        )
    else:
        y = d.new(d.of(x).shape, d.of(x).dtype) if d.chance(0.5) else d.like(x)
        axis = d.number(-d.of(x).ndim - 1, d.of(x).ndim)
        op = d.choose(["stack", "stack", "hstack", "vstack", "dstack"])
        d.add(f"torch.{op}([{{0}}, {{1}}]{f', {axis}' if op == 'stack' else ''})", x, y)


@recipe(1.5)
def repeated(d: Draw) -> None:
    x = d.pick(ANY, (1, 3))
    rank = d.of(x).ndim
    counts = tuple(d.number(1, 2) for _ in range(rank + d.chance(0.2)))
    form = d.choose(
        [
            f"{{0}}.repeat({counts})",
            f"torch.tile({{0}}, {counts[:1]})",
            f"torch.repeat_interleave({{0}}, {d.number(1, 3)}, {d.axis(x)})",
            f"torch.roll({{0}}, {d.number(-3, 3)}, {d.axis(x)})",
            f"torch.roll({{0}}, {d.number(-3, 3)})",
            f"torch.flip({{0}}, {d.axes(x)})",
            f"torch.tril({{0}}, {d.number(-1, 1)})",
            f"torch.triu({{0}}, {d.number(-1, 1)})",
            "torch.rot90({0})",
            f"torch.diff({{0}}, dim={d.axis(x)})",
            "torch.diag_embed({0})",
            "torch.atleast_2d({0})",
            "{0}.contiguous()",
            "{0}.clone()",
        ]
    )
    d.add(form, x)


@recipe()
def padded(d: Draw) -> None:
    x = d.pick(ANY, (1, 4))
    pairs = d.number(1, min(2, d.of(x).ndim))
    mode = d.choose(["reflect", "replicate", "circular"])
    amounts = tuple(d.number(-1, 3) for _ in range(2 * pairs))
    form = d.choose(
        [
            f"F.pad({{0}}, {amounts})",
            f"F.pad({{0}}, {amounts}, value={d.number(0, 2)})",
            f"F.pad({{0}}, {tuple(map(abs, amounts))}, mode='{mode}')",
        ]
    )
    d.add(form, x)
