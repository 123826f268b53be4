"""Halide's BoundaryConditions: values at coordinates outside of an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.support.errors import UsageError

from .buffers import Buffer, ImageParam
from .expressions import Expr, Var, as_expr, clamp, select
from .func import Func


def _made(
    source: Any, bounds: Any, name: str, coordinate: Callable[[Expr, Any, Any], Expr], outside: Any
) -> Func:
    """The Func that reads `source` at `coordinate(x, min, extent)` in each bounded dimension.

    outside: the value at other coordinates than those of the image; None: `coordinate` decides.
    """
    if bounds is None:
        if not isinstance(source, (Buffer, ImageParam)):
            raise UsageError(f"{name} of a Func: expected bounds [(min, extent), ...], found none")
        dims = [source.dim(n) for n in range(source.dimensions())]
        bounds = [(d.min(), d.extent()) for d in dims]
    pairs = [tuple(b) if b is not None else (Expr(), Expr()) for b in bounds]
    axes = [Var(f"_{n}") for n in range(source.dimensions())]
    places: list[Any] = list(axes)
    inside: Any = None
    for n, (low, size) in enumerate(pairs):
        if isinstance(low, Expr) and not low.defined():
            continue
        places[n] = coordinate(axes[n], low, size)
        here = (axes[n] >= low) & (axes[n] < as_expr(low) + size)
        inside = here if inside is None else inside & here
    func = Func(name)
    value = source[tuple(places)]
    func[tuple(axes)] = value if outside is None or inside is None else select(
        inside, value, outside)  # fmt: skip
    return func


def _clamped(x: Expr, low: Any, size: Any) -> Expr:
    return clamp(x, low, as_expr(low) + size - 1)


def repeat_edge(source: Any, bounds: Any = None) -> Func:
    """The value of the nearest element."""
    return _made(source, bounds, "repeat_edge", _clamped, None)


def constant_exterior(source: Any, value: Any, bounds: Any = None) -> Func:
    """`value` outside."""
    return _made(source, bounds, "constant_exterior", _clamped, value)


def repeat_image(source: Any, bounds: Any = None) -> Func:
    """The image again and again."""
    return _made(source, bounds, "repeat_image", lambda x, low, size: (x - low) % size + low, None)


def mirror_image(source: Any, bounds: Any = None) -> Func:
    """The image and its mirror image in turn; the element at an edge comes twice."""

    def coordinate(x: Expr, low: Any, size: Any) -> Expr:
        place = (x - low) % (as_expr(size) * 2)
        return clamp(select(place >= size, as_expr(size) * 2 - 1 - place, place), 0,
                     as_expr(size) - 1) + low  # fmt: skip

    return _made(source, bounds, "mirror_image", coordinate, None)


def mirror_interior(source: Any, bounds: Any = None) -> Func:
    """The image and its mirror image in turn; the element at an edge comes once."""

    def coordinate(x: Expr, low: Any, size: Any) -> Expr:
        last = as_expr(size) - 1
        place = (x - low) % select(last > 0, last * 2, 1)
        return clamp(select(place >= last, last * 2 - place, place), 0, last) + low

    return _made(source, bounds, "mirror_interior", coordinate, None)
