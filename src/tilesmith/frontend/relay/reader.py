"""Import of a Relay program as a Graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields

import numpy as np

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given, fixed, input_types
from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.slots import kind_of
from tilesmith.frontend.common.source import Source
from tilesmith.graph.nodes import Graph, Value
from tilesmith.graph.passes.dce import dce
from tilesmith.ir.dtypes import f32
from tilesmith.support.errors import ModelError, ParseError

from . import is_nnvm
from . import syntax as sx
from .importer import RelayImporter, Scope, built, flat
from .nnvm import read_nnvm
from .node import OPERATORS
from .parse import METADATA, parse
from .tensors import read_constants, read_parameters


def read(source: Source) -> sx.Module:
    """The program in a file.  Raises ModelError, with line and column, if it is no program."""
    assert source.content is not None
    if is_nnvm(source.content):
        return read_nnvm(source.content)
    try:
        text = bytes(source.content).decode()
        divided = METADATA.search(text)
        program = text if divided is None else text[: divided.start()]
        constants = None if divided is None else read_constants(text[divided.end() :])
        return parse(program, constants)
    except (ParseError, UnicodeDecodeError) as e:
        raise ModelError(str(e)) from None


def parameters_of(source: Source) -> dict[str, np.ndarray]:
    """The arrays in the file of parameters beside a program; empty without such a file."""
    content = source.companion(".params")
    return {} if content is None else read_parameters(content)


def load(source: Source, given: Given) -> Graph:
    """The graph of a program's function @main."""
    with errors_name(source.name):
        return _graph(read(source), parameters_of(source), given)


def _graph(module: sx.Module, stored: Mapping[str, np.ndarray], given: Given) -> Graph:
    main = module.functions["main"]
    builder = FoldingBuilder("main", given.for_training)
    importer = RelayImporter(builder, module, given.weights)
    declared = {d.name: d for name, t in main.parameters for d in _declared(name, t, stored)}
    values = fixed([*declared.values()], given.values)
    types = input_types([*declared.values()], given, values)
    scope = Scope()
    for name, type_ in main.parameters:
        if name in stored:
            literal = sx.Literal(_checked(name, stored[name], type_), name)
            scope.names[name] = importer.evaluate(literal, scope)
            continue
        items: list[Value] = []
        for d in _declared(name, type_, stored):
            known = d.name in values
            items.append(
                builder.constant(values[d.name]) if known else builder.input(d.name, types[d.name])
            )
        scope.names[name] = built(type_ if isinstance(type_, tuple) else None, iter(items))
    results = flat(importer.evaluate(main.body, scope))
    importer.check()
    for r in results:
        if not isinstance(r, Value):
            raise ModelError(f"@main: expected tensors as results, found {kind_of(r)}")
    if not results:
        raise ModelError("expected at least one output, found none")
    return dce(builder.finish(results, _output_names(len(results), {*declared})))


def _output_names(count: int, taken: set[str]) -> list[str]:
    names = ["output"] if count == 1 else [f"output{i}" for i in range(count)]
    return [f"{n}_" if n in taken else n for n in names]


def _declared(
    name: str, type_: sx.Type, stored: Mapping[str, np.ndarray] = {}
) -> Iterator[Declared]:
    """The inputs for a parameter of @main: one, several for a tuple, none if `stored` has it."""
    if name in stored:
        return
    if isinstance(type_, tuple):
        for i, t in enumerate(type_):
            yield from _declared(f"{name}.{i}", t)
    elif type_ is None:
        yield Declared(name, f32, None)
    else:
        yield Declared(name, type_.dtype, type_.dims)


def _checked(name: str, array: np.ndarray, type_: sx.Type) -> np.ndarray:
    """`array` as the contents of a parameter.  Raises ModelError if its type is not `type_`."""
    if isinstance(type_, sx.Tensor):
        fits = len(type_.dims) == array.ndim and array.dtype == type_.dtype.numpy
        if not fits or any(isinstance(d, int) and d != n for d, n in zip(type_.dims, array.shape)):
            raise ModelError(
                f"parameter {name!r}: expected {type_.dtype}{list(type_.dims)}, found "
                f"{array.dtype} {list(array.shape)}"
            )
    return array


# Listings


def _parts(part: object) -> Iterator[object]:
    """A part of a program, then all parts inside it, in order."""
    yield part
    inner = part if isinstance(part, tuple) else ()
    if type(part).__module__ == sx.__name__:
        inner = tuple(getattr(part, f.name) for f in fields(part))  # type: ignore[arg-type]
    for i in inner:
        yield from _parts(i)


def _operators(module: sx.Module) -> list[tuple[str, str]]:
    parts = (p for f in module.functions.values() for p in _parts(f.body))
    calls = [p for p in parts if isinstance(p, sx.Call)]
    return [(f"line {c.line}", c.callee.name) for c in calls if isinstance(c.callee, sx.Operator)]


def nodes(source: Source) -> list[tuple[str, str]]:
    """The lines and operators of a program's calls."""
    with errors_name(source.name):
        return _operators(read(source))


def inspect(source: Source) -> Inspection:
    """Facts about a program."""
    module, stored = read(source), parameters_of(source)
    main = module.functions["main"]
    operators = Counter(name for _, name in _operators(module))
    literals = [p for f in module.functions.values() for p in _parts(f.body)]
    size = sum(p.array.nbytes for p in literals if isinstance(p, sx.Literal) and p.name)
    inputs = [d for name, t in main.parameters for d in _declared(name, t, stored)]
    return Inspection(
        module.format,
        "",
        {d.name: _shown(d) for d in inputs},
        {},
        operators,
        frozenset(o for o in operators if OPERATORS.find("", o) is None),
        size + sum(a.nbytes for a in stored.values()),
        {"functions": [*module.functions]} if len(module.functions) > 1 else {},
    )


def _shown(d: Declared) -> str:
    if d.dims is None:
        return f"{d.dtype} of unknown rank"
    return f"{d.dtype}[{','.join(str(n) if n != '' else '?' for n in d.dims)}]"
