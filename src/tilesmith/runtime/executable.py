"""A compiled model that can be called.

`Executable` is the face that users see; a `Runner` runs the program behind it, on the CPU, on a
device, or part by part on both.  It may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, overload

import numpy as np

from tilesmith.support.arguments import checked
from tilesmith.support.errors import ModelError, UsageError

from .arrays import check_inputs, check_names, listing
from .limits import UNLIMITED, Limits
from .program import Program, TensorSpec
from .runner import Runner, Sizes
from .running import runner_of, runner_of_sizes
from .tsm import load_program, save_program
from .weights import Recipe, Weights, renewed

if TYPE_CHECKING:
    from tilesmith.codegen.kernel import LaunchCall

    from .device_memory import DeviceMemory
    from .profile import Profile
    from .standalone.export import Exported, Format, WeightsPlace


class Executable:
    """`exe(*arrays)` runs the model on arrays in the order of `inputs`; the result is an array, or
    a tuple for several outputs.

    NumPy arrays in, NumPy arrays out; if an input is a torch tensor, so are the outputs.
    Contiguous inputs are used in place.  Results are fresh arrays, or those that a caller gives as
    `out`.  The shape of a result may depend on data; its memory then grows while the model runs.
    Calls on a device follow each other.

    program: the compiled model as data; the program for all sizes, if there are several.
    threads: number of threads on the CPU.
    limits: what the executable may take of a device.
    recipe: what it was made of; None for one from a file.
    """

    recipe: Recipe | None = None

    @checked(UsageError)
    def __init__(
        self, program: Program, threads: int | None = None, limits: Limits = UNLIMITED
    ) -> None:
        """threads: of the CPU.
        limits: what the executable may take of a device.

        A program for a device that this machine lacks can be kept, saved and shown; calls fail.

        Raises ModelError if this machine lacks what the program was compiled for, DeviceError if
        its device can't be used or has not enough memory.
        """
        self._start(runner_of(program, threads, limits))

    def _start(self, runner: Runner) -> None:
        program = runner.program
        self.runner, self.program = runner, program
        self.threads, self.limits = runner.threads, runner.limits
        self._run = runner.call
        self._single = len(program.outputs) == 1
        self._input_count = len(program.inputs)
        self._input_names = dict.fromkeys(s.name for s in program.inputs)
        self._defaults = program.default_arrays
        self._output_names = [s.name for s in program.outputs]

    @property
    def memory(self) -> DeviceMemory:
        """Memory of the device that the executable takes while it lives, in bytes; nothing on the
        CPU.

        Arrays of callers, and what the driver itself needs, are not in it.
        """
        from .device_memory import device_memory

        return device_memory(self.program)

    @property
    def launches(self) -> dict[str, tuple[LaunchCall, ...]]:
        """The launches of each kernel of a device, by symbol."""
        from .device_memory import launches_of

        return launches_of(self.program)

    @property
    def specialised(self) -> tuple[Sizes, ...]:
        """The sizes that have programs of their own."""
        return tuple(sizes for sizes, _ in self.runner.variants() if sizes)

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
        `out` shares memory with other arguments, DeviceError if a device fails and no CPU answers
        in its place, or can't since arrays lie on the device.
        """
        if named or (self._defaults and len(arrays) < self._input_count):
            arrays = self._in_places(arrays, named)
        return self._run(arrays, out)

    def _in_places(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All inputs in order, of those by position and those by name.  Raises ModelError."""
        check_inputs(named, self.inputs)
        named_given, named = named, {**self._defaults, **named}
        names = [s.name for s in self.inputs]
        twice = [n for n in names[: len(arrays)] if n in named_given]
        if twice:
            raise ModelError(f"input {twice[0]!r} is given twice, by its position and by its name")
        absent = [n for n in names[len(arrays) :] if n not in named]
        if absent:
            raise ModelError(
                f"missing inputs: {', '.join(map(repr, absent))}; the inputs are "
                f"{listing(self.inputs)}"
            )
        return (*arrays, *(named[n] for n in names[len(arrays) :]))

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
            results = self._run_named(out, None)
            return [results[name] for name in asked]
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
        return self._run(tuple(arrays), out)

    @checked(UsageError)
    def load_weights(self, weights: Weights) -> None:
        """Give the model other weights, by their names in the source model; those that are not
        named stay.  Folded and packed weights are made anew; code only where contents decide what
        it computes (docs/weights.md).  No call may run meanwhile.

        weights: the path of a `.safetensors` file, or arrays or torch tensors by name.

        Raises ModelError, which lists all names, shapes and element types that do not fit, and
        UsageError for an executable from a `.tsm` file.
        """
        variants = self.runner.variants()
        programs = [(sizes, runner.program) for sizes, runner in variants]
        for (_, runner), program in zip(variants, renewed(self.recipe, weights, programs)):
            runner.become(program)
        self._start(self.runner)

    def __reduce__(self) -> tuple[Any, ...]:
        """The contents of a pickle: those of `.tsm` files, and the limits."""
        programs = [(sizes, runner.program) for sizes, runner in self.runner.variants()]
        return _restored, (programs, self.threads, self.limits), {"recipe": self.recipe}

    def trim(self) -> int:
        """Give memory that no call and no result uses back to the system; returns how many bytes.
        The next call takes memory anew, which costs it some time.
        """
        return self.runner.trim()

    @checked(UsageError)
    def profile(self, *arrays: Any, repeats: int = 10) -> Profile:
        """The time of each kernel on the given inputs, the least of `repeats` runs, with the
        performance model's prediction for this machine (which is measured at first use).  There is
        none for a device.

        arrays: the inputs in order, or a single mapping with all of them by name, as `run` takes.
        """
        # To load and run needs no compiler; the performance model, and measuring, do.
        from .profile import Profile, timed, unpredicted
        from .rates import machine

        times = self.runner.timed(self._by_place(arrays), repeats, both=True)
        seconds, runs = times.seconds, times.runs
        if self.program.target.device is not None or self.program.parts:
            kernels, rates = unpredicted(self.program, seconds, runs), None
        else:
            rates = machine()
            kernels = timed(
                self.program, seconds.tolist(), runs.tolist(), self.threads, rates, times.extents
            )
        return Profile(kernels, times.whole, self.threads, rates, times.host)

    @checked(UsageError)
    def kernel_seconds(self, *arrays: Any, repeats: int = 10) -> np.ndarray:
        """The time of each of the program's calls, the least of `repeats` runs; inputs as for
        `profile`.
        """
        return self.runner.timed(self._by_place(arrays), repeats).seconds

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


def executable_of(runner: Runner, recipe: Recipe | None = None) -> Executable:
    """The executable of a program that is ready to run."""
    made = Executable.__new__(Executable)
    made.recipe = recipe
    made._start(runner)
    return made


def _restored(
    programs: Sequence[tuple[Sizes, Program]], threads: int, limits: Limits
) -> Executable:
    return executable_of(runner_of_sizes(programs, threads, limits))


def _is_names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(n, str) for n in value)


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the first is ten times as fast
