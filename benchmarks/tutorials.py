#!/usr/bin/env python3
"""The programs of examples/te/ against NumPy and, where it has the operation, PyTorch.

    python benchmarks/tutorials.py --threads 2

The engines take turns.  A ratio is the other engine's time divided by ours, the median over rounds
of the ratio within a round; above 1 we are faster.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FILES = ("basics", "images", "networks", "grids")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "te"))


def torch_calls() -> Mapping[str, Callable[..., Any]]:
    """By tutorial, the operation in PyTorch, on tensors; empty where PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        return {}
    f = torch.nn.functional

    def conv2d(x: Any, w: Any, b: Any) -> Any:
        image, kernel = x.permute(2, 0, 1)[None], w.permute(3, 2, 0, 1)
        return torch.relu(f.conv2d(image, kernel, b))

    return {
        "vector_add": torch.add,
        "matmul": torch.matmul,
        "matmul_template": torch.matmul,
        "transpose": lambda a: a.t().contiguous(),
        "sum_of_squares": lambda a: torch.dot(a, a),
        "argmax": lambda x: torch.max(x, 1),
        "conv2d": conv2d,
        "depthwise": lambda x, w: f.conv2d(x[None], w[:, None], groups=len(w)),
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, g, b: f.layer_norm(x, g.shape, g, b),
        "attention": f.scaled_dot_product_attention,
        "embedding_bag": lambda i, t: f.embedding_bag(i, t, mode="sum"),
        "max_filter": lambda x: f.max_pool2d(x[None, None], 17, 1, 8),
        "resize": lambda x: f.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    }


def main(threads: int, rounds: int, only: list[str], seconds: float) -> None:
    import tilesmith as ts
    from tilesmith.support.measure import interleave, ratio

    known = torch_calls()
    if known:
        import torch

        torch.set_num_threads(threads)
    print("| program | from | lines | of | ms (min) | NumPy/ours | PyTorch/ours |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in FILES:
        module = importlib.import_module(name)
        for tutorial in module.TUTORIALS:
            if only and tutorial.name not in only:
                continue
            run, inputs, outputs = tutorial.prepare(tutorial.large)
            if tutorial.name == "matmul_template":
                tuned = ts.tune_template(
                    lambda cfg, n, of=module.matmul_template: of(n, cfg),
                    *tutorial.large, seconds=seconds, threads=threads,
                )  # fmt: skip
                run = tuned.bind(*inputs, outputs)
            calls: dict[str, Callable[[], Any]] = {
                "ours": run,
                "numpy": lambda t=tutorial, x=inputs: t.reference(*x),
            }
            if tutorial.name in known:
                tensors = [torch.from_numpy(x) for x in inputs]
                calls["torch"] = lambda f=known[tutorial.name], x=tensors: f(*x)
            taken = interleave(calls, rounds=rounds, turn_seconds=0.05)
            ratios = [
                f"{ratio(taken[e], taken['ours']):.2f}" if e in taken else ""
                for e in ("numpy", "torch")
            ]
            print(
                f"| {tutorial.name} | {tutorial.original} | {tutorial.lines} | "
                f"{tutorial.original_lines} | {taken['ours'].median * 1e3:.3f} | "
                f"{ratios[0]} | {ratios[1]} |",
                flush=True,
            )


def with_threads(threads: int) -> None:
    """Libraries read their number of threads when imported: start again if that was another."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TILESMITH_NUM_THREADS")
    wanted = dict.fromkeys(names, str(threads))
    if any(os.environ.get(k) != v for k, v in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="turns for each measurement")
    parser.add_argument("--only", nargs="*", default=[], help="names of programs")
    parser.add_argument("--seconds", type=float, default=10, help="for tuning the template")
    given = parser.parse_args()
    with_threads(given.threads)
    main(given.threads, given.rounds, given.only, given.seconds)
