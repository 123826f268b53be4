"""Operators that users register, in the same tables as built-in operators.

    @ts.register_op("com.example")
    @dataclass(frozen=True)
    class Snake(ts.Op):
        '''x + sin(alpha x)^2 / alpha (arXiv:2006.08195).'''

        alpha: float = 1.0

        def compute(self, x):
            def element(*i):
                wave = te.sin(self.alpha * x[i])
                return x[i] + wave * wave / self.alpha

            return te.compute(x.shape, element)

        def reference(self, x):
            return x + np.sin(self.alpha * x) ** 2 / self.alpha

Registered operators exist only in the process that registers them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from tilesmith.frontend.common.slots import Result
from tilesmith.frontend.onnx.node import OnnxNode
from tilesmith.frontend.onnx.registry import OPERATORS
from tilesmith.graph.builder import expansion
from tilesmith.ops.base import OPS, Op, check_attribute_name
from tilesmith.ops.eager import infer
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.user_files import run_user_file

C = TypeVar("C", bound=type[Op])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOMAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

_READERS: dict[Any, Callable[[OnnxNode, str], Any]] = {
    int: OnnxNode.attr_int,
    bool: OnnxNode.attr_flag,
    float: OnnxNode.attr_float,
    str: OnnxNode.attr_string,
    tuple[int, ...]: OnnxNode.attr_ints,
    tuple[float, ...]: OnnxNode.attr_floats,
    tuple[str, ...]: OnnxNode.attr_strings,
}
"""Readers of a node's attribute, by the type of the operator's field."""


@checked(UsageError)
def register_op(domain: str, name: str | None = None) -> Callable[[C], C]:
    """A decorator that makes a class an operator of ONNX models.

    domain: the operator's domain in ONNX, not the default domain.
    name: the operator's name in its domain; default: the class's name.

    The class is a frozen dataclass and a subclass of `ts.Op` with a docstring.

    - Its fields are the attributes: int, float, bool, str, or tuples of numbers or strings such as
      `tuple[int, ...]`.  A field without default is an attribute that every node must have.
    - It defines the computation as one of: `compute(*tensors)`, which returns a tensor expression;
      `loops(*types)`, which returns a loop nest, with `infer(*types)`, which returns the types of
      the results; or `decompose(builder, *values)`, which adds other operators.
    - Except with `decompose`, `reference(*arrays)` computes the same in NumPy.  `ts.check` compares
      the compiled operator with it.

    A node's inputs are the arguments of these methods.  An operator that is registered again is
    replaced.  Programs and kernels in the cache are used as long as the operator computes the same.

    Raises UsageError that names the missing part.
    """

    def enter(cls: C) -> C:
        label = cls.__name__ if name is None else name
        _check_names(domain, label)
        _check_class(cls)
        cls.name = f"{domain}.{label}"
        OPS[cls.name] = cls
        expansion.cache_clear()  # a composite may refer to the operator that is being replaced
        infer.cache_clear()
        return cls

    return enter


def unregister_op(cls: type[Op]) -> None:
    """Remove a user's operator from the tables."""
    del OPS[cls.name]


def load_operators(path: Path) -> list[str]:
    """Run a Python file that registers operators; returns their names (see `run_user_file`)."""
    return run_user_file(path, "operators", "register_op", OPS)


def import_function(domain: str, name: str) -> Callable[[OnnxNode], Result] | None:
    """The import function of a user's registered operator; None if there is none of this name."""
    cls = OPS.get(f"{domain}.{name}")
    return None if cls is None else partial(_convert, cls)


def _convert(cls: type[Op], n: OnnxNode) -> Result:
    types = get_type_hints(cls)
    values = {}
    for f in fields(cls):
        if n.has(f.name):
            values[f.name] = _READERS[types[f.name]](n, f.name)
        elif f.default is MISSING and f.default_factory is MISSING:
            n.bad(f"expected attribute {f.name!r}, which is required; found none")
    return n.add(cls(**values), *n.inputs)


def _check_names(domain: str, name: str) -> None:
    if not isinstance(domain, str) or not _DOMAIN.fullmatch(domain) or domain == "ai.onnx":
        raise UsageError(
            f"register_op: expected a domain of your own such as 'com.example', found {domain!r}"
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"register_op: expected a name such as 'Snake', found {name!r}")
    import_module("tilesmith.frontend.onnx.operators")  # late, since that module imports this one
    if OPERATORS.versions(domain, name):
        raise UsageError(
            f"register_op: {domain}.{name} is an operator that Tilesmith has; choose another name"
        )


def _check_class(cls: Any) -> None:
    """Raises UsageError unless `cls` defines an operator."""
    what = f"register_op: {getattr(cls, '__name__', cls)!s}"
    if not (isinstance(cls, type) and issubclass(cls, Op)):
        raise UsageError(f"{what}: expected a subclass of tilesmith.Op")
    known = {f.name for f in fields(cls)}
    loose = [a for a in inspect.get_annotations(cls) if a not in known]
    if loose:
        raise UsageError(
            f"{what}: {loose[0]!r} is no field; put @dataclass(frozen=True) below @register_op"
        )
    for name in known:
        check_attribute_name(what, name)
    for name, type_ in get_type_hints(cls).items():
        if name in known and type_ not in _READERS:
            shown = ", ".join(map(_type_text, _READERS))
            raise UsageError(
                f"{what}: attribute {name!r}: expected one of {shown}, found {_type_text(type_)}"
            )
    defined = [m for m in ("compute", "loops", "decompose") if _defines(cls, m)]
    if len(defined) != 1:
        raise UsageError(
            f"{what}: expected one of compute, loops and decompose, found "
            f"{' and '.join(defined) or 'none'}"
        )
    needed = {"compute": ["reference"], "loops": ["infer", "reference"], "decompose": []}
    for method in needed[defined[0]]:
        if not _defines(cls, method):
            raise UsageError(f"{what}: an operator with {defined[0]} also defines {method}")
    if hasattr(cls, "gradient"):
        raise UsageError(f"{what}: the name 'gradient' is reserved; operators have none yet")


def _defines(cls: type[Op], method: str) -> bool:
    return getattr(cls, method) is not getattr(Op, method)


def _type_text(type_: Any) -> str:
    return type_.__name__ if type(type_) is type else str(type_)
