"""Expansion of calls without an import function into the calls of PyTorch's decomposition.

`torch.export` decomposes whole modules (`capture.py`).  That is impossible for a file saved before
decomposition, since PyTorch would run pickled code to load it.  Here PyTorch gets one call at a
time, on tensors without contents.  PyTorch sees the operator, the arguments and the types of
tensors: nothing that could run code of the file.

Only composite operators are called, since PyTorch's other operators may do anything: read files,
draw numbers.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

from tilesmith.frontend.aten.exported import Range
from tilesmith.frontend.aten.functional import written_by
from tilesmith.frontend.aten.program import Call, Ref, names_in
from tilesmith.frontend.aten.tensors import torch_name
from tilesmith.frontend.torch import fx
from tilesmith.frontend.torch.capture import TRACING, decompositions
from tilesmith.ir.dtypes import DType
from tilesmith.ir.sizes import LARGEST
from tilesmith.support.logs import logger

_log = logger("compile")

Size = int | str
"""A number, or an expression as SymPy's `srepr` writes it."""

_MOST_CALLS = 2_000
"""Upper bound on the calls that one call may become."""

_LARGEST_NUMBER = 1 << 24
"""Upper bound on integer arguments, since one may be the number of tensors in a list."""


@dataclass(frozen=True, slots=True)
class Traced:
    """The tensor or number that a name of the program stands for during tracing.

    sizes: sizes of a tensor; None for a number.
    strides: strides of a tensor.
    dtype: element type of a tensor.
    value: value of a number.
    """

    sizes: tuple[Size, ...] | None = None
    strides: tuple[Size, ...] = ()
    dtype: DType | None = None
    value: Size = 0


class _RefusedError(Exception):
    """A call that can't be expanded.  It stays unchanged."""


