"""The user's constraints on kernels: which there are to obey, and what they leave."""

from __future__ import annotations

from tilesmith.choices.groups import GroupSpace, has_decisions
from tilesmith.choices.workload import group_workload
from tilesmith.graph.control import kernels_in
from tilesmith.graph.nodes import Fused, Graph, Node

from .kernels import tuned_body
from .session import Session


def group_space(node: Node, fused: Graph, session: Session) -> tuple[str, GroupSpace] | None:
    """The workload of a kernel's node in a graph of fused groups, and its schedules; None where
    there is nothing to decide on.
    """
    assert isinstance(node.op, Fused)
    body = tuned_body(node.op.body)
    if body is None or not has_decisions(body, session.backend.rules):
        return None
    constants = [i for i, v in enumerate(node.inputs) if v in fused.constant]
    return group_workload(body, constants, session.options.accuracy), session.group(body, constants)


def check_constraints(fused: Graph, session: Session) -> None:
    """Find out what the session's constraints leave of the schedules of kernels.

    Raises UsageError when they name what the model does not have, as the graph passes left it now
    or before.
    """
    constraints = session.constraints
    if constraints is None:
        return
    own = constraints.of_kernels()
    with session.timings.stage("constraints"):
        nodes = kernels_in(fused) if own.names else ()
        groups = dict(g for graph, n in nodes if (g := group_space(n, graph, session)) is not None)
        fresh = {w: g for w, g in groups.items() if w not in constraints.spaces}
        for group in fresh.values():
            for name, knob in group.known(own.names).items():
                constraints.knobs.setdefault(name, {}).update(dict.fromkeys(knob.options))
        constraints.check()
        constraints.spaces.update({w: g.space(own) for w, g in fresh.items()})
