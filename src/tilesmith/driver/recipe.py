"""The recipe of an executable, by which it can get other weights.

The graph passes fold weights into one another, and choose the layout in which kernels read them.
So the model is imported with the new contents, and the passes run again.  If the new graph differs
from the old one only in the contents of constants, the constants are packed again, and no code is
generated.  Contents may also change the computation: for example, a scale of ones is left out.  In
such a case the program is compiled again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilesmith.runtime.program import Program
from tilesmith.support.cache import content_key

from .request import Request


class Recipe:
    """The request of a compilation, and the weights that the executable got since."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._keys: dict[str, str] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Recipe:
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """A restored executable has no recipe, because files do not contain the model."""
        return type(None), ()

    def __copy__(self) -> Recipe:
        made = Recipe(self.request)
        made._keys = dict(self._keys)
        return made

    def renewed(
        self,
        weights: Mapping[str, np.ndarray],
        programs: Sequence[tuple[Mapping[str, int], Program]],
    ) -> list[Program] | None:
        """Replacements of `programs` that have new weights; None if the programs already have these
        weights.

        weights: new contents by name; other weights stay.
        programs: pairs of the sizes for which a program was compiled, and the program.

        Raises ModelError, which lists all names, shapes and element types that do not fit.
        """
        keys = {name: content_key(_bytes(array)) for name, array in weights.items()}
        if keys and keys.items() <= self._keys.items():
            return None
        request = replace(self.request, weights={**(self.request.weights or {}), **weights})
        renewed_programs = [
            reloaded(replace(request, sizes=dict(sizes)), p) for sizes, p in programs
        ]
        self.request = request
        self._keys |= keys
        return renewed_programs


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def reloaded(request: Request, program: Program) -> Program:
    """`program` with the weights of the request.  Its code stays if only constants change;
    otherwise the program is compiled again.
    """
    from .assembly.program import pack  # this imports the compiler
    from .compiler import compile_model, fused_graph, structure

    fused, session = fused_graph(request)
    if structure(fused) == program.metadata.get("structure"):
        constants, _ = pack(fused, session)
        if constants.nbytes == program.constants.nbytes:
            return replace(program, constants=constants)
    return compile_model(request)
