"""Main programs with what their interpreter needs: the loops of kernels and functions of sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilesmith.driver import kernels
from tilesmith.driver.assembly import program as assembly
from tilesmith.program.functions import SIZES
from tilesmith.program.interpret import Function
from tilesmith.support.options import Options

OPTIONS = Options.from_environment().with_(use_cache=False, use_records=False, jobs=1)
"""Options by which kernels are made in this process."""


@contextmanager
def recorded() -> Iterator[dict[str, Function]]:
    """The functions of all programs that are compiled inside with `OPTIONS`, by symbol."""
    found: dict[str, Function] = {}
    generate, sizes = kernels.generate, assembly.sizes_function

    def generated(body: Any, nest: Any, *rest: Any, **named: Any) -> Any:
        code = generate(body, nest, *rest, **named)
        found[code.symbol] = nest
        return code

    def sized(program: Any, name: str = SIZES) -> Any:
        found[name] = sizes(program, name)
        return found[name]

    kernels.generate, assembly.sizes_function = generated, sized
    try:
        yield found
    finally:
        kernels.generate, assembly.sizes_function = generate, sizes
