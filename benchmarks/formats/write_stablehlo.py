#!/usr/bin/env python3
"""Write functions of JAX as StableHLO's text, and what JAX computes with them:
`python benchmarks/formats/write_stablehlo.py FOLDER`, where JAX is installed.

Each function is written twice: as it is lowered, and, under NAME-export, as `jax.export` states it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax, nn

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


X, W, IMAGE, KERNEL = normal(4, 3), normal(3, 5), normal(1, 6, 6, 2), normal(3, 3, 2, 4)
LAYOUT = ("NHWC", "HWIO", "NHWC")
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {}


def case(name: str, function: Callable[..., Any], *inputs: np.ndarray) -> None:
    CASES[name] = function, inputs or (X,)


def conv(x: Any, w: Any, strides: Any = (1, 1), **options: Any) -> Any:
    return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=LAYOUT, **options)


UNARY = {
    "exp": jnp.exp, "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan, "expm1": jnp.expm1,
    "log1p": lambda x: jnp.log1p(jnp.abs(x)), "sign": jnp.sign, "ceil": jnp.ceil,
    "floor": jnp.floor, "round": jnp.round, "cbrt": jnp.cbrt, "arctan": jnp.arctan,
    "sinh": jnp.sinh, "tanh": jnp.tanh, "erf": lax.erf, "isfinite": jnp.isfinite,
    "rsqrt": lambda x: lax.rsqrt(jnp.abs(x)), "sigmoid": nn.sigmoid, "gelu": nn.gelu,
    "exact_gelu": lambda x: nn.gelu(x, approximate=False), "softplus": nn.softplus,
}  # fmt: skip
for _name, _function in UNARY.items():
    case(_name, _function)

case("power", lambda x: jnp.power(jnp.abs(x), x))
case("binary", lambda x: (x**2, jnp.arctan2(x, x + 1), jnp.fmod(x, 0.3), jnp.maximum(x, 0.1)))
case("bools", lambda x: (x > 0.2, (x > 0) & (x < 1), (x > 0) ^ (x < 1), ~(x > 0)))
case("clip", lambda x: jnp.clip(jnp.round(x * 3), -2, 2))
case("integers", lambda x: (x.astype(int) // 2, x.astype(int) % 3, (x * 9).astype(int) << 1,
                            (x * 9).astype(int) >> 1))  # fmt: skip
case("reductions", lambda x: (x.prod(), x.max(0), x.min(), (x > 0).any(0), (x > 0).all()))
case("median", jnp.median)
case("softmax", nn.softmax)
case("logsumexp", lambda x: nn.logsumexp(x, 1))
case("argmax", lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)))
case("one_hot", lambda x: nn.one_hot(jnp.argmax(x, 1), 5))
case("cumulative", lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, 0)))
case("normalised", lambda x: nn.standardize(x))
case("shapes", lambda x: (jnp.flip(x, 0), jnp.concatenate([x, x], 1), jnp.tile(x, (2, 1)), x.T))
case("pad", lambda x: lax.pad(x, 0.0, ((1, 2, 1), (0, -1, 0))))
case("slice", lambda x: x[1:4:2])
case("dynamic_slice", lambda x: lax.dynamic_slice(x, (jnp.int32(1), jnp.int32(0)), (2, 2)))
case("triangles", lambda x: (jnp.tril(x), jnp.triu(x), jnp.eye(3)))
case("matmul", lambda x, w: x @ w, X, W)
case("einsum", lambda x: jnp.einsum("ij,kj->ik", x, x))
case("convolution", lambda x, w: conv(x, w, (2, 2)), IMAGE, KERNEL)
case("dilated", lambda x, w: conv(x, w, rhs_dilation=(2, 2)), IMAGE, KERNEL)
case("depthwise", lambda x, w: conv(x, w, feature_group_count=2), IMAGE, normal(3, 3, 1, 4))
case("gradient", jax.grad(lambda x, w: (conv(x, w) ** 2).sum()), IMAGE, KERNEL)
case("max_pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
                                             "VALID"), IMAGE)  # fmt: skip
case("resize", lambda x: jax.image.resize(x, (1, 12, 12, 2), "bilinear"), IMAGE)
case("nearest", lambda x: jax.image.resize(x, (1, 12, 12, 2), "nearest"), IMAGE)
case("gather", lambda x: x[jnp.array([0, 2, 1])])
case("embedding", lambda w: w[jnp.array([[0, 1], [2, 2]])].mean(1), W)
case("take_along", lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1))
case("scatter_add", lambda x: x.at[jnp.array([0, 2])].add(1.0))
case("scatter_set", lambda x: x.at[1, :2].set(7.0))
case("batched_slice", jax.vmap(lambda a, b: lax.dynamic_slice(a, (b,), (2,))), X,
     np.array([0, 1, 1, 0], np.int32))  # fmt: skip
case("sort", lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0)))
case("top_k", lambda x: lax.top_k(x, 2))
case("searchsorted", lambda x: jnp.searchsorted(jnp.array([0.0, 1.0, 2.0]), x))
case("cond", lambda x: lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x))
BRANCHES = (lambda a: a * 2, lambda a: a - 1, lambda a: a + 5)
case("switch", lambda x: lax.switch((x.sum() > 0).astype(int) + 1, BRANCHES, x))
case("while", lambda x: lax.while_loop(lambda c: c[0].sum() < 100,
                                       lambda c: (c[0] * 2 + 1.0, c[1] + 1),
                                       (jnp.abs(x), 0)))  # fmt: skip
case("fori", lambda x: lax.fori_loop(0, 5, lambda i, a: a + i * x, x))
case("scan", lambda x: lax.scan(lambda c, a: (c + a, c * a), jnp.zeros(3), x))
case("random", lambda x: x + jax.random.uniform(jax.random.key(0), (4, 3)))
case("mlp", lambda x, w: nn.relu(nn.relu(x @ w) @ w.T).sum(1), X, W)
case("cnn", lambda x, w: nn.softmax(nn.relu(conv(x, w, (2, 2))).mean((1, 2))), IMAGE, KERNEL)
case("attention", lambda q: nn.dot_product_attention(q, q, q, is_causal=True), normal(1, 5, 2, 4))


def write(folder: Path, text: str, inputs: tuple[np.ndarray, ...], outputs: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.mlir").write_text(text)
    arrays = {f"input:arg{i}": a for i, a in enumerate(inputs)}
    arrays |= {f"output:{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(outputs))}
    np.savez(folder / "io.npz", **arrays)


def main() -> None:
    folder = Path(sys.argv[1])
    for name, (function, inputs) in CASES.items():
        compiled = jax.jit(function)
        outputs = compiled(*inputs)
        write(folder / name, compiled.lower(*inputs).as_text(), inputs, outputs)
        exported = str(export.export(compiled)(*inputs).mlir_module())
        write(folder / f"{name}-export", exported, inputs, outputs)


if __name__ == "__main__":
    main()
