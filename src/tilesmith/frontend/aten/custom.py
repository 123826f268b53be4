"""Calls of operators that users register (`ts.register_op`, `ts.torch.register`).

PyTorch's operator "mylib::snake" becomes the graph's operator "mylib.snake".  The tensors of a call
become the operator's inputs, in order.  Numbers, strings and lists become its attributes, by
position or by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, get_origin, get_type_hints

from tilesmith.frontend.aten.node import AtenNode
from tilesmith.graph.nodes import Value
from tilesmith.ops.base import OPS, Op
from tilesmith.support.errors import ExpressionError, ScheduleError, UnsupportedError


def registered(target: str) -> Callable[..., Any] | None:
    """The import function of an overload ("mylib.snake.default") that a user registered."""
    cls = OPS.get(target.removesuffix(".default"))
    return partial(_called, cls) if cls is not None and cls.custom else None


def _called(cls: type[Op], n: AtenNode, *args: Any, **kwargs: Any) -> Any:
    types = get_type_hints(cls)
    inputs = [a for a in args if isinstance(a, Value)]
    numbers = [a for a in args if not isinstance(a, Value)]
    names = [f.name for f in fields(cls)]
    if len(numbers) > len(names) or any(name not in names for name in kwargs):
        n.unsupported(
            f"its arguments don't fit {cls.name}, which has the attributes "
            f"{', '.join(names) or 'none'}"
        )
    told = {**dict(zip(names, numbers, strict=False)), **kwargs}
    attributes = {name: _attribute(n, types[name], a, name) for name, a in told.items()}
    try:
        return n.add(cls(**attributes), *inputs)
    except (ExpressionError, ScheduleError) as e:  # for example, because a size is not known
        raise UnsupportedError(str(e)) from e


def _attribute(n: AtenNode, type_: Any, given: Any, name: str) -> Any:
    """A number, a string or a tuple, converted to the type of the operator's attribute."""
    if get_origin(type_) is tuple:
        return tuple(n.number(a, name) for a in given)
    return type_(given if isinstance(given, str) else n.number(given, name))
