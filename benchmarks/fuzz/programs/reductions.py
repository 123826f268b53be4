"""Recipes of reductions, scans and orders."""

from __future__ import annotations

from .draw import ANY, BOOL, FLOATS, INTS, NUMBERS, Draw, recipe

WHOLE = ("sum", "mean", "prod", "amax", "amin", "max", "min", "any", "all", "std", "var", "norm")
OVER_AXES = ("sum", "mean", "amax", "amin", "logsumexp", "nansum", "any", "all", "nanmean")


def _kept(d: Draw) -> str:
    return ", keepdim=True" if d.chance(0.4) else ""


@recipe()
def whole(d: Draw) -> None:
    d.add(f"{{0}}.{d.choose(WHOLE)}()", d.pick(ANY))


@recipe(3)
def over_axes(d: Draw) -> None:
    x = d.pick(ANY, (1, 5))
    op = d.choose(OVER_AXES)
    axes = d.axes(x) if d.chance(0.5) else d.axis(x)
    d.add(f"torch.{op}({{0}}, {axes}{_kept(d)})", x)


@recipe()
def one_axis(d: Draw) -> None:
    x = d.pick(NUMBERS, (1, 5))
    axis = d.axis(x)
    form = d.choose(
        [
            f"torch.argmax({{0}}, {axis}{_kept(d)})",
            f"torch.argmin({{0}}, {axis})",
            f"torch.prod({{0}}, {axis})",
            f"torch.count_nonzero({{0}}, {axis})",
            f"{{0}}.max({axis}{_kept(d)}).values",
            f"{{0}}.min({axis}).indices",
            f"torch.median({{0}}, {axis}).values",
            "torch.argmax({0})",
        ]
    )
    d.add(form, x)


@recipe(0.7)
def two_results(d: Draw) -> None:
    x = d.pick(NUMBERS, (1, 5))
    axis = d.axis(x)
    form = d.choose(
        [
            f"torch.max({{0}}, {axis})",
            f"torch.min({{0}}, {axis}{_kept(d)})",
            f"torch.sort({{0}}, {axis}, stable=True)",
            f"torch.cummax({{0}}, {axis})",
            f"torch.var_mean({{0}}, {axis})",
            f"torch.aminmax({{0}}, dim={axis})",
            f"torch.sort({{0}}, dim={axis}, stable=True, descending=True)",
        ]
    )
    d.add(form, x, results=2)


@recipe()
def spread(d: Draw) -> None:
    x = d.pick(FLOATS, (1, 4))
    axis = d.axis(x)
    form = d.choose(
        [
            f"torch.std({{0}}, {axis}{_kept(d)})",
            f"torch.var({{0}}, {d.axes(x)}, correction=0)",
            f"torch.linalg.vector_norm({{0}}, {d.choose([1, 2, 3, 'inf'])}, {axis})",
            f"torch.norm({{0}}, dim={axis})",
            f"F.normalize({{0}}, dim={axis})",
        ]
    )
    d.add(form, x)


@recipe()
def scan(d: Draw) -> None:
    x = d.pick(ANY, (1, 4))
    op = d.choose(["cumsum", "cumprod", "cumsum", "logcumsumexp"])
    d.add(f"torch.{op}({{0}}, {d.axis(x)})", x)


@recipe(0.7)
def ordered(d: Draw) -> None:
    x = d.pick(NUMBERS, (1, 4))
    axis = d.axis(x)
    if d.chance(0.5):
        d.add(f"torch.argsort({{0}}, dim={axis}, stable=True)", x)
    else:
        k = d.number(1, min(3, d.of(x).shape[axis]))
        d.add(f"torch.topk({{0}}, {k}, {axis}, largest={d.chance(0.7)}).values", x)


@recipe(0.5)
def distances(d: Draw) -> None:
    x = d.pick(FLOATS, (1, 3))
    form = d.choose(
        [
            "F.mse_loss({0}, {1})",
            "F.l1_loss({0}, {1})",
            "F.smooth_l1_loss({0}, {1})",
            "F.cosine_similarity({0}, {1}, dim=-1)",
            "torch.dist({0}, {1})",
            "F.mse_loss({0}, {1}, reduction='none')",
            "F.huber_loss({0}, {1})",
            "F.kl_div({0}, {1}, reduction='sum')",
        ]
    )
    d.add(form, x, d.new(d.of(x).shape, d.of(x).dtype))


@recipe(0.5)
def counts(d: Draw) -> None:
    x = d.pick((*INTS, BOOL), (1, 3))
    d.add(
        d.choose(["{0}.sum()", "{0}.sum(0)", "{0}.any(0)", "{0}.cumsum(0)", "{0}.float().mean()"]),
        x,
    )
