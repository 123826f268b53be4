#!/usr/bin/env python3
"""What a call through `torch.compile(backend="tilesmith")` costs beside one through a backend that
returns at once: `python -m benchmarks.torch_calls [ROUNDS]`.

The graph is a small one, so that next to nothing is computed.  The other backend's function gives a
tensor that was made before; Dynamo's guards, AOTAutograd's wrappers and the graph are the same.
Both take turns; the number is the median of the rounds' differences.  Exit status 1 where it is
above the bar.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import tilesmith as ts

BAR = 15e-6
CALLS = 200


def returning(graph: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend whose functions return at once."""
    import torch
    from torch._dynamo.backends.common import aot_autograd

    def compiled(module: Any, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        outputs = module.graph.output_node().args[0]
        made = [torch.zeros(n.meta["val"].shape) for n in outputs]

        def boxed(args: list[Any]) -> Any:
            args.clear()
            return made

        boxed._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd recognises one
        return boxed

    return aot_autograd(fw_compiler=compiled)(graph, example_inputs)


def models() -> dict[str, tuple[Any, Any]]:
    """Layers whose kernels take about a microsecond, with few and with many parameters."""
    import torch
    from torch import nn

    deep = nn.Sequential(*[nn.Linear(4, 4) for _ in range(50)])
    return {
        "one layer": (nn.Linear(4, 4), torch.randn(1, 4)),
        "50 layers": (deep, torch.randn(1, 4)),
    }


def seconds(f: Callable[..., Any], x: Any) -> float:
    """Of this thread, which does everything that a call with one thread does."""
    start = time.thread_time()
    for _ in range(CALLS):
        f(x)
    return (time.thread_time() - start) / CALLS


def main() -> int:
    import torch

    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    status = 0
    with torch.no_grad():
        for name, (model, x) in models().items():
            torch._dynamo.reset()
            options = {"threads": 1, "fallback": "error"}
            ours = torch.compile(model, backend=ts.torch.backend, options=options)
            nothing = torch.compile(model, backend=returning)
            seconds(ours, x), seconds(nothing, x)
            found = [seconds(ours, x) - seconds(nothing, x) for _ in range(rounds)]
            extra = statistics.median(found)
            print(f"{name}: a call costs {extra * 1e6:.1f} us more (at most {BAR * 1e6:.0f})")
            status |= extra > BAR
    return status


if __name__ == "__main__":
    sys.exit(main())
