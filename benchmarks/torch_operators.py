#!/usr/bin/env python3
"""PyTorch's own test inputs for operators of core ATen: `python -m benchmarks.torch_operators`.

The samples are those of `torch.testing._internal` (OpInfo) for float32, int64 and bool.  Each is
exported and compiled alone, with `fallback="error"`, and its results are compared with eager's
within PyTorch's tolerances.  A sample that `torch.export` refuses is not counted.  Where equal
elements may stand in any order (`UNORDERED`), positions need only lead to the right values.

`--operators NAME,...` runs some; `--samples N` at most so many of each operator and type; `--page`
writes docs/torch-operators.md.  Needs the package `expecttest`.  Exit status 1 below the bar.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import children
import tilesmith as ts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "torch-operators.md"
BAR = 0.97
SECONDS, MEMORY = 120.0, 8 << 30
UNORDERED = ("topk", "sort", "argsort", "msort")
PASSED, REFUSED, WRONG, CRASHED, NOT_EXPORTED = "passed", "refused", "wrong", "crashed", "no export"


@dataclass(frozen=True)
class Result:
    """What became of an operator's samples.

    name: the operator's name in OpInfo, with its variant.
    counts: how many samples passed, were refused, and so on.
    reason: of the first that did not pass.
    """

    name: str
    counts: dict[str, int]
    reason: str = ""


def core_names() -> list[str]:
    """The names of core ATen's operators, without overloads."""
    import torch

    aten = torch.ops.aten
    names = []
    for name in dir(aten):
        packet = getattr(aten, name)
        if not hasattr(packet, "overloads"):
            continue
        overloads = (getattr(packet, o) for o in packet.overloads())
        if any(torch.Tag.core in o.tags for o in overloads):
            names.append(name)
    return names


def infos(wanted: Sequence[str] = ()) -> list[Any]:
    """The OpInfo entries whose operator is one of core ATen."""
    from torch.testing._internal.common_methods_invocations import op_db

    core = set(core_names())
    found = []
    for info in op_db:
        aten = {info.aten_name, info.name, info.name.removeprefix("nn.functional.")}
        if aten & core and (not wanted or info.name in wanted):
            found.append(info)
    return found


def run(name: str, variant: str, samples: int) -> Result:
    """The samples of one operator in this process."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    (info,) = (i for i in op_db if (i.name, i.variant_test_name) == (name, variant))
    counts: Counter[str] = Counter()
    reason = ""
    supported = info.supported_dtypes("cpu")
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype not in supported:
            continue
        for sample in _first(info.sample_inputs("cpu", dtype, requires_grad=False), samples):
            outcome, why = _judge(info.op, sample, name in UNORDERED)
            counts[outcome] += 1
            if outcome not in (PASSED, NOT_EXPORTED) and not reason:
                reason = f"{dtype}: {why}"
    shown = f"{name}.{variant}" if variant else name
    return Result(shown, dict(counts), " ".join(reason.split())[:300])


def _first(items: Iterator[Any], count: int) -> Iterator[Any]:
    for i, item in enumerate(items):
        if count and i >= count:
            return
        yield item


def _judge(op: Any, sample: Any, unordered: bool) -> tuple[str, str]:
    """What becomes of one sample, and why.

    unordered: whether the last result holds positions, of which equal elements have any.
    """
    import torch

    given = (sample.input, *sample.args)
    leaves, spec = torch.utils._pytree.tree_flatten((given, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            filled = list(leaves)
            for i, t in zip(places, tensors, strict=True):
                filled[i] = t
            args, kwargs = torch.utils._pytree.tree_unflatten(filled, spec)
            return op(*args, **kwargs)

    tensors = tuple(leaves[i].detach().clone() for i in places)
    try:
        wanted = Module()(*(t.clone() for t in tensors))
        torch.export.export(Module(), tensors, strict=False)
    except Exception as e:  # eager or the exporter refuses the sample
        return NOT_EXPORTED, str(e)
    try:
        exe = ts.compile(
            Module(), tensors, threads=1, fallback="error", options=ts.Options(opt_level=1)
        )
        found = exe(*tensors)
    except ts.TilesmithError as e:
        return REFUSED, str(e)
    except Exception as e:  # a defect
        return CRASHED, f"{type(e).__name__}: {e}"
    if unordered and not sample.input.is_floating_point():  # equal elements are rare in floats
        found, wanted = (x[0] if isinstance(x, tuple) else () for x in (found, wanted))
    try:
        torch.testing.assert_close(found, wanted, equal_nan=True)
    except AssertionError as e:
        return WRONG, str(e)
    return PASSED, ""


def page(results: Sequence[Result]) -> str:
    """The page of what does not pass."""
    total: Counter[str] = Counter()
    for r in results:
        total.update(r.counts)
    counted = sum(n for o, n in total.items() if o != NOT_EXPORTED)
    share = total[PASSED] / max(counted, 1)
    lines = [
        "# PyTorch's operators",
        "",
        "Generated by `python -m benchmarks.torch_operators --page`; do not edit.",
        "",
        "PyTorch's own test inputs (OpInfo: float32, int64 and bool) of the operators of core",
        'ATen, exported and compiled one by one with `fallback="error"`, and compared with eager',
        f"mode within PyTorch's tolerances: {total[PASSED]} of {counted} samples pass",
        f"({share:.1%}), of {len(results)} operators.",
        "",
        "| operator | samples that do not pass | the first reason |",
        "| --- | --- | --- |",
    ]
    for r in results:
        bad = {o: n for o, n in r.counts.items() if o not in (PASSED, NOT_EXPORTED)}
        if bad:
            whole = sum(n for o, n in r.counts.items() if o != NOT_EXPORTED)
            shown = ", ".join(f"{n} {o}" for o, n in sorted(bad.items()))
            why = r.reason.replace("|", "\\|")
            lines.append(f"| `{r.name}` | {shown} of {whole} | {why} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", default="", help="names in OpInfo, separated by commas")
    parser.add_argument("--samples", type=int, default=0, help="most samples per type; 0: all")
    parser.add_argument("--page", action="store_true", help="write docs/torch-operators.md")
    given = parser.parse_args()
    chosen = infos([n for n in given.operators.split(",") if n])
    keys = [(i.name, i.variant_test_name) for i in chosen]

    def of(key: tuple[str, str]) -> Result:
        return run(*key, given.samples)

    results = []
    for key, r in zip(keys, children.each(keys, of, SECONDS, MEMORY), strict=True):
        result = (
            Result(".".join(filter(None, key)), {CRASHED: 1}, r.reason)
            if isinstance(r, children.Died)
            else r
        )
        results.append(result)
        print(f"{result.name}: {result.counts} {result.reason}", flush=True)
    total: Counter[str] = Counter()
    for r in results:
        total.update(r.counts)
    counted = sum(n for o, n in total.items() if o != NOT_EXPORTED)
    share = total[PASSED] / max(counted, 1)
    print(f"{total[PASSED]} of {counted} samples pass ({share:.1%}); {dict(total)}")
    if given.page:
        PAGE.write_text(page(results), encoding="utf-8")
    return int(total[PASSED] < BAR * counted)


if __name__ == "__main__":
    sys.exit(main())