class Expansion:
    """Expands calls of one program.

    ranges: ranges of the program's symbols, by name.
    hints: values of symbols in the example, by name.
    guards: collects the conditions on symbols under which the new calls are valid.

    Raises ImportError where PyTorch is missing.
    """

    def __init__(
        self, ranges: Mapping[str, Range], hints: Mapping[str, int], guards: list[str]
    ) -> None:
        self._torch = import_module("torch")
        self._guards = guards
        self._ranges, self._hints = ranges, hints
        symbolic = import_module("torch.fx.experimental.symbolic_shapes")
        fake = import_module("torch._subclasses.fake_tensor")
        self._env: Any = symbolic.ShapeEnv()
        self._mode: Any = fake.FakeTensorMode(shape_env=self._env)
        self._symbols: dict[str, Any] = {}
        self._known: dict[Any, tuple[list[Call], Any]] = {}

    def of(self, call: Call, traced: Mapping[str, Traced]) -> list[Call]:
        """The calls to which PyTorch decomposes `call`; `call` alone if PyTorch has no
        decomposition.

        traced: the meanings of the names in the call's arguments.
        """
        target = written_by(call) or call.target
        operator = self._operator(target)
        if operator is None:
            return [call]
        names = list(dict.fromkeys(names_in([*call.args, *call.kwargs.values()])))
        try:
            meanings = [traced[name] for name in names]
            calls, results = self._expanded(operator, call, names, meanings)
        except Exception as e:  # tracing may raise anything; the importer then refuses the call
            _log.info("PyTorch can't take %s apart: %s: %s", target, type(e).__name__, e)
            return [call]
        renaming = {f"{i}": name for i, name in enumerate(names)}
        calls = [_renamed(c, renaming, call) for c in calls]
        results = [_argument(r, renaming, call.name) for r in results]
        if target != call.target:  # `call` writes the result to its first argument
            put = Call("aten.copy_.default", [call.args[0], results[0]], {}, call.name, call.where)
            return [*calls, put]
        wanted = (call.results,) if isinstance(call.results, str) else call.results
        if len(results) < len(wanted):
            return [call]
        ends = [
            Call("aten.alias.default", [r], {}, name, call.where)
            for r, name in zip(results, wanted, strict=False)
            if name
        ]
        return [*calls, *ends]

    def _operator(self, target: str) -> Any:
        """The operator `target` if PyTorch composes it of other operators; else None."""
        parts = target.split(".")
        if len(parts) != 3 or not all(p.isidentifier() for p in parts):
            return None
        operator: Any = self._torch.ops
        for part in parts:
            operator = getattr(operator, part, None)
        if operator is None or not isinstance(operator, self._torch._ops.OpOverload):
            return None
        schema = operator._schema
        gives = bool(schema.returns) and all("Tensor" in str(r.type) for r in schema.returns)
        if not gives or schema.is_mutable:
            return None
        return operator if operator in _table() or _is_composed(operator) else None

    def _expanded(
        self, operator: Any, call: Call, names: Sequence[str], given: Sequence[Traced]
    ) -> tuple[list[Call], list[Any]]:
        """The calls into which `operator` expands, and results.  Inputs have numbers as names."""
        numbers = {name: i for i, name in enumerate(names)}
        args = [_argument_key(a, numbers) for a in call.args]
        kwargs = {name: _argument_key(a, numbers) for name, a in call.kwargs.items()}
        key = repr((str(operator), args, kwargs, given))
        if key not in self._known:
            self._known[key] = self._trace(operator, args, kwargs, given)
        return self._known[key]

    def _trace(
        self, operator: Any, args: list[Any], kwargs: dict[str, Any], given: Sequence[Traced]
    ) -> tuple[list[Call], list[Any]]:
        torch = self._torch
        aot = import_module("torch._functorch.aot_autograd")
        python = import_module("torch._dispatch.python").enable_python_dispatcher

        class Called(torch.nn.Module):
            def forward(self, *tensors: Any) -> tuple[Any, ...]:
                results = operator(
                    *(actual(a, tensors) for a in args),
                    **{name: actual(a, tensors) for name, a in kwargs.items()},
                )
                return tuple(torch.utils._pytree.tree_leaves(results))

        actual, guards = self._actual, len(self._env.guards)
        with TRACING, self._mode, torch.no_grad(), python(), _limit():
            # These symbols belong to the inputs: no call of the trace defines them.
            with self._env.ignore_fresh_unbacked_symbols():
                inputs = [self._input(t) for t in given]
            module, signature = aot.aot_export_module(
                Called(), inputs, decompositions=_table(), trace_joint=False, dynamic_shapes=True
            )
        self._guards += [self._text(g.expr) for g in self._env.guards[guards:]]
        names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        renaming = {name: str(i) for i, name in enumerate(names)}
        results = [_argument(r, renaming, "") for r in fx.outputs(module.graph)]
        written = list(signature.user_inputs_to_mutate.values())
        puts = [
            Call("aten.copy_.default", [Ref(renaming[name]), new], {}, f"put{i}")
            for i, (name, new) in enumerate(zip(written, results, strict=False))
        ]
        calls = [
            replace(
                c,
                args=[_argument(a, renaming, "") for a in c.args],
                kwargs={k: _argument(a, renaming, "") for k, a in c.kwargs.items()},
            )
            for c in (*_constants(module), *fx.calls(module.graph))
        ]
        return [*calls, *puts], results[len(written) :]

    def _actual(self, given: Any, tensors: Sequence[Any]) -> Any:
        """An argument in PyTorch's types."""
        if isinstance(given, Ref):
            return tensors[int(given.name)]
        if isinstance(given, (list, tuple)):
            return [self._actual(a, tensors) for a in given]
        if isinstance(given, DType):
            return getattr(self._torch, torch_name(given))
        if isinstance(given, str) and given.startswith("torch."):
            return getattr(self._torch, given.removeprefix("torch."))
        if isinstance(given, int) and abs(given) > _LARGEST_NUMBER:
            raise _RefusedError("a number that is too large")
        return given

    def _input(self, given: Traced) -> Any:
        if given.sizes is None:
            return self._size(given.value)
        assert given.dtype is not None
        sizes, strides = ([self._size(s) for s in v] for v in (given.sizes, given.strides))
        dtype = getattr(self._torch, torch_name(given.dtype))
        return self._torch.empty_strided(sizes, strides, dtype=dtype)

    def _text(self, guard: Any) -> str:
        """A guard as a condition in Python's notation."""
        sympy = import_module("sympy")
        names = {size.node.expr: sympy.Symbol(name) for name, size in self._symbols.items()}
        if not guard.free_symbols <= names.keys():
            raise _RefusedError("it holds for some data only")
        printer = import_module("torch.utils._sympy.printers").PythonPrinter()
        return printer.doprint(guard.xreplace(names))

    def _size(self, size: Size) -> Any:
        return size if isinstance(size, int) else self._evaluated(ast.parse(size, mode="eval").body)

    def _evaluated(self, node: ast.expr) -> Any:
        """The symbolic number for an expression of SymPy."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise _RefusedError("an expression of another form")
        name = node.func.id
        if name in ("Symbol", "Integer"):
            match node.args, name:
                case [ast.Constant(value=str(text))], "Symbol":
                    return self._symbol(text)
                case [ast.Constant(value=int(number))], "Integer":
                    return number
                case [ast.UnaryOp(ast.USub(), ast.Constant(value=int(number)))], "Integer":
                    return -number
        if name not in _FUNCTIONS or not node.args:
            raise _RefusedError(f"the function {name} of sizes")
        return _FUNCTIONS[name](self._torch, [self._evaluated(a) for a in node.args])

    def _symbol(self, name: str) -> Any:
        if name in self._symbols:
            return self._symbols[name]
        symbolic = import_module("torch.fx.experimental.symbolic_shapes")
        source = import_module("torch._dynamo.source").ConstantSource(name)
        bounds, hint = self._ranges.get(name, Range(0, None)), self._hints.get(name)
        high = LARGEST if bounds.high is None else bounds.high
        if hint is None:
            size = self._env.create_unbacked_symint()
            symbolic._constrain_range_for_size(size, bounds.low, high)
        else:
            symbol = self._env.create_symbol(
                hint, source, symbolic.DimDynamic.DYNAMIC, do_not_specialize_zero_one=True
            )
            size = self._env.create_symintnode(symbol, hint=hint, source=source)
            # PyTorch assumes that an open size is neither 0 nor 1, even for a whole program.
            symbolic.constrain_range(size, min=min(max(bounds.low, 2), high), max=high)
        self._symbols[name] = size
        return size


def _power(torch: Any, given: Sequence[Any]) -> Any:
    base, exponent = given
    if not isinstance(exponent, int) or not 0 <= exponent <= 8:
        raise _RefusedError("a power")
    return math.prod([base] * exponent)


def _folded(name: str) -> Callable[[Any, Sequence[Any]], Any]:
    def fold(torch: Any, given: Sequence[Any]) -> Any:
        total = given[0]
        for g in given[1:]:
            total = getattr(torch, name)(total, g)
        return total

    return fold


def _quotient(torch: Any, given: Sequence[Any]) -> Any:
    a, b = given
    return a // b


def _remainder(torch: Any, given: Sequence[Any]) -> Any:
    a, b = given
    return a % b


_FUNCTIONS: Mapping[str, Callable[[Any, Sequence[Any]], Any]] = {
    "Add": lambda torch, given: sum(given),
    "Mul": lambda torch, given: math.prod(given),
    "Pow": _power,
    "FloorDiv": _quotient,
    "CleanDiv": _quotient,
    "Mod": _remainder,
    "PythonMod": _remainder,
    "Max": _folded("sym_max"),
    "Min": _folded("sym_min"),
}
"""SymPy's functions of sizes, by name."""


