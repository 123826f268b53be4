"""Operators of PyTorch that a tensor expression or a schedule defines: `ts.torch.register`.

PyTorch receives a kernel for CPU tensors, a function of fake tensors, and a gradient if there is
one.  Graphs that Tilesmith compiles contain the operator itself (`expressions`).
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Sequence
from typing import Any, get_args, get_origin, get_type_hints

import torch

from tilesmith.frontend.common.expressions import Definition, Parameter, define
from tilesmith.frontend.onnx.operators import OPERATORS
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Placeholder, Tensor

from .fakes import fake_of
from .kernels import Kernels

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*::[A-Za-z_][A-Za-z0-9_]*")

_SCHEMA: dict[Any, str] = {
    int: "int", float: "float", bool: "bool", str: "str", tuple[int, ...]: "int[]",
    tuple[float, ...]: "float[]",
}  # fmt: skip
"""By Python annotation, PyTorch's name of a parameter type."""

_LIBRARIES: dict[str, torch.library.Library] = {}
"""By operator name, the library that registered the operator."""


@checked(UsageError)
def register(
    name: str,
    definition: Callable[..., Any] | Schedule | None = None,
    args: Sequence[Tensor] | None = None,
    *,
    results: int = 1,
    gradient: Callable[..., Any] | None = None,
    options: Options | None = None,
) -> Any:
    """Make an operator of PyTorch from a tensor expression or a schedule.  Also a decorator.

        @ts.torch.register("mylib::snake")
        def snake(x, alpha: float = 1.0):
            return te.compute(x.shape, lambda *i: x[i] + te.sin(alpha * x[i]) / alpha)

        snake(torch.ones(4), 2.0)  # also torch.ops.mylib.snake

    name: "namespace::name".  An operator that was registered under it before is replaced.
    definition: a function.  A parameter without annotation, or annotated `te.Tensor`, gets a
        placeholder; its extents are symbolic if the caller's are.  A parameter annotated int,
        float, bool, str, tuple[int, ...] or tuple[float, ...] gets the value.  The function returns
        a tensor or a tuple of tensors, for which rules choose the schedule; or a schedule and its
        arguments, `(s, [x, y])`, of which all but the placeholders are results.  Instead of a
        function, a finished schedule of tensors whose sizes are numbers.
    args: arguments of a finished schedule: placeholders, which are the parameters, and results.
    results: number of tensors that the operator returns.
    gradient: a function of the gradients of the results, then the arguments of the call.  It
        returns a gradient, or None, for each tensor among the arguments.  It uses functions of
        PyTorch, or is another registered operator.
    options: options of the code for calls in eager mode, with the defaults of `ts.compile`.

    Returns the operator, as in `torch.ops`.  Raises UsageError.
    """
    if definition is None:
        return lambda found: register(
            name, found, args, results=results, gradient=gradient, options=options
        )
    _check_name(name)
    defined = _definition(name, definition, args, results)
    cls = define(defined)
    if name in _LIBRARIES:
        _LIBRARIES.pop(name)._destroy()
    namespace, short = name.split("::")
    library = _LIBRARIES[name] = torch.library.Library(namespace, "FRAGMENT")
    library.define(short + _schema(defined), tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(short, Kernels(cls, defined, options or Options.from_environment()), "CPU")
    torch.library.register_fake(name, fake_of(cls, defined), lib=library)
    _Gradient(defined, gradient).register(library)
    return getattr(getattr(torch.ops, namespace), short).default


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"register: expected a name such as 'mylib::snake', found {name!r}")
    namespace, short = name.split("::")
    if name not in _LIBRARIES and hasattr(getattr(torch.ops, namespace), short):
        raise UsageError(f"register: PyTorch has an operator {name!r} already; choose another name")
    if OPERATORS.versions(namespace, short):
        raise UsageError(f"register: {name!r} is an operator that Tilesmith has")


def _definition(
    name: str, written: Callable[..., Any] | Schedule, args: Sequence[Tensor] | None, results: int
) -> Definition:
    if isinstance(written, Schedule):
        return _finished(name, written, args)
    if not callable(written) or args is not None:
        raise UsageError(
            f"register: {name}: expected a function, or a schedule and its arguments; found "
            f"{written!r} and {args!r}"
        )
    if not isinstance(results, int) or results < 1:
        raise UsageError(f"register: {name}: expected a number of results, found {results!r}")
    try:
        hints = get_type_hints(written)
    except NameError as e:
        raise UsageError(f"register: {name}: its annotations can't be read: {e}") from e
    parameters = tuple(
        _parameter(name, p, hints.get(p.name))
        for p in inspect.signature(written).parameters.values()
    )
    if all(p.type is not None for p in parameters):
        raise UsageError(f"register: {name}: expected a parameter that is a tensor, found none")
    return Definition(name, parameters, written, results, written.__module__)


