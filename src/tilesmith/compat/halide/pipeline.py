"""Halide's pipelines: Funcs that are computed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith import te
from tilesmith.driver import build
from tilesmith.ir import expr as ir
from tilesmith.ir.expr import Expr, Load, const
from tilesmith.loop.nodes import Func as Loops
from tilesmith.runtime.arguments import KernelFunction
from tilesmith.support.arguments import checked_methods, shown
from tilesmith.support.errors import UsageError
from tilesmith.support.folders import write_text
from tilesmith.te.rewrite import loads
from tilesmith.tuning.operators import ExportedOperator, export_op
from tilesmith.tuning.template import auto_schedule

from .buffers import PARAMS, Buffer, Image, ImageParam, Param, Source, zeros
from .definitions import Function
from .placing import scheduled
from .regions import Box, Resolved, extents
from .stages import Stages
from .targets import Target


@dataclass(frozen=True, eq=False)
class Lowered:
    """A pipeline for certain sizes.

    schedule: the schedule.
    inputs: the images that it reads.
    args: the tensors of the inputs, then those of the outputs.
    """

    schedule: te.Schedule
    inputs: tuple[Source, ...]
    args: tuple[te.Tensor, ...]

    def loops(self, name: str) -> Loops:
        return te.lower(self.schedule, self.args, name)


@checked_methods(UsageError)
class Pipeline:
    """The Funcs that a run computes."""

    def __init__(self, outputs: Function | Sequence[Function]) -> None:
        self.outputs = (outputs,) if isinstance(outputs, Function) else tuple(outputs)
        self._automatic = False
        self._built: tuple[Any, Lowered, KernelFunction] | None = None

    def realize(self, *where: Any, target: Target | None = None) -> Any:
        """Run the pipeline for the coordinates 0 to before each size, innermost dimension first, or
        for those of a Buffer, into which the values are written.  Returns the Buffer; a list of
        Buffers for several values.

        Raises UsageError and ScheduleError.
        """
        given = where[0] if len(where) == 1 else where
        several = isinstance(given, (list, tuple))
        sources = [s for f in self.outputs for s in f.sources]
        if several and given and isinstance(given[0], Buffer):
            results = list(given)
        elif isinstance(given, (Buffer, np.ndarray)):
            results = [given if isinstance(given, Buffer) else Buffer(given)]
        else:
            sizes = list(given) if several else [given]
            if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in sizes):
                raise UsageError(f"realize: expected sizes or a Buffer, found {shown(given)}")
            results = [Buffer(zeros(sizes, s.dtype)) for s in sources]
        self._run(sources, results, None if target is None else target.level)
        return results if len(results) > 1 else results[0]

    def _run(self, sources: list[Source], results: list[Buffer], level: str | None) -> None:
        if len(sources) != len(results):
            raise UsageError(f"realize: expected {len(sources)} Buffers, found {len(results)}")
        for source, result in zip(sources, results, strict=True):
            found, wanted = result.source.dtype, source.dtype
            if found is not wanted or result.dimensions() != source.owner.dimensions():
                raise UsageError(
                    f"realize of {source.name}: expected {wanted} in {source.owner.dimensions()} "
                    f"dimensions, found {found} in {result.dimensions()}"
                )
        asked = {s.owner: _box(r) for s, r in zip(sources, results, strict=True)}
        lowered, function = self._function(asked, level)
        arrays = [np.asarray(_buffer(s.owner).array, order="C") for s in lowered.inputs]
        made = [
            r.array if r.array.flags.c_contiguous else np.empty(r.array.shape, r.array.dtype)
            for r in results
        ]
        function(*arrays, *made)
        for result, array in zip(results, made, strict=True):
            if result.array is not array:
                result.array[...] = array

    def _function(
        self, asked: dict[Function, Box], level: str | None
    ) -> tuple[Lowered, KernelFunction]:
        """The compiled function for these coordinates; the last one if nothing has changed."""
        funcs, images, params = self._parts()
        key = (
            [(f.name(), box, _promised(f.output_buffer())) for f, box in asked.items()],
            [(id(f), [(d.steps, len(d.domain.where) if d.domain else 0) for d in f.definitions],
              f.placement.key(), len(f.wrappers)) for f in funcs],
            [(_coordinates(i.owner), _promised(i.owner)) for i in images],
            [PARAMS[p].get() for p in params],
            self._automatic,
            level,
        )  # fmt: skip
        text = repr(key)
        if self._built is None or self._built[0] != text:
            lowered = self._lowered(asked, (), level)
            name = _identifier(self.outputs[0].name())
            made = build(lowered.schedule, lowered.args, level, name=name)
            self._built = text, lowered, made
        return self._built[1:]

    def _parts(self) -> tuple[list[Function], list[Source], list[Expr]]:
        """All Funcs, images and parameters of the pipeline."""
        funcs = dict.fromkeys(self.outputs)
        images: dict[Source, None] = {}
        params: dict[Expr, None] = {}
        waiting = list(self.outputs)
        while waiting:
            func = waiting.pop()
            waiting_for = [*func.wrappers.values()]
            for e in _expressions(func):
                for load in loads((e,)):
                    source = load.buffer
                    assert isinstance(source, Source)
                    if isinstance(source.owner, Function):
                        waiting_for.append(source.owner)
                    else:
                        images[source] = None
                params |= dict.fromkeys(
                    v for v in ir.post_order(e) if isinstance(v, ir.Var) and v in PARAMS
                )
            for other in waiting_for:
                if other not in funcs:
                    funcs[other] = None
                    waiting.append(other)
        return list(funcs), list(images), list(params)

    def _lowered(
        self, asked: dict[Function, Box], args: Sequence[Any] = (), level: str | None = None
    ) -> Lowered:
        """The pipeline as tensor expressions with a schedule, for these coordinates of outputs.

        args: the inputs that come first.  A `Param` among them is an input, not a constant.
        level: the target for which an automatic schedule is chosen.
        """
        _, images, params = self._parts()
        known = {*images, *params}
        unread = [
            a.name() for a in args if (a.ir if isinstance(a, Param) else a.source) not in known
        ]
        if unread:
            raise UsageError(
                f"arguments: the pipeline does not read {', '.join(unread)}; leave it out"
            )
        scalars = {a.ir: a.source for a in args if isinstance(a, Param)}
        constants: dict[Expr, Expr] = {
            p: Load(scalars[p], ()) if p in scalars else PARAMS[p].constant() for p in params
        }
        boxes: dict[Source, Box] = {
            **{source: [] for source in scalars.values()},
            **{source: _coordinates(source.owner) for source in images},
        }
        for image, box in [
            *((source.owner, box) for source, box in boxes.items()),
            *((f.output_buffer(), box) for f, box in asked.items()),
        ]:
            if isinstance(image, Image):
                constants |= image.constants([a for a, _ in box], [b - a + 1 for a, b in box])
        resolved = Resolved(self.outputs, constants)
        inputs = dict.fromkeys([*(a.source for a in args), *resolved.images])
        tensors = {
            source: (
                te.placeholder(extents(boxes[source]), source.dtype, source.name),
                boxes[source],
            )
            for source in inputs
        }
        stages = Stages(resolved, resolved.boxes(asked), tensors)
        results = [t for f in self.outputs for t in stages.chains[f].values]
        arguments = (*(t for t, _ in tensors.values()), *results)
        made = auto_schedule(arguments, level) if self._automatic else scheduled(
            stages, self.outputs)  # fmt: skip
        return Lowered(made, tuple(inputs), arguments)

    def _estimated(self) -> dict[Function, Box]:
        """The coordinates of the outputs that the program states."""
        return {f: _estimate(f) for f in self.outputs}

    def loops(self, *sizes: Any) -> Loops:
        """The loops for outputs of these sizes; without sizes for those that the program states."""
        given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else sizes
        if given:
            asked: dict[Function, Box] = {f: [(0, n - 1) for n in given] for f in self.outputs}
        else:
            asked = self._estimated()
        return self._lowered(asked).loops(_identifier(self.outputs[0].name()))

    def print_loop_nest(self, *sizes: Any) -> None:
        """Print the loops (`loops`)."""
        print(self.loops(*sizes), end="")

    def compile_to_file(
        self, filename_prefix: str | Path, arguments: Sequence[Any] = (), fn_name: str = "",
        target: Target | None = None,
    ) -> ExportedOperator:  # fmt: skip
        """Write the pipeline as C source, header, object and assembly, beside a test and a
        benchmark.  Sizes are those that the program states.  Returns the paths.

        filename_prefix: the path without a suffix; its last part names the function.
        arguments: the images and parameters, in the order of the function's arguments.

        Raises UsageError for an image that is not among `arguments`.
        """
        path = Path(filename_prefix)
        level = None if target is None else target.level
        lowered = self._lowered(self._estimated(), arguments, level)
        missing = [s.name for s in lowered.inputs[len(arguments) :]]
        if missing:
            raise UsageError(
                f"compile_to_file: expected all inputs as arguments, found {', '.join(missing)} "
                "besides; use an ImageParam for a Buffer"
            )
        name = fn_name or path.with_suffix("").name
        return export_op(lowered.schedule, path.parent, name, args=lowered.args, target=level)

    compile_to_c = compile_to_header = compile_to_object = compile_to_file
    compile_to_assembly = compile_to_static_library = compile_to_file

    def compile_to_lowered_stmt(
        self, filename: str | Path, arguments: Sequence[Any] = (), fmt: Any = None,
        target: Target | None = None,
    ) -> None:  # fmt: skip
        """Write the loops as text, for the sizes that the program states."""
        write_text(Path(filename), str(self._lowered(self._estimated(), arguments).loops("main")))

    def apply_autoscheduler(self, *given: Any, **params: Any) -> None:
        """Let Tilesmith choose the schedule."""
        self._automatic = True

    auto_schedule = apply_autoscheduler


def _estimate(func: Function) -> Box:
    made = []
    for name in func.arg_names:
        bounds = func.placement.estimates.get(name)
        if bounds is None and name in func.placement.bounds:
            low, size = func.placement.bounds[name]
            ends = [const(0) if low is None else low, size]
            if all(isinstance(e, ir.Const) for e in ends):
                bounds = tuple(int(e.value) for e in ends)
        if bounds is None:
            raise UsageError(
                f"{func.name()}: expected sizes, or {func.name()}.set_estimate({name}, min, extent)"
            )
        made.append((bounds[0], bounds[0] + bounds[1] - 1))
    return made


def _expressions(func: Function) -> Iterator[Expr]:
    """All expressions of a Func: definitions, domains, conditions of schedules and bounds."""
    for d in func.definitions:
        yield from (*d.args, *d.values)
        if d.domain is not None:
            yield from d.domain.where
            for ends in d.domain.axes.values():
                yield from ends
        yield from d.steps.conditions()
    for ends in func.placement.bounds.values():
        yield from (e for e in ends if e is not None)


def _coordinates(image: Any) -> Box:
    """The coordinates of an image; those that the program states if there is no image yet."""
    if isinstance(image, ImageParam) and not image.is_set():
        given = [e.expected() for e in image.extents]
        if None in given:
            raise UsageError(
                f"{image.name()} has no image: call {image.name()}.set(buffer), or state its sizes "
                f"by {image.name()}.set_estimates([(min, extent), ...])"
            )
        return [ends for ends in given if ends is not None]
    return _box(_buffer(image))


def _promised(image: Any) -> list[dict[str, int]]:
    return [e.given for e in image.extents] if isinstance(image, Image) else []


def _buffer(image: Any) -> Buffer:
    return image.get() if isinstance(image, ImageParam) else image


def _box(buffer: Buffer) -> Box:
    dims = zip(buffer.mins, buffer.extents(), strict=True)
    return [(low, low + size - 1) for low, size in dims]


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
