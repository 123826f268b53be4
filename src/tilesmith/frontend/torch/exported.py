"""From an exported program of `torch.export` to a Graph."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.aten.importer import AtenImporter
from tilesmith.frontend.aten.node import AtenNode
from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.torch import fx
from tilesmith.frontend.torch.capture import captured
from tilesmith.frontend.torch.tensors import contents, element_type, memory_of
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.sizes import LARGEST
from tilesmith.support.errors import UnsupportedError
from tilesmith.support.foreign import is_exported_program, is_module


def recognises(source: Source) -> bool:
    return is_exported_program(source.model) or is_module(source.model)


def load(source: Source, given: Given) -> Graph:
    """The graph of an exported program (see `frontend.load`).  Its inputs are the tensors and sizes
    among the program's arguments, then the buffers that it writes; its outputs the tensors and
    sizes that it gives, then the new contents of buffers and arguments that it writes.
    """
    program = captured(source.model, None, None)
    with errors_name(type(program.graph_module).__name__ if not source.name else source.name):
        return _Reader(program, given).graph()


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of an exported program's calls."""
    return [(c.name, c.target) for c in fx.calls(captured(source.model, None, None).graph)]


@dataclass(frozen=True, slots=True)
class Signature:
    """How the arguments and results of a program are inputs and outputs of its graph.

    arguments: for each leaf of the program's arguments, the constant that it must be, as a list of
        one; None for a tensor or a size, which are inputs in order.
    written: the buffers that the program writes, which are the last inputs.
    results: for each leaf of its results, the constant that it is, as a list of one; "tensor", or
        "size" for a number.  The last two are outputs in order.
    new: where the last outputs are written: the name of a buffer, or the number of a leaf among the
        arguments.
    """

    arguments: tuple[list[Any] | None, ...]
    written: tuple[str, ...]
    results: tuple[list[Any] | str, ...]
    new: tuple[str | int, ...]


def signature(program: Any) -> Signature:
    """The signature of an exported program.  Raises UnsupportedError for arguments and results of
    other kinds than tensors, numbers and constants.
    """
    inputs, outputs = program.graph_signature.input_specs, program.graph_signature.output_specs
    users = [s for s in inputs if s.kind.name == "USER_INPUT"]
    new: list[str | int] = []
    results: list[list[Any] | str] = []
    for s in outputs:
        kind = s.kind.name
        if kind in ("USER_OUTPUT", "LOSS_OUTPUT"):
            results.append(_kind(s.arg))
        elif kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            new.append(s.target)
        elif kind == "USER_INPUT_MUTATION":
            new.append([u.arg.name for u in users].index(s.target))
        else:
            raise UnsupportedError(f"the program has an output of kind {kind}")
    arguments = tuple(k if isinstance(k := _kind(u.arg), list) else None for u in users)
    written = tuple(t for t in new if isinstance(t, str))
    return Signature(arguments, written, tuple(results), tuple(new))


def _kind(arg: Any) -> list[Any] | str:
    name = type(arg).__name__
    if name == "ConstantArgument":
        return [arg.value]
    if name in ("TensorArgument", "SymIntArgument", "SymFloatArgument", "SymBoolArgument"):
        return "tensor" if name == "TensorArgument" else "size"
    raise UnsupportedError(f"the program has an argument or a result of kind {name}")


