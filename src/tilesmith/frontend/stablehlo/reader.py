"""Import of a StableHLO module as a Graph, and facts about it."""

from __future__ import annotations

from collections import Counter

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.slots import Slot, kind_of
from tilesmith.frontend.common.source import Source
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.support.errors import ModelError, UnsupportedError

from .bytecode import MAGIC
from .exported import exported_module
from .importer import Part, StablehloImporter, contents
from .node import import_function
from .parse import parse
from .portable import parse_bytecode
from .syntax import CALLS, OPEN, RETURNS, Function, Module, Operation, Tensor, operations

_STRUCTURE = frozenset({*CALLS, *RETURNS, "while", "if", "case", "constant", "composite"})
"""Operations that the walk itself imports."""


def read(source: Source) -> Module:
    """The module in a file.  Raises ModelError, with a line or an offset, if it is damaged."""
    assert source.content is not None
    if source.content[: len(MAGIC)] == MAGIC:
        return parse_bytecode(source.content, "StableHLO bytecode")
    exported = exported_module(source.content)
    if exported is not None:
        return parse_bytecode(exported, "a file of jax.export with StableHLO bytecode")
    try:
        text = bytes(source.content).decode()
    except UnicodeDecodeError as e:
        raise ModelError(f"expected text: {e}") from None
    return parse(text)


def load(source: Source, given: Given) -> Graph:
    """The graph of a module's function @main."""
    with errors_name(source.name):
        return _graph(read(source), given)


def main_of(module: Module) -> Function:
    """The function @main, or the only one."""
    if "main" in module.functions:
        return module.functions["main"]
    if len(module.functions) != 1:
        names = ", ".join(module.functions) or "none"
        raise ModelError(f"expected a function @main, found {names}")
    return next(iter(module.functions.values()))


def declared(function: Function) -> list[Declared]:
    """The inputs of a function."""
    inputs = []
    for name, type_ in function.body.arguments:
        if not isinstance(type_, Tensor):
            raise UnsupportedError(f"input {name}: a value of type {type_}")
        dims = None if type_.dims is None else tuple("" if d == OPEN else d for d in type_.dims)
        inputs.append(Declared(name.lstrip("%"), type_.dtype, dims))
    return inputs


def _graph(module: Module, given: Given) -> Graph:
    main = main_of(module)
    builder = FoldingBuilder(main.name, given.for_training)
    importer = StablehloImporter(builder, module, given.weights)
    inputs = declared(main)
    values = fixed(inputs, given.values)
    types = input_types(inputs, given, values)
    arguments: list[Slot] = [
        builder.constant(values[d.name])
        if d.name in values
        else builder.input(d.name, types[d.name])
        for d in inputs
    ]
    results = importer.results(Part(main.body, None), arguments)
    importer.check()
    made = []
    for r in results:
        if not isinstance(r, Value):
            raise ModelError(f"@{main.name}: expected tensors as results, found {kind_of(r)}")
        made.append(r)
    if not made:
        raise ModelError("expected at least one output, found none")
    return dce(builder.finish(made, output_names(len(made), {d.name for d in inputs})))


def output_names(count: int, taken: set[str]) -> list[str]:
    """Names for outputs, since outputs have no names in a module."""
    names = ["output"] if count == 1 else [f"output{i}" for i in range(count)]
    return [f"{n}_" if n in taken else n for n in names]


def _all(module: Module) -> list[Operation]:
    return [o for f in module.functions.values() for o in operations(f.body)]


def nodes(source: Source) -> list[tuple[str, str]]:
    """The places and names of a module's operations."""
    with errors_name(source.name):
        return [(o.place, o.name) for o in _all(read(source)) if o.name not in RETURNS]


def inspect(source: Source) -> Inspection:
    """Facts about a module."""
    module = read(source)
    main = main_of(module)
    calls = [o for o in _all(module) if o.name not in (*RETURNS, "constant")]
    stored = (contents(o) for o in _all(module) if o.name == "constant")
    types = {f"%{d.name}": t for d, (_, t) in zip(declared(main), main.body.arguments, strict=True)}
    names = output_names(len(main.types), {n.lstrip("%") for n in types})
    return Inspection(
        module.format,
        module.producer,
        {n.lstrip("%"): str(t) for n, t in types.items()},
        {n: str(t) for n, t in zip(names, main.types, strict=True)},
        Counter(o.name for o in calls),
        frozenset(
            o.name for o in calls if o.name not in _STRUCTURE and import_function(o.name) is None
        ),
        sum(a.nbytes for a in stored if a is not None),
        {"functions": [*module.functions]} if len(module.functions) > 1 else {},
    )
