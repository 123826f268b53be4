"""TVM's run time: devices, and modules as functions of arrays."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tilesmith.runtime.arguments import KernelFunction
from tilesmith.runtime.executable import Executable
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError


@dataclass(frozen=True)
class Device:
    """A device.  Arrays live in the host's memory.

    kind: "cpu", "cuda" or "opencl".
    device_id: its number.
    exist: whether it is there; calls of a missing device raise an error.
    """

    kind: str
    device_id: int = 0
    exist: bool = field(default=True, compare=False)

    def sync(self) -> None:
        """Calls have ended when they return, so there is nothing to wait for."""


_KINDS = {
    **dict.fromkeys(("cpu", "llvm", "c"), "cpu"),
    **dict.fromkeys(("cuda", "gpu", "nvptx"), "cuda"),
    **dict.fromkeys(("opencl", "cl"), "opencl"),
}
"""The kind of device of each of TVM's names."""


@checked(UsageError)
def device(dev_type: str, dev_id: int = 0) -> Device:
    """The device of a target's kind; "llvm" and "c" are the CPU.  Raises UsageError for others."""
    kind = _KINDS.get(dev_type.partition(" ")[0])
    if kind is None:
        raise UsageError(f"device: expected {', '.join(_KINDS)}, found {dev_type!r}")
    return Device(kind, dev_id)


cpu, cuda, opencl = (partial(Device, kind) for kind in ("cpu", "cuda", "opencl"))
gpu = cuda


@dataclass(frozen=True)
class BenchmarkResult:
    """Times of calls.

    results: seconds of a call, for each repetition.
    """

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    @property
    def std(self) -> float:
        return statistics.pstdev(self.results)

    def __str__(self) -> str:
        return f"mean {self.mean * 1e3:.4f} ms, min {self.min * 1e3:.4f}, max {self.max * 1e3:.4f}"


class Module:
    """A compiled function of arrays, in place of a module with one function.

    entry_name: the name of its function.
    """

    imported_modules: tuple[Module, ...] = ()
    """Always empty: the code of a device is part of the function."""

    def __init__(self, function: KernelFunction, name: str) -> None:
        self.function = function
        self.entry_name = name

    def __call__(self, *args: Any) -> None:
        """Run it.  Outputs are among the arguments."""
        self.function(*args)

    def __getitem__(self, name: str) -> Module:
        return self.get_function(name)

    def get_function(self, name: str, query_imports: bool = False) -> Module:
        if name != self.entry_name:
            raise UsageError(f"expected the function {self.entry_name!r}, found {name!r}")
        return self

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        **other: Any,
    ) -> Callable[..., BenchmarkResult]:
        """A function of the arguments that measures calls.

        number: calls in each repetition.
        repeat: number of repetitions.
        min_repeat_ms: least length of a repetition in milliseconds; `number` grows until it is
            reached.
        """
        self.get_function(func_name)

        def evaluate(*args: Any) -> BenchmarkResult:
            return timed(self.function.bind(*args), number, repeat, min_repeat_ms)

        return evaluate

    def get_source(self, fmt: str = "") -> str:
        """The kernel's text; its machine code as text for "asm" or "s"."""
        return self.function.assembly if fmt in ("asm", "s") else self.function.source

    def export_library(self, *_: Any, **__: Any) -> NoReturn:
        raise UsageError(
            "export_library: tilesmith.export_op(schedule, folder, args=args) writes C"
        )

    save = export_library


def timed(
    run: Callable[[], object], number: int, repeat: int, min_repeat_ms: int
) -> BenchmarkResult:
    """Times of calls, after a call that is not timed.  Parameters are as for `time_evaluator`."""
    run()
    count, times = number, []
    while len(times) < repeat:
        taken = _seconds(run, count)
        if taken * 1e3 < min_repeat_ms:
            count = max(2 * count, int(count * min_repeat_ms / max(taken * 1e3, 1e-3)))
        else:
            times.append(taken / count)
    return BenchmarkResult(tuple(times))


class ExecutorFactoryModule:
    """A compiled model; `lib["default"](device)` is what `GraphModule` takes."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable

    def __getitem__(self, name: str) -> Any:
        if name != "default":
            raise UsageError(f"expected the model 'default', found {name!r}")
        return lambda device: self.executable

    def __iter__(self) -> Any:
        """Graph, library and parameters, as TVM before 0.7 returned them."""
        return iter((self.get_graph_json(), self, {}))

    def get_graph_json(self) -> str:
        """The names of inputs and outputs."""
        exe = self.executable
        return json.dumps({"inputs": [t.name for t in exe.inputs],
                           "outputs": [t.name for t in exe.outputs]})  # fmt: skip

    def get_params(self) -> dict[str, Any]:
        """Nothing: weights are part of the executable."""
        return {}

    def export_library(self, file_name: str | Path, *_: Any, **__: Any) -> None:
        """Write the executable to a file, for `tvm.runtime.load_module`."""
        self.executable.save(file_name)


def load_module(path: str | Path) -> Any:
    """The compiled model in a file that `export_library` wrote."""
    return ExecutorFactoryModule(Executable.load(path))


def _seconds(run: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return time.perf_counter() - start