class _Reader:
    """Reads one exported program."""

    def __init__(self, program: Any, given: Given) -> None:
        self._program, self._given = program, given
        self._builder = FoldingBuilder("main")
        self._importer = AtenImporter(self._builder)
        self._signature = signature(program)
        self._shared: dict[Any, Value] = {}
        self._meta = {n.name: n.meta.get("val") for n in program.graph.nodes}
        self._dims: dict[str, str] = {}
        self._hints: dict[str, int] = {}

    def graph(self) -> Graph:
        program, names = self._program, self._importer.names
        specs = program.graph_signature.input_specs
        self._parameters(specs)
        for name, tensor in fx.attributes(program.graph_module).items():
            names[name] = self._constant(tensor, name)
        self._inputs([s for s in specs if s.kind.name == "USER_INPUT"])
        self._written(specs)
        self._importer.run(fx.calls(program.graph))
        self._importer.check()
        results = fx.outputs(program.graph)
        return self._finished(results)

    def _parameters(self, specs: Any) -> None:
        state, constants = self._program.state_dict, self._program.constants
        for s in specs:
            kind, name = s.kind.name, s.arg.name
            if kind == "USER_INPUT" or s.target in self._signature.written:
                continue
            if kind not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                raise UnsupportedError(f"the program has an input {name!r} of kind {kind}")
            tensor = state[s.target] if s.target in state else constants[s.target]
            self._importer.names[name] = self._constant(tensor, s.target)

    def _constant(self, tensor: Any, name: str) -> Value:
        """A tensor of the module, in the module's memory; tied weights are one constant."""
        key = memory_of(tensor)
        if key not in self._shared:
            self._shared[key] = self._builder.constant(contents(tensor, name), name)
        return self._shared[key]

    def _inputs(self, specs: Any) -> None:
        declared = [d for s in specs if (d := self._declared(s.arg)) is not None]
        self._declare_ranges()
        values = fixed(declared, self._given.values)
        types = input_types(declared, self._given, values)
        for s in specs:
            name = s.arg.name
            if name in values:
                self._importer.names[name] = self._builder.constant(values[name])
            elif name in types:
                self._importer.names[name] = self._builder.input(name, types[name])
            else:
                self._importer.names[name] = s.arg.value

    def _declared(self, arg: Any) -> Declared | None:
        """An argument that is an input of the graph; None for a constant."""
        kind = _kind(arg)
        if isinstance(kind, list):
            return None
        held = self._meta[arg.name]
        if kind == "size":
            is_float = type(arg).__name__ == "SymFloatArgument"
            return Declared(arg.name, f64 if is_float else i64, ())
        dims = tuple(self._dim(d, f"{arg.name}.{a}") for a, d in enumerate(held.shape))
        return Declared(arg.name, element_type(held.dtype), dims)

    def _dim(self, size: Any, place: str) -> int | str:
        """A size as a number, or the name of a symbol: of its first place."""
        if isinstance(size, int):
            return size
        name = self._dims.setdefault(str(size), place)
        if size.node.has_hint():
            self._hints[name] = int(size.node.hint)
        return name

    def _declare_ranges(self) -> None:
        for symbol, found in self._program.range_constraints.items():
            name = self._dims.get(str(symbol))
            if name is not None:
                low, high = int(found.lower), LARGEST
                if not found.upper > LARGEST:
                    high = int(found.upper)
                self._given.symbols.declare(name, low, high, self._hints.get(name))

    def _written(self, specs: Any) -> None:
        """Buffers that the program writes are inputs."""
        state, constants = self._program.state_dict, self._program.constants
        for target in self._signature.written:
            s = next(s for s in specs if s.target == target)
            tensor = state[target] if target in state else constants[target]
            declared = Declared(target, element_type(tensor.dtype), tuple(tensor.shape))
            type_ = input_types([declared], Given(), {})[target]
            self._importer.names[s.arg.name] = self._builder.input(target, type_)

    def _finished(self, results: Any) -> Graph:
        specs = self._program.graph_signature.output_specs
        new, user = [], []
        for s, r in zip(specs, results, strict=True):
            kept = user if s.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT") else new
            if kept is new or not isinstance(_kind(s.arg), list):
                kept.append(self._importer.resolved(r))
        names = [n for n, k in zip(output_names(self._program), self._signature.results,
                                   strict=True) if not isinstance(k, list)]  # fmt: skip
        names += [f"new.{t}" for t in self._signature.new]
        values = [self._value(v) for v in (*user, *new)]
        return dce(self._builder.finish(values, names))

    def _value(self, result: Any) -> Value:
        """A result, which may be a number or a size, as a tensor."""
        return AtenNode(self._builder, "", "", "").tensor(result)


def output_names(program: Any) -> list[str]:
    """Names for the leaves of the results: by keys where these are strings, else by number."""
    pytree = sys.modules["torch"].utils._pytree
    spec = program.call_spec.out_spec
    count = spec.num_leaves
    tree = pytree.tree_unflatten(list(range(count)), spec)
    keyed, _ = pytree.tree_flatten_with_path(tree)
    names = []
    for path, number in keyed:
        keys = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path]
        is_named = any(not k.isdigit() for k in keys)
        names.append(".".join(keys) if is_named else "output" if count == 1 else f"output{number}")
    return names
