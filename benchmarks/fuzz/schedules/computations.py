"""Random computations in `te`: stages of every family, which read each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from .values import EXACT, FLOATS, ULP, Value, changed, clamped, combined, converted, fitting
from .writer import Known, Program, Unfit, Writer


def random_computation(seed: int) -> Program:
    """A program of one to six drawn stages, some of which bring others along."""
    r = Random(seed)
    w = Writer(r)
    stages = r.choice([1, 2, 2, 3, 3, 4, 6])
    while len(w.made) < stages:
        point = w.checkpoint()
        try:
            r.choice(FAMILIES)(w)
        except Unfit:
            w.restore(point)
    for made in w.made:
        unread = [t for t in made if t.name not in w.read]
        if unread and (len(unread) == len(made) or r.random() < 0.5):
            w.program.outputs += unread
        else:
            w.program.outputs += [t for t in made if r.random() < 0.15]
    return w.program


def _axes(dims: tuple[str, ...]) -> dict[str, str]:
    """Loops of a tensor with these extents."""
    return dict(zip("ijkl", dims, strict=False))


def _common(r: Random, values: list[Value]) -> list[Value]:
    """The values in one element type."""
    inexact = any(v.error for v in values)
    floats = [v.dtype for v in values if v.is_float]
    kinds = floats if inexact else [v.dtype for v in values] + [r.choice(FLOATS)]
    dtype = r.choice(kinds)
    return [converted(v, dtype) for v in values]


def _expression(w: Writer, axes: dict[str, str], exact: bool = False) -> Value:
    """A random expression of one to three elements."""
    r = w.random
    values = [w.element(axes, exact) for _ in range(r.choice([1, 2, 2, 3]))]
    first, *others = _common(r, values)
    for v in others:
        first = combined(r, first, v)
    if not exact and r.random() < 0.4:
        first = changed(r, first)
    return first


def _elementwise(w: Writer) -> None:
    dims = w.shape()
    axes = _axes(dims)
    v = _expression(w, axes)
    if v.dtype != "bool" and not v.error and w.random.random() < 0.1:
        v = converted(v, "bool")
    w.compute(dims, tuple(axes), fitting(v))


def _several(w: Writer) -> None:
    """Two results of one stage."""
    dims = w.shape(2)
    axes = _axes(dims)
    a, b = fitting(_expression(w, axes)), fitting(_expression(w, axes))
    w.compute(dims, tuple(axes), a, b, text=f"({a.text}, {b.text})")


def _stencil(w: Writer) -> None:
    """A border of zeros, then a sum over a window."""
    r = w.random
    t = w.source()
    if not t.dims or t.value.dtype == "bool":
        raise Unfit
    axes = _axes(t.dims)
    padded = tuple(str(w.number(d) + 2) if d.isdigit() else f"{d} + 2" for d in t.dims)
    if w.work(padded) > 3000:
        raise Unfit
    w.read.add(t.name)
    inside = [f"{a} >= 1, {a} - 1 < {d}" for a, d in axes.items()]
    at = ", ".join(f"{a} - 1" for a in axes)
    zero = "0.0" if t.value.is_float else "0"
    body = f"te.if_then_else(te.all({', '.join(inside)}), {t.name}[{at}], {zero})"
    (pad,) = w.compute(padded, tuple(axes), replace(t.value, text=body))
    w.read.add(pad.name)
    terms = []
    for _ in range(r.choice([2, 3, 4])):
        offsets = [r.choice(["", " + 1", " + 2"]) for _ in axes]
        at = ", ".join(a + o for a, o in zip(axes, offsets, strict=True))
        terms.append(replace(fitting(pad.value, 8), text=fitting(
            replace(pad.value, text=f"{pad.name}[{at}]"), 8).text))  # fmt: skip
    v = terms[0]
    for term in terms[1:]:
        text = f"({v.text} {r.choice('+-')} {term.text})"
        error = v.error + term.error
        v = replace(v, text=text, largest=v.largest + term.largest, error=error)
    if v.error:
        v = replace(v, error=v.error + len(terms) * ULP[v.dtype] * v.largest)
    w.compute(t.dims, tuple(axes), v)


def _reduction(w: Writer) -> None:
    r = w.random
    dims = w.shape(2)
    axes = _axes(dims)
    over = [r.choice(w.dims) for _ in range(r.choice([1, 1, 1, 2]))]
    if w.work((*dims, *over)) > 4000:
        raise Unfit
    reduced = {w.reduce_axis(d): d for d in over}
    # a tensor that is read has an axis for each empty dimension
    v = _expression(w, axes | reduced, exact=r.random() < 0.5)
    _reduce(w, dims, axes, reduced, v)


def _product(w: Writer) -> None:
    """A product of matrices, perhaps with more in each term and after the sum."""
    r = w.random
    m, n, k = (r.choice(w.dims) for _ in range(3))
    if w.work((m, n, k)) > 4000:
        raise Unfit
    dtype = r.choice([*FLOATS, "i8", "i16", "i32", "u8"])
    a, b = (
        w.placeholder((m, k), dtype, *_small(dtype)),
        w.placeholder((k, n), dtype, *_small(dtype)),
    )
    w.read |= {a.name, b.name}
    axis = w.reduce_axis(k)
    wide = dtype if dtype in ("f64", "f32", "i32") else "f32" if dtype in EXACT else "i32"
    left, right = (converted(replace(t.value, text=f"{t.name}[{at}]"), wide)
                   for t, at in ((a, f"i, {axis}"), (b, f"{axis}, j")))  # fmt: skip
    v = Value(f"{left.text} * {right.text}", wide, left.largest * right.largest)
    _reduce(w, (m, n), _axes((m, n)), {axis: k}, v, "sum")


def _small(dtype: str) -> tuple[int, int]:
    return (0, 9) if dtype == "u8" else (-4, 5)


def _reduce(
    w: Writer,
    dims: tuple[str, ...],
    axes: dict[str, str],
    reduced: dict[str, str],
    v: Value,
    name: str = "",
) -> None:
    r = w.random
    terms = max(1, w.work(tuple(reduced.values())))
    name = name or r.choice(["sum", "sum", "sum", "max", "min", "prod"])
    if v.dtype == "bool" or (v.dtype in ("f16", "bf16") and r.random() < 0.5):
        v = converted(v, "f32")
    if name == "prod" and v.error:
        name = "sum"
    largest, error, is_last = v.largest, v.error, False
    if name == "prod" and v.is_float:
        v = clamped(v, 1)
        largest = 1.0
    elif name == "sum":
        v = fitting(v, terms)
        largest = v.largest * terms
        error = (
            error * terms + (ULP[v.dtype] * terms * largest if error else 0.0)
            if v.is_float
            else 0.0
        )
    elif name != "prod":
        # infinite if there are no terms
        is_last = v.is_float and any(
            not w.number(d) or d in w.program.sizes for d in reduced.values()
        )
    axis = next(iter(reduced)) if len(reduced) == 1 else f"({', '.join(reduced)})"
    body = Value(f"te.{name}({v.text}, axis={axis})", v.dtype, largest, error)
    w.compute(dims, tuple(axes), body, is_last=is_last)


def _convolution(w: Writer) -> None:
    """A window of 3x3 and channels, its axes in the order that Winograd's filtering knows."""
    r = w.random
    c, o, h, x = r.randint(1, 4), r.randint(1, 4), r.randint(1, 7), r.randint(1, 7)
    image = w.placeholder((str(h + 2), str(x + 2), str(c)), "f32", -4, 5)
    kernel = w.placeholder(("3", "3", str(c), str(o)), "f32", -4, 5)
    w.read |= {image.name, kernel.name}
    p, q, k = w.reduce_axis("3"), w.reduce_axis("3"), w.reduce_axis(str(c))
    product = f"{image.name}[i + {p}, j + {q}, {k}] * {kernel.name}[{p}, {q}, {k}, l]"
    body = f"te.sum({product}, axis=({p}, {q}, {k}))"
    largest = 25.0 * 9 * c
    v = Value(body, "f32", largest, 64 * ULP["f32"] * largest)  # Winograd's transforms round
    w.compute((str(h), str(x), str(o)), ("i", "j", "l"), v)


