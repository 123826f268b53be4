"""Opening models and preparing their inputs, for every verb that runs something."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tilesmith.cli.console import compiling, note
from tilesmith.driver.entry import compiled, loaded
from tilesmith.driver.module import CompiledModule
from tilesmith.driver.places import deployed, on_device
from tilesmith.driver.request import Request
from tilesmith.host_functions.values import sample
from tilesmith.ir.dtypes import f32
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.program import TensorSpec
from tilesmith.support.arrays import sample_array
from tilesmith.support.described import Described
from tilesmith.support.errors import OpenShapesError, UsageError

if TYPE_CHECKING:
    from tilesmith.frontend.common.inputs import Shapes

T = TypeVar("T")


def open_model(
    path: Path,
    wanted: Request,
    arrays: Mapping[str, np.ndarray] | None = None,
    device: str | None = None,
) -> Executable:
    """The model at `path`, ready to run: a `.tsm` is loaded, anything else compiled.

    arrays: arrays of an input file; they determine the shapes that the model and the command line
        leave symbolic.
    device: the address of the machine where it runs; None: this one.

    Raises UsageError if there is no such file, ModelError if it is damaged.
    """
    check_file(path)
    if path.suffix == ".tsm":
        _check_fits_compiled(wanted)
        wanted = replace(wanted, model=path)
        return loaded(wanted) if device is None else deployed(wanted, device)
    if wanted.require_signature is not None:
        raise UsageError("--require-signature is for a compiled .tsm file; this is a source model")
    if device is not None:
        wanted = on_device(wanted, device)
    with compiling(path.name, wanted.options.target):
        made = with_shapes_of(
            arrays or {},
            wanted.shapes,
            lambda shapes: compiled(replace(wanted, model=path, shapes=shapes)),
        )
    for told in made.program.metadata.get("narrowed", ()):
        note(f"dimension {told['dimension']!r} is {told['now']}: {told['demand']}")
    return made.in_order() if isinstance(made, CompiledModule) else made


def _check_fits_compiled(wanted: Request) -> None:
    """Raises UsageError for options that apply only to compiling."""
    advice = "; compile with it"
    rows = [
        (wanted.shapes, "--shape has", advice),
        (wanted.pins or wanted.forbid, "--pin and --forbid have", ""),
        (
            wanted.dynamic or wanted.expected or wanted.specialise,
            "--dynamic, --expected and --specialise have",
            "",
        ),
        (wanted.options.precision != "f32", "--precision has", advice),
        (wanted.in_place, "--in-place has", advice),
        (wanted.optional, "--optional has", advice),
        (wanted.signature, "--signature has", advice),
        (wanted.values, "--value has", advice),
        (wanted.target, "--target has", f"; compile the model with --target {wanted.target}"),
    ]
    for is_given, options, cure in rows:
        if is_given:
            raise UsageError(f"{options} no effect on a compiled .tsm file{cure}")


def check_file(path: Path) -> None:
    """Raises UsageError if nothing exists at `path`, ModelError for a folder without a model."""
    if not path.exists():
        raise UsageError(f"there is no file {str(path)!r}{_stdin_advice(path)}")
    if path.is_dir():
        from tilesmith.frontend.load import recognised  # imported here: few models are folders

        recognised(path)


def _stdin_advice(path: Path) -> str:
    return "; a model is no stream: write it to a file" if str(path) == "-" else ""


def with_shapes_of(
    arrays: Mapping[str, np.ndarray],
    shapes: Shapes | None,
    make: Callable[[Shapes | None], T],
) -> T:
    """The result of `make`, called with `shapes`.  If that leaves shapes of inputs open, `make` is
    called again with the shapes of `arrays` added.

    arrays: by the input's name, with or without the prefix `in_`, or "" for the only input.
    """
    try:
        return make(shapes)
    except OpenShapesError as e:
        only = [""] if len(e.inputs) == 1 else []
        from_arrays = {
            name: arrays[key].shape
            for name in e.inputs
            for key in (name, f"in_{name}", *only)
            if key in arrays
        }
        if not from_arrays:
            raise
    return make({**from_arrays, **(shapes or {})})


def check_source(path: Path, compiled: str) -> None:
    """Raises UsageError unless `path` is a file of a source model.  `compiled` is the message for a
    .tsm.
    """
    if path.suffix == ".tsm":
        raise UsageError(compiled)
    check_file(path)


def inputs_from(
    arrays: Mapping[str, np.ndarray],
    specs: Sequence[TensorSpec],
    path: Path,
    defaults: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """The arrays for the model's inputs, found by name or by `in_` + name.  Inputs without an array
    get their value in `defaults`.

    A single unnamed array serves a model with one input.  Other arrays are ignored.  Raises
    UsageError that names the missing inputs and the file's contents.
    """
    asked = [s for s in specs if s.name not in defaults]
    if set(arrays) == {""} and len(asked) == 1:
        return {**defaults, asked[0].name: arrays[""]}
    inputs = dict(defaults)
    for s in specs:
        for key in (s.name, f"in_{s.name}"):
            if key in arrays:
                inputs[s.name] = arrays[key]
                break
    missing = [str(s) for s in specs if s.name not in inputs]
    if missing:
        raise UsageError(
            f"{str(path)!r} lacks input {', '.join(missing)}; it has "
            f"{', '.join(sorted(k or 'one unnamed array' for k in arrays)) or 'nothing'}"
        )
    return inputs


def random_inputs(
    specs: Sequence[TensorSpec], seed: int, limits: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Random arrays for all inputs; the same seed gives the same arrays.

    limits: for inputs that are indices, by name, the number of elements that they index.
    """
    rng = np.random.default_rng(seed)
    return {
        s.name: sample(s.dtype, s.static_shape, rng)
        if s.dtype.is_host
        else sample_array(s.dtype.numpy, s.static_shape, rng, limits.get(s.name))
        for s in specs
    }


def _normalized(exe: Executable, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`inputs` with pictures of u8 normalised for inputs of f32, as the model's file says."""
    made = dict(inputs)
    for s in exe.inputs:
        described = exe.program.described.get(s.name, Described())
        if described.is_normalized and s.dtype is f32 and made[s.name].dtype == np.uint8:
            made[s.name] = described.normalized(made[s.name])
            note(f"the u8 numbers of {s.name!r} were {described.normalization}")
    return made


def chosen_inputs(
    exe: Executable, arrays: Mapping[str, np.ndarray], path: Path | None, seed: int
) -> dict[str, np.ndarray]:
    """The inputs for `exe`: `arrays` of the file `path`, or random ones without a file.  Inputs
    with a default keep it.
    """
    defaults = exe.program.optional_arrays
    if path is not None:
        return _normalized(exe, inputs_from(arrays, exe.inputs, path, defaults))
    specs = [s for s in exe.program.expected_inputs if s.name not in defaults]
    return {**random_inputs(specs, seed, exe.program.index_limits), **defaults}
