"""`export` as C source, for microcontrollers: `NAME.c`, `NAME.h` and `tilesmith.h`.

The text is C99.  It needs `math.h` and `string.h` of the C library, but no allocation and no
threads.  Weights are a constant structure, which the linker puts into flash memory.  All
intermediate values are in one static array.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tilesmith.codegen.c.emit import comment, comment_line, translation_unit_of, write_bare
from tilesmith.codegen.c.prelude import MEMORY_TYPES
from tilesmith.codegen.c.source import SourceKernel, source_kernel
from tilesmith.codegen.lower_main import lower_main
from tilesmith.program.functions import ENTRY
from tilesmith.program.nodes import Arg, KernelCall, Step
from tilesmith.program.visit import calls_of, map_steps
from tilesmith.runtime.arrays import stored_shape
from tilesmith.runtime.native import round_up
from tilesmith.runtime.program import Program, TensorSpec
from tilesmith.support.errors import UsageError
from tilesmith.support.version import VERSION

from .tables import header_text
from .toolchain import SOURCES

_ROW = 12  # numbers per line
# Occurrences of the workspace's name in a kernel that needs no workspace: the parameter, and the
# parameter's cast to void.
_MENTIONS = 2
_NUMPY = {
    "float": np.float32, "double": np.float64,
    **{f"{u}int{b}_t": np.dtype(f"{u}int{b}") for u in ("", "u") for b in (8, 16, 32, 64)},
}  # fmt: skip


_OPTIONAL = " (optional: NULL stands for its default)"


@dataclass(frozen=True, slots=True)
class _Constant:
    """A member of the structure of weights.

    begin: offset in the program's constants, in bytes.
    type: C type of an element.
    count: number of elements.
    label: the node of the source model that reads the constant.
    """

    begin: int
    type: str
    count: int
    label: str

    @property
    def bytes(self) -> int:
        return self.count * np.dtype(_NUMPY[self.type]).itemsize


def write_source(program: Program, folder: Path, name: str) -> tuple[list[Path], int]:
    """Write the files; returns their paths, NAME.c first, and the bytes of constants.

    Raises UsageError for a program with sizes that are only known at run time.
    """
    if program.symbols:
        names = ", ".join(s.name for s in program.symbols)
        raise UsageError(
            f"C source has static memory: expected sizes that are known, found open dimensions "
            f"{names}; fix them with shapes= (--shape)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    kernels = {
        symbol: source_kernel(text.decode())
        for symbol, text in program.objects.items()
        if symbol != ENTRY
    }
    constants = _constants(program, kernels)
    written = {folder / f"{name}.c": _source(program, kernels, constants, name)}
    size = sum(c.bytes for c in constants)
    written[folder / f"{name}.h"] = _header(program, name, size)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    shutil.copyfile(SOURCES / "tilesmith.h", folder / "tilesmith.h")
    return [*written, folder / "tilesmith.h"], size


def _source(
    program: Program,
    kernels: dict[str, SourceKernel],
    constants: Sequence[_Constant],
    name: str,
) -> str:
    own = {symbol: f"{name}_kernel_{i}" for i, symbol in enumerate(kernels)}
    symbols = re.compile("|".join(map(re.escape, own))) if own else None

    def renamed(text: str) -> str:
        return text if symbols is None else symbols.sub(lambda m: own[m[0]], text)

    unused = {s for s, k in kernels.items() if k.text.count("workspace") == _MENTIONS}
    main = write_bare(
        lower_main(
            _with_own_workspace(program.steps, unused, program.arena_bytes),
            f"{name}_main",
            arena_bytes=program.arena_bytes,
            scratch_bytes=program.scratch_bytes,
        )
    )
    texts = [f"static {_without_comment(renamed(k.text))}" for k in kernels.values()]
    helpers = main.helpers.union(*(k.helpers for k in kernels.values()))
    entry = "static " + _without_comment(renamed(main.text))
    unit = translation_unit_of([*texts, entry], helpers)
    about = comment(
        f"{name}: a model compiled by Tilesmith {VERSION} for {program.target.name}.  C99; see "
        f"{name}.h."
    )
    weights = _weights(program, constants)
    return "\n".join([about, f'#include "{name}.h"', unit, weights, _run(program, name)])


def _with_own_workspace(
    steps: Sequence[Step], unused: Collection[str], end: int
) -> tuple[Step, ...]:
    """The steps with another workspace for the kernels `unused`: the offset `end` of the arena.
    This is safe, because no values are at `end` and these kernels don't touch their workspace.
    """

    def moved(step: Step) -> Step:
        if isinstance(step, KernelCall) and step.symbol in unused:
            return replace(step, workspace=Arg("arena", end))
        return step

    return map_steps(steps, moved)


def _without_comment(text: str) -> str:
    """A kernel's text without the comment before it."""
    head, end, rest = text.partition("*/\n")
    return f"int32_t {rest.removeprefix('int32_t ')}" if end and head.startswith("/*") else text


