"""Relay's expressions, built in Python and written as Relay's text, which the frontend reads.

data = relay.var("data", shape=(1, 16), dtype="float32")
out = relay.nn.relu(relay.nn.dense(data, relay.var("weight", shape=(8, 16))))
mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(out), out))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilesmith.frontend.relay.node import OPERATORS, ImportFunction
from tilesmith.frontend.relay.operators import READER  # noqa: F401  (registers the operators)
from tilesmith.frontend.relay.parse import element_type, type_name
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import UsageError
from tilesmith.te.state import unique

from ..positions import RELAY, divided

__all__ = [
    "Call", "Constant", "Expr", "Function", "If", "Tuple", "TupleGetItem", "Var", "analysis",
    "const", "image", "nn", "operator", "qnn", "text_of", "var", "vision",
]  # fmt: skip

_COUNTS = {"nn.batch_norm": 3, "nn.dropout": 2, "topk": 2}
"""The results of operators whose call is a tuple in Python."""


_Method = Callable[[Any, Any], "Call"]


def _both(name: str) -> tuple[_Method, _Method]:
    """The call of an operator, and the one with the operands exchanged."""
    return (lambda a, b: operator(name)(a, b)), (lambda b, a: operator(name)(a, b))


class Expr:
    """A value of a program.  Python's operators make calls of Relay's."""

    __add__, __radd__ = _both("add")
    __sub__, __rsub__ = _both("subtract")
    __mul__, __rmul__ = _both("multiply")
    __truediv__, __rtruediv__ = _both("divide")
    __lt__, __le__ = _both("less")[0], _both("less_equal")[0]
    __gt__, __ge__ = _both("greater")[0], _both("greater_equal")[0]

    def __neg__(self) -> Call:
        return operator("negative")(self)

    def astype(self, dtype: str) -> Call:
        return operator("cast")(self, dtype=dtype)

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The values that this one is computed from."""
        return ()


class Var(Expr):
    """An input of a function.

    name_hint: its name.
    shape: its extents; None or a name for an open extent.
    dtype: its element type, in TVM's words.
    """

    @checked(UsageError)
    def __init__(self, name_hint: str, shape: Sequence[Any] | None, dtype: str) -> None:
        self.name_hint, self.dtype = name_hint, type_name(to_dtype(_our_dtype(dtype)))
        self.shape = None if shape is None else tuple(shape)

    @property
    def declared(self) -> str:
        if self.shape is None:
            return f"%{self.name_hint}"
        dims = [str(d) if isinstance(d, (int, np.integer)) else "?" for d in self.shape]
        tail = "," if len(dims) == 1 else ""
        return f"%{self.name_hint}: Tensor[({', '.join(dims)}{tail}), {self.dtype}]"


