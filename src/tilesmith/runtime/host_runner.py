"""Native code that is called in this process.

Calls may overlap: each takes an arena from a free list, and code and constants are read-only.
Calls share the workers of the process's pool.  Arenas unused for a minute are returned to the
system by the next call.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesmith.codegen.context import Code
from tilesmith.codegen.link import Library
from tilesmith.codegen.targets import host, missing_features
from tilesmith.ir.dtypes import i64, string
from tilesmith.program.functions import ENTRY, SIZES
from tilesmith.support.cgroup import usable_memory
from tilesmith.support.errors import ModelError

from .arrays import at_home, is_foreign, stored_dtype, stored_shape
from .given import as_array, stored_inputs
from .limits import UNLIMITED, Limits
from .native import Block, Failure, round_up, set_cores
from .native import Runner as Native
from .program import Program, TensorSpec
from .results import Results
from .runner import Runner, Times, as_given, given_outputs, kept_outputs
from .sizes import RunSizes, SizeFunction, unfit_extent
from .threads import physical_cores, thread_count

if TYPE_CHECKING:
    from .hosting import HostFunctions


class HostRunner(Runner):
    """A program for the CPU, ready to run.

    sizes: computes the sizes of a run; None for a program whose dimensions are all numbers.
    host: the functions that run in Python; None if there are none.
    """

    def __init__(
        self, program: Program, threads: int | None = None, limits: Limits = UNLIMITED
    ) -> None:
        """Raises ModelError if this machine lacks features that the program needs."""
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
        self.host: HostFunctions | None = None
        if program.needs_callbacks or program.uses_objects:
            from .hosting import HostFunctions  # imported late: few models need it

            self.host = HostFunctions(program)
        self.sizes: SizeFunction | None = None
        if program.symbols:
            self.sizes = SizeFunction(program, self._library.address(SIZES), self.threads)
        self._views = [
            s.dtype.numpy if is_foreign(s.dtype.numpy) else None for s in program.outputs
        ]
        homes = dict(program.in_place)
        self._homes = [homes.get(o) for o in range(len(program.outputs))] if homes else None
        self._grown = program.grown
        has_views = any(v is not None for v in self._views)
        is_fixed = self.host is None and self.sizes is None and not self._grown
        self._is_static = is_fixed and not has_views
        self._may_repeat = not is_fixed and not has_views and self._homes is None
        others = (s if s.dtype.is_host and s.dtype is not string else None for s in program.inputs)
        self._boxes = [(i, s) for i, s in enumerate(others) if s is not None]
        self._single = len(program.outputs) == 1
        self._one = self._results[0].fresh if self._single and self._homes is None else None
        self._native = self._make_native(self._library.address(ENTRY))
        self._call = self._native.call
        self._inputs, self._outputs = program.inputs, program.outputs
        self._input_count = len(program.inputs)
        self._none_given = (None,) * len(program.outputs)

    def _make_native(self, entry: int, more_outputs: tuple[Any, ...] = ()) -> Any:
        program = self.program
        shapes = sum(len(program.outputs[i].shape) for i in program.grown)
        reported = ((stored_dtype(i64).kind, i64.bytes, (shapes,)),) if program.grown else ()
        inputs, outputs = (tuple(map(_array, s)) for s in (program.inputs, program.outputs))
        homes = () if self._homes is None else (tuple(-1 if h is None else h for h in self._homes),)
        return Native(
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

    def call(self, arrays: tuple[Any, ...], out: Any) -> Any:
        if self._is_static and len(arrays) == self._input_count:
            if out is not None:
                results = self._room(given_outputs(self.program.outputs, out))
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
                self.check(status)
        results = self._again(arrays) if out is None else None
        if not results:
            return self._run_checked(arrays, out)
        return results[0] if self._single else results

    def _again(self, arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The fast path: the results, if an earlier run checked arrays of the same shapes; else
        None.  Native code checks element types, fixed extents, and that the elements of string
        inputs are strings.
        """
        if not self._may_repeat or len(arrays) != self._input_count:
            return None
        if self._boxes:
            boxes = {i: as_array(arrays[i], spec) for i, spec in self._boxes}
            arrays = tuple([boxes.get(i, a) for i, a in enumerate(arrays)])
        sizes = None if self.sizes is None else self.sizes.seen(arrays)
        if sizes is None and self.sizes is not None:
            return None
        if sizes is None or self._grown:
            room = self._room(self._none_given, sizes)
        else:
            pairs = zip(sizes.outputs, self._results)
            room = tuple([None if d is None else np.empty(d, r.dtype) for d, r in pairs])
        status = self._call(*self._arguments(arrays, room, sizes))
        if type(status) is list:  # a run with host functions returns its results
            room = status
        elif status != 0:
            self.check(status if isinstance(status, tuple) else 0)
            return None
        return tuple(self._found(room) if self._grown else room)

    def _room(self, given: Iterable[Any], sizes: RunSizes | None = None) -> tuple[Any, ...]:
        """The memory for results: the arrays `given`, and new ones where `given` is None.  If
        shapes of results depend on data, the last item is memory for these shapes.
        """
        shapes = [None] * len(self._outputs) if sizes is None else sizes.outputs
        grown = self._grown
        room: list[Any] = []
        for i, (results, array, shape) in enumerate(zip(self._results, given, shapes, strict=True)):
            if i in grown:
                room.append(Block() if array is None else Block(array))
            elif array is not None:
                room.append(array)
            elif self._outputs[i].dtype.is_host:
                room.append(None)
            elif shape is None:
                room.append(results.fresh())
            else:
                room.append(np.empty(shape, results.dtype))
        if grown:
            count = sum(len(self._outputs[i].shape) for i in grown)
            room.append(np.empty(count, np.int64))
        return tuple(room)

    def _run_checked(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """The slow path: convert arguments that the fast path refuses, or raise an error about
        them.
        """
        stored = stored_inputs(self.program, arrays)
        sizes = None if self.sizes is None else self.sizes.of(stored)
        outputs, kept = self._none_given, list(self._none_given)
        if out is not None or self._homes is not None:
            outputs = at_home(self.program, arrays, given_outputs(self.program.outputs, out))
            kept = kept_outputs(self.program, stored, outputs, self._sized_outputs(sizes))
        room = self._room(kept, sizes)
        outcome = self._call(*self._arguments(stored, room, sizes))
        if not isinstance(outcome, list):  # a list: the results of a run with host functions
            self.check(outcome, kept)
            outcome = room
        results = self._found(outcome)
        views = [r if v is None else r.view(v) for r, v in zip(results, self._views, strict=True)]
        return as_given(views, outputs, arrays)

    def _found(self, room: Sequence[Any]) -> list[np.ndarray]:
        """The results after a run, in the shapes that the run computed."""
        results = list(room[: len(self._outputs)])
        first = 0
        for i in self._grown:
            rank = len(self._outputs[i].shape)
            shape = room[-1][first : first + rank].tolist()
            results[i] = np.ndarray(shape, self._results[i].dtype, results[i])
            first += rank
        return results

    def _arguments(
        self, stored: tuple[np.ndarray, ...], room: tuple[Any, ...], sizes: RunSizes | None
    ) -> tuple[Any, ...]:
        """Arguments of `Runner.call`."""
        host = None if self.host is None else self.host.native
        return stored, room, None if sizes is None else sizes.call, host

    def _sized_outputs(self, sizes: RunSizes | None) -> tuple[TensorSpec, ...]:
        """The outputs of a run, with numbers for all extents that are known before the run."""
        if sizes is None:
            return self._outputs
        pairs = zip(self._outputs, sizes.outputs, strict=True)
        return tuple(
            s if shape is None else TensorSpec(s.name, s.dtype, shape) for s, shape in pairs
        )

    def check(
        self,
        status: int | list[Any] | tuple[int, int, int, tuple[int, ...]],
        given: Sequence[Any] = (),
    ) -> None:
        """Raises ModelError unless a run's status is 0 or a list of results.

        given: the caller's arrays for results.
        """
        if isinstance(status, tuple):
            raise ModelError(explained(self.program, Failure(*status), given))
        if isinstance(status, int) and status < 0:
            name = (*self._inputs, *self._outputs)[-status - 1].name
            raise ModelError(f"the memory of {name!r} can't be used through the buffer protocol")

    def trim(self) -> int:
        return self._native.trim() + sum(r.trim() for r in self._results)

    def timed(self, arrays: tuple[Any, ...], repeats: int, both: bool = False) -> Times:
        from .profile import Stopwatch

        repeats, stored = max(repeats, 1), stored_inputs(self.program, arrays)
        sizes = None if self.sizes is None else self.sizes.of(stored)
        own = {home: stored[home].copy() for _, home in self.program.in_place}
        stored = tuple(own.get(i, a) for i, a in enumerate(stored))
        homes = {out: own[home] for out, home in self.program.in_place}
        results = self._room([homes.get(o) for o in range(len(self._outputs))], sizes)
        before = [] if self.host is None else self.host.seconds
        watch = Stopwatch(self.program, self._library)
        times = watch.times()
        spec = ("i", i64.bytes, times.shape)
        runner = self._make_native(watch.address, (spec,))
        best = np.full(len(self.program.calls), np.inf)
        whole = float("inf")
        for _ in range(repeats):
            times[...] = 0
            self.check(runner.call(*self._arguments(stored, (*results, times), sizes)))
            best = np.minimum(best, times[: len(best), 0] * 1e-9)
            start = time.perf_counter()
            if both:
                self.check(self._call(*self._arguments(stored, results, sizes)))
            whole = min(whole, time.perf_counter() - start)
        extents = () if self.sizes is None else self.sizes.extents([a.shape for a in stored])
        host = () if self.host is None else self.host.times(before, (1 + both) * repeats)
        return Times(best, times[: len(best), 1], whole, extents, host)

    @property
    def takes_addresses(self) -> bool:
        """True if `run_at` can run the program: no result's shape depends on data, no result lives
        in an input, and there are no host functions.
        """
        return self.host is None and self._homes is None and not self._grown

    def run_at(
        self, inputs: tuple[int, ...], outputs: tuple[int, ...], sizes: RunSizes | None = None
    ) -> None:
        """Run the model on memory that contains arrays in row-major order.  Nothing is checked:
        memory of a wrong size, or results that overlap other memory, corrupt the process.

        sizes: the result of `sizes_of`, for a program with open dimensions.

        Raises ModelError if the run fails.
        """
        more = () if sizes is None else (sizes.call,)
        status = self._native.call_at(inputs, outputs, *more)
        if status != 0:
            self.check(status)

    @property
    def native(self) -> Any:
        """The native runner, for C code that runs the program without Python."""
        return self._native

    def address(self, symbol: str) -> int:
        """The address of a function of the program.  Raises KeyError for other names."""
        return self._library.address(symbol)

    @property
    def call_at(self) -> Callable[[tuple[int, ...], tuple[int, ...]], Any]:
        """The native function behind `run_at`, for programs without open dimensions.  Returns 0, or
        a status that `check` raises as an error.
        """
        return self._native.call_at

    def sizes_of(self, arrays: Sequence[Any]) -> RunSizes | None:
        """The sizes of a run on arrays or tensors of correct types and ranks; None for a program
        without open dimensions.  Raises ModelError for sizes that the program does not accept.
        """
        return None if self.sizes is None else self.sizes.of(arrays)


def _array(spec: TensorSpec) -> tuple[str, int, tuple[int, ...]]:
    """Kind, item size and shape of an array for `Runner`."""
    kind, shape = stored_dtype(spec.dtype).kind, stored_shape(spec)
    if spec.dtype.is_host:
        kind, shape = ("s", spec.shape) if spec.dtype is string else ("o", ())
    return kind, spec.dtype.bytes, tuple(d if isinstance(d, int) else -1 for d in shape)


def explained(program: Program, failure: Failure, given: Sequence[Any]) -> str:
    """Reason why a run of `program` failed; `given`: arrays for results that the caller gave."""
    if failure.code == Code.EXTENT:
        return unfit_extent(program.measurements[failure.call], failure.values)
    if failure.code == Code.GROWTH:
        needed, slot = failure.values
        if slot < len(given) and given[slot] is not None:
            return (
                f"output {program.outputs[slot].name!r}: the result has {needed} bytes, the array "
                f"given for it {given[slot].nbytes}; give a larger one"
            )
        what = repr(program.outputs[slot].name) if slot < len(program.outputs) else "the run"
        return (
            f"{what} needs {needed} bytes more, as its data say, than the machine has; give "
            "smaller inputs"
        )
    call = program.calls[failure.call]
    return f"{call.label or call.symbol}: {failure.text(call.messages)}"
