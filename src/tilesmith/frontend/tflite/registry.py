"""The table of TFLite's operators: which Python function imports which operator.

A function is registered with `@tflite_op("CONV_2D")`, for custom operators with
`@tflite_op("MaxUnpooling2D", domain=CUSTOM)`; it gets a `TfliteNode` and returns the node's output
(a tuple if there are several).

An operator that has a quantised input or output is looked up in `FORMS` instead.  A function
registered with `@quantized_op` computes the integers of TFLite's kernels.  One registered with
`@stored_op` only moves or compares elements, so that it serves numbers and stored integers alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias, TypeVar

from tilesmith.frontend.common.registry import Registry
from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.tflite.model import Operator
from tilesmith.frontend.tflite.node import TfliteNode
from tilesmith.ops.base import Op

ImportFunction: TypeAlias = Callable[[TfliteNode], Result]

CUSTOM = "custom"
"""The domain of custom operators, whose names are their custom codes."""

OPERATORS: Registry[ImportFunction] = Registry()
"""The operators by domain (empty for builtin ones) and name."""

FORMS: Registry[ImportFunction] = Registry()
"""The operators that have a quantised input or output, by domain and name."""

_F = TypeVar("_F", bound=ImportFunction)
"""The type of a registered function, some of which TensorFlow's reader calls, too."""


def import_function(operator: Operator, has_quantized: bool) -> ImportFunction | None:
    """The function that imports an operator; None if it is not supported.

    has_quantized: whether an input or output holds quantised numbers.
    """
    is_custom = operator.kind == "CUSTOM"
    domain, name = (CUSTOM, operator.custom_code) if is_custom else ("", operator.kind)
    return (FORMS if has_quantized else OPERATORS).find(domain, name)


def tflite_op(*names: str, domain: str = "") -> Callable[[_F], _F]:
    """A decorator that registers a function for numbers."""

    def enter(function: _F) -> _F:
        OPERATORS.register(*names, domain=domain)(function)
        return function

    return enter


quantized_op = FORMS.register


def stored_op(*names: str) -> Callable[[_F], _F]:
    """A decorator that registers a function for numbers as well as for stored integers."""

    def enter(function: _F) -> _F:
        FORMS.register(*names)(function)
        return tflite_op(*names)(function)

    return enter


def same_operators(
    table: Mapping[str, Callable[[], Op]],
    arity: int = 1,
    stored: Collection[str] = (),
) -> None:
    """Register operators of numbers, without options, each equal to an operator of Tilesmith.

    stored: names of operators that compute with stored integers as with other numbers.
    """

    for name, make in table.items():
        for forms in (OPERATORS, FORMS) if name in stored else (OPERATORS,):
            forms.register_same(make, name, arity=arity)
