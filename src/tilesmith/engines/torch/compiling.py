"""The backend of `torch.compile`, which the entry point "tilesmith" names.

Dynamo passes graphs of a model's Python code.  AOTAutograd turns each into graphs of ATen operators
without side effects: one for inference, or one forward and one backward.  Each of these is compiled
at its first call (`pieces.Piece`), since parameters have no contents before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.nn.attention import SDPBackend, sdpa_kernel

from tilesmith.frontend.aten.registry import OPERATORS
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options

from .pieces import FallbackWarning, Piece
from .recurrent import as_loops, trace_recurrent_modules
from .sharing import with_sharing

__all__ = ["FallbackWarning", "backend"]


@checked(UsageError)
def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo, for `torch.compile(model, backend="tilesmith", options={...})`.

    graph: calls of PyTorch's functions, as Dynamo traced them.
    example_inputs: the graph's inputs, as fake tensors and sizes.
    options: fields of `tilesmith.Options`.  `fallback="error"` refuses operators that PyTorch would
        have to run.  `freeze=True` asserts that PyTorch counts all writes to weights
        (`weight._version`).  Calls without gradients then don't compare the weights' contents.
    mode: one of PyTorch's; only "default" is accepted.

    Raises UsageError for other options and modes.
    """
    if mode not in (None, "default"):
        raise UsageError(
            f"mode={mode!r} is for PyTorch's own compiler; give options={{...}} instead"
        )
    fields_given = {**(options or {})}
    freeze = fields_given.pop("freeze", False)
    if not isinstance(freeze, bool):
        raise UsageError(f"freeze: expected True or False, found {freeze!r}")
    chosen = Options.from_environment(**fields_given)
    written: set[int] = set()
    forward = partial(_compiled, options=chosen, written=written)
    infer = partial(forward, is_inference=True, freeze=freeze)
    compiler = aot_autograd(
        fw_compiler=forward,
        bw_compiler=partial(_compiled, options=chosen),
        inference_compiler=infer,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=_decompositions(),
    )
    as_loops(graph)
    # With gradients, attention is traced as matrix products: PyTorch's fused attention has a
    # gradient operator of its own.
    plain = sdpa_kernel(SDPBackend.MATH) if torch.is_grad_enabled() else nullcontext()
    with plain:
        compiled = compiler(graph, example_inputs)
    return with_sharing(compiled, graph, example_inputs, written)


@cache
def _decompositions() -> dict[Any, Any]:
    """The decompositions to core ATen of the operators that have no importer."""
    return {
        operator: function
        for operator, function in core_aten_decompositions().items()
        if OPERATORS.find("", str(operator)) is None
    }


def _compiled(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    written: set[int] | None = None,
    is_inference: bool = False,
    freeze: bool = False,
) -> Callable[[list[Any]], Any]:
    """The function of a graph of ATen operators, for AOTAutograd.

    written: the set to which the numbers of written inputs are added.
    """
    if written is not None:
        written |= _written()
    piece = Piece(module, _weights() if is_inference else (), options, freeze)

    def boxed(args: list[Any]) -> Any:
        results = piece.call(args)
        args.clear()  # a boxed call owns its arguments: free them
        return results

    boxed._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd recognises one
    return boxed


def _weights() -> tuple[int, ...]:
    """Numbers of the inputs that are weights of the graph being compiled: parameters and buffers
    that the graph doesn't write.  They are the same tensors in most calls.
    """
    metadata, written = _metadata(), _written()
    if metadata is None:
        return ()
    return tuple(i for i in metadata.static_input_indices if i not in written)


def _written() -> set[int]:
    """Numbers of the inputs that PyTorch writes after a run of the graph being compiled."""
    metadata = _metadata()
    return set() if metadata is None else set(metadata.mutated_inp_runtime_indices)


def _metadata() -> Any:
    """AOTAutograd's metadata of the graph being compiled; None outside of a compilation."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


# Dynamo calls a backend only when it has traced a module.  So this tells Dynamo at import that it
# must trace recurrent modules, too.
trace_recurrent_modules(backend)
