"""Paddle 3's `.json` files: a program of its intermediate representation (PIR)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from operator import index
from typing import Any

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.networks import Layer, Network, Part
from tilesmith.frontend.paddle.control import condition_of
from tilesmith.frontend.paddle.parameters import read_parameters
from tilesmith.frontend.paddle.schema import dtype_named
from tilesmith.support.errors import DAMAGED, ModelError


def read_pir(content: bytes | memoryview, parameters: memoryview | None) -> Network:
    """The operators of a program.  Raises ModelError for a damaged file."""
    try:
        root = json.loads(bytes(content))
        version = int(root["base_code"]["version"])
        (region,) = root["program"]["regions"]
        (block,) = region["blocks"]
        program = _Program()
        layers, _ = program.block(block)
    except DAMAGED as e:
        reason = " ".join(f"{type(e).__name__}: {e}".split())
        raise ModelError(f"not a sound program of Paddle's PIR: {reason}") from None
    inputs, outputs = tuple(program.inputs), program.outputs
    weights = read_parameters(parameters, program.stored)
    return Network(f"Paddle PIR, version {version}", inputs, outputs, layers, weights)


class _Program:
    """The definitions of the operators of all blocks.

    names: the names of parameters by the names of their values.
    stored: the names of the parameters in the file.
    inputs: the declared inputs.
    outputs: the names of the results -> the names of their values.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.stored: list[str] = []
        self.inputs: list[Declared] = []
        self.outputs: dict[str, str] = {}

    def block(self, block: Any) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
        """The layers of a block, and the names of its results."""
        ops, layers, results = block["ops"], [], ()
        used = {_value(i) for op in _every(ops) for i in op.get("I", ())}
        for op in ops:
            if op["#"] == "p":
                layers += self._parameter(op)
            elif op["#"] == "2.yield":
                results = tuple(map(self._operand, op["I"]))
            else:
                layers += self._layers(op, used)
        return tuple(layers), results

    def _operand(self, entry: Any) -> str:
        value = _value(entry)
        return self.names.get(value, value)

    def _parameter(self, op: Any) -> Iterator[Layer]:
        self.names[_value(op["O"])] = name = str(op["A"][-1])
        if op.get("OA", (1,))[0]:
            self.stored.append(name)
            return
        element, dims = op["O"]["TT"]["D"][:2]  # not persistable: no file has it
        type_ = element["#"].partition("_")[2]
        yield Layer("full", name, (), (name,), {"shape": dims, "dtype": type_, "value": 0.0})

    def _layers(self, op: Any, used: set[str]) -> Iterator[Layer]:
        kind = str(op["#"])
        attributes = {str(a["N"]): _attribute(a["AT"]) for a in op["A"]}
        of = tuple(map(self._operand, op["I"]))
        made = list(map(_value, op["O"]))
        if kind == "1.data":
            element, dims, *_ = op["O"][0]["TT"]["D"]
            dtype = dtype_named(element["#"].partition("_")[2])
            name = str(attributes["name"])
            shape = tuple("" if d < 0 else index(d) for d in dims)
            self.inputs.append(Declared(name, dtype, shape))
            yield Layer("data", name, (name,), tuple(made))
        elif kind == "1.fetch":
            self.outputs[str(attributes["name"])] = of[0]
        else:
            while len(made) > 1 and made[-1] not in used:
                made.pop()
            dialect, _, name = kind.partition(".")
            shown = {"0": f"builtin.{name}", "1": name}.get(dialect, kind)
            label = made[0] if made else kind
            parts = tuple(self._part(shown, of, region) for region in op.get("regions", ()))
            if shown == "while":
                parts, made = (condition_of(of), *parts), ["", *made]
            yield Layer(shown, f"{name}.{label}", of, tuple(made), attributes, parts=parts)

    def _part(self, kind: str, of: tuple[str, ...], region: Any) -> Part:
        """The block of a region.  A loop passes its condition, which its block does not use."""
        (block,) = region["blocks"]
        layers, results = self.block(block)
        arguments = tuple(str(a["#"]) for a in block["args"])
        return Part(("", *arguments) if kind == "while" else arguments, results, layers)


def _every(ops: Iterable[Any]) -> Iterator[Any]:
    """The operators, and those of the blocks inside of them."""
    for op in ops:
        yield op
        for region in op.get("regions", ()):
            for block in region["blocks"]:
                yield from _every(block["ops"])


def _value(entry: Any) -> str:
    """The name of a value; empty if the value is left out."""
    return str(entry["%"]) if entry["%"] else ""


def _attribute(stored: Any) -> Any:
    """An attribute as a number, a text or a list of these."""
    value = stored.get("D", stored.get("VD"))
    if isinstance(value, list):
        return [_attribute(v) if isinstance(v, dict) else v for v in value]
    return _attribute(value) if isinstance(value, dict) else value
