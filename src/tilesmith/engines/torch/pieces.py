"""Graphs of ATen operators as functions: native code where possible, and PyTorch for the rest.

A piece is compiled at its first call.  Calls without an importer stay calls of PyTorch, and the
graph is divided around them into smaller pieces.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tilesmith.driver.entry import program_of
from tilesmith.driver.request import Request
from tilesmith.frontend.aten.program import PLACED
from tilesmith.frontend.common.problems import Problem, report
from tilesmith.frontend.torch.sizes import is_symbolic
from tilesmith.frontend.torch.traced import RANDOM, read
from tilesmith.runtime.arrays import is_dual
from tilesmith.runtime.host_runner import HostRunner
from tilesmith.support.errors import UnsupportedError
from tilesmith.support.options import Options

from .calls import Native, has_memory
from .quick import Call, quick_call
from .results import Results
from .weights import Weights


class FallbackWarning(UserWarning):
    """The warning that PyTorch runs some operators of a compiled model."""


class Piece:
    """The function of an FX graph of ATen operators: `piece(*inputs)` returns its results."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        weights: Collection[int],
        options: Options,
        freeze: bool = False,
    ) -> None:
        """module: the graph; its nodes have fake tensors as `meta["val"]`.

        weights: the numbers of inputs that are the same tensors in most calls.
        options: options of the compilation.
        freeze: whether PyTorch counts all writes to weights.
        """
        self._module = module
        self._options = options
        inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._names = [n.name for n in inputs]
        self._results = Results(module)
        self._problems: Mapping[str, Problem] = {}
        self._call: Callable[..., Any] | None = None
        # Weights with symbolic sizes stay inputs: the graph also computes with these sizes.
        fixed = [i for i in weights if not _is_open(inputs[i].meta.get("val"))]
        self._weights = Weights(fixed, self._compiled, freeze)
        self._quick: Call | None = None

    def __call__(self, *args: Any) -> Any:
        return self.call(args)

    def call(self, args: Sequence[Any]) -> Any:
        """The results of the graph for these inputs."""
        if forward_ad._current_level >= 0 and any(map(is_dual, args)):
            return self._module(*args)  # native code has no forward-mode derivatives
        if self._quick is not None and (results := self._quick(args)) is not None:
            return results
        if self._call is None:
            if not all(has_memory(a) or a.is_meta for a in args if isinstance(a, torch.Tensor)):
                return self._module(*args)  # tensors without memory: PyTorch only infers types
            self._call = self._first(args)
        return self._call(*args)

    def _first(self, args: Sequence[Any]) -> Callable[..., Any]:
        """The function of all later calls, chosen at the first call."""
        if not self._results.native:
            return self._module.forward
        try:
            packed_weights = self._weights.first(args)
        except UnsupportedError as e:
            return self._left(str(e))
        if packed_weights is None:
            return self._divided()
        return self._run

    def _run(self, *args: Any) -> Any:
        packed = self._weights.packed(args)
        if packed is None:  # the code needs a constant that has become an input
            self._quick, self._call = None, self._divided()
            return self._call(*args)
        if packed.quick is None:
            packed.quick = quick_call(packed, self._results)
        self._quick = packed.quick  # later calls with the same weights take the quick path
        if not packed.native.are_fit([args[i] for i in packed.native.inputs]):
            return self._module(*args)  # types differ from those that Dynamo traced
        return self._results.finished(args, packed.native(args))

    def _compiled(self, args: Sequence[Any], constant: Sequence[int]) -> Native | None:
        """Native code in which the inputs with the numbers `constant` are constants; None if some
        calls of the graph can't be imported.
        """
        names = self._names
        held = {names[i]: args[i].detach() for i in constant}
        reading = read(self._module, held, self._results.native)
        self._problems = reading.problems
        for problem in reading.problems.values():
            if problem.site.operator in PLACED:  # a divided graph has other memory layouts
                raise UnsupportedError(str(report([*reading.problems.values()])))
        if reading.problems:
            return None
        program = program_of(Request(reading.graph, self._options))
        exe = HostRunner(program, self._options.threads)
        return Native(exe, reading, names, self._results.native)

    def _divided(self) -> Callable[..., Any]:
        """A function in which PyTorch runs the graph's calls without an importer, and pieces the
        rest.
        """
        problems = self._problems
        drawn = [p for p in problems.values() if p.message == RANDOM]
        others = [p for p in problems.values() if p.message != RANDOM]
        if self._options.fallback == "error":
            raise report([*problems.values()])
        if others:
            _warn(str(report(others)))
        if drawn:
            _say_random(tuple(sorted({p.site.operator for p in drawn})))
        return _divided(self._module, problems, self._weights, self._options)

    def _left(self, why: str) -> Callable[..., Any]:
        """A function in which PyTorch runs the whole graph."""
        if self._options.fallback == "error":
            raise UnsupportedError(why)
        _warn(why)
        return self._module.forward


def _is_open(value: Any) -> bool:
    """Whether a traced tensor has a symbolic extent."""
    return isinstance(value, torch.Tensor) and any(map(is_symbolic, value.shape))


def _warn(what: str) -> None:
    warnings.warn(
        f"{what}. PyTorch computes these in eager mode; "
        "options={'fallback': 'error'} refuses them",
        FallbackWarning,
        stacklevel=2,
    )


@cache
def _say_random(operators: tuple[str, ...]) -> None:
    """Warn once per process that PyTorch runs these random operators."""
    warnings.warn(
        f"{', '.join(operators)}: random numbers are drawn by PyTorch, so that its seeds mean what "
        "they mean in eager mode",
        FallbackWarning,
        stacklevel=2,
    )


class _Supported(OperatorSupportBase):
    def __init__(self, left: Collection[str]) -> None:
        self._left = left

    def is_node_supported(
        self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node
    ) -> bool:
        return node.op == "call_function" and node.name not in self._left


def _divided(
    module: torch.fx.GraphModule,
    problems: Mapping[str, Problem],
    weights: Weights,
    options: Options,
) -> Callable[..., Any]:
    """The function of a graph.  PyTorch runs the calls in `problems`; pieces compute all other
    calls.
    """
    graph = module.graph
    left = set(problems)
    parts = [n for n in graph.nodes if n.op == "call_function" and n.target is operator.getitem]
    # A call and the operators that unpack its results stay together.
    left |= {n.args[0].name for n in parts if n.name in left}
    left |= {n.name for n in parts if n.args[0].name in left}
    if all(n.name in left for n in graph.nodes if n.op == "call_function"):
        return module.forward
    inputs = [n.name for n in graph.nodes if n.op == "placeholder"]
    static = {name for i, name in enumerate(inputs) if i in weights.numbers}
    whole = CapabilityBasedPartitioner(
        module, _Supported(left), allows_single_node_partition=True
    ).partition_and_fuse("tilesmith_")
    for n in whole.graph.nodes:
        if n.op == "call_module":
            part = whole.get_submodule(n.target)
            assert isinstance(part, torch.fx.GraphModule)  # the type that the partitioner makes
            constant = [i for i, a in enumerate(n.args) if a.name in static]
            delattr(whole, n.target)
            object.__setattr__(whole, n.target, Piece(part, constant, options, weights.freeze))
    return whole.forward
