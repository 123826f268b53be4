"""Layers that run on the accelerator inside a program of the CPU: a host function that runs the
layer's instructions in the simulator.  `host_functions.table` finds this module by its name.

`settings` makes the text that the program keeps; `layer` is the function that reads it.
`layer_json` and `layer_of` write and read the shapes of a layer and its machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from tilesmith.host_functions.table import host_function
from tilesmith.ir.dtypes import dtype

from .convolution import Convolution, packed_image, packed_weights, unpacked
from .kernel import AccelKernel
from .machine import Machine
from .prepared import prepared
from .simulate import run_prepared
from .text import parse

NAME = "accelerator"
"""The name of the host function."""


def settings(conv: Convolution, kernel: AccelKernel) -> str:
    """The settings of the host function for a compiled convolution, as JSON."""
    places = {buffer.name: begin for buffer, begin in kernel.places.items()}
    text = {"program": kernel.program.text(), "places": places, "size": kernel.size}
    return json.dumps(layer_json(conv, kernel.machine) | text)


def layer_json(conv: Convolution, machine: Machine) -> dict[str, Any]:
    """The shapes of a layer and the parameters of its machine as values of JSON."""
    numbers = (f.name for f in fields(Machine) if f.name != "operand")
    return {
        "convolution": asdict(conv),
        "operand": machine.operand.name,
        "machine": {name: getattr(machine, name) for name in numbers},
    }


def layer_of(
    convolution: dict[str, Any], operand: str, machine: dict[str, int]
) -> tuple[Convolution, Machine]:
    """The layer and the machine of `layer_json`."""
    conv = Convolution(**{k: _tuple(v) for k, v in convolution.items()})
    return conv, Machine(operand=dtype(operand), **machine)


@host_function(NAME, prepared=True)
def layer(
    convolution: dict[str, Any],
    operand: str,
    machine: dict[str, int],
    program: str,
    places: dict[str, int],
    size: int,
) -> Callable[..., np.ndarray]:
    """A convolution on the simulated accelerator.

    The function that is returned takes images i8[n, inputs, height, width], weights
    i8[outputs, inputs, kernel height, kernel width] and factors i32[2 or 3, outputs] (see
    `convolution.packed_weights`), and returns i8[n, outputs, rows, columns].
    """
    conv, chip = layer_of(convolution, operand, machine)
    ready = prepared(parse(program), chip)

    def place(memory: np.ndarray, name: str, array: np.ndarray) -> None:
        begin = places[name]
        memory[begin : begin + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)

    def compute(images: np.ndarray, w: np.ndarray, factors: np.ndarray) -> np.ndarray:
        before = np.zeros(size, np.uint8)
        for name, array in packed_weights(conv, chip, w, factors).items():
            place(before, name, array)
        results: list[np.ndarray] = []
        for x in images:
            memory = before.copy()
            place(memory, "x", packed_image(conv, chip, x))
            run_prepared(ready, memory)
            count = conv.blocks(chip)[0] * chip.block_out * conv.result[0] * conv.result[1]
            y = memory[places["y"] : places["y"] + count * chip.operand.bytes]
            results.append(unpacked(conv, chip, y.view(chip.operand.numpy)))
        return np.stack(results)

    return compute


def _tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, Sequence) else value
