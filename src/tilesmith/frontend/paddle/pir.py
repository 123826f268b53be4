"""Paddle 3's `.json` files: a program of its intermediate representation (PIR)."""

from __future__ import annotations

import json
from typing import Any

from tilesmith.frontend.common.inputs import Declared
from tilesmith.frontend.common.networks import Layer, Network
from tilesmith.frontend.paddle.parameters import read_parameters
from tilesmith.frontend.paddle.schema import dtype_named
from tilesmith.support.errors import ModelError


def read_pir(content: bytes | memoryview, parameters: memoryview | None) -> Network:
    """The operators of a program.  Raises ModelError for a damaged file."""
    try:
        root = json.loads(bytes(content))
        version = int(root["base_code"]["version"])
        (region,) = root["program"]["regions"]
        (block,) = region["blocks"]
        parts = _parts(block["ops"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as e:
        reason = " ".join(f"{type(e).__name__}: {e}".split())
        raise ModelError(f"not a sound program of Paddle's PIR: {reason}") from None
    names, inputs, outputs, layers = parts
    weights = read_parameters(parameters, names)
    return Network(f"Paddle PIR, version {version}", inputs, outputs, layers, weights)


def _parts(
    ops: list[Any],
) -> tuple[list[str], tuple[Declared, ...], dict[str, str], tuple[Layer, ...]]:
    """The names of stored parameters, the inputs, the results by name, and the layers."""
    names: dict[str, str] = {}
    stored: list[str] = []
    inputs: list[Declared] = []
    outputs: dict[str, str] = {}
    layers: list[Layer] = []
    used = {_value(i) for op in ops for i in op.get("I", ())}
    for op in ops:
        kind = str(op["#"])
        if kind == "p":
            names[_value(op["O"])] = name = str(op["A"][-1])
            if not op.get("OA", (1,))[0]:  # not persistable: no file has it
                element, dims = op["O"]["TT"]["D"][:2]
                type_ = element["#"].partition("_")[2]
                zeros = {"shape": dims, "dtype": type_, "value": 0.0}
                layers.append(Layer("full", name, (), (name,), zeros))
            else:
                stored.append(name)
            continue
        attributes = {str(a["N"]): _attribute(a["AT"]) for a in op["A"]}
        of = tuple(names.get(v, v) for v in map(_value, op["I"]))
        made = list(map(_value, op["O"]))
        if kind == "1.data":
            element, dims, *_ = op["O"][0]["TT"]["D"]
            dtype = dtype_named(element["#"].partition("_")[2])
            name = str(attributes["name"])
            inputs.append(Declared(name, dtype, tuple("" if d < 0 else int(d) for d in dims)))
            layers.append(Layer("data", name, (name,), tuple(made)))
        elif kind == "1.fetch":
            outputs[str(attributes["name"])] = of[0]
        else:
            while len(made) > 1 and made[-1] not in used:
                made.pop()
            dialect, _, name = kind.partition(".")
            shown = {"0": f"builtin.{name}", "1": name}.get(dialect, kind)
            label = made[0] if made else kind
            layers.append(Layer(shown, f"{name}.{label}", of, tuple(made), attributes))
    return stored, tuple(inputs), outputs, tuple(layers)


def _value(entry: Any) -> str:
    """The name of a value; empty if the value is left out."""
    return str(entry["%"]) if entry["%"] else ""


def _attribute(stored: Any) -> Any:
    """An attribute as a number, a text or a list of these."""
    value = stored.get("D", stored.get("VD"))
    if isinstance(value, list):
        return [_attribute(v) if isinstance(v, dict) else v for v in value]
    return _attribute(value) if isinstance(value, dict) else value
