"""The types of a model's inputs: as declared, with open dimensions from the caller."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tilesmith.graph.builder import array_type
from tilesmith.ir.dtypes import DType
from tilesmith.ir.types import Dim, TensorType
from tilesmith.support.arrays import bare
from tilesmith.support.errors import ModelError, OpenShapesError

from .limits import checked_dims
from .problems import shapes_hint
from .symbols import Symbols
from .weights import NewWeights

Shapes: TypeAlias = "Mapping[str, Sequence[int] | int]"
"""Shapes of inputs by name (`{"x": (1, 3, 224, 224)}`), or named dimensions (`{"batch": 1}`)."""

Values: TypeAlias = "Mapping[str, ArrayLike]"
"""Inputs fixed to constants.  Numbers and lists take the declared element type."""


@dataclass(frozen=True, slots=True)
class Declared:
    """An input as the model declares it.

    name: its name.
    dtype: element type.
    dims: for each axis a number, the name of an open dimension, or "" for an unnamed one; None if
        the rank is open.
    """

    name: str
    dtype: DType
    dims: tuple[int | str, ...] | None


@dataclass(frozen=True, slots=True)
class Given:
    """The caller's settings for the inputs of a model.

    shapes: shapes of inputs, and sizes of named dimensions.
    values: inputs that are constants.
    symbols: the dimensions that stay open.
    fallback: whether nodes without native code run on the host.
    in_place: names of outputs that live in the memory of an input and so have the input's type.
    weights: new contents of weights.
    optional: weights that become inputs with their contents as the default.
    signature: the function to import, of a model that has several; None for its main one.
    for_training: whether the graph will be trained: nothing is computed from weights, and random
        numbers are drawn by nodes.
    without_dropout: whether dropout keeps all elements where the model has it in training mode.
    """

    shapes: Shapes = field(default_factory=dict)
    values: Values = field(default_factory=dict)
    symbols: Symbols = field(default_factory=Symbols)
    fallback: bool = False
    in_place: frozenset[str] = frozenset()
    weights: NewWeights = field(default_factory=NewWeights)
    optional: tuple[str, ...] = ()
    signature: str | None = None
    for_training: bool = False
    without_dropout: bool = False


def resizable(declared: Declared, given: Given) -> Declared:
    """The declaration of an input.  A dimension that the caller sets is open, even if the model
    fixes it.
    """
    name, shapes, symbols = declared.name, given.shapes, given.symbols
    if declared.dims is None:
        return declared
    axes = enumerate(declared.dims)
    dims = tuple("" if name in shapes or symbols.opens(name, a) else d for a, d in axes)
    return replace(declared, dims=dims)


def fixed(inputs: Sequence[Declared], values: Values) -> dict[str, np.ndarray]:
    """The values as arrays.  Raises ModelError for a value that is not of the declared type."""
    dtypes = {i.name: i.dtype for i in inputs}
    arrays: dict[str, np.ndarray] = {}
    for name, value in values.items():
        array = bare(value, f"values[{name!r}]")
        dtype = dtypes.get(name)
        if dtype is not None and not isinstance(value, (np.ndarray, np.generic)):
            cast = array.astype(dtype.numpy) if array.dtype.kind in "biuf" else None
            if cast is None or (not dtype.is_float and not np.array_equal(cast, array)):
                raise ModelError(f"values[{name!r}]: expected {dtype}, found {value!r}")
            array = cast
        arrays[name] = array
    return arrays


def input_types(
    inputs: Sequence[Declared], given: Given, values: Mapping[str, np.ndarray]
) -> dict[str, TensorType]:
    """The inputs' types by name.  `given` and `values` set open dimensions; others become symbols.

    Raises ModelError for names that the model does not have, and for shapes and values that do not
    fit the declarations; OpenShapesError for an input of unknown rank.
    """
    dims_of = {i.name: i.dims for i in inputs}
    named = _named(dims_of)
    for name, argument in given.symbols.given.items():
        _check_name(name, [*dims_of, *sorted(named)], dims_of, argument)
        if name not in named:
            given.symbols.check(name, dims_of[name])
    shapes, sizes = _given(dims_of, given.shapes, values)
    types: dict[str, TensorType] = {}
    unranked: dict[str, str] = {}
    for i in inputs:
        declared = shapes.get(i.name, i.dims)
        if declared is None:
            unranked[i.name] = f"{i.name!r}: {i.dtype} of unknown rank"
            continue
        dims: list[Dim] = []
        for axis, d in enumerate(declared):
            size = sizes.get(d) if isinstance(d, str) else d
            dims.append(
                given.symbols.of(str(d), (i.name, axis, len(declared))) if size is None else size
            )
        types[i.name] = TensorType(i.dtype, checked_dims(dims, f"input {i.name!r}"))
        if i.name in values and array_type(values[i.name]) != types[i.name]:
            type_ = array_type(values[i.name])
            raise ModelError(f"values[{i.name!r}]: expected {types[i.name]}, found {type_}")
    if unranked:
        raise open_shapes(unranked)
    return types


def open_shapes(inputs: Mapping[str, str]) -> OpenShapesError:
    """The error for inputs (name -> type) whose dimensions the caller must give."""
    return OpenShapesError(
        f"inputs have dimensions that the model leaves open: {'; '.join(inputs.values())}. "
        f"{shapes_hint(next(iter(inputs)))}",
        [*inputs],
    )


def _given(
    dims_of: Mapping[str, tuple[int | str, ...] | None],
    shapes: Shapes,
    values: Mapping[str, np.ndarray],
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Shapes of inputs and sizes of named dimensions, checked against the declarations."""
    shapes_of: dict[str, tuple[int, ...]] = {}
    sizes: dict[str, int] = {}
    for v in values:
        _check_name(v, [*dims_of], dims_of, "values")
    named = _named(dims_of)
    for key, shape in shapes.items():
        _check_name(key, [*dims_of, *sorted(named)], dims_of, "shapes")
        if key not in dims_of and isinstance(shape, tuple) and len(shape) == 1:
            (shape,) = shape  # the command line passes one size as a tuple of length 1
        if key in dims_of:
            if isinstance(shape, int):
                raise ModelError(f"shapes[{key!r}]: expected a list of dimensions, found {shape}")
            shapes_of[key] = tuple(int(d) for d in shape)
            _bind(key, dims_of[key], shapes_of[key], sizes)
        elif not isinstance(shape, int) or shape < 0:
            raise ModelError(
                f"shapes[{key!r}]: expected a number for dimension {key!r}, found {shape!r}"
            )
        elif sizes.setdefault(key, shape) != shape:
            raise ModelError(f"dimension {key!r} is given as {sizes[key]} and as {shape}")
    for key, array in values.items():
        shapes_of[key] = array.shape
        _bind(key, dims_of[key], array.shape, sizes)
    return shapes_of, sizes