def _constants(program: Program, kernels: dict[str, SourceKernel]) -> list[_Constant]:
    constants: dict[int, _Constant] = {}
    for call in calls_of(program.steps):
        buffers = kernels[call.symbol].buffers
        for arg, (type_, count) in zip(call.args, buffers, strict=False):
            if arg.kind == "constant" and count:
                before = constants.get(arg.index)
                if before is None or before.count < count:
                    label = call.label or call.symbol
                    constants[arg.index] = _Constant(arg.index, type_, count, label)
    for i, offset in program.defaults:
        spec = program.inputs[i]
        count = math.prod(spec.static_shape)
        if count:
            constants.setdefault(
                offset, _Constant(offset, _stored(spec), count, f"default of {spec.name}")
            )
    return list(_apart(sorted(constants.values(), key=lambda c: c.begin), program.constants.nbytes))


def _apart(found: Sequence[_Constant], end: int) -> Iterator[_Constant]:
    """The constants, with a byte array for each gap between them.  No kernel reads the gaps."""
    last = 0
    for c in found:
        if c.begin > last:
            yield _Constant(last, "uint8_t", c.begin - last, "")
        yield c
        last = c.begin + c.bytes
    if end > last:
        yield _Constant(last, "uint8_t", end - last, "")


def _weights(program: Program, constants: Sequence[_Constant]) -> str:
    members, values = [], []
    for i, c in enumerate(constants):
        data = program.constants[c.begin : c.begin + c.bytes].view(_NUMPY[c.type])
        label = f" {comment(c.label)}" if c.label else ""
        members.append(f"    {c.type} c{i}[{c.count}];{label}")
        numbers = [_number(v) for v in data]
        rows = [", ".join(numbers[r : r + _ROW]) for r in range(0, len(numbers), _ROW)]
        body = ",\n        ".join(rows)
        values.append(f"    {{{body}}}")
    if not constants:
        members, values = ["    uint8_t none;"], ["    0"]
    return "\n".join(
        ["static const struct {", *members, "} weights = {", ",\n".join(values), "};", ""]
    )


def _number(value: np.generic) -> str:
    """A C constant with exactly this value."""
    if isinstance(value, np.integer):
        n = int(value)
        if n == np.iinfo(np.int64).min:
            return "INT64_MIN"
        if n == np.iinfo(np.int32).min and value.dtype == np.int32:
            return "INT32_MIN"
        return f"{n}" + ("u" if value.dtype.kind == "u" and n > np.iinfo(np.int32).max else "")
    x, end = float(value), "f" if value.dtype == np.float32 else ""
    if math.isnan(x):
        return "NAN"
    if math.isinf(x):
        return "-INFINITY" if x < 0 else "INFINITY"
    return f"{x.hex()}{end}" if x else f"{'-' * (math.copysign(1, x) < 0)}0.0{end}"


def _called(program: Program) -> tuple[dict[int, TensorSpec], dict[int, TensorSpec]]:
    """The inputs and the outputs of NAME_run by number: all but the states."""
    states = [set(numbers) for numbers in zip(*program.states, strict=True)] or [set(), set()]
    inputs, outputs = (
        {i: s for i, s in enumerate(specs) if i not in kept}
        for specs, kept in ((program.inputs, states[1]), (program.outputs, states[0]))
    )
    return inputs, outputs


def _parameters(program: Program) -> str:
    """The parameters of NAME_run: the inputs, then the outputs."""
    inputs, outputs = _called(program)
    shown = [f"const {_typed(s, f'input_{i}')}" for i, s in inputs.items()]
    shown += [_typed(s, f"output_{i}") for i, s in outputs.items()]
    return ", ".join(shown) or "void"


def _states(program: Program, name: str) -> list[str]:
    """The C text of the states and of NAME_reset; empty for a program without states."""
    if not program.states:
        return []
    places = dict(program.defaults)
    specs = {i: program.inputs[i] for _, i in program.states}
    return [
        *(f"static {_typed(s, f'state_{i}')};" for i, s in specs.items()),
        "static int32_t has_begun; /* whether the states have values */",
        "",
        f"void {name}_reset(void) {{",
        *(
            f"    memcpy(state_{i}, (const char *)&weights + {places[i]}, sizeof state_{i});"
            for i in specs
        ),
        "    has_begun = 1;",
        "}",
        "",
    ]


