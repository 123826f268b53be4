"""Import of a Paddle model, which is a program and its parameters, as a Graph."""

from __future__ import annotations

from tilesmith.frontend.common.networks import Network
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.paddle import is_pir
from tilesmith.frontend.paddle.pir import read_pir
from tilesmith.frontend.paddle.program import read_program


def read(source: Source) -> Network:
    """A model's files as a network.  Raises ModelError for damaged files."""
    assert source.content is not None  # `recognises` demands contents
    read_form = read_pir if is_pir(source.content) else read_program
    return read_form(source.content, source.companion(".pdiparams"))
