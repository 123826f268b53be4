"""The recipe of an executable, by which it can get other weights.

Weights are folded into one another, and packed as kernels read them, by the graph passes.  So these
run again: the model is imported with the new contents.  Where the result differs from the old one
in the contents of constants alone, the kernels stay and the constants are packed; no code is
generated.  Contents may also decide what a program computes: a scale of ones is left out.  Then
the program is compiled anew, which is right in every case.
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
    """The request that an executable was made of, and the weights that it got since."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._keys: dict[str, str] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Recipe:
        return copy.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """A file holds no model: a restored executable has no recipe."""
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
        """Programs with other weights in the place of `programs`, each for the sizes beside it;
        None if they have these weights.

        weights: new contents by name; others stay.

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
    """`program` with the weights of the request: its code and new constants, or a new program where
    other contents lead to other code.
    """
    from .assembly.program import pack  # and with it the compiler
    from .compiler import compile_model, fused_graph, structure

    fused, session = fused_graph(request)
    if structure(fused) == program.metadata.get("structure"):
        constants, _ = pack(fused, session)
        if constants.nbytes == program.constants.nbytes:
            return replace(program, constants=constants)
    return compile_model(request)
