"""A graph of layers whose results stay alive, which tests of limits on memory share."""

from __future__ import annotations

import numpy as np

from tilesmith.graph.builder import Builder
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.ops.elementwise import Exp
from tilesmith.ops.matmul import MatMul

SIZE, LAYERS = 64, 6
BYTES = SIZE * SIZE * 4


def there_and_back() -> Graph:
    """Layers whose results are read again in reverse order, as in a training step."""
    rng = np.random.default_rng(0)
    b = Builder()
    y = b.input("x", TensorType(f32, (SIZE, SIZE)))
    results = []
    for _ in range(LAYERS):
        w = b.constant((rng.standard_normal((SIZE, SIZE)) / SIZE).astype(np.float32))
        y = b.add(Exp(), b.add(MatMul(), y, w))
        results.append(y)
    for old in reversed(results):
        y = b.add(MatMul(), y, old) * (1 / SIZE)
    return b.finish([y], ["y"])
