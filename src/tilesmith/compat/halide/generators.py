"""Halide's generators: classes that define a pipeline for parameters.

    class Brighten(hl.Generator):
        factor = hl.GeneratorParam(2)
        input = hl.InputBuffer(hl.UInt(8), 2)
        output = hl.OutputBuffer(hl.UInt(8), 2)

        def generate(self):
            self.output[x, y] = self.input[x, y] * self.factor

        def schedule(self):
            self.output.vectorize(x, 16)

    Brighten(factor=3).compile_to_file("brighten")

Inputs and outputs are attributes, in the order in which they are declared.  `configure` may add
more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tilesmith.support.errors import UsageError

from .buffers import ImageParam, Param
from .element_types import Type
from .func import Func
from .pipeline import Pipeline
from .targets import Target

__all__ = [
    "Generator", "GeneratorParam", "Input", "InputBuffer", "InputScalar", "Output", "OutputBuffer",
    "OutputFunc", "generator", "main",
]  # fmt: skip


_TRUTHS = {"true": True, "false": False, "True": True, "False": False, "1": True, "0": False}
"""The words of a truth value."""


@dataclass(frozen=True)
class GeneratorParam:
    """A number, text, type or truth value that is known before a pipeline is defined.

    default: its value.
    low, high: the range of a number; None: no bound.
    """

    default: Any
    low: Any = None
    high: Any = None

    def checked(self, name: str, value: Any) -> Any:
        """`value`, or the number in a text.  Raises UsageError for one that is out of range."""
        kind = type(self.default)
        if isinstance(value, str) and kind is not str:
            try:
                value = _TRUTHS[value] if kind is bool else kind(value)
            except (KeyError, ValueError):
                wanted = ", ".join(_TRUTHS) if kind is bool else f"{self.default!r} or the like"
                raise UsageError(f"{name}: expected {wanted}, found {value!r}") from None
        if (self.low is not None and value < self.low) or (
            self.high is not None and value > self.high
        ):
            raise UsageError(f"{name}: expected {self.low} to {self.high}, found {value!r}")
        return value


@dataclass(frozen=True)
class Input:
    """An image or, without dimensions, a number that the pipeline reads.

    type: element type.
    dimensions: number of dimensions of an image; None for a number.
    default: the value of a number.
    """

    type: Type
    dimensions: int | None = None
    default: Any = None

    def made(self, name: str) -> ImageParam | Param:
        if self.dimensions is None:
            return Param(self.type, name, self.default)
        return ImageParam(self.type, self.dimensions, name)


@dataclass(frozen=True)
class Output:
    """An image that the pipeline computes.

    type: element type, or that of each value.
    dimensions: number of dimensions.
    """

    type: Type | Sequence[Type]
    dimensions: int


def InputScalar(type: Type, default: Any = None) -> Input:
    """A number."""
    return Input(type, None, default)


InputBuffer, OutputBuffer, OutputFunc = Input, Output, Output

_REGISTERED: dict[str, type[Generator]] = {}


class Generator:
    """The base of generators.  Keyword arguments are values of `GeneratorParam`s.

    generator_name: by which `main` finds the class.
    """

    generator_name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        _REGISTERED[cls.generator_name or cls.__name__] = cls

    def __init__(self, **params: Any) -> None:
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, tuple[Func, Output]] = {}
        declared = {n: v for c in reversed(type(self).__mro__) for n, v in vars(c).items()}
        known = [n for n, v in declared.items() if isinstance(v, GeneratorParam)]
        unknown = [n for n in params if n not in known]
        if unknown:
            raise UsageError(
                f"{type(self).__name__}: expected parameters {', '.join(known) or 'none'}, found "
                f"{unknown[0]}"
            )
        for name, value in declared.items():
            if isinstance(value, GeneratorParam):
                setattr(self, name, value.checked(name, params.get(name, value.default)))
            elif isinstance(value, (Input, Output)):
                self._declare(name, value)
        self.configure()
        self._pipeline: Pipeline | None = None

    def _declare(self, name: str, declared: Input | Output) -> Any:
        if isinstance(declared, Input):
            made = self.inputs[name] = declared.made(name)
        else:
            made = Func(name)
            self.outputs[name] = made, declared
        setattr(self, name, made)
        return made

    def add_input(self, name: str, type: Type, dimensions: int | None = None) -> Any:
        """One more input, for `configure`."""
        return self._declare(name, Input(type, dimensions))

    def add_output(self, name: str, type: Type, dimensions: int) -> Func:
        """One more output, for `configure`."""
        return self._declare(name, Output(type, dimensions))

    def configure(self) -> None:
        """Add inputs and outputs that depend on parameters."""

    def generate(self) -> None:
        """Define the outputs."""
        raise UsageError(f"{type(self).__name__}: expected a method generate")

    def schedule(self) -> None:
        """Schedule the outputs, after `generate`."""

    auto_schedule = False

    def using_autoscheduler(self) -> bool:
        return self.auto_schedule

    def get_target(self) -> Target:
        return Target()

    def natural_vector_size(self, type: Type) -> int:
        return self.get_target().natural_vector_size(type)

    def build_pipeline(self) -> Pipeline:
        """The pipeline.  Raises UsageError for an output of another type than declared."""
        if self._pipeline is None:
            self.generate()
            for name, (func, declared) in self.outputs.items():
                types = declared.type if isinstance(declared.type, Sequence) else [declared.type]
                found = func.types(), func.dimensions()
                if found != (list(types), declared.dimensions):
                    raise UsageError(
                        f"{type(self).__name__}.{name}: expected {list(types)} in "
                        f"{declared.dimensions} dimensions, found {found[0]} in {found[1]}"
                    )
            self.schedule()
            self._pipeline = Pipeline([func for func, _ in self.outputs.values()])
        return self._pipeline

    @classmethod
    def call(cls, *inputs: Any, **params: Any) -> Any:
        """The outputs for given inputs, Funcs or images, inside another pipeline."""
        made = cls(**params)
        for name, value in zip(made.inputs, inputs, strict=True):
            setattr(made, name, value)
        made.build_pipeline()
        outputs = tuple(func for func, _ in made.outputs.values())
        return outputs[0] if len(outputs) == 1 else outputs

    def realize(self, *where: Any) -> Any:
        """`Pipeline.realize`; `self.input.set(buffer)` gives the inputs."""
        return self.build_pipeline().realize(*where)

    def compile_to_file(
        self, filename_prefix: str | Path, fn_name: str = "", target: Target | None = None
    ) -> Any:
        """`Pipeline.compile_to_file` with the inputs in order."""
        return self.build_pipeline().compile_to_file(
            filename_prefix, list(self.inputs.values()), fn_name, target
        )


def generator(name: str = "") -> Callable[[type], type[Generator]]:
    """Make a generator of a class with a method `generate`."""

    def decorate(cls: type) -> type[Generator]:
        return type(cls.__name__, (cls, Generator), {"generator_name": name or cls.__name__})

    return decorate


def main(argv: Sequence[str] | None = None) -> None:
    """The command line of generators: `-g NAME -o FOLDER [-f FUNCTION] [target=T] [param=v]`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-g", required=True, choices=sorted(_REGISTERED))
    parser.add_argument("-o", required=True)
    parser.add_argument("-f", default="")
    parser.add_argument("params", nargs="*")
    given = parser.parse_args(argv)
    params = dict(p.split("=", 1) for p in given.params)
    target = Target(params.pop("target", "host"))
    name = given.f or given.g
    _REGISTERED[given.g](**params).compile_to_file(Path(given.o) / name, name, target)
