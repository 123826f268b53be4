"""A compiled model as data: the calls, their memory, and the code.

Everything here can be written to a file or sent to another machine.  `runtime.executable` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from tilesmith.ir.target import Target
from tilesmith.perf.info import KernelInfo
from tilesmith.program.main import Main, Symbol, TensorSpec
from tilesmith.program.nodes import Arg, HostCall, KernelCall, Measurement, Report, Step, Transfer
from tilesmith.program.visit import calls_of, host_calls_of, measurements_of, slots_of
from tilesmith.support.described import Described

from .native import ALIGNMENT, round_up, zeroed_bytes

__all__ = [
    "Arg",
    "Contents",
    "KernelCall",
    "Program",
    "Symbol",
    "TensorSpec",
    "pack_constants",
]

Blob: TypeAlias = np.ndarray
"""A one-dimensional array of bytes whose address is a multiple of 64."""


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled model.

    inputs, outputs: specifications, in order.
    steps: the steps of the main function, in order.
    arena_bytes: intermediate values and the kernels' shared workspaces, at expected sizes.
    scratch_bytes: scratch memory of each thread (the largest `workspace_bytes_per_thread`), at
        expected sizes.
    constants: bytes, at a 64-byte boundary.
    objects: by symbol, the object code that defines the symbol; `ENTRY` is the main function.
    target: the machine.
    metadata: JSON values for users.
    kernels: by symbol, descriptions of kernels, where known.
    symbols: symbolic extents.  From them, the function in the object `SIZES` computes a run's
        sizes.
    size_values: number of values that the function in `SIZES` and the size functions of
        measurements compute.
    in_place: outputs that live in the memory of an input of the same type: pairs of the output's
        number and the input's number.  If the input has a default, it is a state (see `states`).
    parts: programs for a device and for the CPU, of which this program consists.  A program with
        parts has no code of its own, and its only constants are the defaults.
    defaults: contents of inputs that a caller may omit: pairs of the input's number and the offset
        of its contents in `constants`.  These inputs are the last ones and have static shapes.
    bounds: upper bounds of the extents of outputs whose shapes depend on data, by output number.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    steps: tuple[Step, ...]
    arena_bytes: int
    scratch_bytes: int
    constants: Blob
    objects: Mapping[str, bytes]
    target: Target
    metadata: Mapping[str, Any] = field(default_factory=dict)
    kernels: Mapping[str, KernelInfo] = field(default_factory=dict)
    symbols: tuple[Symbol, ...] = ()
    size_values: int = 0
    in_place: tuple[tuple[int, int], ...] = ()
    parts: tuple[Program, ...] = ()
    defaults: tuple[tuple[int, int], ...] = ()
    bounds: tuple[tuple[int, tuple[int | str, ...]], ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return self  # the program is immutable

    @cached_property
    def main(self) -> Main:
        """The main program."""
        return Main(
            self.inputs,
            self.outputs,
            self.symbols,
            self.arena_bytes,
            self.scratch_bytes,
            self.constants.nbytes,
            self.size_values,
            self.in_place,
            len(self.parts),
            self.steps,
        )

    @cached_property
    def calls(self) -> tuple[KernelCall, ...]:
        """The calls of kernels in `steps`, and in the parts, in the order of their numbers."""
        return (*calls_of(self.steps), *(c for p in self.parts for c in p.calls))

    @cached_property
    def places(self) -> tuple[Target, ...]:
        """For each of `calls`, the target of the part in which it runs."""
        own = (self.target for _ in calls_of(self.steps))
        return (*own, *(place for p in self.parts for place in p.places))

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """The copies between host and device.  Programs that run wholly on a device have none."""
        return tuple(s for s in self.steps if isinstance(s, Transfer))

    @cached_property
    def host_calls(self) -> tuple[HostCall, ...]:
        """The calls of host functions in `steps`, in the order of their numbers."""
        return (*host_calls_of(self.steps), *(c for p in self.parts for c in p.host_calls))

    @cached_property
    def default_arrays(self) -> dict[str, np.ndarray]:
        """The default contents, by name, of the inputs that a caller may omit."""
        arrays: dict[str, np.ndarray] = {}
        for i, offset in self.defaults:
            spec = self.inputs[i]
            held = self.constants[offset : offset + spec.bytes].view(spec.dtype.numpy)
            arrays[spec.name] = array = held.reshape(spec.static_shape)
            array.flags.writeable = False
        return arrays

    @cached_property
    def states(self) -> tuple[tuple[int, int], ...]:
        """Values that are kept from run to run.  Each is a pair: the output with the next value,
        and the input in which this output lives.  The input's default is the initial value.
        """
        with_default = {i for i, _ in self.defaults}
        return tuple(pair for pair in self.in_place if pair[1] in with_default)

    @cached_property
    def caller_inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs that callers give: all but the states."""
        states = {i for _, i in self.states}
        return tuple(s for i, s in enumerate(self.inputs) if i not in states)

    @cached_property
    def caller_outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs that callers get: all but the states' next values."""
        states = {o for o, _ in self.states}
        return tuple(s for o, s in enumerate(self.outputs) if o not in states)

    @cached_property
    def optional_arrays(self) -> dict[str, np.ndarray]:
        """The default contents, by name, of inputs that are not states."""
        names = {s.name for s in self.caller_inputs}
        return {name: a for name, a in self.default_arrays.items() if name in names}

    @property
    def index_limits(self) -> dict[str, int]:
        """The number of elements that each index input can select, by the input's name, at expected
        sizes.
        """
        told = self.metadata.get("indices")
        limits = told.items() if isinstance(told, dict) else ()
        return {name: n for name, n in limits if type(n) is int and n > 0}

    @property
    def described(self) -> dict[str, Described]:
        """Descriptions of inputs and outputs from the source model, by name."""
        told = self.metadata.get("described")
        pairs = told.items() if isinstance(told, dict) else ()
        return {name: Described.of_json(value) for name, value in pairs}

    @property
    def needs_callbacks(self) -> bool:
        """Whether a part of the program runs in Python, so that the program needs Python."""
        return bool(self.host_calls)

    @property
    def uses_objects(self) -> bool:
        """Whether an input or output is of a host type."""
        return any(s.dtype.is_host for s in (*self.inputs, *self.outputs))

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """The extents that `steps` measure, in the order of their numbers."""
        return tuple(measurements_of(self.steps))

    @cached_property
    def slots(self) -> int:
        """Number of slots: memory blocks that a run may grow.  The first slots are the outputs."""
        return slots_of(self.steps)

    @property
    def needs_growth(self) -> bool:
        """Whether a run allocates memory whose size it computes.  It does if a size depends on data
        and has no known bound, or if the shape of a result depends on data.
        """
        return self.slots > 0

    @cached_property
    def grown(self) -> tuple[int, ...]:
        """The numbers of the outputs whose shapes depend on data."""
        reports = (s for s in self.steps if isinstance(s, Report))
        return tuple(i for r in reports for i, _ in r.shapes)

    @property
    def expected_inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs that callers give, at expected sizes."""
        sizes = {s.name: s.sizes.expected for s in self.symbols}
        shapes = (
            tuple(sizes[d] if isinstance(d, str) else d for d in s.shape)
            for s in self.caller_inputs
        )
        return tuple(
            TensorSpec(s.name, s.dtype, shape)
            for s, shape in zip(self.caller_inputs, shapes, strict=True)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """The contents of a constant, computed only when they are written.

    bytes: size.
    write: writes the contents to zeroed memory of that size.
    """

    bytes: int
    write: Callable[[Blob], None]

    @staticmethod
    def of(array: np.ndarray) -> Contents:
        def write(out: Blob) -> None:
            out[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

        return Contents(array.nbytes, write)


def pack_constants(
    constants: Sequence[Contents], jobs: int = 1, allocate: Callable[[int], Blob] = zeroed_bytes
) -> tuple[Blob, list[int]]:
    """One blob with all `constants` at 64-byte offsets, and the offsets.

    The same object is stored only once.

    jobs: number of constants that are written in parallel.
    allocate: returns zeroed memory of a given number of bytes, at a 64-byte boundary.
    """
    places: dict[Contents, int] = {}
    end = 0
    for c in constants:
        if c not in places:
            places[c] = end
            end += round_up(max(c.bytes, 1))
    blob = allocate(round_up(end) or ALIGNMENT)
    with ThreadPoolExecutor(jobs) as pool:  # NumPy copies arrays without Python's lock
        written = [
            pool.submit(c.write, blob[offset : offset + c.bytes]) for c, offset in places.items()
        ]
        for w in written:
            w.result()
    return blob, [places[c] for c in constants]
