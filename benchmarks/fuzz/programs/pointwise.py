"""Recipes of calls that work element by element."""

from __future__ import annotations

from .draw import ANY, BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, INTS, NUMBERS, U8, Draw, recipe

UNARY = (
    *("abs", "acos", "asin", "asinh", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "exp2"),
    *("expm1", "floor", "log1p", "neg", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh"),
    *("sqrt", "square", "tan", "tanh", "trunc", "frac", "reciprocal", "log", "log2", "log10"),
    *("isnan", "isfinite", "isinf", "signbit", "nan_to_num", "deg2rad", "logit", "positive"),
)
ACTIVATIONS = (
    *("gelu", "silu", "mish", "softplus", "elu", "selu", "celu", "leaky_relu", "hardtanh"),
    *("hardswish", "hardsigmoid", "softsign", "tanhshrink", "logsigmoid", "relu6", "softshrink"),
    "hardshrink",
)
BINARY = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "fmax"),
    *("fmin", "atan2", "hypot", "copysign", "logaddexp", "xlogy"),
)
OPERATORS = ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=")


@recipe(4)
def unary(d: Draw) -> None:
    d.add(f"torch.{d.choose(UNARY)}({{0}})", d.pick(NUMBERS))


@recipe(2)
def activation(d: Draw) -> None:
    d.add(f"F.{d.choose(ACTIVATIONS)}({{0}})", d.pick())


@recipe(4)
def binary(d: Draw) -> None:
    x = d.pick(ANY)
    d.add(f"torch.{d.choose(BINARY)}({{0}}, {{1}})", *_pair(d, x))


@recipe(3)
def operator(d: Draw) -> None:
    d.add(f"{{0}} {d.choose(OPERATORS)} {{1}}", *_pair(d, d.pick(ANY)))


@recipe(2)
def with_number(d: Draw) -> None:
    x = d.pick(NUMBERS)
    c = d.real() if d.chance(0.6) else d.number(-4, 5)
    if d.chance(0.7):
        d.add(f"{{0}} {d.choose(OPERATORS)} {c}", x)
    else:
        d.add(f"{c} {d.choose(OPERATORS)} {{0}}", x)


@recipe()
def whole_division(d: Draw) -> None:
    x = d.pick(NUMBERS)
    by = d.like(x) if d.chance(0.4) else str(d.choose([2, 3, -2, 7, 1.5, -3]))
    op = d.choose(
        [
            "{0} // {1}",
            "{0} % {1}",
            "torch.fmod({0}, {1})",
            "torch.remainder({0}, {1})",
            "torch.div({0}, {1}, rounding_mode='trunc')",
            "torch.div({0}, {1}, rounding_mode='floor')",
            "torch.floor_divide({0}, {1})",
        ]
    )
    d.add(op, x, by)


@recipe()
def power(d: Draw) -> None:
    if d.chance(0.7):
        d.add(f"{{0}} ** {d.choose([2, 3, 0.5, -1, 0, 1.5, 4])}", d.pick(NUMBERS))
    elif d.chance(0.5):
        d.add(f"{d.choose([2, 0.5, 3])} ** {{0}}", d.pick(NUMBERS))
    else:
        x = d.pick()
        d.add("torch.pow({0}.abs(), {1})", x, d.like(x, d.of(x).dtype))


@recipe(1.5)
def bits(d: Draw) -> None:
    x = d.pick((*INTS, BOOL))
    if d.chance(0.15):
        d.add("~{0}", x)
    elif d.chance(0.3) and d.of(x).dtype != BOOL:
        d.add(f"{{0}} {d.choose(['<<', '>>'])} {d.number(0, 6)}", x)
    else:
        d.add(f"{{0}} {d.choose(['&', '|', '^'])} {{1}}", x, d.like(x))


@recipe()
def logic(d: Draw) -> None:
    x = d.pick(ANY)
    if d.chance(0.3):
        d.add("torch.logical_not({0})", x)
    else:
        op = d.choose(["and", "or", "xor"])
        d.add(f"torch.logical_{op}({{0}}, {{1}})", x, d.like(x))


@recipe(2)
def where(d: Draw) -> None:
    x = d.pick(ANY)
    mask = mask_like(d, x)
    other = d.like(x) if d.chance(0.7) else str(d.choose([0, 0.0, 1, -1.5, "-inf"]))
    d.add("torch.where({0}, {1}, {2})", mask, *((x, other) if d.chance(0.6) else (other, x)))


@recipe()
def clamp(d: Draw) -> None:
    x = d.pick(NUMBERS)
    if d.chance(0.25):
        d.add("torch.clamp({0}, {1}, {2})", x, d.like(x, d.of(x).dtype), d.like(x, d.of(x).dtype))
        return
    low, high = sorted((d.real(), d.real()))
    d.add(
        d.choose(
            [f"{{0}}.clamp({low}, {high})", f"{{0}}.clamp(min={low})", f"{{0}}.clamp(max={high})"]
        ),
        x,
    )


@recipe()
def masked_fill(d: Draw) -> None:
    x = d.pick(ANY)
    d.add(f"{{0}}.masked_fill({{1}}, {d.choose([0, 1, 2])})", x, mask_like(d, x))


@recipe(2)
def cast(d: Draw) -> None:
    to = d.choose([F32, F64, F16, BF16, I64, I32, U8, BOOL])
    form = d.choose([f"{{0}}.to({to})", f"{{0}}.type({to})"])
    d.add(form, d.pick(ANY))


@recipe(0.7)
def ternary(d: Draw) -> None:
    x = d.pick(FLOATS)
    dtype = d.of(x).dtype
    y, z = d.like(x, dtype), d.like(x, dtype)
    d.add(
        d.choose(
            [
                "torch.lerp({0}, {1}, 0.3)",
                "torch.lerp({0}, {1}, {2})",
                "torch.addcmul({0}, {1}, {2}, value=0.5)",
                "torch.addcdiv({0}, {1}, {2}, value=2)",
                "torch.add({0}, {1}, alpha=2)",
                "torch.sub({0}, {1}, alpha=3)",
                "torch.rsub({0}, {1})",
            ]
        ),
        x,
        y,
        z,
    )


@recipe(0.7)
def created(d: Draw) -> None:
    x = d.pick(ANY, (1, 4))
    size = d.size(x, d.axis(x))
    form = d.choose(
        [
            "torch.zeros_like({0})",
            "torch.ones_like({0})",
            f"torch.full_like({{0}}, {d.number(0, 3)})",
            f"torch.arange({size})",
            f"torch.arange({size}, dtype=torch.float32)",
            f"torch.zeros({size}, 3)",
            f"{{0}}.new_zeros({size})",
            f"{{0}}.new_ones(2, {size})",
            f"torch.eye({size})",
            f"torch.linspace(0, 1, {size})",
            f"torch.tril(torch.ones({size}, {size}, dtype=torch.bool))",
        ]
    )
    d.add(form, x)


def mask_like(d: Draw, x: str) -> str:
    """A mask that broadcasts with a value."""
    if d.chance(0.5) and d.of(x).dtype != BOOL:
        return d.add(f"{{0}} {d.choose(['>', '<', '>=', '!='])} {d.choose([0, 1, 0.5])}", x)[0]
    return d.like(x, BOOL)


def _pair(d: Draw, x: str) -> tuple[str, str]:
    y = d.like(x)
    return (x, y) if d.chance(0.6) else (y, x)
