"""The program in an archive of `torch.export`: `models/NAME.json`, read by PyTorch's schema
(`torch/_export/serde/schema.py`) without PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesmith.frontend.archive.arguments import argument
from tilesmith.frontend.archive.calls import CallGraph, current_of
from tilesmith.frontend.archive.composites import Composites
from tilesmith.frontend.archive.files import Archive
from tilesmith.frontend.archive.json_values import Json
from tilesmith.frontend.archive.kept import Kept
from tilesmith.frontend.archive.tree import Tree, Trees
from tilesmith.frontend.archive.weights import dtype_of, weights_of
from tilesmith.frontend.aten.exported import Exported, Input, Kind, Output, Range
from tilesmith.frontend.aten.program import Ref, needed
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.sizes import LARGEST
from tilesmith.support.cache import Cache
from tilesmith.support.errors import UnsupportedError

_SCHEMA = 8
"""The supported major version of the schema.  Minor versions are compatible."""

_SYMBOL = re.compile(r"Symbol\('([A-Za-z_][A-Za-z0-9_]*)'[^()]*\)")


def exported_of(archive: Archive, cache: Cache | None = None) -> Exported:
    """The program in an archive.

    cache: keeps PyTorch's decompositions of calls in the archive.

    Raises ModelError for an archive that is damaged or inconsistent, UnsupportedError for one of
    another version or kind.
    """
    name = _model_of(archive)
    program = archive.json(f"models/{name}.json")
    version = program["schema_version"]["major"].integer()
    if version != _SCHEMA:
        raise UnsupportedError(
            f"{archive.name}: expected version {_SCHEMA} of the schema of torch.export, found "
            f"{version}; save it again with PyTorch 2.13"
        )
    module = program["graph_module"]
    graph, specs = module["graph"], module["signature"]
    inputs = [_input(s, graph) for s in specs["input_specs"].list()]
    ranges = {symbol: _range(r) for symbol, r in program["range_constraints"].items()}
    hints, guards = dict(_hints(graph)), _guards(program)
    kept = Kept.of(cache, archive.bytes(f"models/{name}.json").tobytes())
    composites = Composites(ranges, hints, guards, kept)
    rewritten = CallGraph(graph, composites).functional()
    composites.keep()
    users = [i.name for i in inputs if i.weight is None]
    outputs = [_output(s, users) for s in specs["output_specs"].list()]
    outputs = [Output(o.kind, current_of(o.value, rewritten.current), o.written) for o in outputs]
    outputs += [
        Output("tensor", Ref(end), users.index(i.name) if i.weight is None else i.weight)
        for i in inputs
        if i.kind == "tensor" and (end := rewritten.current(i.name)) != i.name
    ]
    outputs.sort(key=lambda o: o.written is not None)
    weights = {i.weight for i in inputs if i.weight is not None}
    strange = [
        o.written for o in outputs if isinstance(o.written, str) and o.written not in weights
    ]
    if strange:
        specs.bad(f"a buffer {strange[0]!r} among the inputs, since the program writes it")
    structure = _structure(module)
    results = sum(o.written is None for o in outputs)
    if len(structure.names()) != results:
        module.bad(f"a tree of {results} results")
    return Exported(
        archive.name,
        inputs,
        outputs,
        weights_of(archive, name, weights),
        _state(specs),
        ranges,
        hints,
        structure,
        lambda: needed(rewritten.calls, [o.value for o in outputs]),
        guards,
    )


def _guards(program: Json) -> list[str]:
    guards = program.get("guards_code")  # some minor versions have no guards
    return [] if guards is None else [g.text() for g in guards.list()]


def nodes_of(archive: Archive) -> list[tuple[str, str]]:
    """The names and operators of the program's calls."""
    graph = archive.json(f"models/{_model_of(archive)}.json")["graph_module"]["graph"]
    return [(c.name, c.target) for c in CallGraph(graph, Composites({}, {}, [])).calls()]


def _model_of(archive: Archive) -> str:
    """The name of the only model in an archive."""
    models = [n[7:-5] for n in archive.names if re.fullmatch(r"models/[^/]+\.json", n)]
    if len(models) == 1:
        return models[0]
    if models:
        raise UnsupportedError(
            f"{archive.name}: expected an archive with one model, found {', '.join(models)}; save "
            "each in an archive of its own"
        )
    if "serialized_exported_program.json" in archive:
        raise UnsupportedError(
            f"{archive.name} was saved by a PyTorch before 2.8, with pickled weights; load it with "
            "torch.export.load and save it again with PyTorch 2.13"
        )
    if "constants.pkl" in archive:
        raise UnsupportedError(
            f"{archive.name} is TorchScript, whose arguments have no types; give example inputs: "
            "compile(path, (x,))"
        )
    raise UnsupportedError(
        f"{archive.name}: expected an archive that torch.export.save has written, found a ZIP file "
        f"without models/*.json: {', '.join(archive.names[:4]) or 'an empty one'}"
    )


