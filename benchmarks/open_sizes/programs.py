"""PyTorch's operators with all dimensions open, by `torch.export` and by `torch.compile`.

The cases are samples of OpInfo, one program each.  What can be open is `torch.export`'s to say
(`Dim.AUTO`); the second sizes are some that eager mode and the exported program take.
"""

from __future__ import annotations

import itertools
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tilesmith as ts
from tilesmith.frontend.torch.capture import captured
from tilesmith.support.errors import TilesmithError
from torch_samples import UNINITIALISED, UNORDERED, entries, shown_name

from .outcome import APART, RIGHT, WRONG, Outcome, outcome_of
from .sizes import STEPS, remade

__all__ = ["Sample", "entries", "judged", "judged_entry", "samples", "shown_name"]

Tensors = tuple[torch.Tensor, ...]
ROADS = ("export", "compile")


@dataclass(frozen=True)
class Sample:
    """One call of an operator.

    entry: its name and variant in OpInfo.
    dtype: the element type of the samples.
    number: which of them.
    """

    entry: tuple[str, str]
    dtype: torch.dtype
    number: int

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return f"{shown_name(*self.entry)} {kind} {self.number}"


class Call(torch.nn.Module):
    """A sample as a function of its tensors."""

    def __init__(self, op: Callable[..., Any], given: Any) -> None:
        super().__init__()
        self.op = op
        self.leaves, self.spec = torch.utils._pytree.tree_flatten(given)
        self.places = [i for i, x in enumerate(self.leaves) if isinstance(x, torch.Tensor)]

    def tensors(self) -> Tensors:
        return tuple(self.leaves[i].detach().clone() for i in self.places)

    def forward(self, *tensors: torch.Tensor) -> Any:
        filled = list(self.leaves)
        for i, t in zip(self.places, tensors, strict=True):
            filled[i] = t
        args, kwargs = torch.utils._pytree.tree_unflatten(filled, self.spec)
        return self.op(*args, **kwargs)


def samples(wanted: Sequence[tuple[str, str]], most: int) -> list[Sample]:
    """At most `most` samples of each entry (0: all), of different ranks and types first."""
    found = []
    for entry in wanted:
        lists = []
        for dtype in (torch.float32, torch.int64, torch.bool):
            order = _spread([_look(c) for c in _calls(entry, dtype)])
            lists.append([Sample(entry, dtype, n) for n in order])
        mixed = [s for turn in itertools.zip_longest(*lists) for s in turn if s is not None]
        found += mixed[: most or None]
    return found


def _look(call: Call) -> tuple[Any, ...]:
    """What makes samples alike: ranks, and which arguments there are."""
    kinds = tuple(x.ndim if isinstance(x, torch.Tensor) else type(x) for x in call.leaves)
    has_nothing = any(t.numel() == 0 for t in call.tensors())
    return (has_nothing, kinds)


def _spread(looks: Sequence[Any]) -> list[int]:
    """Numbers of samples: first one of each look, those with elements before others."""
    seen: set[Any] = set()
    first = []
    for i, look in enumerate(looks):
        if look not in seen:
            seen.add(look)
            first.append(i)
    first.sort(key=lambda i: looks[i][0])
    return first + [i for i in range(len(looks)) if i not in first]


def _calls(entry: tuple[str, str], dtype: torch.dtype) -> list[Call]:
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    (info,) = (i for i in op_db if (i.name, i.variant_test_name) == entry)
    if dtype not in info.supported_dtypes("cpu"):
        return []
    given = info.sample_inputs("cpu", dtype, requires_grad=False)
    made = [Call(info.op, ((s.input, *s.args), s.kwargs)) for s in itertools.islice(given, 60)]
    return [c for c in made if any(t.ndim for t in c.tensors())]


def judged_entry(entry: tuple[str, str]) -> dict[str, Outcome]:
    """What becomes of an entry's first sample."""
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.ERROR)  # dimensions of 1 that are no symbols
    chosen = samples([entry], 1)
    return judged(chosen[0]) if chosen else dict.fromkeys(ROADS, Outcome(APART, "no dimensions"))


def judged(sample: Sample) -> dict[str, Outcome]:
    """What becomes of a sample by each road."""
    call = _calls(sample.entry, sample.dtype)[sample.number]
    tensors = call.tensors()
    try:
        wanted = call(*_copies(tensors))
        program = captured(call, _copies(tensors), "auto")
    except Exception as e:  # eager mode or the exporter refuses it
        apart = Outcome(APART, f"no export: {type(e).__name__}: {e}"[:300])
        return dict.fromkeys(ROADS, apart)
    if any(
        torch.Tag.nondeterministic_seeded in n.target.tags
        for n in program.graph.nodes
        if isinstance(n.target, torch._ops.OpOverload)
    ):
        return dict.fromkeys(ROADS, Outcome(APART, "draws random numbers"))
    others, other = _others(sample, call, program, tensors)
    runs = [(tensors, wanted)] + ([(others, other)] if others is not None else [])
    said = "" if others is not None else "no other sizes"
    return {
        "export": _by_export(sample, program, runs, said),
        "compile": _by_compile(sample, call, runs, said),
    }