def _dots(w: Writer) -> None:
    """Dot products of narrow numbers, packed as instructions on tiles read them."""
    r = w.random
    lanes, pairs = r.choice([4, 8, 16]), r.randint(1, 5)
    a_type, w_type, depth = r.choice(
        [("i16", "i16", 2), ("i8", "i8", 2), ("u8", "i8", 4), ("bf16", "bf16", 2)]
    )
    wide = "f32" if a_type == "bf16" else "i32"
    m, blocks = r.randint(1, 7), r.randint(1, 3)
    a = w.placeholder((str(m), str(depth * pairs)), a_type, *_small(a_type))
    b = w.placeholder((str(blocks), str(pairs), str(lanes), str(depth)), w_type, *_small(w_type))
    w.read |= {a.name, b.name}
    k = w.reduce_axis(str(depth * pairs))
    left = f'{a.name}[i, {k}].astype("{wide}")'
    at = f"j // {lanes}, {k} // {depth}, j % {lanes}, {k} % {depth}"
    body = f'te.sum({left} * {b.name}[{at}].astype("{wide}"), axis={k})'
    w.compute((str(m), str(blocks * lanes)), ("i", "j"), Value(body, wide, 81.0 * depth * pairs))


def _reducer(w: Writer) -> None:
    """Several values reduced together: the place of the largest, or sums and a maximum."""
    r = w.random
    dims = w.shape(1)
    axes = _axes(dims)
    d = r.choice([d for d in w.dims if w.number(d) and d.isdigit()] or ["5"])
    k = w.reduce_axis(d)
    v = w.element(axes | {k: d}, exact=True)
    if v.dtype == "bool" or v.dtype[0] == "u":
        v = converted(v, "i32")
    v = fitting(v, w.number(d))
    red = w.name("reducer")
    kind = r.choice(["lowest", "first", "stats"])
    if kind == "stats":
        v = clamped(v, 4)
        w.line(f"{red} = te.comm_reducer(lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])), "
               f"lambda s, m: (0, m.min), {red!r})")  # fmt: skip
        text = f"{red}(({v.text}, {v.text}), axis={k})"
        first = replace(v, largest=v.largest * w.number(d))
        w.compute(dims, tuple(axes), first, v, text=text)
        return
    better = ("te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] <= b[0]))" if kind == "lowest"
              else "a[1] >= b[1]")  # fmt: skip
    start = "i.max" if kind == "lowest" else "-1"
    better = f"te.select({better}, a[0], b[0]), te.select({better}, a[1], b[1])"
    w.line(
        f"{red} = te.comm_reducer(lambda a, b: ({better}), lambda i, v: ({start}, v.min), {red!r})"
    )
    w.compute(dims, tuple(axes), Value("", "i64"), v, text=f"{red}(({k}, {v.text}), axis={k})")


