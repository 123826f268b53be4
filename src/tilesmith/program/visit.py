"""Walking and rebuilding steps, by the roles of their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

from tilesmith.ir.grammar import Role, fields_of, items_in

from .nodes import Arg, Grow, HostCall, KernelCall, Measurement, Node, Step


def steps_in(steps: Iterable[Step]) -> Iterator[Step]:
    """Every step in `steps`, in the order in which calls and measurements are numbered."""
    for step in steps:
        yield step
        for name in bodies_of(type(step)):
            yield from steps_in(getattr(step, name))


def args_of(steps: Iterable[Step]) -> Iterator[Arg]:
    """Every argument in `steps`."""
    for step in steps_in(steps):
        yield from own_args(step)


def own_args(node: Node) -> Iterator[Arg]:
    """The arguments of a node and of its declarations, without those of steps inside the node."""
    for name in _read(type(node)):
        for item in items_in(getattr(node, name)):
            if isinstance(item, Arg):
                yield item
            elif isinstance(item, Node):
                yield from own_args(item)


@cache
def bodies_of(kind: type[Node]) -> tuple[str, ...]:
    """Names of the fields that contain steps, for a class `kind` of steps."""
    return tuple(f.name for f in fields_of(kind) if f.role is Role.BODY)


@cache
def _read(kind: type[Node]) -> tuple[str, ...]:
    """Names of the fields that may contain arguments, for a class `kind` of nodes."""
    roles = (Role.OPERAND, Role.BINDER)
    return tuple(f.name for f in fields_of(kind) if f.role in roles)


def map_steps(steps: Iterable[Step], rule: Callable[[Step], Step]) -> tuple[Step, ...]:
    """The steps, rebuilt from the inside out with `rule`."""
    mapped: list[Step] = []
    for step in steps:
        inside = {name: map_steps(getattr(step, name), rule) for name in bodies_of(type(step))}
        mapped.append(rule(replace(step, **inside) if inside else step))
    return tuple(mapped)


def calls_of(steps: Iterable[Step]) -> Iterator[KernelCall]:
    """The kernel calls in `steps`, each once, in the order in which they are numbered."""
    return (s for s in steps_in(steps) if isinstance(s, KernelCall))


def host_calls_of(steps: Iterable[Step]) -> Iterator[HostCall]:
    """The calls of host functions in `steps`, each once, in the order of their numbers."""
    return (s for s in steps_in(steps) if isinstance(s, HostCall))


def measurements_of(steps: Iterable[Step]) -> Iterator[Measurement]:
    """The measurements in `steps`, each once, in the order in which they are numbered."""
    return (s for s in steps_in(steps) if isinstance(s, Measurement))


def slots_of(steps: Iterable[Step]) -> int:
    """The number of slots in `steps`."""
    grown = (s for s in steps_in(steps) if isinstance(s, Grow))
    return max((s.slot + 1 + (s.target is not None) for s in grown), default=0)
