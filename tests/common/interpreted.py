"""Main programs with what their interpreter needs: the loops of kernels and functions of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tilesmith.driver import compiler, kernels
from tilesmith.driver.assembly import program as assembly
from tilesmith.program.functions import SIZES
from tilesmith.program.interpret import Function, interpret
from tilesmith.runtime.program import Program
from tilesmith.support.options import Options

OPTIONS = Options.from_environment().with_(use_cache=False, use_records=False, jobs=1)
"""Options by which kernels are made in this process."""


@dataclass
class Recorded:
    """The functions of programs.

    kernels: loops of kernels, by symbol.
    sizes: functions of sizes of each program, by symbol, and the program's constants.
    """

    kernels: dict[str, Function] = field(default_factory=dict)
    sizes: list[tuple[Any, dict[str, Function]]] = field(default_factory=list)

    def interpret(self, program: Program, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a program, by the interpreter."""
        own = (f for constants, f in self.sizes if constants is program.constants)
        functions = {**self.kernels, **next(own, {})}
        parts = [partial(self.interpret, p) for p in program.parts]
        return interpret(program.main, inputs, program.constants, functions, parts)


@contextmanager
def recorded() -> Iterator[Recorded]:
    """The functions of all programs that are compiled inside with `OPTIONS`."""
    found = Recorded()
    generate, sizes, assemble = kernels.generate, assembly.sizes_function, compiler.assemble
    own: dict[str, Function] = {}

    def generated(body: Any, nest: Any, *rest: Any, **named: Any) -> Any:
        code = generate(body, nest, *rest, **named)
        found.kernels[code.symbol] = nest
        return code

    def sized(program: Any, name: str = SIZES) -> Any:
        own[name] = sizes(program, name)
        return own[name]

    def assembled(*given: Any, **named: Any) -> Any:
        own.clear()
        program = assemble(*given, **named)
        found.sizes.append((program.constants, dict(own)))
        return program

    kernels.generate, assembly.sizes_function, compiler.assemble = generated, sized, assembled
    try:
        yield found
    finally:
        kernels.generate, assembly.sizes_function, compiler.assemble = generate, sizes, assemble
