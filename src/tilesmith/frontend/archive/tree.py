"""The nesting of an archived program's arguments and results, without PyTorch's pytrees."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.archive.json_values import Json
from tilesmith.frontend.aten.exported import bound, name_of
from tilesmith.support.errors import ModelError

_DEEPEST = 64
"""Upper bound on the depth of trees."""

_KINDS: dict[str, type] = {
    "builtins.tuple": tuple,
    "builtins.list": list,
    "torch.fx.immutable_collections.immutable_list": list,
    "builtins.dict": dict,
    "collections.OrderedDict": OrderedDict,
    "torch.fx.immutable_collections.immutable_dict": dict,
}
"""Containers by the names that PyTorch gives them."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tensor or number, or a container of tensors and numbers.

    kind: tuple, list or dict; None for a tensor or a number.  Another container is a dict if its
        parts have names, else a tuple.
    keys: keys of the parts, in order.
    parts: the parts, in order.
    type: PyTorch's name of a container type that is not in `_KINDS`; empty for the types in it.
    """

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    parts: tuple[Tree, ...] = ()
    type: str = ""

    @staticmethod
    def of(text: Json) -> Tree:
        """The tree from the text that `torch.utils._pytree.treespec_dumps` writes, in version 1."""
        try:
            json_value = Json(json.loads(text.text()), text.place)
        except (ValueError, RecursionError):
            text.bad("JSON of a tree")
        version, *trees = json_value.list() or [json_value]
        if version.value != 1 or len(trees) != 1:
            json_value.bad("a tree of version 1")
        return Tree._of(trees[0], 0)

    @staticmethod
    def _of(found: Json, depth: int) -> Tree:
        if depth > _DEEPEST:
            found.bad(f"a tree of at most {_DEEPEST} levels")
        parts = tuple(Tree._of(p, depth + 1) for p in found["children_spec"].list())
        type_name = found.get("type")
        if type_name is None:
            return Tree()
        name = type_name.text()
        context = _context(found.get("context"))
        has_names = isinstance(context, list) and len(context) == len(parts)
        kind = _KINDS.get(name)
        is_other = kind is None
        if kind is None:
            is_dict = has_names and all(isinstance(k, str) for k in context)
            kind = dict if is_dict else tuple
        if issubclass(kind, dict) and not has_names:
            found.bad(f"a key for each of {len(parts)} parts")
        keys = tuple(context) if issubclass(kind, dict) else tuple(range(len(parts)))
        if any(isinstance(k, (list, dict)) for k in keys):
            found.bad("keys that are text or numbers")
        return Tree(kind, keys, parts, name if is_other else "")

    def leaves(self, given: Any) -> Iterator[Any]:
        """The tensors and numbers in `given`.  Raises ModelError for another nesting."""
        if self.kind is None:
            yield given
            return
        if self.type:
            raise ModelError(
                f"an argument is a {self.type}, which only PyTorch can take apart; give the inputs "
                "by name to run()"
            )
        fits = isinstance(given, Mapping if issubclass(self.kind, dict) else self.kind)
        if fits and len(given) == len(self.parts):
            wanted = given if issubclass(self.kind, dict) else range(len(self.parts))
            if set(wanted) == set(self.keys):
                for key, part in zip(self.keys, self.parts, strict=True):
                    yield from part.leaves(given[key])
                return
        raise ModelError(
            f"expected arguments of the structure {self}, as the example inputs have, found a "
            f"{type(given).__name__}"
        )

    def restored(self, leaves: Iterator[Any]) -> Any:
        """The container with `leaves` as its tensors and numbers, in order."""
        if self.kind is None:
            return next(leaves)
        parts = [p.restored(leaves) for p in self.parts]
        return (
            self.kind(zip(self.keys, parts, strict=True))
            if issubclass(self.kind, dict)
            else self.kind(parts)
        )

    def paths(self, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The keys that lead to each tensor and number."""
        if self.kind is None:
            yield above
        for key, part in zip(self.keys, self.parts, strict=True):
            yield from part.paths((*above, key))

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        if issubclass(self.kind, dict):
            shown = (f"{k!r}: {p}" for k, p in zip(self.keys, self.parts, strict=True))
            return f"{self.type}{{{', '.join(shown)}}}"
        shown = ", ".join(map(str, self.parts))
        return f"{self.type}[{shown}]" if self.kind is list else f"{self.type}({shown})"


def _context(found: Json | None) -> Any:
    if found is None:
        return None
    try:
        return json.loads(found.text())
    except (ValueError, RecursionError):
        found.bad("JSON")


@dataclass(frozen=True, slots=True)
class Trees:
    """The structure of an archived module.

    arguments: a tuple of the positional arguments and a dict of the keyword arguments.
    results: the results of the module.
    argument_names: names of all arguments, the positional ones first; empty if not known.
    """

    arguments: Tree
    results: Tree
    argument_names: Sequence[str] = ()

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        positional, named = self.arguments.parts
        args, kwargs = bound(args, kwargs, self.argument_names, len(positional.parts), named.keys)
        return [*self.arguments.leaves((args, kwargs))]

    def restored(self, leaves: Sequence[Any]) -> Any:
        return self.results.restored(iter(leaves))

    def names(self) -> list[str]:
        paths = [*self.results.paths()]
        return [name_of(path, number, len(paths)) for number, path in enumerate(paths)]