def _structure(module: Json) -> Trees:
    for entry in module["module_call_graph"].list():
        if entry["fqn"].text() == "" and (signature := entry.get("signature")) is not None:
            named = signature.get("forward_arg_names")
            names = tuple(n.text() for n in named.list()) if named is not None else ()
            trees = Trees(Tree.of(signature["in_spec"]), Tree.of(signature["out_spec"]), names)
            if [p.kind for p in trees.arguments.parts] != [tuple, dict]:
                signature["in_spec"].bad("a tuple of arguments and a dict of others")
            return trees
    return module["module_call_graph"].bad("the call of the whole module")


def _input(spec: Json, graph: Json) -> Input:
    kind, fields_of = spec.one()
    weights = {
        "parameter": "parameter_name",
        "buffer": "buffer_name",
        "tensor_constant": "tensor_constant_name",
    }
    if kind in weights:
        return Input(fields_of["arg"]["name"].text(), weight=fields_of[weights[kind]].text())
    if kind == "constant_input":
        return Input(fields_of["name"].text(), "constant", value=argument(fields_of["value"]))
    if kind != "user_input":
        raise UnsupportedError(f"{spec.place}: the program has an input of kind {kind!r}")
    value = argument(fields_of["arg"])
    if not isinstance(value, Ref):
        return Input("", "constant", value=value)
    form, _ = fields_of["arg"].one()
    if form != "as_tensor":
        return Input(value.name, "size", f64 if form == "as_sym_float" else i64)
    meta = graph["tensor_values"][value.name]
    dims = tuple(_dim(d) for d in meta["sizes"].list())
    return Input(value.name, "tensor", dtype_of(meta["dtype"]), dims)


def _state(specs: Json) -> list[str]:
    """The names of parameters and persistent buffers."""
    names = []
    for kind, fields_of in (s.one() for s in specs["input_specs"].list()):
        if kind == "parameter":
            names.append(fields_of["parameter_name"].text())
        elif kind == "buffer" and fields_of["persistent"].boolean():
            names.append(fields_of["buffer_name"].text())
    return names


def _output(spec: Json, users: list[str]) -> Output:
    form, fields_of = spec.one()
    if form in ("user_output", "loss_output"):
        arg = fields_of["arg"]
        value = argument(arg) if form == "user_output" else Ref(arg["name"].text())
        kind: Kind = "constant"
        if isinstance(value, Ref):
            is_tensor = form == "loss_output" or arg.one()[0] == "as_tensor"
            kind = "tensor" if is_tensor else "size"
        return Output(kind, value)
    places = {
        "buffer_mutation": "buffer_name",
        "parameter_mutation": "parameter_name",
        "user_input_mutation": "user_input_name",
    }
    if form not in places:
        raise UnsupportedError(f"{spec.place}: the program has an output of kind {form!r}")
    target: str | int = fields_of[places[form]].text()
    if form == "user_input_mutation":
        if target not in users:
            fields_of.bad("the name of an input")
        target = users.index(target)
    return Output("tensor", Ref(fields_of["arg"]["name"].text()), target)


def _dim(size: Json) -> int | str:
    form, extent = size.one()
    if form == "as_int":
        return extent.integer(0)
    text = extent["expr_str"].text()
    symbol = _SYMBOL.fullmatch(text)
    return text if symbol is None else symbol[1]


def _hints(graph: Json) -> Iterator[tuple[str, int]]:
    for meta in graph["tensor_values"].values():
        for size in meta["sizes"].list():
            text = _dim(size)
            if isinstance(text, str) and (hint := size["as_expr"].get("hint")) is not None:
                yield text, hint["as_int"].integer(0)


def _range(found: Json) -> Range:
    low, high = found.get("min_val"), found.get("max_val")
    least = 0 if low is None else low.integer(-(1 << 63))
    most = None if high is None else high.integer(least)
    if least > LARGEST:
        found.bad(f"a smallest size up to {LARGEST}")
    return Range(max(least, 0), most)
