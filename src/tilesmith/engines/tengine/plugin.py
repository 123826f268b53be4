"""`export_plugin`: the layers of a model as a plugin of Tengine."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tilesmith.codegen.c.emit import comment_line
from tilesmith.driver.entry import program_of
from tilesmith.driver.request import Request
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.tengine import TENGINE
from tilesmith.runtime.program import Program
from tilesmith.runtime.standalone.objects import Exported, check_name, runtime_objects
from tilesmith.runtime.standalone.operators import check_operator, operator_objects
from tilesmith.runtime.standalone.tables import EXPORTED, header_text, text
from tilesmith.runtime.standalone.toolchain import toolchain
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import scratch_folder, written_in
from tilesmith.support.options import Options
from tilesmith.support.version import VERSION

from .layers import Replaced, distinct_layers

RUNTIME = ("library/model.c", "library/tengine.c", "pool.c")
"""Files of the runtime that a plugin needs."""


@checked(UsageError)
def export_plugin(
    model: str | os.PathLike[str] | bytes,
    folder: str | Path,
    name: str = "model",
    *,
    layers: Collection[str] | None = None,
    leave: Collection[str] = (),
    shapes: Mapping[str, Sequence[int] | int] | None = None,
    targets: Sequence[str] = (),
    threads: int | None = None,
    options: Options | None = None,
) -> Exported:
    """Write a plugin that computes layers of a model in Tengine, in place of the engine's kernels.

        ts.tengine.export_plugin("net.tmfile", "plugin", "net")

    Before the engine prepares the model, it loads the plugin:

        load_tengine_plugin("net", "plugin/lib/libnet.so", "net_init");

    The plugin computes a node that has the operator, parameters, shapes and weights of a layer of
    this file.  All other nodes stay with the engine, those of other models too.  A run has as many
    threads as the engine's graph.

    model: path of a `.tmfile`, or its bytes.
    folder: created if needed; receives `include/NAME.h` and the library in `lib`.
    name: name of the library, a C identifier.
    layers: operators, such as "Convolution", or names of layers (default: all that compute).
    leave: operators or names of layers that stay with the engine, such as those that a measurement
        found to be slower.
    shapes: shapes of the model's inputs, by name (default: those in the file).
    targets: levels of one kind of processor, the best first, as for `export`.
    threads: threads for which layers are scheduled (default: as `compile`).

    Raises the errors of `compile`, and UsageError if no layer can be compiled, for names that the
    file does not have, for targets without shared libraries that Tengine loads, and if there is no
    C compiler.
    """
    source = Source.of(model, TENGINE.file)
    if not TENGINE.recognises(source):
        raise UsageError(f"expected {TENGINE.file} (.tmfile), found {source.name or model!r}")
    check_name(name)
    request = Request.of(None, options, threads=threads)
    distinct = distinct_layers(source, shapes or {}, layers, leave)
    programs = {
        layer.names[0]: tuple(
            program_of(r) for r in Request.of(layer.graph, request.options).levels(targets)
        )
        for layer in distinct
    }
    for layer, compiled in programs.items():
        check_operator(layer, compiled)
    return written_in(Path(folder), lambda scratch: _write(distinct, programs, scratch, name))


def _write(
    layers: Sequence[Replaced], programs: Mapping[str, Sequence[Program]], folder: Path, name: str
) -> Exported:
    target = next(iter(programs.values()))[0].target
    if target.system != "linux":
        raise UsageError(f"a plugin for Tengine: expected a target on Linux, found {target.name}")
    tools = toolchain(target)
    include, library = folder / "include", folder / "lib" / tools.system.shared.format(name)
    for part in (include, library.parent):
        part.mkdir(parents=True)
    header = include / f"{name}.h"
    header.write_text(_header(name, layers), encoding="utf-8")

    def definition(number: int, _: str, description: str) -> str:
        """The C file of a layer."""
        return "\n\n".join(
            ('#include "tilesmith_tengine.h"', description, _table(number, layers[number]), "")
        )

    with scratch_folder() as scratch:
        main = scratch / "register.c"
        main.write_text(_registration(name, len(layers)), encoding="utf-8")
        tools.compile(main, main.with_suffix(".o"))
        objects = [
            *runtime_objects(RUNTIME, scratch, tools),
            *operator_objects(programs, scratch, tools, definition),
            main.with_suffix(".o"),
        ]
        tools.shared(objects, library)
    inside = sum(p.constants.nbytes for levels in programs.values() for p in levels)
    return Exported(library, header, None, (library, header), library.stat().st_size - inside)


def _table(number: int, layer: Replaced) -> str:
    """The C definition of a layer."""
    params = ", ".join("TILESMITH_ANY" if p is None else f"INT32_C({p})" for p in layer.params)
    constants = ", ".join(str(int(c)) for c in layer.is_constant)
    return "\n".join((
        f"static const int32_t params[] = {{{params or '0'}}};",
        f"static const char is_constant[] = {{{constants}}};",
        f"const struct tilesmith_tengine_layer tilesmith_tengine_layer_{number} = {{",
        f"    .op = {text(layer.kind)}, .description = &description, .params = params,",
        f"    .param_count = {len(layer.params)}, .is_constant = is_constant,",
        f"    .input_count = {len(layer.is_constant)}, "
        f".constants_sum = UINT64_C({layer.constants_sum})}};",
    ))  # fmt: skip


def _header(name: str, layers: Sequence[Replaced]) -> str:
    comment = [f"/* {name}: layers of a model for Tengine, compiled by Tilesmith {VERSION}."]
    for layer in layers:
        comment += [f" * {comment_line(layer.kind)}: {comment_line(', '.join(layer.names))}"]
    declarations = [
        "/* For load_tengine_plugin.  Returns -1 after a message on standard error. */",
        f"int {name}_init(void);",
        "",
        "/* For unload_tengine_plugin, when no prepared graph uses the layers. */",
        f"int {name}_release(void);",
    ]
    return header_text([*comment, " */"], name, (), declarations)


def _registration(name: str, count: int) -> str:
    """The C file of the functions that the engine calls."""
    layers = [f"tilesmith_tengine_layer_{i}" for i in range(count)]
    return "\n".join((
        '#include "tilesmith_tengine.h"',
        EXPORTED,
        f"extern const struct tilesmith_tengine_layer {', '.join(layers)};",
        "static const struct tilesmith_tengine_layer *const layers[] = "
        f"{{{', '.join(f'&{layer}' for layer in layers)}}};",
        f"EXPORTED int {name}_init(void) {{ return tilesmith_tengine_init(layers, {count}); }}",
        f"EXPORTED int {name}_release(void) {{ return tilesmith_tengine_release(); }}",
        "",
    ))  # fmt: skip
