"""The walk over an ML program, in which names become values and operations become nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilesmith.frontend.common.body import Body
from tilesmith.frontend.common.folding import FoldingBuilder
from tilesmith.frontend.common.importer import Importer
from tilesmith.frontend.common.limits import MAX_DEPTH, checked_shape
from tilesmith.frontend.common.problems import Site
from tilesmith.frontend.common.protobuf import Message
from tilesmith.frontend.common.slots import FAILED, Failed, Slot
from tilesmith.frontend.common.states import States
from tilesmith.frontend.common.weights import NewWeights
from tilesmith.frontend.coreml.node import Argument, MilNode
from tilesmith.frontend.coreml.package import Package, Stored, named_dtype
from tilesmith.frontend.coreml.registry import OPERATORS
from tilesmith.graph.nodes import Data
from tilesmith.ir.types import TensorType
from tilesmith.support.errors import ModelError, UnsupportedError

_IMMEDIATE = ("floats", "ints", "bools", "strings", "longInts", "doubles", "bytes")
_OLDEST = 15


@dataclass(slots=True)
class Frame:
    """A block during import.

    names: the values of the names defined so far.
    body: the builder to which these values belong.
    parent: the enclosing block; its names are visible in this block.
    depth: number of enclosing blocks.
    prefix: put in front of the names of nodes, for messages.
    """

    names: dict[str, Argument]
    body: FoldingBuilder
    parent: Frame | None = None
    depth: int = 0
    prefix: str = ""

    def __contains__(self, name: str) -> bool:
        return name in self.names or (self.parent is not None and name in self.parent)

    def find(self, name: str) -> Argument:
        """The value of `name`.  Raises ModelError when nothing defines the name."""
        if name not in self.names:
            if self.parent is None:
                raise ModelError(f"{name!r} is used, which nothing defines")
            meaning = self.parent.find(name)
            if isinstance(self.body, Body) and self.body is not self.parent.body:
                meaning = _inside(self.body, meaning)
            self.names[name] = meaning
        return self.names[name]

    def define(self, site: Site, outputs: Sequence[str], made: Sequence[Slot] | None) -> None:
        """Give an operation's outputs their values; None if it could not be imported.

        Raises ModelError if there are more outputs than values.
        """
        if made is not None and len(made) < len(outputs):
            raise ModelError(
                f"node {site.loc!r} ({site.operator}): expected at most {len(made)} outputs, found "
                f"{len(outputs)}"
            )
        for i, name in enumerate(outputs):
            self.names[name] = FAILED if made is None else made[i]


def _inside(body: Body, argument: Argument) -> Argument:
    if isinstance(argument, tuple):
        return tuple(_inside(body, a) for a in argument)
    return argument if isinstance(argument, str) else body.slot(argument)


class MilImporter(Importer):
    """Imports one program."""

    def __init__(
        self,
        builder: FoldingBuilder,
        package: Package,
        new_weights: NewWeights | None = None,
    ) -> None:
        """new_weights: new contents for constants, by name."""
        super().__init__(builder)
        self.package = package
        self.states = States(builder)
        self.version, self._opset = _OLDEST, ""
        self._new_weights = new_weights or NewWeights()

    def use(self, opset: str) -> None:
        """Begin a function that uses the operator set of this name, such as CoreML5 or iOS18."""
        digits = int("".join(c for c in opset if c.isdecimal()) or "0")
        # CoreML5 to CoreML9 came with iOS15 to iOS26
        newest = {5: 15, 6: 16, 7: 17, 8: 18, 9: 26}
        self.version, self._opset = newest.get(digits, digits) or _OLDEST, opset

    def node(self, kind: str, loc: str, label: str, count: int) -> MilNode:
        """A node without arguments and blocks."""
        return MilNode(
            self.builder, loc, label, _no_blocks, _no_blocks, kind, self.version, {}, (), count,
            self.states,
        )  # fmt: skip

    # Blocks

    def block(self, block: Message, frame: Frame) -> list[Slot]:
        """Imports a block, whose inputs are in `frame`; returns its outputs."""
        if frame.depth > MAX_DEPTH:
            raise ModelError(f"blocks are nested more than {MAX_DEPTH} deep")
        for number, operation in enumerate(block.operations):
            self._operation(number, operation, frame)
        return [self._slot(frame, name) for name in block.outputs]

    def _slot(self, frame: Frame, name: str) -> Slot:
        slot = frame.find(name)
        if isinstance(slot, (str, tuple)):
            raise ModelError(f"{name!r}: expected a tensor, found a text or a list")
        return slot

    def call(self, block: Message, frame: Frame, given: Sequence[Slot], loc: str) -> list[Slot]:
        """The outputs of a nested block for `given`; its nodes are inlined."""
        if len(given) != len(block.inputs):
            raise ModelError(f"expected {len(block.inputs)} inputs of a block, found {len(given)}")
        names = {i.name: v for i, v in zip(block.inputs, given, strict=True)}
        return self.block(
            block, Frame(dict(names), self.builder, frame, frame.depth + 1, f"{loc}/")
        )

    # Operations

    def _operation(self, number: int, operation: Message, frame: Frame) -> None:
        self.builder.count()
        outputs = [o.name for o in operation.outputs]
        label = outputs[0] if outputs else ""
        loc = f"{frame.prefix}{label or operation.type}"
        site = Site(operation.type, self._opset, loc)
        made = self.attempt(site, lambda: self._results(operation, frame, loc, label))
        frame.define(site, outputs, made)

    def _results(
        self, operation: Message, frame: Frame, loc: str, label: str
    ) -> Sequence[Slot] | None:
        """An operation's outputs; None where an input failed."""
        if operation.type == "const":
            value = operation.attributes.get("val") or _only(operation.inputs, "val")
            if value is None:
                raise ModelError("expected the attribute 'val', found none")
            return [self.stored(value, label)]  # type: ignore[list-item]
        function = OPERATORS.find("", operation.type)
        if function is None:
            raise UnsupportedError("the operator is not supported")
        arguments = {name: self._argument(a, frame) for name, a in operation.inputs.items()}
        for name, value in operation.attributes.items():
            if name != "name":
                arguments.setdefault(name, self.stored(value, f"{label}_{name}"))
        if any(_has_failed(a) for a in arguments.values()):
            return None
        node = replace(
            self.node(operation.type, loc, label, len(operation.outputs)),
            inline=lambda block, given, at: self.call(block, frame, given, at),
            nest=lambda body, block, given, at: self.within(
                body, lambda: self.call(block, frame, given, at)
            ),
            arguments=arguments,
            blocks=operation.blocks,
        )
        with self.builder.at(loc, label):
            made = function(node)
        return made if isinstance(made, tuple) else (made,)

    def _argument(self, argument: Message, frame: Frame) -> Argument:
        bound = tuple(
            frame.find(b.name) if b.has("name") else self.stored(b.value, "")
            for b in argument.arguments
        )
        return bound[0] if len(bound) == 1 else bound

    # Stored values

    def stored(self, value: Message, name: str) -> Argument:
        """A stored value as a constant, a text, or a tuple of these."""
        immediate = value.immediateValue
        if immediate is not None and immediate.which("tuple", "list"):
            return tuple(self.stored(v, name) for v in (immediate.list or immediate.tuple).values)
        declared = value.type and value.type.tensorType
        if not declared:
            raise ModelError("expected a tensor as a stored value, found another type")
        shape = checked_shape(_extents(declared), f"the constant {name!r}")
        if declared.dataType == "STRING":
            texts = tuple(immediate.tensor.strings.values) if immediate is not None else ()
            return texts[0] if not shape and texts else texts
        if immediate is not None:
            stored = Stored(_immediate(immediate, declared.dataType), declared.dataType, shape)
        elif value.blobFileValue is not None:
            blob = value.blobFileValue
            stored = Stored(self.package.blob(blob.fileName, blob.offset), declared.dataType, shape)
        else:
            raise ModelError("expected a stored value in the model or in a file, found none")
        type_ = TensorType(stored.dtype, shape)
        stored.check()
        data = Data.of(stored.read()) if immediate is not None else Data(stored.read)
        if name:
            data = self._new_weights.data(name, type_, data)
        return self.builder.lazy_constant(type_, data, name)


