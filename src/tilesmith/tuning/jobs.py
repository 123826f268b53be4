"""Messages to and from the process that runs candidates: plain JSON values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np

from tilesmith.codegen.kernel import KernelCode, with_head, without_head
from tilesmith.ir.dtypes import BY_NAME, DType
from tilesmith.ir.layout import Layout
from tilesmith.ir.symbols import expected

Outcome: TypeAlias = Literal["ok", "slow", "wrong", "crash", "timeout", "memory", "failed"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of a kernel.

    dtype: element type by name.
    shape: logical extents.
    layout: the layout's text; None for row-major.
    cold: total bytes of the copies of the argument.  Runs read the copies in turn, since in the
        program other data would evict the argument from the caches before the next call.
    """

    dtype: str
    shape: tuple[int, ...]
    layout: str | None = None
    cold: int = 0

    @property
    def type(self) -> DType:
        return BY_NAME[self.dtype]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.type.bytes

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The physical array for a logical one."""
        plain = Layout.parse(self.layout).pack(array) if self.layout else array
        return np.ascontiguousarray(plain)

    def unpack(self, array: np.ndarray) -> np.ndarray:
        """The logical array in a physical one."""
        return Layout.parse(self.layout).unpack(array, self.shape) if self.layout else array

    @property
    def physical_shape(self) -> tuple[int, ...]:
        return Layout.parse(self.layout).physical_shape(self.shape) if self.layout else self.shape

    @property
    def physical_bytes(self) -> int:
        return int(np.prod(self.physical_shape, dtype=np.int64)) * self.type.bytes


@dataclass(frozen=True, slots=True)
class Runnable:
    """Object code of a kernel and the way to call it.

    symbol: the kernel's name.
    code: object code.
    inputs: its parameters that are read.
    outputs: its parameters that are written, after the inputs.
    workspace: bytes of shared workspace.
    workspace_per_thread: bytes of scratch memory per thread.
    """

    symbol: str
    code: bytes = field(repr=False)
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    workspace: int = 0
    workspace_per_thread: int = 0

    @staticmethod
    def of(kernel: KernelCode, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Runnable:
        return Runnable(
            kernel.symbol,
            kernel.code,
            tuple(inputs),
            tuple(outputs),
            expected(kernel.workspace),
            expected(kernel.workspace_per_thread),
        )

    @property
    def digest(self) -> str:
        """A digest that is equal for equal code called in the same way."""
        return hashlib.blake2b(json.dumps(self._head()).encode() + self.code).hexdigest()

    def _head(self) -> dict[str, Any]:
        head = {k: getattr(self, k) for k in ("symbol", "workspace", "workspace_per_thread")}
        args = {k: [asdict(a) for a in getattr(self, k)] for k in ("inputs", "outputs")}
        return {**head, **args}

    def to_bytes(self) -> bytes:
        return with_head(self._head(), self.code)

    @staticmethod
    def from_bytes(blob: bytes) -> Runnable:
        head, code = without_head(blob)
        inputs, outputs = (tuple(_argument(a) for a in head.pop(k)) for k in ("inputs", "outputs"))
        return Runnable(code=code, inputs=inputs, outputs=outputs, **head)


def _argument(a: Mapping[str, Any]) -> Argument:
    return Argument(a["dtype"], tuple(a["shape"]), a["layout"], a["cold"])


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """Settings of a measurement.

    threads: threads of the kernel.
    bounds: for each output, the allowed error relative to the largest magnitude.
    seconds: approximate time of all runs.
    give_up: ratio to the baseline above which measuring a candidate stops.
    flush_bytes: bytes of other memory that are read before each run, to empty the caches.
    device: the target as JSON for kernels that run on a device; None: on the CPU.
    """

    threads: int
    bounds: tuple[float, ...]
    seconds: float = 0.06
    give_up: float = 1.3
    flush_bytes: int = 0
    device: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of measuring.

    outcome: status of the trial.
    seconds: time of the candidate, measured alternately with the baseline.
    baseline: seconds of the baseline.
    text: description of a failure.
    """

    outcome: Outcome
    seconds: float = 0.0
    baseline: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """A candidate to measure alternately with a baseline.

    arrays: file of inputs and expected outputs.
    baseline: the analytic kernel.
    candidate: the kernel to measure.
    plan: settings.
    """

    arrays: Path
    baseline: Runnable
    candidate: Runnable
    plan: MeasurePlan

    def to_bytes(self) -> bytes:
        first = self.baseline.to_bytes()
        head = {"arrays": str(self.arrays), "plan": asdict(self.plan), "first": len(first)}
        return with_head(head, first + self.candidate.to_bytes())

    @staticmethod
    def from_bytes(blob: bytes) -> MeasureJob:
        head, rest = without_head(blob)
        length = head["first"]
        return MeasureJob(
            Path(head["arrays"]),
            Runnable.from_bytes(rest[:length]),
            Runnable.from_bytes(rest[length:]),
            MeasurePlan(**{**head["plan"], "bounds": tuple(head["plan"]["bounds"])}),
        )


def answer_bytes(answer: Answer) -> bytes:
    return json.dumps(asdict(answer)).encode()


def answer_of(blob: bytes) -> Answer:
    return Answer(**json.loads(blob))


def save_arrays(
    path: Path | IO[bytes],
    inputs: Sequence[np.ndarray],
    references: Sequence[Sequence[np.ndarray]],
) -> None:
    """Write logical inputs and reference outputs as raw bytes: this suits every element type."""
    named = {f"in.{i}": a for i, a in enumerate(inputs)}
    named |= {f"out{n}.{i}": a for n, r in enumerate(references) for i, a in enumerate(r)}
    raw = {k: np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8) for k, a in named.items()}
    np.savez(path, **raw)  # type: ignore[arg-type]  # its keywords are arrays


def load_inputs(path: Path | IO[bytes], arguments: Sequence[Argument]) -> list[np.ndarray]:
    """The input arrays for `arguments`."""
    with np.load(path) as saved:
        return _loaded(saved, arguments, "in")


def load_references(
    path: Path | IO[bytes], arguments: Sequence[Argument]
) -> list[list[np.ndarray]]:
    """The references of each output in `arguments`."""
    with np.load(path) as saved:
        kinds = dict.fromkeys(k.partition(".")[0] for k in saved)
        references = [_loaded(saved, arguments, k) for k in kinds if k != "in"]
    return [list(r) for r in zip(*references, strict=True)]


def _loaded(
    saved: Mapping[str, np.ndarray], arguments: Sequence[Argument], kind: str
) -> list[np.ndarray]:
    return [
        saved[f"{kind}.{i}"].view(a.type.numpy).reshape(a.shape) for i, a in enumerate(arguments)
    ]
