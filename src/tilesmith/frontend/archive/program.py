"""The program in an archive of `torch.export`: `models/NAME.json`, read by PyTorch's schema
(`torch/_export/serde/schema.py`) without PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilesmith.frontend.archive.composites import expanded
from tilesmith.frontend.archive.files import Archive
from tilesmith.frontend.archive.json_values import Json
from tilesmith.frontend.archive.tree import Tree, Trees
from tilesmith.frontend.archive.weights import dtype_of, weights_of
from tilesmith.frontend.aten.exported import Exported, Input, Kind, Output, Range
from tilesmith.frontend.aten.functional import functional
from tilesmith.frontend.aten.places import line_of
from tilesmith.frontend.aten.program import Call, Ref, needed
from tilesmith.ir.dtypes import f64, i64
from tilesmith.ir.sizes import LARGEST
from tilesmith.support.errors import UnsupportedError

_SCHEMA = 8
"""The major version of the schema that is read; minor ones are compatible."""

_SYMBOL = re.compile(r"Symbol\('([A-Za-z_][A-Za-z0-9_]*)'[^()]*\)")

_DEEPEST = 16
"""Most graphs inside one another."""


def exported_of(archive: Archive) -> Exported:
    """The program in an archive.

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
    hints, traced = dict(_hints(graph)), {}
    rewritten = functional(expanded(_Graph(graph, traced=traced).calls(), traced, ranges, hints))
    users = [i.name for i in inputs if i.weight is None]
    outputs = [_output(s, users) for s in specs["output_specs"].list()]
    outputs = [Output(o.kind, _current(o.value, rewritten.current), o.written) for o in outputs]
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
    )


def nodes_of(archive: Archive) -> list[tuple[str, str]]:
    """The names and operators of the program's calls."""
    graph = archive.json(f"models/{_model_of(archive)}.json")["graph_module"]["graph"]
    return [(c.name, c.target) for c in _Graph(graph).calls()]