def _no_blocks(*_: Any) -> Any:
    raise UnsupportedError("nested blocks")


def _only(inputs: dict[str, Message], name: str) -> Message | None:
    bound = inputs[name].arguments if name in inputs else ()
    return bound[0].value if len(bound) == 1 else None


def _has_failed(argument: Argument) -> bool:
    if isinstance(argument, tuple):
        return any(map(_has_failed, argument))
    return isinstance(argument, Failed)


def _extents(type_: Message) -> list[int]:
    """The extents of a stored tensor; -1 for one that is not a number."""
    extents = [d.constant.size if d.constant is not None else -1 for d in type_.dimensions]
    if len(extents) != type_.rank and type_.dimensions:
        raise ModelError(f"expected {type_.rank} dimensions, found {len(extents)}")
    return extents


def _immediate(value: Message, kind: str) -> np.ndarray:
    """The bytes of a tensor that is stored in the model file itself."""
    tensor = value.tensor
    which = tensor.which(*_IMMEDIATE) if tensor is not None else None
    if which is None or which == "strings":
        raise ModelError(f"expected numbers of element type {kind.lower()}, found none")
    numbers = getattr(tensor, which).values
    if which == "bytes":
        return np.frombuffer(numbers, np.uint8)
    dtype = named_dtype(kind).numpy
    if dtype.itemsize > 1 and dtype.kind != "V":  # numbers of 16 bits are stored with 32 bits
        numbers = numbers.astype(dtype)
    return np.ascontiguousarray(numbers).view(np.uint8)
