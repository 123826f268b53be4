"""The walk over a module: operations become nodes, calls are inlined, regions become graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.branches import branched, results_of
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.limits import MAX_DEPTH
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.scopes import Scope
from tilesmith.frontend.common.slots import FAILED, Failed, Slot
from tilesmith.frontend.common.weights import NewWeights
from tilesmith.frontend.common.whiles import repeated
from tilesmith.graph.builder import array_type
from tilesmith.graph.nodes import Data, Value
from tilesmith.support.errors import ModelError, UnsupportedError

from .node import StablehloNode, import_function
from .syntax import CALLS, RETURNS, Module, Operation, Region, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A region, with the scope in which it stands."""

    region: Region
    scope: Scope | None


def contents(operation: Operation) -> np.ndarray | None:
    """The elements of a constant; of rank 0 if they are one repeated element, None if there are
    none.
    """
    array = operation.attributes.get("value")
    if not isinstance(array, np.ndarray):
        return None
    is_repeated = array.size > 1 and not any(array.strides)
    return array[(0,) * array.ndim].reshape(()) if is_repeated else array


class StablehloImporter(Importer):
    """Imports one module."""

    def __init__(self, builder: FoldingBuilder, module: Module, weights: NewWeights) -> None:
        """weights: new contents for constants, by name."""
        super().__init__(builder)
        self.module = module
        self._weights = weights
        self._depth = 0

    def results(
        self, part: Part, arguments: Sequence[Slot], body: Body | None = None
    ) -> list[Slot]:
        """The results of a region for `arguments`; its nodes are added to `body`, or to the
        current graph.
        """
        declared = part.region.arguments
        if len(arguments) != len(declared):
            raise ModelError(f"expected {len(declared)} arguments, found {len(arguments)}")
        if self._depth >= MAX_DEPTH:
            raise ModelError(f"functions and regions are more than {MAX_DEPTH} deep")
        scope = Scope(part.scope, body)
        scope.names |= {name: a for (name, _), a in zip(declared, arguments, strict=True)}
        self._depth += 1
        try:
            for operation in part.region.operations:
                if operation.name in RETURNS:
                    return [scope.find(v) for v in operation.operands]
                made = self._operation(operation, scope)
                scope.names |= zip(operation.results, made, strict=True)
        finally:
            self._depth -= 1
        return []

    def _operation(self, operation: Operation, scope: Scope) -> Sequence[Slot]:
        self.builder.count()
        node = self._node(operation, scope)
        site = Site(operation.name, operation.place, node.loc)
        if any(isinstance(s, Failed) for s in node.slots):
            return [FAILED] * len(operation.results)
        results = self.attempt(site, lambda: self._made(node, scope))
        return [FAILED] * len(operation.results) if results is None else results

    def _node(self, operation: Operation, scope: Scope) -> StablehloNode:
        label = operation.results[0].lstrip("%").replace("#", "_") if operation.results else ""

        def nested(body: Body, part: object, arguments: Sequence[Slot], _: str) -> Any:
            return self.within(body, lambda: self._added(part, arguments, scope, body))

        return StablehloNode(
            self.builder,
            f"%{label}" if label else operation.place,
            "" if label.isdecimal() else label,
            lambda part, arguments, loc: self._added(part, arguments, scope),
            nested,
            tuple(scope.find(v) for v in operation.operands),
            operation,
        )

    def _made(self, node: StablehloNode, scope: Scope) -> Sequence[Slot]:
        """An operation's results.  Raises UnsupportedError."""
        operation, arguments = node.operation, node.slots
        name, regions = operation.name, operation.regions
        with self.builder.at(node.loc, node.label):
            if name in CALLS or name == "composite":
                made = results_of(self._call(operation, arguments))
            elif name == "while":
                if len(regions) != 2:
                    node.bad(f"expected two regions, found {len(regions)}")
                made = repeated(node, regions[0], regions[1], arguments)
            elif name in ("if", "case"):
                made = tuple(self._branches(node, scope))
            elif name == "constant":
                made = self._constant(node)
            else:
                function = import_function(name)
                if function is None:
                    raise UnsupportedError("the operation is not supported")
                made = function(node)
        results = made if isinstance(made, tuple) else (made,)
        if len(results) != len(operation.results):
            node.bad(f"expected {len(operation.results)} results, found {len(results)}")
        for type_, slot in zip(operation.types, results, strict=True):
            if not isinstance(slot, Value) or not isinstance(type_, Tensor):
                continue
            if slot.dtype is not type_.dtype:
                node.bad(f"declared as {type_}; the operation gives {slot.type}")
        return results

    def _call(self, operation: Operation, arguments: Sequence[Slot]) -> list[Slot]:
        name = operation.attributes.get("callee", operation.attributes.get("decomposition"))
        function = self.module.functions.get(str(name))
        if function is None:
            raise ModelError(f"the module has no function @{name}")
        return self.results(Part(function.body, None), arguments)

    def _branches(self, node: StablehloNode, scope: Scope, first: int = 0) -> Sequence[Slot]:
        """The results of the region that the operand, a bool or a number, chooses.

        Regions before `first` do not count.  A number out of range chooses the last region.
        """
        regions = node.operation.regions
        if first + 1 == len(regions) or not regions:
            return results_of(node.inline(regions[first], (), node.loc)) if regions else ()
        if node.kind == "if" and len(regions) == 2:
            made = branched(node, node.input(0), (regions[0], regions[1]))
            return made if isinstance(made, tuple) else (made,)

        def others(inner: Scope) -> Sequence[Slot]:
            return self._branches(self._node(node.operation, inner), inner, first + 1)

        made = branched(node, node.input(0).equals(first), (regions[first], others))
        return made if isinstance(made, tuple) else (made,)

    def _constant(self, node: StablehloNode) -> Value:
        array, type_ = contents(node.operation), node.output_type()
        if array is None or type_.dims is None:
            node.bad("expected a constant's elements, found none")
        held = array_type(array)
        data = Data.of(array)
        if node.label and self._depth == 1:
            data = self._weights.data(node.label, held, data)
        return node.expand(self.builder.lazy_constant(held, data, node.label), type_.dims)

    def _added(
        self, part: Any, arguments: Sequence[Slot], scope: Scope, body: Body | None = None
    ) -> list[Slot]:
        """The results of a part in `scope`.  The part is a region, or a function of a scope."""
        if isinstance(part, Region):
            return self.results(Part(part, scope), arguments, body)
        return list(part(Scope(scope, body)))