def _typed(spec: TensorSpec, name: str) -> str:
    return f"{_stored(spec)} {name}[{max(math.prod(_shape(spec)), 1)}]"


def _stored(spec: TensorSpec) -> str:
    """The C type of elements.  Raises UsageError if there is none."""
    stored = MEMORY_TYPES.get(spec.dtype.name)
    if stored is None:
        raise UsageError(f"C source has no type for {spec.name}, of {spec.dtype}")
    return stored


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(int(n) for n in stored_shape(spec) if isinstance(n, int))


def _run(program: Program, name: str) -> str:
    ram = ram_bytes(program)
    defaults, homes = dict(program.defaults), dict(program.states)

    def input_of(i: int) -> str:
        if i in homes.values():
            return f"state_{i}"
        if i not in defaults:
            return f"(void *)input_{i}"
        default = f"(const char *)&weights + {defaults[i]}"
        return f"(void *)(input_{i} ? (const char *)input_{i} : {default})"

    inputs = ", ".join(map(input_of, range(len(program.inputs)))) or "NULL"
    outputs = ", ".join(
        f"state_{homes[i]}" if i in homes else f"(void *)output_{i}"
        for i in range(len(program.outputs))
    )
    outputs = outputs or "NULL"
    lines = [
        f"static uint64_t memory[{max(ram // 8, 1)}]; /* intermediate values */",
        "",
        *_states(program, name),
        f"int32_t {name}_run({_parameters(program)}) {{",
        f"    void *const inputs[] = {{{inputs}}}, *const outputs[] = {{{outputs}}};",
        "    struct tilesmith_context context;",
        *([f"    if (!has_begun)\n        {name}_reset();"] if homes else []),
        "    memset(&context, 0, sizeof context);",
        "    context.abi = TILESMITH_ABI;",
        "    context.size = sizeof context;",
        "    context.inputs = inputs;",
        "    context.outputs = outputs;",
        "    context.constants = &weights;",
        "    context.arena = memory;",
        f"    context.arena_bytes = {round_up(program.arena_bytes)};",
        f"    context.scratch = (char *)memory + {round_up(program.arena_bytes)};",
        f"    context.scratch_bytes = {round_up(program.scratch_bytes)};",
        "    context.threads = 1;",
        "    context.parallel_for = tilesmith_serial_for;",
        f"    return {name}_main((uint8_t *)&context);",
        "}",
    ]
    return "\n".join(lines) + "\n"


def ram_bytes(program: Program) -> int:
    """Bytes of intermediate values, without the states and the stack."""
    return round_up(program.arena_bytes) + round_up(program.scratch_bytes)


def state_bytes(program: Program) -> int:
    """Bytes of the values that NAME_run keeps from call to call."""
    return sum(program.inputs[i].bytes for _, i in program.states)


def _header(program: Program, name: str, constant_bytes: int) -> str:
    upper = name.upper()
    inputs, outputs = _called(program)
    kept = " (kept from run to run)"
    about = [
        f"/* {name}: a model compiled by Tilesmith {VERSION} for {program.target.name}.",
        " *",
        *(
            f" * input_{i}: {comment_line(str(s))}{_OPTIONAL * (s.name in program.default_arrays)}"
            for i, s in inputs.items()
        ),
        *(f" * output_{i}: {comment_line(str(s))}" for i, s in outputs.items()),
        *(f" * state: {comment_line(str(program.inputs[i]))}{kept}" for _, i in program.states),
        " *",
        " * Dense row-major arrays.  One run at a time: intermediate values are static. */",
    ]
    declarations = [
        f"#define {upper}_CONSTANT_BYTES {constant_bytes} /* weights, in flash memory */",
        f"#define {upper}_RAM_BYTES {ram_bytes(program)} /* intermediate values; not the stack */",
        *(
            [f"#define {upper}_STATE_BYTES {state_bytes(program)} /* more RAM */"]
            if program.states
            else []
        ),
        *(
            f"#define {upper}_{kind}_{i}_COUNT {max(math.prod(_shape(s)), 1)}"
            for kind, specs in (("INPUT", inputs), ("OUTPUT", outputs))
            for i, s in specs.items()
        ),
        "",
        "/* Run the model once; 0, or a code of tilesmith.h after a failure. */",
        f"int32_t {name}_run({_parameters(program)});",
        *(
            [f"/* Give all states their first values again. */\nvoid {name}_reset(void);"]
            if program.states
            else []
        ),
    ]
    return header_text(about, name, ["tilesmith.h"], declarations)