@cache
def _table() -> Any:
    return decompositions().materialize()


def _is_composed(operator: Any) -> bool:
    """Whether PyTorch's own kernel of an operator calls other operators and does nothing else."""
    torch = import_module("torch")
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        operator.name(), "CompositeImplicitAutograd"
    )


def _limit() -> Any:
    """A context that ends a trace with too many calls.  Numbers in a file may ask for billions of
    calls.
    """
    mode = import_module("torch.utils._python_dispatch").TorchDispatchMode
    count = 0

    class Limit(mode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal count
            count += 1
            if count > _MOST_CALLS:
                raise _RefusedError("it becomes too many calls")
            return func(*args, **(kwargs or {}))

    return Limit()


def _constants(module: Any) -> Iterator[Call]:
    """Calls that make the constant tensors that a decomposition contains."""
    for name, tensor in fx.attributes(module).items():
        if tensor.numel() != 1:
            raise _RefusedError("a constant of many elements")
        dtype = fx.argument(tensor.dtype)
        yield Call("aten.full.default", [list(tensor.shape), tensor.item()], {"dtype": dtype}, name)


def _argument_key(given: Any, numbers: Mapping[str, int]) -> Any:
    """An argument in which the inputs' numbers replace their names."""
    if isinstance(given, Ref):
        return Ref(str(numbers[given.name]))
    if isinstance(given, (list, tuple)):
        return [_argument_key(g, numbers) for g in given]
    return given


def _argument(given: Any, renaming: Mapping[str, str], prefix: str) -> Any:
    if isinstance(given, Ref):
        return Ref(_name(given.name, renaming, prefix))
    if isinstance(given, (list, tuple)):
        return [_argument(g, renaming, prefix) for g in given]
    return given


def _name(name: str, renaming: Mapping[str, str], prefix: str) -> str:
    return renaming.get(name, f"{prefix}/{name}" if prefix else name)


def _renamed(call: Call, renaming: Mapping[str, str], of: Call) -> Call:
    return replace(
        call,
        args=[_argument(a, renaming, of.name) for a in call.args],
        kwargs={name: _argument(a, renaming, of.name) for name, a in call.kwargs.items()},
        results=_name(call.name, renaming, of.name),
        where=of.where,
    )