def _by_export(sample: Sample, program: Any, runs: Sequence[Any], said: str) -> Outcome:
    try:
        exe = ts.compile(program, threads=1, fallback="error", options=ts.Options(opt_level=1))
    except Exception as e:
        return outcome_of(e, "compiling")
    return _compared(sample, exe, runs, said)


def _by_compile(sample: Sample, call: Call, runs: Sequence[Any], said: str) -> Outcome:
    torch._dynamo.reset()
    options = {"threads": 1, "fallback": "error", "opt_level": 1}
    compiled = torch.compile(call, backend=ts.torch.backend, dynamic=True, options=options)
    return _compared(sample, compiled, runs, said)


def _compared(sample: Sample, run: Callable[..., Any], runs: Sequence[Any], said: str) -> Outcome:
    for tensors, wanted in runs:
        when = "sizes " + ", ".join(str(list(t.shape)) for t in tensors)
        try:
            with torch.no_grad():
                found = run(*_copies(tensors))
        except Exception as e:
            inner = getattr(e, "inner_exception", e)
            typed = inner if isinstance(inner, TilesmithError) else e
            return outcome_of(typed, when)
        message = _difference(sample, found, wanted)
        if message:
            return Outcome(WRONG, f"{when}: {message}"[:600])
    return Outcome(RIGHT, said)


def _difference(sample: Sample, found: Any, wanted: Any) -> str:
    name = sample.entry[0]
    if name in UNINITIALISED:
        same = (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        return "" if same else f"expected {wanted.dtype} {wanted.shape}, found {found.shape}"
    if isinstance(wanted, bool):
        found = bool(found)
    if name in UNORDERED and isinstance(wanted, tuple):
        found, wanted = found[:-1], wanted[:-1]
    try:
        bounds = {} if _is_exact(wanted) else {"rtol": 1.3e-6, "atol": _absolute(wanted)}
        torch.testing.assert_close(found, wanted, equal_nan=True, **bounds)
    except AssertionError as e:
        return " ".join(str(e).split())
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return ""


def _is_exact(wanted: Any) -> bool:
    """Whether results are not of f32, for which PyTorch's own bounds hold."""
    leaves = torch.utils._pytree.tree_leaves(wanted)
    return not all(isinstance(t, torch.Tensor) and t.dtype == torch.float32 for t in leaves)


def _absolute(wanted: Any) -> float:
    """The absolute difference to accept: terms as large as the results may cancel in a sum."""
    tensors = torch.utils._pytree.tree_leaves(wanted)
    largest = [t[t.isfinite()].abs().max().item() for t in tensors if t.isfinite().any()]
    return 1e-5 + 1e-6 * max(largest, default=0.0)


def _copies(tensors: Tensors) -> Tensors:
    return tuple(t.clone() for t in tensors)


def _others(sample: Sample, call: Call, program: Any, tensors: Tensors) -> tuple[Any, Any]:
    """Tensors of other sizes that the program allows, and what eager mode gives."""
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    shapes = [tuple(values[n].shape) for n in names]
    symbols = sorted(
        {s for shape in shapes for d in shape if not isinstance(d, int)
         for s in d.node.expr.free_symbols}, key=str,
    )  # fmt: skip
    if not symbols:
        return None, None
    sizes = {
        s: int(d.node.hint)
        for shape in shapes
        for d in shape
        if not isinstance(d, int)
        for s in [d.node.expr]
        if s in symbols
    }
    sizes = {s: sizes.get(s, 4) for s in symbols}
    rng = np.random.default_rng(zlib.crc32(str(sample).encode()))
    found: tuple[Any, Any] = (None, None)

    def tried(chosen: dict[Any, int]) -> tuple[Any, Any] | None:
        made = tuple(
            _remade(t, tuple(_value(d, chosen) for d in shape), rng)
            for t, shape in zip(tensors, shapes, strict=True)
        )
        try:
            wanted = call(*_copies(made))
            if not _difference(sample, program.module()(*_copies(made)), wanted):
                return made, wanted
        except Exception:
            return None
        return None

    for step in STEPS:  # all at once, each by its own
        grown = {s: step(n) + i % 2 for i, (s, n) in enumerate(sizes.items())}
        now = tried(grown) or tried({s: step(n) for s, n in sizes.items()})
        if now is not None:
            return now
    for s in symbols:
        for step in STEPS:
            now = tried({**sizes, s: step(sizes[s])})
            if now is not None:
                found = now
                sizes[s] = step(sizes[s])
                break
    return found


def _value(dim: Any, chosen: dict[Any, int]) -> int:
    return dim if isinstance(dim, int) else int(dim.node.expr.xreplace(chosen))


def _remade(tensor: torch.Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    return torch.from_numpy(np.asarray(remade(tensor.numpy(), shape, rng)))
