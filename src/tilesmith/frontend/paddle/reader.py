"""Import of a Paddle model, which is a program and its parameters, as a Graph."""

from __future__ import annotations

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.inputs import Given
from tilesmith.frontend.common.inspection import Inspection
from tilesmith.frontend.common.networks import (
    Network,
    inspect_network,
    load_network,
    network_nodes,
)
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.paddle import is_pir
from tilesmith.frontend.paddle.pir import read_pir
from tilesmith.frontend.paddle.program import read_program
from tilesmith.frontend.paddle.registry import OPERATORS
from tilesmith.graph.nodes import Graph


def load(source: Source, given: Given) -> Graph:
    """The graph of a model."""
    with errors_name(source.name):
        network = _network(source)
    return load_network(network, OPERATORS, given, source.name)


def nodes(source: Source) -> list[tuple[str, str]]:
    """The names and operators of a model's nodes."""
    return network_nodes(_network(source))


def inspect(source: Source) -> Inspection:
    """Facts about a model.  Raises ModelError if it is damaged."""
    return inspect_network(_network(source), OPERATORS)


def _network(source: Source) -> Network:
    assert source.content is not None  # `recognises` has seen it
    read = read_pir if is_pir(source.content) else read_program
    return read(source.content, source.companion(".pdiparams"))
