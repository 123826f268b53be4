"""A compiled model that can be called.

`Executable` is the interface for users.  Its `Runner` runs the program on the CPU, on a device, or
part by part on both.  Several threads may call it at once.
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
from .states import States
from .tsm import load_program, save_program
from .weights import Recipe, Weights, renewed

if TYPE_CHECKING:
    from tilesmith.codegen.kernel import LaunchCall

    from .device_memory import DeviceMemory
    from .profile import Profile
    from .remote.device import RemoteDevice
    from .standalone.export import Exported, Format, WeightsPlace


class Executable:
    """A compiled model.  `exe(*arrays)` runs it on arrays in the order of `inputs`.  The result is
    an array, or a tuple of arrays if there are several outputs.

    The outputs are NumPy arrays, or torch tensors if an input is one.  Contiguous inputs are used
    in place.  Results are new arrays, or the caller's arrays in `out`.  The shape of a result may
    depend on data; its memory then grows while the model runs.  Calls on a device run one after the
    other.

    program: the compiled model as data.  If there are programs for single sizes too, this is the
        one for all sizes.
    threads: number of threads on the CPU.
    limits: limits for a device's memory and time.
    recipe: makes the programs again with other weights; None for an executable from a file.
    """

    recipe: Recipe | None = None

    @checked(UsageError)
    def __init__(
        self, program: Program, threads: int | None = None, limits: Limits = UNLIMITED
    ) -> None:
        """threads: number of threads on the CPU.
        limits: limits for a device's memory and time.

        If this machine lacks the device, the executable can still be kept, saved and shown, but not
        called.

        Raises ModelError if this machine lacks features that the program needs, DeviceError if its
        device can't be used or has not enough memory.
        """
        self._start(runner_of(program, threads, limits))

    def _start(self, runner: Runner) -> None:
        program = runner.program
        self.runner, self.program = runner, program
        self.threads, self.limits = runner.threads, runner.limits
        self._states = States(program) if program.states else None
        self._run = runner.call if self._states is None else self._states.calling(runner.call)
        self._inputs, self._outputs = program.caller_inputs, program.caller_outputs
        self._single = len(self._outputs) == 1
        self._input_count = len(self._inputs)
        self._input_names = dict.fromkeys(s.name for s in self._inputs)
        self._defaults = program.optional_arrays
        self._output_names = [s.name for s in self._outputs]

    @property
    def memory(self) -> DeviceMemory:
        """Bytes of device memory that the executable holds during its lifetime; 0 on the CPU.

        Callers' arrays and the driver's own memory are not counted.
        """
        from .device_memory import device_memory

        return device_memory(self.program)

    @property
    def launches(self) -> dict[str, tuple[LaunchCall, ...]]:
        """The launches of each device kernel, by symbol."""
        from .device_memory import launches_of

        return launches_of(self.program)

    @property
    def specialised(self) -> tuple[Sizes, ...]:
        """The sizes for which there are separate programs."""
        return tuple(sizes for sizes, _ in self.runner.variants() if sizes)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._outputs

    @property
    def states(self) -> dict[str, np.ndarray]:
        """The values that the model keeps from call to call, by name; empty for most models.

        Calls read and write these arrays.  Write to them to give a state another value; no call
        may run at the same time.
        """
        return {} if self._states is None else dict(self._states.arrays)

    def reset_states(self) -> None:
        """Reset `states` to their initial values.  No call may run at the same time."""
        if self._states is not None:
            self._states.reset()

    @checked(UsageError)
    def share_states(self, other: Executable) -> None:
        """Use the arrays of `other` for the states that both executables have, as the signatures of
        one model share variables.  From then on, calls of both happen one after the other.

        Raises UsageError if no state of `other` has the name and the type of one of `states`.
        """
        if self._states is None or other._states is None:
            raise UsageError("share_states: expected two executables with states")
        self._states.share(other._states)

    @property
    def signatures(self) -> dict[str, dict[str, dict[str, str]]]:
        """The functions that the source model has, by the names that `compile` takes.  Each has the
        entries "inputs" and "outputs", which map names to types.  Empty for a model without named
        functions.
        """
        told = self.program.metadata.get("signatures", {})
        return dict(told) if isinstance(told, dict) else {}

    @property
    def needs_growth(self) -> bool:
        """Whether a run needs memory whose size depends on data (see `Program`)."""
        return self.program.needs_growth

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run the model.

        named: inputs by name that are not in `arrays`.  Inputs with a default (`optional` of
            `compile`) may be omitted.
        out: arrays for the results: one array for a single output, else a sequence in the order of
            `outputs`, where None stands for a new array.  An array is a NumPy array or a torch
            tensor, C-contiguous and writable, and shares no memory with an input or another output.
            The array is returned as the output.  If the shape depends on data, the array must be
            large enough, and the result is a view of its beginning.

        An output that lives in an input (`in_place` of `compile`) is written to the input's array,
        which is returned.  This array must be writable and C-contiguous.

        Raises ModelError if count, type or shape of the inputs or of `out` is wrong, UsageError if
        `out` shares memory with other arguments.  Raises DeviceError if a device fails and the CPU
        does not run the model instead.  The CPU can't run it if arrays are on the device.
        """
        if named or (self._defaults and len(arrays) < self._input_count):
            arrays = self._in_places(arrays, named)
        return self._run(arrays, out)

    def _in_places(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """All inputs in order, from positional and named ones.  Raises ModelError."""
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

        out: arrays for the results of some outputs (see `__call__`).

        `exe.run(None, {"x": x})` and `exe.run(["y"], {"x": x})` have the form of ONNX Runtime's
        calls: the names of the requested outputs (None: all outputs), then the inputs by name.  The
        result is a list of the requested outputs.

        Raises the errors of a call, ModelError for wrong or missing names, and UsageError for an
        argument that is not a mapping of names.
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
        """Inputs in order, from positional inputs or a single mapping of names.  Defaults replace
        missing inputs.  Raises ModelError.
        """
        # The value of a single input of a host type may itself be a dict.
        is_value = len(self.inputs) == 1 and self.inputs[0].dtype.is_host
        if len(arrays) == 1 and _is_mapping(arrays[0]) and not is_value:
            return self._in_places((), arrays[0])
        is_short = self._defaults and len(arrays) < len(self.inputs)
        return self._in_places(arrays, {}) if is_short else arrays

    def _measured(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """The program's inputs for measured runs.  The runs use copies of the states."""
        arrays = self._by_place(arrays)
        return arrays if self._states is None else self._states.joined(arrays, copies=True)

    def _run_named(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Run the model on inputs by name, with arrays for outputs by name.  Returns the outputs by
        name.  Raises ModelError.
        """
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
        """The results for arrays in the order of `inputs`, even if a subclass has another calling
        convention.
        """
        return self._run(tuple(arrays), out)

    @checked(UsageError)
    def load_weights(self, weights: Weights) -> None:
        """Replace weights of the model, by their names in the source model.  Other weights stay.
        Folded and packed weights are computed again.  Code is generated only if the contents change
        the program (docs/weights.md).  No call may run at the same time.

        weights: the path of a `.safetensors` or GGUF file, or arrays or torch tensors by name.

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
        """Give unused memory back to the system: memory that no call and no result uses.  Returns
        the number of bytes.  The next call allocates again, which takes some time.
        """
        return self.runner.trim()

    @checked(UsageError)
    def profile(self, *arrays: Any, repeats: int = 10) -> Profile:
        """The time of each kernel on the given inputs, the minimum of `repeats` runs.  For the CPU
        the profile includes the performance model's predictions, for which the machine is measured
        at first use.

        arrays: the inputs in order, or a single mapping with all of them by name, as `run` takes.
        """
        # Loading and running a model needs no compiler; the performance model and the measurements
        # need it.
        from .profile import Profile, timed, unpredicted

        times = self.runner.timed(self._measured(arrays), repeats, both=True)
        seconds, runs = times.seconds, times.runs
        if self.program.target.device is not None or self.program.parts:
            kernels, rates = unpredicted(self.program, seconds, runs), None
        else:
            rates = self.runner.machine
            kernels = timed(
                self.program, seconds.tolist(), runs.tolist(), self.threads, rates, times.extents
            )
        return Profile(kernels, times.whole, self.threads, rates, times.host)

    @checked(UsageError)
    def kernel_seconds(self, *arrays: Any, repeats: int = 10) -> np.ndarray:
        """The time of each of the program's calls, the minimum of `repeats` runs.  Inputs are as
        for `profile`.
        """
        return self.runner.timed(self._measured(arrays), repeats).seconds

    @checked(UsageError)
    def save(
        self, path: str | Path | IO[bytes], sign: str | Path | None = None, stubs: bool = False
    ) -> None:
        """Write the executable to a `.tsm` file (the file appears whole or not at all), or to a
        stream, such as an `io.BytesIO`.

        sign: a secret Ed25519 key, a PEM file; `path`.sig is the signature.
        stubs: whether to write a Python module that loads the file, and the module's type stub,
            into the same folder.

        Raises UsageError if the folder does not exist or can't be written to.
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

    def deploy(self, device: RemoteDevice | str) -> Executable:
        """This executable on another machine, whose agent runs it.  It is called like this one.

        device: a `tilesmith.RemoteDevice`, or its address, such as `tls://board:9100`.

        Raises ModelError if the device lacks features that the program needs: compile the model
        with `target=` the device's address.  Raises DeviceError if the device can't be reached.
        """
        from .remote.device import device_of

        return executable_of(device_of(device).runner(self.program, self.threads))

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
    """The executable of a runner."""
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
    return type(value) is dict or isinstance(value, Mapping)  # the first test is quick