def _scan(w: Writer) -> None:
    r = w.random
    steps, width = r.randint(2, 9), r.choice([d for d in w.dims if w.number(d) < 20] or ["3"])
    back = r.choice([1, 1, 2]) if steps > 2 else 1
    dtype = r.choice(["f32", "f32", "f64", "i32", "i8"])
    one = ".0" if dtype in EXACT else ""
    x = w.placeholder((str(steps), width), dtype, -4, 5)
    w.read.add(x.name)
    state, first, step, name = (w.name(p) for p in ("state", "first", "step", "scan"))
    w.line(f"{state} = te.placeholder(({steps}, {width}), {dtype!r}, {state!r})")
    w.line(
        f"{first} = te.compute(({back}, {width}), lambda i, j: {x.name}[i, j] * 2{one}, {first!r})"
    )
    kind = r.choice(["line", "neighbours", "reduced"])
    before = f"{state}[i - {back}, j]"
    if kind == "neighbours":
        before = f"te.maximum({state}[i - 1, te.maximum(j - 1, 0)], {before})"
    elif kind == "reduced":
        k, part = w.reduce_axis(width), w.name("part")
        op = r.choice(["max", "sum"]) if w.number(width) and width not in w.program.sizes else "sum"
        body = f"te.{op}({state}[i - 1, {k}], axis={k})"
        w.line(f"{part} = te.compute(({steps}, 1), lambda i, u: {body}, {part!r})")
        before = f"({before} - te.minimum({part}[i, 0], 4{one}))"
    body = f"te.maximum(te.minimum({before} + {x.name}[i, j], 9{one}), -9{one})"
    w.line(f"{step} = te.compute(({steps}, {width}), lambda i, j: {body}, {step!r})")
    w.line(f"{name} = te.scan({first}, {step}, {state}, name={name!r})")
    w.add([Known((str(steps), width), Value(name, dtype, 10.0))])


