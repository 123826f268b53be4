"""TVM's `GraphModule`: a compiled model whose inputs and outputs are set and read one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilesmith.runtime.executable import Executable
from tilesmith.support.errors import UsageError

from ..nd import NDArray, array
from ..runtime import BenchmarkResult, Device, timed


class GraphModule:
    """A model that is run."""

    def __init__(self, module: Executable) -> None:
        self._exe = module
        self._inputs: dict[str, Any] = {}
        self._outputs: list[NDArray] = []

    @property
    def module(self) -> GraphModule:
        """This object.  Scripts call its `time_evaluator`."""
        return self

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Set an input by its name or number, or several by name."""
        given = dict(params)
        if key is not None:
            given[self._name(key)] = value
        for name, array_ in given.items():
            self._inputs[self._name(name)] = np.array(array_)

    def run(self, **input_dict: Any) -> None:
        """Run the model on the inputs that are set."""
        self.set_input(**input_dict)
        results = self._exe.run(self._inputs)
        self._outputs = [array(results[t.name]) for t in self._exe.outputs]

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """An output of the last run."""
        if not 0 <= index < len(self._outputs):
            raise UsageError(
                f"expected the number of an output below {len(self._outputs)}, found {index}; "
                "run the model first"
            )
        return self._outputs[index] if out is None else out.copyfrom(self._outputs[index])

    def get_input(self, index: str | int) -> NDArray:
        """An input that is set."""
        name = self._name(index)
        if name not in self._inputs:
            raise UsageError(f"the input {name!r} is not set")
        return array(self._inputs[name])

    def get_num_outputs(self) -> int:
        return len(self._exe.outputs)

    def get_num_inputs(self) -> int:
        return len(self._exe.inputs)

    def get_input_index(self, name: str) -> int:
        """The number of an input; -1 if there is none of this name."""
        names = [t.name for t in self._exe.inputs]
        return names.index(name) if name in names else -1

    def benchmark(
        self,
        device: Device,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        **other: Any,
    ) -> BenchmarkResult:
        """Times of runs on the inputs that are set."""
        return timed(lambda: self._exe.run(self._inputs), number, repeat, min_repeat_ms or 0)

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1, **other: Any
    ) -> Callable[[], BenchmarkResult]:
        """A function that measures runs."""
        least = int(other.get("min_repeat_ms", 0))
        return lambda: self.benchmark(dev, func_name, repeat, number, least)

    def _name(self, key: str | int) -> str:
        names = [t.name for t in self._exe.inputs]
        if isinstance(key, int) and 0 <= key < len(names):
            return names[key]
        if key not in names:
            raise UsageError(f"expected one of the inputs {', '.join(names)}, found {key!r}")
        return str(key)


def create(graph_json_str: str, libmod: Any, device: Device) -> GraphModule:
    """The module of a library, as TVM before 0.7 made it."""
    return GraphModule(libmod["default"](device))