class Constant(Expr):
    """A value known when the model is compiled."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data


class Tuple(Expr):
    """A tuple of values."""

    def __init__(self, fields: Sequence[Any]) -> None:
        self.fields = tuple(map(_expr, fields))

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.fields


class TupleGetItem(Expr):
    """An element of a tuple."""

    def __init__(self, tuple_value: Expr, index: int) -> None:
        self.tuple_value, self.index = tuple_value, index

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.tuple_value,)


class Call(Expr):
    """A call of an operator.  A call with several results can be indexed and unpacked.

    op: the operator's name.
    args: its operands.
    attrs: its attributes.
    """

    def __init__(self, op: str, args: Sequence[Expr], attrs: Mapping[str, Any]) -> None:
        self.op, self.args, self.attrs = op, tuple(args), dict(attrs)

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args

    @property
    def size(self) -> int | None:
        """The number of results of a call that is a tuple; None if it is one value."""
        if self.op == "split":
            parts = self.attrs.get("indices_or_sections")
            if parts is None:
                raise UsageError(
                    "split: expected indices_or_sections, the number of parts or where they begin, "
                    "found none; write relay.split(x, 2)"
                )
            if isinstance(parts, (list, tuple)):
                return len(parts) + 1
            if isinstance(parts, (int, np.integer)):
                return int(parts)
            raise UsageError(f"split: expected indices_or_sections of integers, found {parts!r}")
        if self.op == "topk" and self.attrs.get("ret_type", "both") != "both":
            return None
        return _COUNTS.get(self.op)

    def __getitem__(self, index: int) -> TupleGetItem:
        if self.size is None or not -self.size <= index < self.size:
            raise UsageError(f"{self.op}: expected a number of a result, found {index}")
        return TupleGetItem(self, index % self.size)

    def __iter__(self) -> Iterator[TupleGetItem]:
        if self.size is None:
            raise UsageError(f"{self.op}: expected a call with several results to unpack")
        return iter([self[i] for i in range(self.size)])

    def astuple(self) -> Call:
        return self


class If(Expr):
    """A branch.

    cond: one bool.
    true_branch, false_branch: the results.
    """

    def __init__(self, cond: Expr, true_branch: Expr, false_branch: Expr) -> None:
        self.cond, self.true_branch, self.false_branch = cond, true_branch, false_branch

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.cond,)


class Function:
    """A function.

    params: its inputs.
    body: its result, a value or a tuple.
    """

    def __init__(self, params: Sequence[Var], body: Any, ret_type: Any = None) -> None:
        self.params = list(params)
        self.body = Tuple(body) if isinstance(body, (list, tuple)) else _expr(body)

    def __str__(self) -> str:
        return text_of(self)[0]


@checked(UsageError)
def var(
    name_hint: str,
    type_annotation: TensorType | None = None,
    shape: Any = None,
    dtype: str = "float32",
) -> Var:
    """An input.  Its type is given by `shape` and `dtype`, or by a `relay.TensorType`."""
    if type_annotation is not None:
        shape, dtype = type_annotation.shape, type_annotation.dtype
    return Var(name_hint, shape, dtype)


class TensorType:
    """A tensor's type."""

    @checked(UsageError)
    def __init__(self, shape: Sequence[Any], dtype: str = "float32") -> None:
        self.shape, self.dtype = tuple(shape), dtype


def const(value: Any, dtype: str | None = None) -> Constant:
    """A constant.  Python's floats are float32 and its integers int32, unless `dtype` says more.

    Raises UsageError for a value that is no number or array, and an integer beyond int32.
    """
    data = np.asarray(value)
    if data.dtype.kind in "OSU":
        raise UsageError(f"const: expected a number or an array, found {shown(value)}")
    if dtype is not None:
        data = data.astype(to_dtype(_our_dtype(dtype)).numpy)
    elif not isinstance(value, (np.ndarray, np.generic)) and data.dtype.kind in "fi":
        plain = data.astype(np.float32 if data.dtype.kind == "f" else np.int32)
        if plain.dtype.kind == "i" and not np.array_equal(plain, data):
            raise UsageError(f"const: expected integers of int32, found {shown(value)}; give dtype")
        data = plain
    return Constant(data)


def _our_dtype(name: str) -> str:
    found = element_type(str(name))
    if found is None:
        raise UsageError(f"expected an element type of TVM, such as float32, found {shown(name)}")
    return str(found)


def _expr(value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, (list, tuple)):
        return Tuple(value)
    return const(value)


def import_function(what: str, name: str) -> ImportFunction:
    """The function that imports an operator.  Raises UsageError for `what` if there is none."""
    function = OPERATORS.find("", name)
    if function is None:
        raise UsageError(f"{what}: this operator is not supported")
    return function


def operator_names(prefix: str) -> list[str]:
    """The operators below a prefix such as "nn."; those without one for an empty prefix."""
    rest = (name[len(prefix) :] for _, name in OPERATORS if name.startswith(prefix))
    return sorted(name for name in rest if "." not in name)


def operator(name: str) -> Callable[..., Any]:
    """A function that makes calls of an operator.

    Operands come first, then attributes in TVM's order, or by name.  Raises UsageError for an
    operator that the frontend does not read.
    """
    import_function(f"relay.{name}", name)

    def call(*args: Any, **attrs: Any) -> Any:
        operands, more = divided(f"relay.{name}", name, RELAY, args, (Expr,))
        made = Call(name, [*map(_expr, operands)], {**more, **attrs})
        return made[0] if name == "nn.dropout" else made  # without the mask, as in TVM

    return call


