"""A compiled program with other weights."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.runtime.program import Program

from .assembly import pack
from .compiler import compile_model, fused_graph, structure
from .request import Request


def reloaded(request: Request, program: Program) -> Program:
    """`program` with the weights of the request: its code and new constants, or a new program where
    other contents lead to other code.
    """
    fused, session = fused_graph(request)
    if structure(fused) == program.metadata.get("structure"):
        constants, _ = pack(fused, session)
        if constants.nbytes == program.constants.nbytes:
            return replace(program, constants=constants)
    return compile_model(request)