def _model_of(archive: Archive) -> str:
    """The name of the one model in an archive."""
    found = [n[7:-5] for n in archive.names if re.fullmatch(r"models/[^/]+\.json", n)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnsupportedError(
            f"{archive.name}: expected an archive with one model, found {', '.join(found)}; save "
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
            trees = Trees(Tree.of(signature["in_spec"]), Tree.of(signature["out_spec"]))
            if [p.kind for p in trees.arguments.parts] != [tuple, dict]:
                signature["in_spec"].bad("a tuple of arguments and a dict of others")
            return trees
    return module["module_call_graph"].bad("the call of the whole module")


def _input(spec: Json, graph: Json) -> Input:
    kind, given = spec.one()
    weights = {
        "parameter": "parameter_name",
        "buffer": "buffer_name",
        "tensor_constant": "tensor_constant_name",
    }
    if kind in weights:
        return Input(given["arg"]["name"].text(), weight=given[weights[kind]].text())
    if kind == "constant_input":
        return Input(given["name"].text(), "constant", value=_argument(given["value"]))
    if kind != "user_input":
        raise UnsupportedError(f"{spec.place}: the program has an input of kind {kind!r}")
    found = _argument(given["arg"])
    if not isinstance(found, Ref):
        return Input("", "constant", value=found)
    form, _ = given["arg"].one()
    if form != "as_tensor":
        return Input(found.name, "size", f64 if form == "as_sym_float" else i64)
    meta = graph["tensor_values"][found.name]
    dims = tuple(_dim(d) for d in meta["sizes"].list())
    return Input(found.name, "tensor", dtype_of(meta["dtype"]), dims)


def _state(specs: Json) -> list[str]:
    """The names of parameters and persistent buffers."""
    found = []
    for kind, given in (s.one() for s in specs["input_specs"].list()):
        if kind == "parameter":
            found.append(given["parameter_name"].text())
        elif kind == "buffer" and given["persistent"].boolean():
            found.append(given["buffer_name"].text())
    return found


def _output(spec: Json, users: list[str]) -> Output:
    form, given = spec.one()
    if form in ("user_output", "loss_output"):
        arg = given["arg"]
        value = _argument(arg) if form == "user_output" else Ref(arg["name"].text())
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
    target: str | int = given[places[form]].text()
    if form == "user_input_mutation":
        if target not in users:
            given.bad("the name of an input")
        target = users.index(target)
    return Output("tensor", Ref(given["arg"]["name"].text()), target)


def _current(value: Any, current: Any) -> Any:
    return Ref(current(value.name)) if isinstance(value, Ref) else value


def _dim(size: Json) -> int | str:
    form, found = size.one()
    if form == "as_int":
        return found.integer(0)
    text = found["expr_str"].text()
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


_TEXTS = {
    "as_memory_format": ["", "contiguous_format", "channels_last", "channels_last_3d",
                         "preserve_format"],
    "as_layout": ["", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc",
                  "_mkldnn", "strided"],
}  # fmt: skip
"""PyTorch's names by their numbers in the schema."""


def _argument(given: Json) -> Any:
    """An argument without PyTorch's types, as `frontend.torch.fx` gives it."""
    form, found = given.one()
    match form:
        case "as_none":
            return None
        case "as_tensor" | "as_graph" | "as_custom_obj":
            return Ref(found["name"].text())
        case "as_int":
            return found.integer()
        case "as_float":
            return found.number()
        case "as_bool":
            return found.boolean()
        case "as_string" | "as_operator":
            return found.text()
        case "as_ints":
            return [v.integer() for v in found.list()]
        case "as_floats":
            return [v.number() for v in found.list()]
        case "as_bools":
            return [v.boolean() for v in found.list()]
        case "as_strings":
            return [v.text() for v in found.list()]
        case "as_sym_int" | "as_sym_float" | "as_sym_bool" | "as_optional_tensor":
            return _argument(found)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools" | "as_optional_tensors":
            return [_argument(v) for v in found.list()]
        case "as_name":
            return Ref(found.text())
        case "as_tensors":
            return [Ref(v["name"].text()) for v in found.list()]
        case "as_nested_tensors":
            return [[Ref(v["name"].text()) for v in row.list()] for row in found.list()]
        case "as_int_lists":
            return [[v.integer() for v in row.list()] for row in found.list()]
        case "as_float_lists":
            return [[v.number() for v in row.list()] for row in found.list()]
        case "as_scalar_type":
            return dtype_of(found)
        case "as_memory_format" | "as_layout":
            names = _TEXTS[form]
            return f"torch.{names[found.integer(0, len(names) - 1)]}"
        case "as_device":
            return found["type"].text()
        case "as_complex":
            return complex(found["real"].number(), found["imag"].number())
    return given.bad("an argument of the schema")


_WRAPPERS = {
    "torch.ops.higher_order.wrap_with_set_grad_enabled": 1,
    "torch.ops.higher_order.wrap_with_autocast": 4,
}
"""Calls of a graph that change what PyTorch does around it, and the number of that graph among the
arguments.
"""


@dataclass(slots=True)
class _Graph:
    """Reads the calls of a graph.

    graph: as the archive has it.
    prefix: of the names that it defines.
    given: what the names of its inputs stand for; for a graph inside another one.
    depth: how many graphs are around it.
    traced: gets where the archive says what the names that it defines stand for.
    """

    graph: Json
    prefix: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    depth: int = 0
    traced: dict[str, Json] = field(default_factory=dict)

    def calls(self) -> Iterator[Call]:
        if self.depth > _DEEPEST:
            self.graph.bad(f"at most {_DEEPEST} graphs inside one another")
        for table in ("tensor_values", "sym_int_values"):
            for name, found in self.graph[table].items():
                self.traced.setdefault(f"{self.prefix}{name}", found)
        for node in self.graph["nodes"].list():
            target = node["target"].text()
            inputs = node["inputs"].list()
            if target in _WRAPPERS:
                yield from self._inner(node, inputs, _WRAPPERS[target])
                continue
            by_name = [_is_keyword(i) for i in inputs]
            args = [i["arg"] for i, named in zip(inputs, by_name, strict=True) if not named]
            kwargs = {
                i["name"].text(): self._own(_argument(i["arg"]))
                for i, named in zip(inputs, by_name, strict=True)
                if named
            }
            yield Call(
                _target(target),
                [self._own(_argument(a)) for a in args],
                kwargs,
                self._results(node),
                self._where(node),
            )

    def _inner(self, node: Json, inputs: list[Json], at: int) -> Iterator[Call]:
        """The calls of a graph that stand for a call of it."""
        if len(inputs) <= at:
            node.bad(f"at least {at + 1} arguments")
        if at == 4 and _argument(inputs[2]["arg"]) is not False:
            raise UnsupportedError(
                f"{node.place}: autocast around a part of the model is not supported; export the "
                "model without torch.autocast"
            )
        graph = inputs[at]["arg"]["as_graph"]["graph"]
        names = [_argument(a) for a in graph["inputs"].list()]
        args = [self._own(_argument(i["arg"])) for i in inputs[at + 1 :]]
        if len(names) != len(args) or not all(isinstance(n, Ref) for n in names):
            node.bad(f"{len(names)} arguments for the graph's inputs")
        pairs = zip(names, args, strict=True)
        inside = f"{self.prefix}{_name(node)}/"
        inner = _Graph(graph, inside, {n.name: a for n, a in pairs}, self.depth + 1, self.traced)
        yield from inner.calls()
        given = [inner._own(_argument(o)) for o in graph["outputs"].list()]
        names = self._results(node)
        results = (names,) if isinstance(names, str) else names
        if len(given) != len(results):
            node.bad(f"{len(given)} results")
        for value, name in zip(given, results, strict=True):
            if name:
                yield Call("aten.alias.default", [value], {}, name, self._where(node))

    def _own(self, given: Any) -> Any:
        """An argument, its names as they are called outside of this graph."""
        if isinstance(given, Ref):
            return self.given.get(given.name, Ref(f"{self.prefix}{given.name}"))
        if isinstance(given, list):
            return [self._own(a) for a in given]
        return given

    def _results(self, node: Json) -> str | tuple[str, ...]:
        outputs = node["outputs"].list()
        if not outputs:
            return f"{self.prefix}{_name(node)}"
        names: list[str] = []
        for o in outputs:
            form, _ = o.one()
            found = _argument(o)
            if form not in ("as_none", "as_tensor", "as_tensors") and not isinstance(found, Ref):
                o.bad("the name of a result")
            names += [f.name if isinstance(f, Ref) else "" for f in _listed(found)]
        is_single = len(outputs) == 1 and outputs[0].one()[0] != "as_tensors"
        named = tuple(n and f"{self.prefix}{n}" for n in names)
        if not any(named):
            return f"{self.prefix}{_name(node)}"
        return named[0] if is_single else named

    def _where(self, node: Json) -> str:
        trace = node["metadata"].get("stack_trace")
        return line_of(trace.text()) if trace is not None else ""


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _is_keyword(given: Json) -> bool:
    kind = given.get("kind")
    return kind is not None and kind.integer() == 2


def _name(node: Json) -> str:
    name = node.get("name")
    return node["target"].text() if name is None else name.text()


def _target(text: str) -> str:
    """The name of an operator or function, as `frontend.torch.fx` gives it."""
    if text.startswith("torch.ops."):
        return text.removeprefix("torch.ops.")
    return f"operator.{text.removeprefix('_operator.')}" if text.startswith("_operator.") else text
