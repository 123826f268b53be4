"""The walk over a Keras model, in which layers become nodes.  Models inside models are inlined."""

from __future__ import annotations

from typing import Any

from tilesmith.frontend.common.errors import NotedError
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.slots import FAILED
from tilesmith.frontend.common.weights import NewWeights
from tilesmith.frontend.keras.model import (
    MODELS,
    Layer,
    Reference,
    expect,
    inputs_of,
    layers_of,
    outputs_of,
)
from tilesmith.frontend.keras.node import KerasNode, Tensor, is_failed, leaves
from tilesmith.frontend.keras.older import modern
from tilesmith.frontend.keras.registry import LAYERS, MASKED, OPERATION
from tilesmith.frontend.keras.weights import Weights
from tilesmith.graph.nodes import Value
from tilesmith.support.errors import ModelError, UnsupportedError


class KerasImporter(Importer):
    """Imports one model."""

    def __init__(self, builder: FoldingBuilder, major: int, new: NewWeights) -> None:
        """major: the version of Keras.  new: new contents of weights, by name."""
        super().__init__(builder)
        self._major, self._depth, self._new = major, 0, new

    def model(
        self, kind: str, config: Any, weights: Weights, arguments: Any, prefix: str = ""
    ) -> list[Tensor]:
        """The outputs of a model.

        arguments: its inputs, in order, or by name.
        """
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ModelError(f"models stand more than {MAX_DEPTH} deep in one another")
        layers = layers_of(kind, config)
        by_name = {layer.name: layer for layer in layers}
        results: dict[tuple[str, int], Any] = {}
        for name, tensor in zip(inputs_of(kind, config, layers), leaves(arguments), strict=False):
            results[name, 0] = tensor
        outputs = outputs_of(kind, config, layers)
        for output in outputs:
            self._demand(output, by_name, results, weights, prefix)
        self._depth -= 1
        return [_pick(results, o) for o in outputs]

    def _demand(
        self,
        wanted: Reference,
        layers: dict[str, Layer],
        results: dict[tuple[str, int], Any],
        weights: Weights,
        prefix: str,
    ) -> None:
        """Adds the call of a layer that computes `wanted`, after all calls that it depends on."""
        waiting, begun = [(wanted.layer, wanted.call)], set[tuple[str, int]]()
        while waiting:
            key = waiting[-1]
            layer = layers.get(key[0])
            if key in results:
                waiting.pop()
                continue
            number = key[1] - (0 if layer is None else layer.first)
            if layer is None or not 0 <= number < len(layer.calls):
                raise ModelError(f"call {key[1]} of layer {key[0]!r} is used, but nothing makes it")
            args, kwargs = layer.calls[number]
            needs = [(r.layer, r.call) for r in leaves([args, kwargs]) if isinstance(r, Reference)]
            missing = [n for n in needs if n not in results]
            if missing and key in begun:
                raise ModelError(f"layer {key[0]!r} depends on its own result")
            if missing:
                begun.add(key)
                waiting += missing
                continue
            filled = _filled(args, results), _filled(kwargs, results)
            results[key] = self._layer(layer, weights, *filled, prefix)

    def _layer(
        self, layer: Layer, weights: Weights, args: Any, kwargs: dict[str, Any], prefix: str
    ) -> Any:
        loc, own = f"{prefix}{layer.name}", weights
        if not layer.is_operation:
            own = weights.layer(layer.group, layer.name)
        domain = OPERATION if layer.is_operation else ""
        site = Site(layer.kind, "", loc)
        result = self.attempt(
            site, lambda: [self.call(layer.kind, layer.config, own, args, kwargs, loc, domain)]
        )
        return Tensor(FAILED) if result is None else result[0]

    def call(
        self,
        kind: str,
        config: Any,
        weights: Weights,
        args: Any,
        kwargs: dict[str, Any],
        loc: str,
        domain: str = "",
    ) -> Any:
        """The result of a layer: a tensor, or a list of tensors.  Raises UnsupportedError."""
        self.builder.count()
        if is_failed([args, kwargs]):
            return Tensor(FAILED)
        if kind in MODELS and not domain:
            made = self.model(kind, config, weights, args, f"{loc}/")
            return made[0] if len(made) == 1 else made
        function = LAYERS.find(domain, kind)
        if function is None:
            raise UnsupportedError(refusal(kind, bool(domain)))
        node = KerasNode(
            self.builder,
            loc,
            loc,
            kind,
            expect(config, dict, f"the configuration of {loc!r}"),
            weights,
            tuple(args),
            kwargs,
            self._major,
            lambda stored, own, *given, **named: self._inner(stored, own, given, named, loc),
            self._new,
        )
        if not domain:
            self._autocast(node)
        with self.builder.at(loc, loc):
            made = function(node)
        mask = node.mask() if kind in MASKED and not domain else None
        return _tensors(made, mask)

    def _autocast(self, node: KerasNode) -> None:
        """Casts floats to the element type that a layer computes in."""

        def cast(tree: Any) -> Any:
            if isinstance(tree, Tensor) and isinstance(v := tree.value, Value):
                is_other = v.dtype.is_float and v.dtype is not node.computes
                return Tensor(v.cast(node.computes), tree.mask) if is_other else tree
            if isinstance(tree, dict):
                return {k: cast(v) for k, v in tree.items()}
            return [cast(v) for v in tree] if isinstance(tree, (list, tuple)) else tree

        if node.kind != "InputLayer" and node.config.get("autocast", True):
            node.args, node.kwargs = tuple(cast(node.args)), cast(node.kwargs)

    def _inner(
        self, stored: Any, weights: Weights, args: Any, kwargs: dict[str, Any], loc: str
    ) -> Any:
        """The result of a layer inside a layer.  `stored` is the serialised inner layer."""
        kind, config = str(expect(stored, dict, "a layer").get("class_name")), stored.get("config")
        if isinstance(config, dict):
            kind, config = modern(kind, config)
        result = self.call(kind, config, weights, args, kwargs, f"{loc}/{kind.lower()}")
        if is_failed(result):
            raise NotedError("a layer inside it is not supported")
        return result


def refusal(kind: str, is_operation: bool) -> str:
    """The reason why a class can't be imported."""
    if kind in ("Lambda", "TFOpLambda", "TensorFlowOpLayer"):
        return "it runs code of its author, which is not in the file; use layers or keras.ops"
    if is_operation:
        return "the operation is not supported"
    return "the layer is not supported; the file has no code of classes of one's own"


def _tensors(made: Any, mask: Value | None) -> Any:
    if isinstance(made, Value):
        return Tensor(made, mask)
    if isinstance(made, (list, tuple)):
        return [_tensors(m, mask if i == 0 else None) for i, m in enumerate(made)]
    return made


def _filled(tree: Any, results: dict[tuple[str, int], Any]) -> Any:
    """Arguments in which each reference is replaced by its tensor."""
    if isinstance(tree, Reference):
        return _pick(results, tree)
    if isinstance(tree, dict):
        return {k: _filled(v, results) for k, v in tree.items()}
    return [_filled(v, results) for v in tree] if isinstance(tree, list) else tree


def _pick(results: dict[tuple[str, int], Any], wanted: Reference) -> Any:
    tensors = list(leaves(results[wanted.layer, wanted.call]))
    if is_failed(tensors):
        return Tensor(FAILED)
    if not 0 <= wanted.index < len(tensors):
        raise ModelError(f"layer {wanted.layer!r}: expected {wanted.index + 1} results or more")
    return tensors[wanted.index]