def _parameter(name: str, p: inspect.Parameter, type_: Any) -> Parameter:
    if p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise UsageError(f"register: {name}: expected plain parameters, found {p}")
    if type_ in (None, Tensor):
        if p.default is not inspect.Parameter.empty:
            raise UsageError(f"register: {name}: {p.name!r} is a tensor, which has no default")
        return Parameter(p.name)
    if get_origin(type_) is list:
        type_ = tuple[get_args(type_)[0], ...]
    if type_ not in _SCHEMA:
        shown = ", ".join(t.__name__ if type(t) is type else str(t) for t in _SCHEMA)
        raise UsageError(
            f"register: {name}: parameter {p.name!r}: expected te.Tensor, {shown}, found {type_}"
        )
    if p.default is inspect.Parameter.empty:
        return Parameter(p.name, type_)
    kind = get_origin(type_) or type_
    return Parameter(p.name, type_, (kind(p.default),))


def _finished(name: str, schedule: Schedule, args: Sequence[Tensor] | None) -> Definition:
    """The definition of an operator by a finished schedule, for tensors of the schedule's own
    types.
    """
    if args is None:
        raise UsageError(
            f"register: {name}: a schedule needs its arguments: register(name, s, [x, y])"
        )
    inputs = [a for a in args if isinstance(a.op, Placeholder)]
    names = [a.name for a in inputs]
    for a in inputs:
        if not a.name.isidentifier() or keyword.iskeyword(a.name) or names.count(a.name) > 1:
            raise UsageError(
                f"register: {name}: expected placeholders with names of their own that Python "
                f"takes for parameters, found {a.name!r}"
            )
        if not all(isinstance(d, int) for d in a.shape):
            raise UsageError(
                f"register: {name}: {a.name} has symbolic sizes; expected a function of "
                "placeholders that makes the schedule"
            )
    if not inputs:
        raise UsageError(f"register: {name}: expected a placeholder among the arguments")

    def function(*given: Tensor) -> Any:
        for own, other in zip(inputs, given, strict=True):
            if own.dtype is not other.dtype or own.shape != other.shape:
                raise UsageError(
                    f"{name}: argument {own.name!r}: expected {own.dtype}{list(own.shape)}, as the "
                    f"schedule has it, found {other.dtype}{list(other.shape)}"
                )
        return schedule, list(args)

    parameters = tuple(map(Parameter, names))
    return Definition(name, parameters, function, len(args) - len(inputs), "__main__")


def _schema(definition: Definition) -> str:
    shown = []
    for p in definition.parameters:
        text = f"{'Tensor' if p.type is None else _SCHEMA[p.type]} {p.name}"
        shown.append(text + (f"={_default(p.default[0])}" if p.default else ""))
    tensors = ", ".join(["Tensor"] * definition.results)
    returned = tensors if definition.results == 1 else f"({tensors})"
    return f"({', '.join(shown)}) -> {returned}"


def _default(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(list(value)) if isinstance(value, tuple) else repr(value)


class _Gradient:
    """The gradient of an operator, in the form that PyTorch requires."""

    def __init__(self, definition: Definition, function: Callable[..., Any] | None) -> None:
        self._name, self._function = definition.name, function
        self._tensors = [p.type is None for p in definition.parameters]

    def register(self, library: torch.library.Library) -> None:
        torch.library.register_autograd(
            self._name, self._backward, setup_context=self._keep, lib=library
        )

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(
            *(a for a, is_tensor in zip(inputs, self._tensors, strict=True) if is_tensor)
        )
        ctx.others = [
            a for a, is_tensor in zip(inputs, self._tensors, strict=True) if not is_tensor
        ]

    def _backward(self, ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        if self._function is None:
            raise UsageError(
                f"{self._name} has no gradient; register it with gradient=, or call it on tensors "
                "that do not require one"
            )
        tensors, others = iter(ctx.saved_tensors), iter(ctx.others)
        args = [next(tensors if is_tensor else others) for is_tensor in self._tensors]
        returned = self._function(*gradients, *args)
        several = returned if isinstance(returned, (tuple, list)) else (returned,)
        if len(several) != sum(self._tensors):
            raise UsageError(
                f"{self._name}: its gradient gave {len(several)} results; expected one for each of "
                f"its {sum(self._tensors)} tensors"
            )
        waiting = iter(several)
        return tuple(next(waiting) if is_tensor else None for is_tensor in self._tensors)
