#!/usr/bin/env python3
"""Our gradients against PyTorch's autograd: `python -m benchmarks.torch_gradients`.

The samples are those of `torch_operators` (OpInfo) in f64, of the entries that PyTorch
differentiates.  The results of an entry's samples are weighted with random numbers and added.  The
program of that sum is imported; `ts.value_and_grad` gives its gradients, which are evaluated and
compared with PyTorch's within its tolerances for f64.  An entry agrees if all its samples do.
Counted apart:

- entries that eager mode or `torch.export` refuses, or without a gradient in PyTorch;
- refused entries that draw random numbers.

`--operators NAME,...` runs some; `--samples N` the first N of each entry (default 3); `--results
FILE` keeps each entry's result there and runs only those that it lacks; `--seconds N` begins no
entry after so many.  Needs the package `expecttest`.  Exit status 1 below the bar.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import tilesmith as ts
from tilesmith.frontend.torch.capture import captured
from tilesmith.graph.evaluate import evaluate
from torch_operators import BAR, Kept, counted
from torch_samples import (
    CRASHED,
    NOT_EXPORTED,
    PASSED,
    RANDOM,
    REFUSED,
    WRONG,
    Outcome,
    Result,
    entries,
    shown_name,
)

SAMPLES = 3
FIRST = ("native_layer_norm", "native_batch_norm", "_native_batch_norm_legit")
"""Operators whose first result alone counts: PyTorch takes the others, which it saves for its own
gradient, as constants.
"""


def run(name: str, variant: str, most: int) -> Result:
    """One entry in this process.

    most: number of samples.
    """
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    (info,) = (i for i in op_db if (i.name, i.variant_test_name) == (name, variant))
    samples: list[Any] = []
    if info.supports_autograd and torch.float64 in info.supported_dtypes("cpu"):
        made = info.sample_inputs("cpu", torch.float64, requires_grad=True)
        samples = list(itertools.islice(made, most))
    outcome = judged(info, samples) if samples else Outcome(NOT_EXPORTED, "no gradient")
    if outcome.kind != PASSED and len(samples) > 1:  # one sample may be refused by PyTorch
        each = [judged(info, [s]) for s in samples]
        counting = [o for o in each if o.kind != NOT_EXPORTED]
        bad = [o for o in counting if o.kind != PASSED]
        outcome = (bad or counting or each)[0]
    reason = " ".join(outcome.reason.split())[:300]
    return Result(shown_name(name, variant), {outcome.kind: 1}, reason, outcome.overloads)


def judged(info: Any, samples: Sequence[Any]) -> Outcome:
    """What becomes of the gradients of samples that form one program."""
    import torch

    pytree: Any = vars(torch.utils)["_pytree"]
    leaves, spec = pytree.tree_flatten([((s.input, *s.args), s.kwargs) for s in samples])
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    weights: list[Any] = []

    class Weighted(torch.nn.Module):
        """The sum of all results of floats, with weights."""

        def forward(self, *tensors: Any) -> Any:
            filled = list(leaves)
            for i, t in zip(places, tensors, strict=True):
                filled[i] = t
            total, number = 0, 0
            for sample, (args, kwargs) in zip(
                samples, pytree.tree_unflatten(filled, spec), strict=True
            ):
                result = sample.output_process_fn_grad(info.op(*args, **kwargs))
                results = pytree.tree_leaves(result)
                for y in results[:1] if info.name in FIRST else results:
                    if isinstance(y, torch.Tensor) and y.is_floating_point():
                        if number == len(weights):  # the first call
                            weights.append(torch.randn(y.shape, dtype=y.dtype))
                        total = total + (y * weights[number]).sum()
                        number += 1
            return total

    tensors = [leaves[i].detach().clone() for i in places]
    own = [
        t.clone().requires_grad_(leaves[i].requires_grad)
        for i, t in zip(places, tensors, strict=True)
    ]
    try:
        wanted = torch.autograd.grad(
            Weighted()(*own), [t for t in own if t.requires_grad], allow_unused=True
        )
        program = captured(Weighted(), tuple(tensors), None)
    except Exception as e:  # eager or the exporter refuses a sample
        return Outcome(NOT_EXPORTED, f"{type(e).__name__}: {e}")
    by_place = dict(zip([n for n, t in enumerate(own) if t.requires_grad], wanted, strict=True))
    by_place = {n: g for n, g in by_place.items() if g is not None}
    if not by_place:
        return Outcome(NOT_EXPORTED, "no gradient")
    targets = {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}
    overloads = frozenset(map(str, targets))
    try:
        inputs = program.graph_signature.user_inputs
        try:
            made = ts.value_and_grad(program, [inputs[n] for n in by_place])
        except ts.ModelError:  # no result depends on an operand whose gradient is zero for PyTorch
            by_place = {n: g for n, g in by_place.items() if g.any()}
            made = ts.value_and_grad(program, [inputs[n] for n in by_place])
        given = {n: t.numpy() for n, t in zip(inputs, tensors, strict=True)}
        given = {v.name: given[v.name] for v in made.inputs}
        results = list(evaluate(made, given).values())
        found = results[len(results) - len(by_place) :]
    except ts.TilesmithError as e:
        is_random = any(torch.Tag.nondeterministic_seeded in t.tags for t in targets)
        return Outcome(RANDOM if is_random else REFUSED, str(e), overloads)
    except Exception as e:  # a defect
        return Outcome(CRASHED, f"{type(e).__name__}: {e}", overloads)
    try:
        for gradient, expected in zip(found, by_place.values(), strict=True):
            torch.testing.assert_close(torch.tensor(gradient.copy()), expected, equal_nan=True)
    except AssertionError as e:
        return Outcome(WRONG, str(e), overloads)
    return Outcome(PASSED, "", overloads)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", default="", help="names in OpInfo, separated by commas")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of each entry")
    parser.add_argument("--results", type=Path, help="a JSON file that keeps results")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin none after these")
    given = parser.parse_args()
    keys = entries([n for n in given.operators.split(",") if n])
    results = Kept(given.results).complete(
        keys, lambda key: run(*key, given.samples), given.seconds
    )
    total: Counter[str] = Counter()
    for r in results:
        total.update(r.counts)
    passed, whole = counted(total)
    print(f"{passed} of {whole} entries agree ({passed / max(whole, 1):.1%}); {dict(total)}")
    return int(passed < BAR * whole)


if __name__ == "__main__":
    sys.exit(main())