class Namespace(SimpleNamespace):
    """Functions by name, such as `relay.nn`: those given, and for other names those of `make`."""

    def __init__(self, make: Callable[[str], Any], **own: Any) -> None:
        super().__init__(**own)
        self._make = make

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._make(name)


nn = Namespace(lambda name: operator(f"nn.{name}"))
image = Namespace(lambda name: operator(f"image.{name}"))
vision = Namespace(lambda name: operator(f"vision.{name}"))
qnn = SimpleNamespace(op=Namespace(lambda name: operator(f"qnn.{name}")))


def _free_vars(expr: Any) -> list[Var]:
    return [e for e in _in_order(_expr(expr)) if isinstance(e, Var)]


analysis = SimpleNamespace(free_vars=_free_vars)
"""`free_vars(expr)` lists the inputs that an expression reads, in order of their first use."""


def _in_order(root: Expr) -> list[Expr]:
    """All values below and including `root`, operands first."""
    done: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            done[node] = None
        elif node not in done:
            stack.append((node, True))
            inner = node.operands
            if isinstance(node, If):
                inner = (*inner, *_free_vars(node.true_branch), *_free_vars(node.false_branch))
            stack += [(o, False) for o in reversed(inner)]
    return [*done]


def text_of(function: Function) -> tuple[str, dict[str, np.ndarray]]:
    """The program in Relay's text, and the values of its constants, which are inputs there.

    Raises UsageError if two inputs have one name.
    """
    constants: dict[Constant, str] = {}
    body = _block(function.body, constants, _inputs(function))
    inputs = [p.declared for p in function.params]
    values = {name: c.data for c, name in constants.items()}
    inputs += [
        Var(name, a.shape, type_name(to_dtype(a.dtype.name))).declared for name, a in values.items()
    ]
    return f'#[version = "0.0.5"]\ndef @main({", ".join(inputs)}) {{\n{body}\n}}\n', values


def _inputs(function: Function) -> dict[Expr, str]:
    """The text of each input, those that the body reads included."""
    inputs = dict.fromkeys([*function.params, *_free_vars(function.body)])
    named = {v.name_hint: v for v in inputs}
    for v in inputs:
        if named[v.name_hint] is not v:
            raise UsageError(
                f"expected inputs of different names, found two relay.var({v.name_hint!r}); keep "
                "one and use it twice, or rename one"
            )
    return {v: f"%{name}" for name, v in named.items()}


def _block(root: Expr, constants: dict[Constant, str], known: Mapping[Expr, str]) -> str:
    """Numbered definitions, and the result."""
    names, lines = dict(known), []
    for e in _in_order(root):
        if e in names:
            continue
        text = _written(e, names, constants)
        if isinstance(e, (Call, If)) and e is not root:
            names[e] = f"%{len(names)}"
            lines.append(f"  {names[e]} = {text};")
        else:
            names[e] = text
    return "\n".join([*lines, f"  {names[root]}"])


def _written(e: Expr, names: Mapping[Expr, str], constants: dict[Constant, str]) -> str:
    match e:
        case Constant():
            if e not in constants:
                taken = {*names.values(), *(f"%{name}" for name in constants.values())}
                constants[e] = unique(f"%constant{len(constants)}", taken)[1:]
            return f"%{constants[e]}"
        case Tuple():
            return f"({', '.join(names[f] for f in e.fields)}{',' if len(e.fields) == 1 else ''})"
        case TupleGetItem():
            return f"{names[e.tuple_value]}.{e.index}"
        case If():
            branches = (_block(b, constants, names) for b in (e.true_branch, e.false_branch))
            first, second = (b.replace("\n", "\n  ") for b in branches)
            return f"if ({names[e.cond]}) {{\n{first}\n  }} else {{\n{second}\n  }}"
        case Call():
            parts = [names[a] for a in e.args]
            parts += [f"{k}={_attribute(v)}" for k, v in e.attrs.items() if v is not None]
            return f"{e.op}({', '.join(parts)})"
    raise UsageError(f"expected an expression of Relay, found {shown(e)}")


def _attribute(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_attribute, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return str(value)
    if isinstance(value, (float, np.floating)) and math.isfinite(value):
        return f"{float(value)!r}f64"
    raise UsageError(f"expected an attribute of finite numbers and texts, found {shown(value)}")
