"""A compiled model that can be called.

An `Executable` may be called from several threads at once.  Each call takes an arena from a free
list; code and constants are only read.  Calls that overlap share the workers of the process's pool.
Arenas that no call has used for a minute are returned to the system by the next call of any
executable.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, overload

import numpy as np

from tilesmith.codegen.link import Library
from tilesmith.codegen.targets import host, missing_features
from tilesmith.ir.dtypes import i64, string
from tilesmith.program.functions import ENTRY, SIZES
from tilesmith.support.arguments import checked
from tilesmith.support.cgroup import usable_memory
from tilesmith.support.errors import ModelError, UsageError

from .arrays import (
    as_output,
    as_stored,
    at_home,
    beginning,
    check,
    check_apart,
    check_count,
    check_inputs,
    check_names,
    is_foreign,
    is_torch,
    listing,
    stored_dtype,
    stored_shape,
    to_torch,
)
from .failures import explained
from .given import as_array
from .narrowed import demands
from .native import Block, Failure, Runner, round_up, set_cores
from .program import Program, TensorSpec
from .results import Results
from .sizes import RunSizes, SizeFunction
from .threads import physical_cores, thread_count
from .tsm import load_program, save_program
from .weights import Recipe, Weights, renewed

if TYPE_CHECKING:
    from .hosting import HostFunctions
    from .profile import Profile
    from .standalone.export import Exported, Format, WeightsPlace


class Executable:
    """`exe(*arrays)` runs the model on arrays in the order of `inputs`; the result is an array, or
    a tuple for several outputs.

    NumPy arrays in, NumPy arrays out; if an input is a torch tensor, so are the outputs.
    Contiguous inputs are used in place.  Results are fresh arrays, or those that a caller gives as
    `out`.  The shape of a result may depend on data; its memory then grows while the model runs.
    """

    recipe: Recipe | None = None
    """What it was made of; None for one from a file."""

    @checked(UsageError)
    def __init__(self, program: Program, threads: int | None = None) -> None:
        if program.target.device is not None:
            raise ModelError(
                f"expected a program for a CPU, found one for {program.target.name!r}, a device; "
                "compile the model for 'native'"
            )
        missing = missing_features(host(), program.target)
        if missing:
            raise ModelError(
                f"the executable was compiled for {program.target.name} ({program.target.cpu}) "
                "and needs CPU features that "
                f"this machine lacks: {', '.join(missing)}; compile it for this machine, or for "
                "a common level like x86-64-v3"
            )
        self.program = program
        self.threads = thread_count(threads)
        set_cores(physical_cores())
        self._library = Library(list(program.objects.values()), list(program.objects))
        self._results = [
            Results(s.static_shape if s.is_static and not s.dtype.is_host else (), d)
            for s, d in ((s, stored_dtype(s.dtype)) for s in program.outputs)
        ]
        self._host: HostFunctions | None = None
        if program.needs_callbacks or program.uses_objects:
            from .hosting import HostFunctions  # few models have any

            self._host = HostFunctions(program)
        self._sizes: SizeFunction | None = None
        if program.symbols:
            self._sizes = SizeFunction(program, self._library.address(SIZES), self.threads)
        self._views = [
            s.dtype.numpy if is_foreign(s.dtype.numpy) else None for s in program.outputs
        ]
        has_views = any(v is not None for v in self._views)
        self._plain = not program.grown and not has_views
        homes = dict(program.in_place)
        self._homes = [homes.get(o) for o in range(len(program.outputs))] if homes else None
        is_quick = self._plain and self._host is None and self._homes is None
        has_growth = bool(program.grown) and not has_views
        self._grows = has_growth and self._host is None and self._homes is None
        self._is_host_plain = not has_views and self._homes is None
        others = (s if s.dtype.is_host and s.dtype is not string else None for s in program.inputs)
        self._boxes = [(i, s) for i, s in enumerate(others) if s is not None]
        self._quick = self._sizes if is_quick else None
        self._is_static = self._plain and self._host is None and self._sizes is None
        self._single = len(program.outputs) == 1
        self._one = self._results[0].fresh if self._single and self._homes is None else None
        self._runner = self._make_runner(self._library.address(ENTRY))
        self._call = self._runner.call
        self._input_count = len(program.inputs)
        self._input_names = dict.fromkeys(s.name for s in program.inputs)
        self._defaults = program.default_arrays
        self._output_names = [s.name for s in program.outputs]

    def _make_runner(self, entry: int, more_outputs: tuple[Any, ...] = ()) -> Any:
        program = self.program
        shapes = sum(len(program.outputs[i].shape) for i in program.grown)
        reported = ((stored_dtype(i64).kind, i64.bytes, (shapes,)),) if program.grown else ()
        inputs, outputs = (tuple(map(_array, s)) for s in (program.inputs, program.outputs))
        homes = () if self._homes is None else (tuple(-1 if h is None else h for h in self._homes),)
        return Runner(
            entry,
            program.constants.ctypes.data,
            program.arena_bytes,
            round_up(program.scratch_bytes),
            self.threads,
            inputs,
            (*outputs, *reported, *more_outputs),
            (self._library, program),
            max(program.slots - len(program.outputs), 0),
            len(program.outputs),
            usable_memory() or sys.maxsize,
            *homes,
        )

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.program.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.program.outputs

    @property
    def needs_growth(self) -> bool:
        """Whether a run asks for memory whose size only its data say (see `Program`)."""
        return self.program.needs_growth

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run the model.

        named: inputs by name, for those that `arrays` leaves out.  Inputs with a default
            (`optional` of `compile`) need not be given.
        out: where the results go: for a single output an array, else a sequence in the order of
            `outputs`, in which None stands for a fresh array.  An array is a NumPy array or a
            torch tensor, C-contiguous and writable, that shares no memory with an input or another
            output.  It is returned in its output's place.  Where the shape depends on data, it has
            room for the result, which is a view of its beginning.

        An output that lives in an input (`in_place` of `compile`) is written to the input's array,
        which must be writable and C-contiguous, and is returned.

        Raises ModelError if count, type or shape of the inputs or of `out` is wrong, UsageError if
        `out` shares memory with other arguments.
        """
        if named or (self._defaults and len(arrays) < self._input_count):
            arrays = self._in_places(arrays, named)
        if self._is_static and len(arrays) == self._input_count:
            if out is not None:
                results = self._room(self._given(out))
            elif self._one is not None:
                results = (self._one(),)
            elif self._homes is None:
                results = tuple([r.fresh() for r in self._results])
            else:
                pairs = zip(self._homes, self._results)
                results = tuple([r.fresh() if h is None else arrays[h] for h, r in pairs])
            status = self._call(arrays, results)
            if status == 0:
                return results[0] if self._single else results
            if isinstance(status, tuple):
                self._check(status)
        results = (self._again(arrays) if out is None else None) or self._run_checked(arrays, out)
        return results[0] if self._single else results

    def _in_places(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All inputs in order, of those by position and those by name.  Raises ModelError."""
        check_inputs(named, self.inputs)
        given, named = named, {**self._defaults, **named}
        names = [s.name for s in self.inputs]
        twice = [n for n in names[: len(arrays)] if n in given]
        if twice:
            raise ModelError(f"input {twice[0]!r} is given twice, by its position and by its name")
        absent = [n for n in names[len(arrays) :] if n not in named]
        if absent:
            raise ModelError(
                f"missing inputs: {', '.join(map(repr, absent))}; the inputs are "
                f"{listing(self.inputs)}"
            )
        return (*arrays, *(named[n] for n in names[len(arrays) :]))

    def _again(self, arrays: tuple[Any, ...]) -> tuple[np.ndarray, ...] | None:
        """The results, if a checked run had arrays of these shapes and these fit too."""
        if self._host is not None:
            return self._hosted_again(arrays, self._host)
        if self._grows:
            return self._grown_again(arrays)
        if self._quick is None or (sizes := self._quick.seen(arrays)) is None:
            return None
        results = tuple([np.empty(d or (), r.dtype) for d, r in zip(sizes.outputs, self._results)])
        status = self._call(arrays, results, sizes.call)
        self._check(status if isinstance(status, tuple) else 0)
        return None if status else results

    def _grown_again(self, arrays: tuple[Any, ...]) -> tuple[np.ndarray, ...] | None:
        """`_again` where memory of results grows.  Without symbols the runner checks all."""
        if len(arrays) != self._input_count:
            return None
        sizes = None if self._sizes is None else self._sizes.seen(arrays)
        if sizes is None and self._sizes is not None:
            return None
        room = self._room(self._none_given, sizes)
        status = self._call(arrays, room, None if sizes is None else sizes.call)
        self._check(status if isinstance(status, tuple) else 0)
        return None if status else tuple(self._found(room))

    def _hosted_again(
        self, arrays: tuple[Any, ...], host: HostFunctions
    ) -> tuple[np.ndarray, ...] | None:
        """`_again` where functions of the host run.  The runner checks that strings are strings."""
        if not self._is_host_plain or len(arrays) != self._input_count:
            return None
        if self._boxes:
            boxes = {i: as_array(arrays[i], spec) for i, spec in self._boxes}
            arrays = tuple([boxes.get(i, a) for i, a in enumerate(arrays)])
        sizes = None if self._sizes is None else self._sizes.seen(arrays)
        if sizes is None and self._sizes is not None:
            return None
        if sizes is None or self.program.grown:
            room = self._room(self._none_given, sizes)
        else:
            pairs = zip(sizes.outputs, self._results)
            room = tuple([None if d is None else np.empty(d, r.dtype) for d, r in pairs])
        found = self._call(arrays, room, None if sizes is None else sizes.call, host.native)
        if type(found) is list:
            return tuple(self._found(found) if self.program.grown else found)
        self._check(found if isinstance(found, tuple) else 0)
        return None

    @overload
    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None
    ) -> dict[str, Any]: ...
    @overload
    def run(self, inputs: Sequence[str] | None, out: Mapping[str, Any]) -> list[Any]: ...
    def run(self, inputs: Any, out: Any = None) -> dict[str, Any] | list[Any]:
        """Run the model on inputs by name; returns the outputs by name.

        out: for some outputs, arrays that the results go to (see `__call__`).

        `exe.run(None, {"x": x})` and `exe.run(["y"], {"x": x})` are ONNX Runtime's call: names of
        outputs, in which None stands for all of them, then the inputs by name.  They return a list
        of those outputs.

        Raises what a call does, ModelError for wrong or missing names, and UsageError for what is
        no mapping of names.
        """
        if _is_mapping(inputs):
            if out is None or _is_mapping(out):
                return self._run_named(inputs, out)
        elif _is_mapping(out) and (inputs is None or _is_names(inputs)):
            asked = self._output_names if inputs is None else inputs
            check_names(asked, "output", self.outputs)
            found = self._run_named(out, None)
            return [found[name] for name in asked]
        raise UsageError(
            "run: expected the inputs by name, as in exe.run({'x': x}), and out as a mapping too, "
            "or a list of the outputs' names (None: all of them) and then the inputs by name, as "
            f"in exe.run(None, {{'x': x}}); found {type(inputs).__name__} and {type(out).__name__}"
        )

    def _by_place(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Inputs in order, of those or of a single mapping of names; defaults where none is given.
        Raises ModelError.
        """
        is_value = len(self.inputs) == 1 and self.inputs[0].dtype.is_host  # which may be a dict
        if len(arrays) == 1 and _is_mapping(arrays[0]) and not is_value:
            return self._in_places((), arrays[0])
        is_short = self._defaults and len(arrays) < len(self.inputs)
        return self._in_places(arrays, {}) if is_short else arrays

    def _run_named(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The outputs by name, for inputs and arrays for outputs by name.  Raises ModelError."""
        if inputs.keys() != self._input_names.keys():
            check_inputs(inputs, self.inputs)
            inputs = {**self._defaults, **inputs}
            if absent := [s for s in self.inputs if s.name not in inputs]:
                shown = ", ".join(repr(s.name) for s in absent)
                raise ModelError(f"missing inputs: {shown}; the inputs are {listing(self.inputs)}")
        room = None
        if out is not None:
            check_names(out, "output", self.outputs)
            room = [out.get(name) for name in self._output_names]
        result = self._in_order([inputs[name] for name in self._input_names], room)
        return dict(zip(self._output_names, (result,) if self._single else result, strict=True))

    def _in_order(self, arrays: Sequence[Any], out: Any = None) -> Any:
        """The results for arrays in the order of `inputs`, however a subclass is called."""
        return self(*arrays, out=out)

    @cached_property
    def _none_given(self) -> tuple[None, ...]:
        """What a call without `out` gives for the outputs."""
        return (None,) * len(self.program.outputs)

    def _given(self, out: Any) -> tuple[Any, ...]:
        """For each output, the array that the caller gives for it, or None."""
        count = len(self.outputs)
        if out is None:
            return self._none_given
        given = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if len(given) != count:
            raise ModelError(
                f"out: expected {count} arrays ({listing(self.outputs)}), found {len(given)}"
            )
        return given

    def _room(self, given: Iterable[Any], sizes: RunSizes | None = None) -> tuple[Any, ...]:
        """The memory that results are written to: of the arrays given, and fresh; at the end that
        for the shapes of those that depend on data.
        """
        shapes = [None] * len(self.outputs) if sizes is None else sizes.outputs
        grown = self.program.grown
        room: list[Any] = []
        for i, (results, array, shape) in enumerate(zip(self._results, given, shapes, strict=True)):
            if i in grown:
                room.append(Block() if array is None else Block(array))
            elif array is not None:
                room.append(array)
            elif self.outputs[i].dtype.is_host:
                room.append(None)
            elif shape is None:
                room.append(results.fresh())
            else:
                room.append(np.empty(shape, results.dtype))
        if grown:
            count = sum(len(self.outputs[i].shape) for i in grown)
            room.append(np.empty(count, np.int64))
        return tuple(room)

    def _run_checked(self, arrays: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
        """The slow path: convert what the fast path refuses, or say what is wrong with it."""
        stored = self._stored(arrays)
        sizes = None if self._sizes is None else self._sizes.of(stored)
        given, kept = self._none_given, list(self._none_given)
        if out is not None or self._homes is not None:
            given = at_home(self.program, arrays, self._given(out))
            pairs = zip(given, self._sized_outputs(sizes), strict=True)
            kept = [None if g is None else as_output(g, s) for g, s in pairs]
            self._check_results_apart(stored, kept)
        room = self._room(kept, sizes)
        found = self._call(*self._arguments(stored, room, sizes))
        if not isinstance(found, list):  # of the results of a run with a host
            self._check(found, kept)
            found = room
        results = self._found(found)
        views = [r if v is None else r.view(v) for r, v in zip(results, self._views, strict=True)]
        fresh = map(to_torch, views) if any(map(is_torch, arrays)) else views
        return tuple(
            f if g is None else beginning(g, f.shape) for f, g in zip(fresh, given, strict=True)
        )

    def _check_results_apart(self, stored: Sequence[Any], kept: Sequence[Any]) -> None:
        """Raises UsageError if an array for a result, which is None for fresh memory, shares memory
        with another argument.
        """
        homes = {i for _, i in self.program.in_place}
        named = ((f"input {s.name!r}", a) for s, a in zip(self.inputs, stored, strict=True))
        check_apart(
            [n for i, n in enumerate(named) if i not in homes],
            [(f"output {s.name!r}", k) for s, k in zip(self.outputs, kept) if k is not None],
        )

    def _found(self, room: Sequence[Any]) -> list[np.ndarray]:
        """The results after a run, as arrays of the shapes that it found."""
        results = list(room[: len(self.outputs)])
        at = 0
        for i in self.program.grown:
            rank = len(self.outputs[i].shape)
            shape = room[-1][at : at + rank].tolist()
            results[i] = np.ndarray(shape, self._results[i].dtype, results[i])
            at += rank
        return results

    def _arguments(
        self, stored: tuple[np.ndarray, ...], room: tuple[Any, ...], sizes: RunSizes | None
    ) -> tuple[Any, ...]:
        """What `Runner.call` gets."""
        host = None if self._host is None else self._host.native
        return stored, room, None if sizes is None else sizes.call, host

    def _sized_outputs(self, sizes: RunSizes | None) -> tuple[TensorSpec, ...]:
        """The outputs of a run, with numbers for all extents that are known before it."""
        if sizes is None:
            return self.outputs
        pairs = zip(self.outputs, sizes.outputs, strict=True)
        return tuple(
            s if shape is None else TensorSpec(s.name, s.dtype, shape) for s, shape in pairs
        )

    def _stored(self, arrays: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
        check_count(arrays, self.inputs)
        converted = []
        for array, spec in zip(map(as_array, arrays, self.inputs), self.inputs, strict=True):
            if not spec.dtype.is_host:
                self._check_input(array, spec)
                array = as_stored(array)
            converted.append(array)
        return tuple(converted)

    def _check_input(self, array: np.ndarray, spec: TensorSpec) -> None:
        """`check`, whose message about a shape says which node demands it, if one does."""
        try:
            check(array, spec, "input")
        except ModelError as e:
            if array.dtype != spec.dtype.numpy:
                raise
            axes = [(spec.name, axis) for axis in range(len(spec.shape))]
            raise ModelError(f"{e}{demands(self.program, axes)}") from None

    def _check(
        self,
        status: int | list[Any] | tuple[int, int, int, tuple[int, ...]],
        given: Sequence[Any] = (),
    ) -> None:
        """Raises ModelError unless a run's status is 0 or a list of results; `given`: the arrays
        for results.
        """
        if isinstance(status, tuple):
            raise ModelError(explained(self.program, Failure(*status), given))
        if isinstance(status, int) and status < 0:
            name = (*self.inputs, *self.outputs)[-status - 1].name
            raise ModelError(f"the memory of {name!r} can't be used through the buffer protocol")

    @checked(UsageError)
    def load_weights(self, weights: Weights) -> None:
        """Give the model other weights, by their names in the source model; those that are not
        named stay.  Folded and packed weights are made anew; code only where contents decide what
        it computes (docs/weights.md).  No call may run meanwhile.

        weights: the path of a `.safetensors` file, or arrays or torch tensors by name.

        Raises ModelError, which lists all names, shapes and element types that do not fit, and
        UsageError for an executable from a `.tsm` file.
        """
        parts = self._parts()
        programs = renewed(self.recipe, weights, [(sizes, e.program) for sizes, e in parts])
        for (_, exe), program in zip(parts, programs):
            exe._become(program)

    def _become(self, program: Program) -> None:
        """Run another program from now on."""
        Executable.__init__(self, program, self.threads)

    def _parts(self) -> list[tuple[Mapping[str, int], Executable]]:
        """The executables that run this model, and the sizes that they are for."""
        return [({}, self)]

    def __reduce__(self) -> tuple[Any, ...]:
        """What `pickle` writes: the contents of a `.tsm` file."""
        return type(self), (self.program, self.threads), {"recipe": self.recipe}

    def trim(self) -> int:
        """Give memory that no call and no result uses back to the system; returns how many bytes.
        The next call takes memory anew, which costs it some time.
        """
        return self._runner.trim() + sum(r.trim() for r in self._results)

    @checked(UsageError)
    def profile(self, *arrays: Any, repeats: int = 10) -> Profile:
        """The time of each kernel on the given inputs, the least of `repeats` runs, with the
        performance model's prediction for this machine (which is measured at first use).

        arrays: the inputs in order, or a single mapping with all of them by name, as `run` takes.
        """
        # To load and run needs no compiler; the performance model, and measuring, do.
        from .profile import Profile, timed
        from .rates import machine

        arrays = self._by_place(arrays)
        before = [] if self._host is None else self._host.seconds
        best, runs, whole = self._timed(arrays, repeats, both=True)
        rates = machine()
        shapes = [a.shape for a in self._stored(arrays)]
        extents = () if self._sizes is None else self._sizes.extents(shapes)
        kernels = timed(self.program, best.tolist(), runs.tolist(), self.threads, rates, extents)
        host = () if self._host is None else self._host.times(before, 2 * max(repeats, 1))
        return Profile(kernels, whole, self.threads, rates, host)

    @checked(UsageError)
    def kernel_seconds(self, *arrays: Any, repeats: int = 10) -> np.ndarray:
        """The time of each of the program's calls, the least of `repeats` runs; inputs as for
        `profile`.
        """
        return self._timed(self._by_place(arrays), repeats)[0]

    def _timed(
        self, arrays: tuple[Any, ...], repeats: int, both: bool = False
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """The least time of each call in seconds, how often it runs, and for `both` the time of a
        whole run by the program's own main function.
        """
        from .profile import Stopwatch

        stored = self._stored(arrays)
        sizes = None if self._sizes is None else self._sizes.of(stored)
        own = {home: stored[home].copy() for _, home in self.program.in_place}
        stored = tuple(own.get(i, a) for i, a in enumerate(stored))
        homes = {out: own[home] for out, home in self.program.in_place}
        results = self._room([homes.get(o) for o in range(len(self.outputs))], sizes)
        watch = Stopwatch(self.program, self._library)
        times = watch.times()
        spec = ("i", i64.bytes, times.shape)
        runner = self._make_runner(watch.address, (spec,))
        best = np.full(len(self.program.calls), np.inf)
        whole = float("inf")
        for _ in range(max(repeats, 1)):
            times[...] = 0
            self._check(runner.call(*self._arguments(stored, (*results, times), sizes)))
            best = np.minimum(best, times[: len(best), 0] * 1e-9)
            start = time.perf_counter()
            if both:
                self._check(self._call(*self._arguments(stored, results, sizes)))
            whole = min(whole, time.perf_counter() - start)
        return best, times[: len(best), 1], whole

    @checked(UsageError)
    def save(
        self, path: str | Path | IO[bytes], sign: str | Path | None = None, stubs: bool = False
    ) -> None:
        """Write the executable to a `.tsm` file (the file appears whole or not at all), or to a
        stream, such as an `io.BytesIO`.

        sign: a secret Ed25519 key, a PEM file; `path`.sig is the signature.
        stubs: whether a Python module that loads it, and its type stub, stand beside it.
        Raises UsageError if the folder is absent, or if it can't be written to.
        """
        save_program(self.program, path, sign, stubs)

    @checked(UsageError)
    def export(
        self, folder: str | Path, name: str = "model", format: Format = "shared",
        weights: WeightsPlace = "file", sign: str | Path | None = None, glibc: str | None = None,
    ) -> Exported:  # fmt: skip
        """Write the executable as a C library, which needs no Python (see `tilesmith.export`)."""
        from .standalone.export import export

        return export([self.program], folder, name, format, weights, self.threads, sign, glibc)

    @staticmethod
    @checked(UsageError)
    def load(path: str | Path | bytes, threads: int | None = None) -> Executable:
        """The executable in a `.tsm` file, or in the bytes of one.

        The file holds machine code, which runs with your rights: load only files that you trust.
        Raises ModelError if it is damaged or needs CPU features that this machine lacks.
        """
        return Executable(load_program(path), threads)

    def __repr__(self) -> str:
        signature = f"{listing(self.inputs)} -> {listing(self.outputs)}"
        return f"<executable for {self.program.target.name}: {signature}>"


def _array(spec: TensorSpec) -> tuple[str, int, tuple[int, ...]]:
    """Kind, item size and shape of an array for `Runner`."""
    kind, shape = stored_dtype(spec.dtype).kind, stored_shape(spec)
    if spec.dtype.is_host:
        kind, shape = ("s", spec.shape) if spec.dtype is string else ("o", ())
    return kind, spec.dtype.bytes, tuple(d if isinstance(d, int) else -1 for d in shape)


def _is_names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(n, str) for n in value)


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the first is ten times as fast