def _extern(w: Writer) -> None:
    """Loops of one's own: counts, running sums, rows in order."""
    r = w.random
    n = r.choice([d for d in w.dims if w.number(d)] or ["6"])
    if n in w.program.sizes:
        n = "6"
    x = w.placeholder((n,), "i64", 0, 50)
    (low,) = w.compute((n,), ("i",), Value(f"{x.name}[i] % 4", "i64"))
    w.read |= {x.name, low.name}
    body, name = w.name("loops"), w.name("E")
    kind = r.choice(["count", "running", "sorted"])
    w.line(f"def {body}(b, x, y):")
    if kind == "count":
        n_out = "4"
        w.line('    with b.loop(4, "k") as k:\n        y[k] = 0')
        w.line(f'    with b.loop({n}, "i") as i:\n        y[x[i]] = y[x[i]] + 1')
    elif kind == "running":
        n_out = n
        w.line('    t = b.variable("t", te.const(0, "i64"))')
        w.line(f'    with b.loop({n}, "i") as i:\n        t.value = t.value + x[i]')
        w.line("        y[i] = t.value")
    else:
        n_out = n
        w.line(f'    with b.independent({n}, "i") as i:\n        y[i] = x[i] * i')
    w.line(f"{name} = te.extern({n_out}, [{low.name}], {body}, name={name!r})")
    w.add([Known((n_out,), Value(name, "i64"))])


def _reshape(w: Writer) -> None:
    """Two axes as one, perhaps with the lines of another tensor behind them."""
    t = w.source()
    if len(t.dims) != 2 or not all(map(str.isdigit, t.dims)) or not w.work(t.dims):
        raise Unfit
    w.read.add(t.name)
    n = t.dims[1]
    v = replace(t.value, text=f"{t.name}[i // {n}, i % {n}]")
    w.compute((str(w.work(t.dims)),), ("i",), v)


def _concat(w: Writer) -> None:
    a = w.source()
    if not a.dims or not all(map(str.isdigit, a.dims)):
        raise Unfit
    b = w.placeholder((str(w.random.randint(0, 5)), *a.dims[1:]), a.value.dtype, 0, 2)
    w.read |= {a.name, b.name}
    dims = (str(w.number(a.dims[0]) + w.number(b.dims[0])), *a.dims[1:])
    if w.work(dims) > 3000:
        raise Unfit
    i, *others = _axes(dims)
    rest = "".join(f", {o}" for o in others)
    n = a.dims[0]
    text = f"te.if_then_else({i} < {n}, {a.name}[{i}{rest}], {b.name}[{i} - {n}{rest}])"
    w.compute(dims, (i, *others), replace(a.value, text=text, largest=max(a.value.largest, 2.0)))


def _triangle(w: Writer) -> None:
    """A sum of the terms up to the diagonal."""
    r = w.random
    d = r.choice([d for d in w.dims if w.number(d) > 0] or ["4"])
    a = w.placeholder((d, d), r.choice(["f32", "i32"]), -4, 5)
    w.read.add(a.name)
    k, zero = w.reduce_axis(d), "0.0" if a.value.is_float else "0"
    cond, at = r.choice([(f"{k}.var <= i", f"i, {k}"), (f"{k}.var + i < {d}", f"i, {k} + i")])
    text = f"te.sum(te.if_then_else({cond}, {a.name}[{at}], {zero}), axis={k})"
    w.compute(
        (d,), ("i",), replace(a.value, text=text, largest=a.value.largest * max(w.number(d), 1))
    )


FAMILIES: list[Callable[[Writer], None]] = [
    _elementwise, _elementwise, _elementwise, _several, _stencil, _stencil, _reduction, _reduction,
    _product, _product, _convolution, _dots, _reducer, _scan, _extern, _reshape, _concat, _triangle,
]  # fmt: skip
