"""Segments of an ncnn network: consecutive layers with one input and one output blob.

ncnn's Python package has layers with one input and one output, so such a segment can be one layer.
A segment's weights are consecutive bytes of the `.bin` file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilesmith.frontend.common.errors import errors_name
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.inputs import Declared, Given
from tilesmith.frontend.common.networks import Layer, Network, NetworkImporter, load_network
from tilesmith.frontend.common.source import Source
from tilesmith.frontend.ncnn.model import Weights, read
from tilesmith.frontend.ncnn.operators import LAYERS
from tilesmith.graph.nodes import Graph, Value
from tilesmith.ir.dtypes import f32


@dataclass(frozen=True, slots=True)
class Segment:
    """Layers `first` to `last` - 1 of a network, its inputs not counted.

    bottom, top: the blobs that it reads and makes.
    shapes: their shapes.
    weights: bytes of its weights.
    graph: what it computes.
    """

    first: int
    last: int
    bottom: str
    top: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    weights: int
    graph: Graph


@dataclass(frozen=True, slots=True)
class _Imported:
    """The layers that could be imported, in order.

    values: the value of each blob.
    offsets: for each layer, the offset of its weights in the file, and the end of the last one's.
    """

    network: Network
    values: Mapping[str, Value]
    offsets: Sequence[int]

    @property
    def weights(self) -> Weights:
        return self.network.layers[0].attributes["weights"]


def segments(
    files: tuple[Path, Path],
    shapes: Mapping[str, Sequence[int]],
    kinds: Collection[str] | None,
    kept: Collection[str],
) -> list[Segment]:
    """The longest segments of a network, from its beginning to its end.

    files: the `.param` and the `.bin` file.
    shapes: shapes of inputs whose sizes the file leaves open.
    kinds: the types of layers that may be in a segment; None for all that can be imported.
    kept: blobs that no segment may hide.

    Raises ModelError for damaged files.
    """
    source = Source.of(files, "an ncnn model")
    with errors_name(str(files[0])):
        imported = _imported(read(source), Given(shapes=shapes))
        result: list[Segment] = []
        first, count = 0, len(imported.offsets) - 1
        while first < count:
            longest: tuple[int, str, str] | None = None
            for last in range(first + 1, count + 1):
                layer = imported.network.layers[last - 1]
                if kinds is not None and layer.kind not in kinds:
                    break
                if (ends := _ends(imported, first, last, kept)) is not None:
                    longest = (last, *ends)
            if longest is not None:
                result.append(_segment(imported, first, *longest))
            first = longest[0] if longest is not None else first + 1
        return result


def _imported(network: Network, given: Given) -> _Imported:
    """The network's layers up to the first one that can't be imported.  Where the weights of later
    layers begin is not known.
    """
    importer = NetworkImporter(FoldingBuilder("main"), network, LAYERS, given)
    importer.declare()
    weights: Weights | None = network.layers[0].attributes["weights"] if network.layers else None
    offsets = [0]
    for layer in network.layers:
        importer.layer(layer)
        if weights is None or not all(isinstance(importer.slot(o), Value) for o in layer.outputs):
            break
        offsets.append(weights.position)
    values = {k: v for k, v in importer.scope.names.items() if isinstance(v, Value)}
    return _Imported(network, values, offsets)


def _ends(
    imported: _Imported, first: int, last: int, kept: Collection[str]
) -> tuple[str, str] | None:
    """The only input and the only output of layers `first` to `last` - 1; None if there are more,
    or if they are not f32 tensors of known shape.
    """
    layers = imported.network.layers
    made = {name for layer in layers[first:last] for name in layer.outputs}
    read_after = {name for layer in layers[last:] for name in layer.inputs}
    read_inside = {name for layer in layers[first:last] for name in layer.inputs}
    bottoms = read_inside - made
    tops = {name for name in made if name in read_after or name in kept or name not in read_inside}
    if len(bottoms) != 1 or len(tops) != 1:
        return None
    bottom, top = bottoms.pop(), tops.pop()
    for value in (imported.values[bottom], imported.values[top]):
        if value.dtype is not f32 or not value.type.is_static or not 1 <= value.type.rank <= 4:
            return None
    return bottom, top


def _segment(imported: _Imported, first: int, last: int, bottom: str, top: str) -> Segment:
    layers: Sequence[Layer] = imported.network.layers[first:last]
    imported.weights.position = imported.offsets[first]
    bottom_shape = imported.values[bottom].type.static_shape
    network = replace(
        imported.network,
        inputs=(Declared(bottom, f32, bottom_shape),),
        outputs={top: top},
        layers=layers,
    )
    size = imported.offsets[last] - imported.offsets[first]
    shapes = bottom_shape, imported.values[top].type.static_shape
    graph = load_network(network, LAYERS, Given())
    return Segment(first, last, bottom, top, shapes, size, graph)
