"""TVM's `lower` and `build`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith import te
from tilesmith.driver import build as build_function
from tilesmith.loop.nodes import Func
from tilesmith.support.errors import UsageError

from .runtime import Module
from .schedule import Schedule
from .target import Target


@dataclass(frozen=True)
class IRModule:
    """A lowered function; its text is the loops.

    schedule: the schedule, with memory chosen.
    args: the parameters.
    func: the loops.
    """

    schedule: te.Schedule
    args: tuple[te.Tensor, ...]
    func: Func

    @staticmethod
    def from_expr(expr: Any) -> Any:
        """The module of a function of Relay."""
        from .relay import RelayModule

        return RelayModule.from_expr(expr)

    def __str__(self) -> str:
        return str(self.func)


def lower(
    inp: te.Schedule,
    args: Sequence[Any],
    name: str = "main",
    binds: Any = None,
    simple_mode: bool = False,
) -> IRModule:
    """The loops of a schedule.  Raises ScheduleError."""
    if binds:
        raise UsageError("lower(binds=): buffers are made by lowering; leave binds out")
    tensors = tuple(a for a in args if isinstance(a, te.Tensor))
    made = inp
    if isinstance(inp, Schedule):
        made = inp.in_memory(lambda s: te.lower(s, tensors, name))
    return IRModule(made, tensors, te.lower(made, tensors, name))


def build(
    inputs: te.Schedule | IRModule,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    runtime: Any = None,
    name: str = "default_function",
    binds: Any = None,
) -> Module:
    """The native function of a schedule.  Extents that are arguments follow from the arrays.

    target: TVM's text of a target, or a `Target`; by default that of the enclosing `with`, or this
        machine.

    Raises UsageError and ScheduleError.
    """
    if not isinstance(inputs, IRModule):
        if args is None:
            raise UsageError("build(schedule, args): expected the list of arguments, found None")
        inputs = lower(inputs, args, name, binds)
    chosen = Target.current() if target is None else Target(target)
    native = None if chosen is None else chosen.native
    function = build_function(inputs.schedule, inputs.args, native, name=name)
    return Module(function, name)
