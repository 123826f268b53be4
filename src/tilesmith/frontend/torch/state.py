"""Support for tensors that a program writes although no module registers them, such as the tensors
of a cache that is a Python object.

`torch.export` lifts such a tensor as a constant, even if the tensor is also a buffer.  After
`run_decompositions`, the signature has no place for a written constant.  And `run_decompositions`
fails if two inputs share memory that is written.

`run_decompositions` also turns `x.copy_(y)` into `y` where the numbers of elements are equal, even
if the shapes differ.  It turns a write of `y` to an expansion of `x` into `x + (y - x)`, which
rounds.  PyTorch allows such a write only if the expansion adds no elements, so `y` itself would be
the exact result.
"""

from __future__ import annotations

import copy
import sys
import warnings
from typing import Any

from tilesmith.frontend.aten.tensors import memory_of

_EXPANSIONS = ("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default")


def with_state(program: Any) -> Any:
    """An `ExportedProgram` in the form that `run_decompositions` needs: constants are buffers, and
    each tensor occurs once.  Tensors are copied only into tensors of the same shape.  No tensor is
    expanded to its own shape.

    Returns `program` itself if it has this form or writes no tensors.
    """
    specs = program.graph_signature.input_specs
    has_constants = any(s.kind.name == "CONSTANT_TENSOR" for s in specs)
    has_aliases = any(map(_is_alias, program.graph.nodes))
    is_uneven = any(map(_is_uneven, program.graph.nodes))
    if not is_uneven and (not (has_constants or has_aliases) or not _writes(program.graph)):
        return program
    torch = sys.modules["torch"]
    signatures = torch.export.graph_signature

    with warnings.catch_warnings():  # PyTorch warns about copies of its own classes
        warnings.simplefilter("ignore", FutureWarning)
        graph = copy.deepcopy(program.graph)
    nodes = {n.name: n for n in graph.nodes}
    held = {**program.constants, **program.state_dict}
    known = {memory_of(held[s.target]): nodes[s.arg.name] for s in specs if s.kind.name == "BUFFER"}
    kept = []
    for s in specs:
        if s.kind.name != "CONSTANT_TENSOR":
            kept.append(s)
            continue
        node, memory = nodes[s.arg.name], memory_of(held[s.target])
        if memory in known:
            node.replace_all_uses_with(known[memory])
            graph.erase_node(node)
            continue
        known[memory] = node
        buffer = signatures.InputKind.BUFFER
        kept.append(signatures.InputSpec(buffer, s.arg, s.target, persistent=False))
    for node in filter(_is_uneven, list(graph.nodes)):
        to, source = node.args[:2]
        with graph.inserting_before(node):
            expanded = graph.call_function(torch.ops.aten.expand_as.default, (source, to))
        expanded.meta["val"] = source.meta["val"].expand_as(to.meta["val"])
        node.update_arg(1, expanded)
    for node in filter(_is_alias, graph.nodes):
        node.target, node.args, node.kwargs = torch.ops.aten.alias.default, node.args[:1], {}
    outputs = list(program.graph_signature.output_specs)
    module = torch.fx.GraphModule(program.graph_module, graph)
    module.meta.update(program.graph_module.meta)
    return torch.export.ExportedProgram(
        root=module,
        graph=graph,
        graph_signature=signatures.ExportGraphSignature(kept, outputs),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _is_uneven(node: Any) -> bool:
    """Whether a node copies a tensor into one of another shape."""
    if str(node.target) != "aten.copy_.default":
        return False
    to, source = (a.meta.get("val") if hasattr(a, "meta") else None for a in node.args[:2])
    return to is not None and source is not None and tuple(to.shape) != tuple(source.shape)


def _is_alias(node: Any) -> bool:
    """Whether a node expands a tensor to the tensor's own shape."""
    if str(node.target) not in _EXPANSIONS:
        return False
    source, result = (n.meta.get("val") for n in (node.args[0], node))
    return source is not None and tuple(source.shape) == tuple(result.shape)


def _writes(graph: Any) -> bool:
    schemas = (getattr(n.target, "_schema", None) for n in graph.nodes)
    return any(s is not None and s.is_mutable for s in schemas)