def _named(dims_of: Mapping[str, tuple[int | str, ...] | None]) -> set[str]:
    """The names of open dimensions."""
    return {d for dims in dims_of.values() for d in dims or () if isinstance(d, str) and d}


def _bind(
    name: str,
    dims: tuple[int | str, ...] | None,
    given: tuple[int, ...],
    sizes: dict[str, int],
) -> None:
    """Checks a given shape against the declared one and records sizes of open dimensions."""
    if dims is None:
        return
    if len(dims) != len(given):
        raise ModelError(
            f"input {name!r}: expected {len(dims)} dimensions {_shown(dims)}, found {list(given)}"
        )
    for d, n in zip(dims, given, strict=True):
        if isinstance(d, int) and d != n:
            raise ModelError(
                f"input {name!r}: expected shape {_shown(dims)}, found {list(given)}: the model "
                f"fixes {d} here; export it with an open dimension to choose another size"
            )
        if isinstance(d, str) and d and sizes.setdefault(d, n) != n:
            raise ModelError(
                f"dimension {d!r} is given as {sizes[d]} and, by input {name!r}, as {n}"
            )


def _check_name(key: str, valid: Sequence[str], inputs: Iterable[str], what: str) -> None:
    if key not in valid:
        near = difflib.get_close_matches(key, valid, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ModelError(f"{what}: no input is named {key!r}; inputs are {', '.join(inputs)}{hint}")


def _shown(dims: Sequence[int | str]) -> str:
    return f"[{', '.join(str(d or '?') for d in dims)}]"
