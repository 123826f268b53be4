"""`accelerate`: replaces parts of a model for ONNX Runtime by compiled operators where that is
faster.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tilesmith.driver.request import Request
from tilesmith.runtime.threads import thread_count
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import ModelError, TilesmithError, UsageError
from tilesmith.support.measure import interleave
from tilesmith.support.options import Options

from .library import export_custom_ops
from .parts import DOMAIN, Part, Source, operator
from .spinning import NO_SPINNING, without_spinning

GAIN = 0.98
"""Upper bound on the model's time with a replaced part, relative to the time before; a smaller gain
may be noise.
"""
LEAST_NODES = 2
"""Fewest nodes in each half of a divided part.  Smaller halves are not tried, since each operator
costs a call.
"""
ROUNDS, FINAL_ROUNDS = 7, 15
"""Measured rounds for the decision about a part, and for the final comparison."""
TURN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Accelerated:
    """A model in which operators of a library compute some parts.

    model: the ONNX file.
    library: the library of operators; None if the model is unchanged, since no part became faster.
    parts: the names of the replaced nodes, for each part.
    before, after: median seconds of a run without and with the operators, measured alternately.
    """

    model: Path
    library: Path | None
    parts: tuple[tuple[str, ...], ...]
    before: float
    after: float

    def session(self, options: Any = None, **arguments: Any) -> Any:
        """An `onnxruntime.InferenceSession` of the model.

        options: `onnxruntime.SessionOptions`.  The library is added, and the session's threads do
            not spin unless the options enable it: threads that spin would take cores from the
            operators' threads.
        arguments: other arguments of `InferenceSession`, such as providers.
        """
        import onnxruntime

        options = options or onnxruntime.SessionOptions()
        if self.library is not None:
            options.register_custom_ops_library(str(self.library))
            without_spinning(options)
        return onnxruntime.InferenceSession(str(self.model), options, **arguments)


@checked(UsageError)
def accelerate(
    model: Any,
    folder: str | Path,
    *,
    inputs: Mapping[str, np.ndarray] | None = None,
    threads: int | None = None,
    seconds: float = 120.0,
    options: Options | None = None,
) -> Accelerated:
    """Replace parts of a model by compiled operators for ONNX Runtime if that makes the model
    faster on this machine.

    model: a path to an ONNX file, its bytes, or an `onnx.ModelProto`.
    folder: is created, and receives `model.onnx` and `operators.so`.
    inputs: by name, the arrays for measuring (default: random ones).  Symbolic dimensions of the
        model stay symbolic; without inputs they count as 1.
    threads: threads of a session and of its operators (default: as `compile`).
    seconds: time limit; after it no further part is tried.

    Long parts are tried first; a part that does not make the model faster is divided in two, and
    each half is tried.  ONNX Runtime's workers do not spin during measurements.  Needs the package
    `onnxruntime`.  Raises UsageError if the package is missing, ModelError for models that ONNX
    Runtime can't run.
    """
    source = _read(model)
    request = Request.of(model, options, threads=threads)
    search = _Search(source, inputs, request.options, time.monotonic() + seconds)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"{str(folder)!r} can't be made a folder: {e.strerror or e}") from e
    with tempfile.TemporaryDirectory(prefix="tilesmith-") as scratch:
        search.run(Path(scratch))
        chosen = search.chosen
        before, after = search.compared(chosen, FINAL_ROUNDS) if chosen else (0.0, 0.0)
        if not chosen or after > before:
            onnx.save(source, folder / "model.onnx")
            return Accelerated(folder / "model.onnx", None, (), before, before)
        library = folder / "operators.so"
        search.write(chosen, library)
        onnx.save(search.source.with_parts(chosen), folder / "model.onnx")
    names = tuple(tuple(n.name or n.output[0] for n in search.source.nodes(p)) for p in chosen)
    return Accelerated(folder / "model.onnx", library, names, before, after)


def _read(model: Any) -> onnx.ModelProto:
    try:
        if isinstance(model, bytes):
            model = onnx.load_from_string(model)
        elif isinstance(model, (str, os.PathLike)):
            model = onnx.load(os.fspath(model))
        elif not isinstance(model, onnx.ModelProto):
            # Integers are refused, too: `open` would take an integer as a file descriptor.
            raise TypeError("give a path, bytes or an onnx.ModelProto")
    except Exception as e:  # protobuf and the file system raise various errors
        raise UsageError(f"expected an ONNX model, found {shown(model)}: {e}") from e
    if model.ByteSize() > onnx.checker.MAXIMUM_PROTOBUF:
        raise UsageError(
            f"expected a model of at most 2 GB, found {model.ByteSize() / 1e9:.1f} GB: sessions of "
            "parts are made in memory"
        )
    return model


class _Search:
    """The search for parts that make a model faster.

    chosen: the parts found so far.
    """

    def __init__(
        self, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray] | None, options: Options,
        end: float,
    ) -> None:  # fmt: skip
        self._options, self._end = options, end
        self._threads = thread_count(options.threads)
        session = self._session(_with_all_outputs(model).SerializeToString(), optimise=False)
        self._feed = dict(inputs) if inputs is not None else _random(session.get_inputs())
        self.source = Source(model, _types(session, self._feed))
        self.chosen: tuple[Part, ...] = ()
        self._sessions: dict[tuple[Part, ...], Any] = {}
        self._models: dict[Part, bytes] = {}

    def run(self, scratch: Path) -> None:
        """Try parts, the longest first, until time is over."""
        self._scratch = scratch
        self._sessions[()] = self._session(self.source.model.SerializeToString())
        waiting = self.source.runs()
        while waiting and time.monotonic() < self._end:
            part = waiting.pop(0)
            if self._helps(part):
                self.chosen = (*self.chosen, part)
            elif len(part) >= 2 * LEAST_NODES:
                waiting += part.halves()
                waiting.sort(key=len, reverse=True)

    def _helps(self, part: Part) -> bool:
        tried = (*self.chosen, part)
        try:
            self._models[part] = self.source.model_of(part).SerializeToString()
            library = self._scratch / f"{operator(part)}.so"
            self.write(tried, library)
            made = self.source.with_parts(tried).SerializeToString()
            self._sessions[tried] = self._session(made, library)
            before, after = self.compared(tried, ROUNDS, self.chosen)
        except TilesmithError:
            return False  # a half of the part may still work and be faster
        return after <= GAIN * before

    def write(self, parts: Sequence[Part], library: Path) -> None:
        """Write the library of operators that compute these parts."""
        ops = {operator(p): self._models[p] for p in parts}
        options = self._options.with_(fallback="error")
        export_custom_ops(
            ops, library, domain=DOMAIN, threads=self._threads, pool="own", options=options
        )

    def compared(
        self, parts: tuple[Part, ...], rounds: int, others: tuple[Part, ...] = ()
    ) -> tuple[float, float]:
        """Median seconds of a run with the parts `others` replaced, and with `parts` replaced."""
        feed, sessions = self._feed, (self._sessions[others], self._sessions[parts])
        calls = {n: lambda s=s: s.run(None, feed) for n, s in zip("ab", sessions, strict=True)}
        taken = interleave(calls, rounds=rounds, turn_seconds=TURN_SECONDS)
        before, after = (statistics.median(taken[n].rounds) for n in "ab")
        return before, after

    def _session(self, model: bytes, library: Path | None = None, optimise: bool = True) -> Any:
        try:
            import onnxruntime
        except ImportError as e:
            raise UsageError("accelerate measures ONNX Runtime: pip install onnxruntime") from e

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3
        options.add_session_config_entry(*NO_SPINNING)
        if not optimise:
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        if library is not None:
            options.register_custom_ops_library(str(library))
        try:
            return onnxruntime.InferenceSession(model, options)
        except Exception as e:  # error types of ONNX Runtime
            raise ModelError(f"ONNX Runtime can't run the model: {e}") from e


def _with_all_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every intermediate value as an output.  Sessions report types only of inputs
    and outputs.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    known = {o.name for o in model.graph.output}
    for node in model.graph.node:
        made.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in node.output if name and name not in known
        )
    return made


_ELEMENTS = {name.lower(): code for name, code in onnx.TensorProto.DataType.items()}
"""ONNX's numbers of element types, by ONNX Runtime's names of the types.  These names are ONNX's
names in small letters.
"""


def _types(session: Any, feed: Mapping[str, np.ndarray]) -> dict[str, onnx.TypeProto]:
    """The types of a session's inputs and outputs that are tensors.

    An extent that the session does not know is symbolic.  For an unknown shape the session reports
    (), as for a scalar.  So the rank is taken from the arrays of a run.
    """
    try:
        arrays = [*(feed[v.name] for v in session.get_inputs()), *session.run(None, feed)]
    except Exception as e:  # error types of ONNX Runtime
        raise ModelError(f"ONNX Runtime can't run the model on these inputs: {e!r}") from e
    types = {}
    for value, array in zip((*session.get_inputs(), *session.get_outputs()), arrays, strict=True):
        element = _element_of(value)
        if element is None:
            continue
        shape = value.shape if len(value.shape) == array.ndim else [None] * array.ndim
        named = [f"{value.name}.{a}" if n is None else n for a, n in enumerate(shape)]
        types[value.name] = onnx.helper.make_tensor_type_proto(element, named)
    return types


def _element_of(value: Any) -> int | None:
    """The number of the element type of a session's value; None if it is not a tensor."""
    kind, _, element = value.type.rstrip(")").partition("(")
    return _ELEMENTS.get(element) if kind == "tensor" else None


def _random(inputs: Sequence[Any]) -> dict[str, np.ndarray]:
    """Random arrays for inputs: normal floats, and integers 0 and 1.  Symbolic extents are 1."""
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for value in inputs:
        element = _element_of(value)
        if element is None or element == onnx.TensorProto.STRING:
            raise UsageError(
                f"give inputs=: {value.name!r} is {value.type}, not a tensor of numbers"
            )
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
        shape = [n if isinstance(n, int) else 1 for n in value.shape]
        if np.issubdtype(dtype, np.floating):
            arrays[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            arrays[value.name] = rng.integers(0, 2, shape).astype(dtype)
    return arrays
