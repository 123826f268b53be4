"""A model as a WebAssembly module, with a JavaScript module that loads it in Node and browsers."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from tilesmith.codegen.c.compiler import ZIG
from tilesmith.codegen.c.emit import comment_line
from tilesmith.ir.target import Target
from tilesmith.runtime.arrays import stored_shape
from tilesmith.runtime.program import Program, TensorSpec
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import scratch_folder
from tilesmith.support.version import VERSION

from .tables import Weights, embedded, own_names, tables, template
from .toolchain import SOURCES, Toolchain

ARCHITECTURE = "wasm32"
ARRAYS = {
    "f32": "Float32Array", "f64": "Float64Array", "i8": "Int8Array", "i16": "Int16Array",
    "i32": "Int32Array", "i64": "BigInt64Array", "u8": "Uint8Array", "u16": "Uint16Array",
    "u32": "Uint32Array", "u64": "BigUint64Array", "bool": "Uint8Array", "f16": "Uint16Array",
    "bf16": "Uint16Array",
}  # fmt: skip
"""Element type -> the JavaScript array.  `module.mjs` has the same table."""

_FLAGS = ("-std=c11", "-O2", "-fvisibility=hidden", "-fno-sanitize=undefined")
_LINK = ("-mexec-model=reactor", "-s", f"-Wl,-z,stack-size={1 << 20}")


def is_module(target: Target) -> bool:
    """Whether the code for a target is a WebAssembly module."""
    return target.architecture == ARCHITECTURE


def write_module(
    program: Program, folder: Path, name: str, place: Weights, file_bytes: int
) -> list[Path]:
    """Write `NAME.wasm`, `NAME.mjs` and `NAME.d.mts`, and return their paths.

    place, file_bytes: place of the weights, and the size of their file (0 if they are inside).

    Raises UsageError where ziglang is not installed, and for element types that no JavaScript array
    has.
    """
    for spec in (*program.inputs, *program.outputs):
        if str(spec.dtype) not in ARRAYS or stored_shape(spec) != spec.shape:
            raise UsageError(
                f"{spec.name} has elements of {spec.dtype}; a WebAssembly module takes and gives "
                f"{', '.join(ARRAYS)}"
            )
    tools = _toolchain()
    texts = {folder / f"{name}{end}": _text(name, end, program, file_bytes) for end in _SCRIPTS}
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    module = folder / f"{name}.wasm"
    with scratch_folder() as scratch:
        objects = []
        for symbol, code in program.objects.items():
            objects.append(scratch / f"{symbol}.o")
            objects[-1].write_bytes(code)
        source = scratch / "module.c"
        source.write_text(_source(program, name, place, file_bytes, scratch), encoding="utf-8")
        for part in (source, *(SOURCES / "library" / p for p in ("model.c", "serial.c"))):
            objects.append(scratch / f"tilesmith_{part.stem}.o")
            tools.compile(part, objects[-1])
        tools.link(objects, module, *_LINK)
    return [module, *texts]


_SCRIPTS = {".mjs": "module.mjs", ".d.mts": "module.d.mts"}


def _toolchain() -> Toolchain:
    if importlib.util.find_spec("ziglang") is None:
        raise UsageError(
            "a WebAssembly module needs the package ziglang, which links it: pip install ziglang"
        )
    return Toolchain((*ZIG, "cc", "-target", "wasm32-wasi"), (*ZIG, "ar"), _FLAGS)


def _source(program: Program, name: str, place: Weights, file_bytes: int, scratch: Path) -> str:
    """The C file with the module's tables, its functions, and weights if they are inside."""
    lines = ['#include "tilesmith_model.h"', *own_names(name)]
    if place.symbol:
        program.constants.tofile(scratch / "weights.bin")
        lines.append(embedded(place.symbol, scratch / "weights.bin"))
    text = tables(name, [program], [place], file_bytes)
    return "\n".join((*lines, text, template("module.c", name)))


def _text(name: str, end: str, program: Program, file_bytes: int) -> str:
    """A script of the module."""
    inputs, outputs = program.caller_inputs, program.caller_outputs
    return template(
        _SCRIPTS[end],
        name,
        VERSION=VERSION,
        TENSORS=json.dumps(_description(program, file_bytes), indent=4),
        FIRST_INPUT=json.dumps(inputs[0].name) + ": array" if inputs else "",
        FIRST_OUTPUT=json.dumps(outputs[0].name) + ": result",
        INPUT_TYPES="\n".join(
            _member(s, "Tensor", s.name in program.default_arrays) for s in inputs
        ),
        OUTPUT_TYPES="\n".join(_member(s, "Result") for s in outputs),
    )


def _member(spec: TensorSpec, kind: str, is_optional: bool = False) -> str:
    array = ARRAYS[str(spec.dtype)]
    is_plain = kind == "Tensor" and spec.is_static
    return (
        f"    /** {comment_line(str(spec))} */\n"
        f"    {json.dumps(spec.name)}{'?' * is_optional}: "
        f"{f'{array} | ' if is_plain else ''}{kind}<{array}>;"
    )


def _description(program: Program, file_bytes: int) -> dict[str, object]:
    """The description of the model in the JavaScript module."""
    homes = dict(program.in_place)

    def of(spec: TensorSpec) -> dict[str, object]:
        shape = [d if isinstance(d, int) else str(d) for d in spec.shape]
        return {"name": spec.name, "dtype": str(spec.dtype), "shape": shape}

    optional = program.optional_arrays

    def kind(spec: TensorSpec) -> dict[str, object]:
        named = "optional" if spec.name in optional else "state"
        return {named: True} if spec.name in program.default_arrays else {}

    return {
        "inputs": [{**of(s), **kind(s)} for s in program.inputs],
        "outputs": [{**of(s), "home": homes.get(i, -1)} for i, s in enumerate(program.outputs)],
        "symbols": [
            {"name": s.name, "least": s.sizes.low, "most": s.sizes.high} for s in program.symbols
        ],
        "weightsBytes": file_bytes,
    }
