"""Graph operators made from a user's function that returns tensor expressions or a schedule.

Each operator of a user has three classes.  Programs call the first class, a composite operator.
For inputs of given types it decomposes into one of the other two.  The second class is a tensor
expression, which is fused with adjacent operators and scheduled by rule.  The third class is loops,
for a user's schedule, `te.extern` or `te.scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from tilesmith.graph.builder import array_type, expansion
from tilesmith.ir.types import TensorType
from tilesmith.loop.interpret import interpret
from tilesmith.loop.nodes import Buffer, Func
from tilesmith.ops.base import OPS, GraphBuilder, Op, check_attribute_name, unscheduled
from tilesmith.ops.eager import infer
from tilesmith.support.errors import TilesmithError, UsageError
from tilesmith.te.lower import lower
from tilesmith.te.schedule import Schedule, create_schedule
from tilesmith.te.tensor import Placeholder, Tensor, placeholder


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operator.

    name: its name in calls.
    type: type of a number, a string or a tuple of these; None for a tensor.
    default: a tuple with the default value; empty if every call must pass the parameter.
    """

    name: str
    type: Any = None
    default: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A user's definition of an operator.

    name: "namespace::name".
    parameters: its parameters, in the order of calls.
    function: maps a placeholder for each tensor, and numbers, to a tensor, several tensors, or a
        schedule and its arguments.
    results: number of tensors that `function` returns.
    module: the module that defines the function.
    """

    name: str
    parameters: tuple[Parameter, ...]
    function: Callable[..., Any]
    results: int
    module: str

    def arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call: the tensors, and the others by name."""
        by_name = {**dict(zip((p.name for p in self.parameters), args, strict=False)), **kwargs}
        values = [
            (p, by_name[p.name] if p.name in by_name else p.default[0]) for p in self.parameters
        ]
        return [v for p, v in values if p.type is None], {
            p.name: tuple(v) if isinstance(v, list) else v for p, v in values if p.type is not None
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """A definition applied to inputs of given types.

    inputs: a placeholder for each input.
    outputs: the results.
    loops: the loops of the user's schedule; None where rules make the schedule.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    loops: Func | None


class _Defined(Op, abstract=True):
    """Base of an operator's three classes.  Its fields are the operator's numbers and strings."""

    definition: ClassVar[Definition]

    def made(self, types: tuple[TensorType, ...]) -> _Made:
        return _made(self.definition, self, types)

    def __eq__(self, other: object) -> bool:
        """Equality that distinguishes 0.0 and -0.0, since a definition may depend on the sign."""
        return type(other) is type(self) and self._key == other._key

    def __hash__(self) -> int:
        return hash((type(self), self._key))

    @property
    def _key(self) -> str:
        return repr([*self.attributes.values()])

    def reference(self, *inputs: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """The results of interpreting the expressions, without the schedule."""
        made = self.made(tuple(map(array_type, inputs)))
        results = [
            np.empty(TensorType(t.dtype, t.shape).static_shape, t.dtype.numpy) for t in made.outputs
        ]
        func = _lowered(create_schedule(made.outputs), made.inputs, made.outputs)
        interpret(func, [*map(np.ascontiguousarray, inputs), *results])
        return results[0] if len(results) == 1 else tuple(results)


class _Called(_Defined, abstract=True):
    """The operator that programs call."""

    as_expression: ClassVar[type[Op]]
    as_loops: ClassVar[type[Op]]

    def decompose(self, b: GraphBuilder, *inputs: Any) -> Any:
        made = self.made(tuple(v.type for v in inputs))
        cls = self.as_expression if made.loops is None else self.as_loops
        return b.add(cls(**self.attributes), *inputs)


class _Expression(_Defined, abstract=True):
    """The operator as a tensor expression, scheduled by rules."""

    def compute(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return _called(self.definition, self.attributes, inputs)[1]


class _Loops(_Defined, abstract=True):
    """The operator as loops, scheduled by its author."""

    is_scheduled = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return tuple(TensorType(t.dtype, t.shape) for t in self.made(types).outputs)

    def loops(self, *types: TensorType) -> Func:
        func = self.made(types).loops
        assert func is not None  # this class is used only for definitions with loops
        return func


def define(definition: Definition) -> type[Op]:
    """Define the operator's class and enter it in the table of operators as "namespace.name".

    Raises UsageError if a parameter that is not a tensor has the name of a member of `Op`.
    """
    name = definition.name.replace("::", ".")
    for p in definition.parameters:
        if p.type is not None:
            check_attribute_name(definition.name, p.name)
    of = {"definition": definition, "__module__": definition.module}
    parts = {
        "as_expression": _entered(f"{name}.expression", _Expression, of),
        "as_loops": _entered(f"{name}.loops", _Loops, of),
    }
    made = _entered(name, _Called, {**of, **parts})
    expansion.cache_clear()  # the new operator may replace one of the same name
    infer.cache_clear()
    return made


def _entered(name: str, base: type[Op], namespace: Mapping[str, Any]) -> type[Op]:
    definition: Definition = namespace["definition"]
    fields = [
        (p.name, p.type, field(default=p.default[0])) if p.default else (p.name, p.type)
        for p in definition.parameters
        if p.type is not None
    ]
    told = {**namespace, "name": name, "__doc__": f"{definition.name}: an operator of a user."}
    made = make_dataclass(
        name.rpartition(".")[2],
        fields,
        bases=(base,),
        namespace=told,
        frozen=True,
        kw_only=True,
        eq=False,
    )
    OPS[name] = made
    return made


@lru_cache(maxsize=1024)
def _made(definition: Definition, op: _Defined, types: tuple[TensorType, ...]) -> _Made:
    """The definition applied to inputs of these types.

    Raises UsageError if the user's function fails, and ExpressionError or ScheduleError if the
    results can't be computed.
    """
    tensors = [p for p in definition.parameters if p.type is None]
    if len(types) != len(tensors):
        raise UsageError(f"{definition.name}: expected {len(tensors)} tensors, found {len(types)}")
    inputs = tuple(placeholder(t.shape, t.dtype, p.name) for t, p in zip(types, tensors))
    schedule, outputs, inputs = _called(definition, op.attributes, inputs)
    if schedule is None and unscheduled(outputs) is not None:
        schedule = create_schedule(outputs)
    # Lowering refuses reads that may be out of bounds.  Lower here, so that the error is raised
    # where the operator is called.
    func = _lowered(schedule or create_schedule(outputs), inputs, outputs)
    for buffer, t in zip(func.buffers, (*inputs, *outputs), strict=True):
        if buffer.shape != t.shape:
            raise UsageError(
                f"{definition.name}: its schedule changes the layout of {t.name}; expected "
                "parameters in row-major order: transform the layout of a copy (cache_read)"
            )
    return _Made(inputs, outputs, None if schedule is None else func)


def _called(
    definition: Definition, attributes: Mapping[str, Any], inputs: tuple[Tensor, ...]
) -> tuple[Schedule | None, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The results of a user's function: its schedule or None, the tensors that it returns, and the
    placeholders that these read.
    """
    waiting = iter(inputs)
    args = [next(waiting) if p.type is None else attributes[p.name] for p in definition.parameters]
    shown = ", ".join(f"{t.dtype}{list(t.shape)}" for t in inputs)
    try:
        result = definition.function(*args)
    except TilesmithError:
        raise
    except Exception as e:  # the user's function may raise anything
        raise UsageError(f"{definition.name} of {shown}: {type(e).__name__}: {e}") from e
    schedule = None
    if isinstance(result, tuple) and result and isinstance(result[0], Schedule):
        schedule, arguments = result
        inputs = tuple(a for a in arguments if isinstance(a.op, Placeholder))
        result = tuple(a for a in arguments if not isinstance(a.op, Placeholder))
    outputs = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(t, Tensor) and not isinstance(t.op, Placeholder) for t in outputs):
        raise UsageError(
            f"{definition.name}: expected tensors that te.compute makes, or a schedule and its "
            f"arguments (s, [x, y]), found {result!r}"
        )
    if len(outputs) != definition.results:
        raise UsageError(
            f"{definition.name}: expected {definition.results} results, as registered, found "
            f"{len(outputs)}"
        )
    return schedule, outputs, inputs


def _lowered(schedule: Schedule, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Func:
    """The lowered function.  Its parameters are all inputs, even if nothing reads them, then the
    outputs.
    """
    read = [t for t in inputs if t in schedule.state.tensors]
    func = lower(schedule, [*read, *outputs])
    if len(read) == len(inputs):
        return func
    buffers = iter(func.buffers)
    unread = {t: Buffer(t.name, t.dtype, t.shape) for t in inputs if t not in read}
    params = [unread[t] if t in unread else next(buffers) for t in (*inputs, *outputs)]
    return replace(func, params=(*params, *func.params[len(func.buffers) :]))
