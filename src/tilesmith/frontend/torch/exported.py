"""Conversion of objects of `torch.export` to `Exported`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.aten.exported import Exported, Input, Kind, Output, Range, bound, name_of
from tilesmith.frontend.aten.graph import graph_of
from tilesmith.frontend.aten.refusals import WAY_OUT
from tilesmith.frontend.aten.tensors import element_type
from tilesmith.frontend.common.inputs import Given
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.torch import fx
from tilesmith.frontend.torch.capture import captured
from tilesmith.graph.nodes import Graph
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.sizes import LARGEST
from tilesmith.support.errors import ModelError, UnsupportedError, brief


def load(source: Source, given: Given) -> Graph:
    """The graph of an exported program (see `graph_of`)."""
    return graph_of(exported(captured(source.model, None, None)), given)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of an exported program's calls."""
    return [(c.name, c.target) for c in fx.calls(captured(source.model, None, None).graph)]


def exported(program: Any) -> Exported:
    """The `Exported` of a `torch.export.ExportedProgram` without operators that modify tensors.

    Raises UnsupportedError for arguments and results of other kinds than tensors, numbers and
    constants.
    """
    meta = {n.name: n.meta.get("val") for n in program.graph.nodes}
    specs = program.graph_signature
    inputs = [_input(s, meta) for s in specs.input_specs]
    held = fx.attributes(program.graph_module)
    inputs += [Input(name, weight=name) for name in held]
    users = [i.name for i in inputs if i.weight is None]
    results = zip(specs.output_specs, fx.outputs(program.graph), strict=True)
    sizes = [d for v in meta.values() for d in getattr(v, "shape", ()) if not isinstance(d, int)]
    return Exported(
        type(program.graph_module).__name__,
        inputs,
        sorted((_output(s, r, users) for s, r in results), key=lambda o: o.written is not None),
        {**held, **program.constants, **program.state_dict},
        tuple(program.state_dict),
        {str(s): _range(r) for s, r in program.range_constraints.items()},
        {str(d): int(d.node.hint) for d in sizes if d.node.has_hint()},
        Pytrees(program.call_spec.in_spec, program.call_spec.out_spec, _argument_names(program)),
        lambda: fx.calls(program.graph),
        tuple(getattr(program, "_guards_code", None) or ()),
    )


def _input(spec: Any, meta: Mapping[str, Any]) -> Input:
    name, kind = spec.arg.name, spec.kind.name
    if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
        return Input(name, weight=spec.target)
    if kind == "TOKEN":
        raise UnsupportedError(
            "the program checks data, as linalg.cholesky does that its matrix has a factor; that "
            f"is not supported; {WAY_OUT}"
        )
    if kind != "USER_INPUT":
        raise UnsupportedError(f"the program has an input {name!r} of kind {kind}")
    kind = _kind(spec.arg)
    if kind == "constant":
        return Input(name, kind, value=spec.arg.value)
    if kind == "size":
        is_float = type(spec.arg).__name__ == "SymFloatArgument"
        return Input(name, kind, f64 if is_float else i64)
    held = meta[name]
    dims = tuple(d if isinstance(d, int) else str(d) for d in held.shape)
    return Input(name, kind, element_type(held.dtype), dims)


def _output(spec: Any, result: Any, users: Sequence[str]) -> Output:
    kind = spec.kind.name
    if kind in ("USER_OUTPUT", "LOSS_OUTPUT"):
        form = _kind(spec.arg)
        return Output(form, spec.arg.value if form == "constant" else result)
    if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
        return Output("tensor", result, spec.target)
    if kind == "USER_INPUT_MUTATION":
        return Output("tensor", result, users.index(spec.target))
    raise UnsupportedError(f"the program has an output of kind {kind}")


def _kind(arg: Any) -> Kind:
    name = type(arg).__name__
    if name == "ConstantArgument":
        return "constant"
    if name in ("TensorArgument", "SymIntArgument", "SymFloatArgument", "SymBoolArgument"):
        return "tensor" if name == "TensorArgument" else "size"
    raise UnsupportedError(f"the program has an argument or a result of kind {name}")


def _range(found: Any) -> Range:
    # The range of a value that is no size may begin at minus infinity.
    low = int(found.lower) if found.lower > 0 else 0
    return Range(low, None if found.upper > LARGEST else int(found.upper))


@dataclass(frozen=True, slots=True)
class Pytrees:
    """The structure of a module's arguments and results, as pytrees of PyTorch.

    arguments: the specification of the pair (positional arguments, dict of keyword arguments).
    results: the specification of the module's results.
    argument_names: names of all arguments, the positional ones first; empty if not known.
    """

    arguments: Any
    results: Any
    argument_names: Sequence[str] = ()

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        pytree = sys.modules["torch"].utils._pytree
        positional, keywords = self.arguments.child(0), self.arguments.child(1).context
        args, kwargs = bound(args, kwargs, self.argument_names, positional.num_children, keywords)
        try:
            leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        except RecursionError:
            raise ModelError(
                "expected arguments as the example inputs, found them nested too deep"
            ) from None
        if spec == self.arguments:
            return leaves
        leaves, ordered = pytree.tree_flatten(_in_order((args, dict(kwargs)), self.arguments))
        if ordered == self.arguments:
            return leaves
        raise ModelError(
            f"expected arguments of the structure {_shown(self.arguments)}, as the example inputs "
            f"have, found {_shown(spec)}"
        )

    def restored(self, leaves: Sequence[Any]) -> Any:
        return sys.modules["torch"].utils._pytree.tree_unflatten(leaves, self.results)

    def names(self) -> list[str]:
        pytree = sys.modules["torch"].utils._pytree
        count = self.results.num_leaves
        tree = pytree.tree_unflatten(list(range(count)), self.results)
        keyed, _ = pytree.tree_flatten_with_path(tree)
        return [
            name_of(
                [getattr(k, "key", getattr(k, "name", getattr(k, "idx", ""))) for k in path],
                number,
                count,
            )
            for path, number in keyed
        ]


def _in_order(given: Any, spec: Any) -> Any:
    """Nested arguments with dict keys in the order of a specification."""
    if spec.is_leaf() or type(given) is not spec.type:
        return given
    if spec.type is dict and set(given) == set(spec.context):
        return {k: _in_order(given[k], spec.child(i)) for i, k in enumerate(spec.context)}
    if spec.type in (tuple, list) and len(given) == spec.num_children:
        return spec.type(_in_order(g, spec.child(i)) for i, g in enumerate(given))
    return given


def _argument_names(program: Any) -> tuple[str, ...]:
    """The names of a module's arguments; empty if the program does not contain them."""
    for call in program.module_call_graph:
        if call.fqn == "" and call.signature is not None:
            return tuple(call.signature.forward_arg_names or ())
    return ()


def _shown(spec: Any) -> str:
    return brief("".join(str(spec).split("\n")))
