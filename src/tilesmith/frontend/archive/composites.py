"""Composite operators in archives that were saved before decomposition.

PyTorch decomposes these operators, if it is installed.  It gets one call at a time, never the file.
Operators that PyTorch can't decompose stay unchanged, and the importer refuses them.  Without
PyTorch, all composite operators stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tilesmith.frontend import aten  # noqa: F401  (registers operators without decompositions)
from tilesmith.frontend.archive.json_values import Json
from tilesmith.frontend.archive.kept import Expanded, Kept
from tilesmith.frontend.archive.weights import dtype_of
from tilesmith.frontend.aten.custom import registered
from tilesmith.frontend.aten.exported import Range
from tilesmith.frontend.aten.functional import written_by
from tilesmith.frontend.aten.program import Call, Ref, names_in
from tilesmith.frontend.aten.registry import OPERATORS
from tilesmith.frontend.torch.expansion import Expansion, Size, Traced
from tilesmith.support.errors import UnsupportedError


@dataclass(slots=True)
class Composites:
    """Expands the composed operators of one archive.

    ranges, hints: see `Exported`.
    guards: collects the conditions on sizes under which the new calls are valid.
    kept: decompositions from an earlier reading of the archive.
    """

    ranges: Mapping[str, Range]
    hints: Mapping[str, int]
    guards: list[str]
    kept: Kept | None = None
    _expansion: Expansion | None = None
    _found: dict[tuple[str, str], Expanded] = field(default_factory=dict)
    _are_apart: bool = True
    _known_guards: int = 0

    def __post_init__(self) -> None:
        if self.kept is not None:
            self.guards += self.kept.guards
        self._known_guards = len(self.guards)

    def expanded(self, calls: Iterable[Call], traced: Mapping[str, Json]) -> Iterator[Call]:
        """The calls, with composed operators replaced by their parts.

        traced: the archive's records about names.  Iteration over `calls` may add records.
        """
        for call in calls:
            if _is_known(call):
                yield call
                continue
            key = (call.target, call.name)
            if self.kept is not None and key in self.kept.calls:
                calls_of = self.kept.calls[key]
                yield from [call] if calls_of is None else calls_of
                continue
            calls_of = self._expanded(call, traced)
            self._are_apart &= key not in self._found
            self._found[key] = calls_of
            yield from [call] if calls_of is None else calls_of

    def keep(self) -> None:
        """Store PyTorch's decompositions in the cache, after all calls were read."""
        if self.kept is None or self.kept.is_whole or not self._found or not self._are_apart:
            return
        if self._expansion is not None:  # so PyTorch is installed
            self.kept.save(self.guards[self._known_guards :], self._found)

    def _expanded(self, call: Call, traced: Mapping[str, Json]) -> Expanded:
        try:
            self._expansion = self._expansion or Expansion(self.ranges, self.hints, self.guards)
        except ImportError:
            return None
        names = names_in([*call.args, *call.kwargs.values()])
        try:
            traced_names = {name: _traced(traced[name]) for name in names if name in traced}
        except UnsupportedError:  # the importer refuses the call for this element type
            return None
        expansion = self._expansion.of(call, traced_names)
        return None if expansion == [call] else [*_checks(call, traced_names), *expansion]


def _is_known(call: Call) -> bool:
    target = written_by(call) or call.target
    return OPERATORS.find("", target) is not None or registered(target) is not None


def _checks(call: Call, given: Mapping[str, Traced]) -> Iterator[Call]:
    """Calls that check tensors against the types for which PyTorch expanded the operator."""
    for i, (name, held) in enumerate(given.items()):
        if held.sizes is not None:
            args = [Ref(name), list(held.sizes), None, held.dtype]
            check = f"{call.name}/given{i}"
            yield Call("aten._assert_tensor_metadata.default", args, {}, check, call.where)


def _traced(found: Json) -> Traced:
    if (sizes := found.get("sizes")) is None:
        return Traced(value=_size(found))
    strides = found["strides"].list()
    if len(strides) != len(sizes.list()):
        found.bad("a stride for each size")
    return Traced(
        tuple(map(_size, sizes.list())),
        tuple(map(_size, strides)),
        dtype_of(found["dtype"]),
    )


def _size(size: Json) -> Size:
    form, extent = size.one()
    return extent.integer(0) if form == "as_int" else extent["expr_str"].text()
