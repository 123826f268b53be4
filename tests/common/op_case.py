"""What a case of the operator tests is."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from tilesmith.ir.dtypes import BY_NAME
from tilesmith.ops.base import Op


@dataclass(frozen=True)
class In:
    """A random input of `shape`: floats are normal, integers small, limited to `low`..`high` when
    given.
    """

    shape: tuple[int, ...]
    dtype: str = "f32"
    low: float | None = None
    high: float | None = None

    def array(self, rng: np.random.Generator) -> np.ndarray:
        dtype = BY_NAME[self.dtype]
        if dtype.is_bool:
            return rng.random(self.shape) > 0.5
        if self.low is not None and self.high is not None:
            values = rng.uniform(self.low, self.high, self.shape)
        else:
            values = rng.standard_normal(self.shape) * (1 if dtype.is_float else 10)
        if dtype.kind == "uint":
            values = np.abs(values)
        return np.asarray(values).astype(dtype.numpy)


@dataclass(frozen=True, eq=False)
class Case:
    op: Op
    inputs: tuple[In | np.ndarray, ...]

    def arrays(self) -> list[np.ndarray]:
        """The inputs; the same at every run."""
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        return [i.array(rng) if isinstance(i, In) else i for i in self.inputs]

    def __str__(self) -> str:
        shown = [f"{i.dtype}{list(i.shape)}" for i in self.inputs]
        return f"{self.op} {' '.join(shown)}"


def case(op: Op, *inputs: In | np.ndarray | tuple[int, ...]) -> Case:
    return Case(op, tuple(In(i) if isinstance(i, tuple) else i for i in inputs))


SPECIAL = np.asarray(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-30, -1e30, np.inf, -np.inf, np.nan], np.float32
)
