"""Removal of writes to tensors from a program.

Calls such as `aten.add_.Tensor` occur in TorchScript, and in programs of `torch.export` that were
not decomposed.  Such a call becomes a call that makes a new tensor, and later calls use the new
tensor.  If the written tensor is a view, another call puts the new contents into the viewed tensor.
Other views of the viewed tensor are computed again where they are used.

Whether `reshape` or `contiguous` returns a view depends on strides, and calls do not contain
strides.  So the use of a tensor is refused if a write to another tensor may have changed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tilesmith.frontend.aten.program import Call, Ref
from tilesmith.support.errors import UnsupportedError

_SAME = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "view_as.default", "unsqueeze.default", "squeeze.default", "squeeze.dim",
        "squeeze.dims", "alias.default", "detach.default", "detach_.default", "unflatten.int",
        "lift_fresh.default", "positive.default",
    )
)  # fmt: skip
"""Calls that return a view with the elements in the same order."""

_PERHAPS = frozenset(
    f"aten.{name}"
    for name in (
        "reshape.default", "reshape_as.default", "flatten.using_ints", "contiguous.default",
        "dropout.default", "to.dtype", "to.dtype_layout", "to.device", "to.other",
        "type_as.default",
    )
)  # fmt: skip
"""Calls that return either a view with the elements in the same order or a copy."""

_MOVED = frozenset(
    f"aten.{name}"
    for name in (
        "transpose.int", "t.default", "permute.default", "mT.default", "adjoint.default",
        "numpy_T.default",
    )
)  # fmt: skip
"""Calls that return a view with permuted axes.  All but `permute` are their own inverse."""

_PARTS = {
    "aten.slice.Tensor": "aten.slice_scatter.default",
    "aten.select.int": "aten.select_scatter.default",
}
"""Maps a call that returns a view of a part of a tensor to the call that writes new contents to
this part.
"""

_OTHER_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "expand.default", "expand_as.default", "split.Tensor", "split_with_sizes.default",
        "split.sizes", "chunk.default", "unbind.int", "narrow.default", "diagonal.default",
        "as_strided.default", "movedim.int", "movedim.intlist", "unfold.default", "view.dtype",
    )
)  # fmt: skip
"""Calls that return other views.  A write to some of these views is refused."""

_TURNED = {
    "aten.unsqueeze_.default": "aten.unsqueeze.default",
    "aten.squeeze_.default": "aten.squeeze.default",
    "aten.squeeze_.dim": "aten.squeeze.dim",
    "aten.squeeze_.dims": "aten.squeeze.dims",
    "aten.transpose_.default": "aten.transpose.int",
    "aten.t_.default": "aten.t.default",
}
"""Maps a call that changes a tensor's shape in place to the call that returns a view with the new
shape.
"""

_OPERATORS = {f"__i{name}__": f"__{name}__" for name in ("and", "or", "xor", "lshift", "rshift")}
"""Python's in-place operators, such as `x |= y`, whose names lack ATen's underscore at the end."""

VIEWS = _SAME | _PERHAPS | _MOVED | _PARTS.keys() | _OTHER_VIEWS
"""Calls whose results may share memory with their first argument."""


def functional(calls: Iterable[Call]) -> Functional:
    """A program without writes that replaces `calls`."""
    made = Functional()
    for call in calls:
        made.add(call)
    return made


def written_by(call: Call) -> str | None:
    """The operator whose result `call` writes to a tensor; None if `call` writes nothing."""
    parts = call.target.split(".")
    if len(parts) != 3 or parts[0] != "aten" or call.target in VIEWS:
        return None
    name = parts[1]
    if name in _OPERATORS:
        return f"aten.{_OPERATORS[name]}.{parts[2]}"
    if not name.endswith("_") or name.endswith("__"):
        return None
    return f"aten.{name[:-1]}.{parts[2]}"


@dataclass(slots=True, eq=False)
class _Memory:
    """Memory that a tensor and its views share.

    version: number of writes to the memory.
    kin: other objects that may stand for the same memory.
    is_unsure: whether a write to one of `kin` may have changed this memory.
    """

    version: int = 0
    kin: list[_Memory] = field(default_factory=list)
    is_unsure: bool = False


@dataclass(slots=True, eq=False)
class _Tensor:
    """The tensor that a name of the program denotes.

    current: name of the tensor in the new program.
    memory: the memory that contains the tensor.
    version: version of `memory` when `current` was made.
    of: the viewed tensor, if it is a view.
    call: the call that makes the view, and the index of the view among the results.
    """

    current: str
    memory: _Memory = field(default_factory=_Memory)
    version: int = 0
    of: _Tensor | None = None
    call: tuple[Call, int] | None = None


@dataclass(slots=True)
class Functional:
    """A program without writes.

    calls: the calls in order.  `current` may add calls that compute a view again.
    """

    calls: list[Call] = field(default_factory=list)
    _tensors: dict[str, _Tensor] = field(default_factory=dict)
    _count: int = 0

    def add(self, call: Call) -> None:
        """Rewrites one call."""
        target = written_by(call)
        if call.target in _TURNED:
            self._turn(replace(call, target=_TURNED[call.target]))
        elif target is not None:
            self._write(call, target)
        elif _trains(call):
            self._batch_norm(call)
        else:
            self.calls.append(self._renamed(call))
            if call.target in _PERHAPS:
                self._copy(call)
            elif call.target in VIEWS:
                self._view(call)

    def current(self, name: str) -> str:
        """The name of the current contents of the tensor `name` of the original program."""
        tensor = self._tensors.get(name)
        return name if tensor is None else self._now(tensor)

    def _view(self, call: Call) -> None:
        of = self._first(call)
        results = (call.results,) if isinstance(call.results, str) else call.results
        for i, name in enumerate(results):
            view = _Tensor(name, of.memory, of.memory.version, of, (call, i))
            self._tensors[name] = view

    def _copy(self, call: Call) -> None:
        """Record that the result of `call` is either a copy of the argument or a view of it."""
        memory, new = self._first(call).memory, _Memory()
        group = [memory, *memory.kin, new]
        for m in group:
            m.kin = [other for other in group if other is not m]
        self._tensors[call.name] = _Tensor(call.name, new)

    def _turn(self, view: Call) -> None:
        """Add `view`, the out-of-place form of a call that changes the shape of its argument."""
        before = self._first(view)
        self.calls.append(self._renamed(view))
        self._view(view)
        turned = [n for n, t in self._tensors.items() if t is before]
        self._tensors.update(dict.fromkeys(turned, self._tensors[view.name]))

    def _write(self, call: Call, target: str) -> None:
        tensor, name = self._first(call), call.name
        self.calls.append(replace(self._renamed(call), target=target))
        self._put(tensor, name, call.where)
        self._tensors[name] = tensor  # an in-place call returns the tensor that it writes to

    def _batch_norm(self, call: Call) -> None:
        """Add a batch normalisation in training, which writes its statistics."""
        x, weight, bias, mean, variance, _, momentum, eps, *_ = self._renamed(call).args
        results = (call.name, "", "", self._name("mean"), self._name("variance"))
        args = (x, weight, bias, mean, variance, True, momentum, eps)
        target = "aten._native_batch_norm_legit_functional.default"
        self.calls.append(Call(target, args, {}, results, call.where, call.several))
        for statistic, new in zip(call.args[3:5], results[3:], strict=True):
            self._put(self._tensor(statistic.name), new, call.where)

    def _put(self, tensor: _Tensor, name: str, where: str) -> None:
        """Make `name` the new contents of `tensor`.  If `tensor` is a view, put the new contents
        into the viewed tensors, too.
        """
        memory = tensor.memory
        for other in memory.kin:
            other.is_unsure = True
        befores = []  # contents of the viewed tensors before the write
        of = tensor.of
        while of is not None:
            befores.append(self._now(of))
            of = of.of
        memory.version += 1
        tensor.current, tensor.version = name, memory.version
        for before in befores:
            assert tensor.of is not None and tensor.call is not None
            new = self._name(before)
            self.calls.append(_inverse(*tensor.call, before, tensor.current, new, where))
            tensor = tensor.of
            tensor.current, tensor.version = new, memory.version

    def _now(self, tensor: _Tensor) -> str:
        if tensor.memory.is_unsure:
            raise UnsupportedError(
                f"{tensor.current!r} is used after a write to a tensor that is a copy or a view of "
                "it; write to a clone(), or save the program after run_decompositions()"
            )
        if tensor.version != tensor.memory.version and tensor.of is not None:
            assert tensor.call is not None
            call, number = tensor.call
            of, name = self._now(tensor.of), self._name(tensor.current)
            results: str | tuple[str, ...] = name
            if not isinstance(call.results, str):
                results = tuple(name if i == number else "" for i in range(len(call.results)))
            self.calls.append(replace(call, args=[Ref(of), *call.args[1:]], results=results))
            tensor.current, tensor.version = name, tensor.memory.version
        return tensor.current

    def _first(self, call: Call) -> _Tensor:
        """The first argument of a call, which is the tensor that the call views or writes to."""
        first = call.args[0] if call.args else None
        if not isinstance(first, Ref):
            raise UnsupportedError(f"{call.target} writes to {first!r} at {call.where}")
        return self._tensor(first.name)

    def _tensor(self, name: str) -> _Tensor:
        return self._tensors.setdefault(name, _Tensor(name))

    def _renamed(self, call: Call) -> Call:
        kwargs = {name: self._argument(a) for name, a in call.kwargs.items()}
        return replace(call, args=[self._argument(a) for a in call.args], kwargs=kwargs)

    def _argument(self, given: Any) -> Any:
        if isinstance(given, Ref):
            return Ref(self.current(given.name))
        if isinstance(given, (list, tuple)):
            return [self._argument(a) for a in given]
        return given

    def _name(self, like: str) -> str:
        self._count += 1
        before, _, _ = like.partition("'")
        return f"{before}'{self._count}"


def _trains(call: Call) -> bool:
    """Whether a call updates the statistics of a batch normalisation."""
    if call.target != "aten.batch_norm.default" or len(call.args) < 8:
        return False
    return call.args[5] is True and isinstance(call.args[3], Ref)


def _inverse(view: Call, number: int, whole: str, part: str, result: str, where: str) -> Call:
    """A call that returns a copy of `whole` in which the elements that `view` shows are replaced by
    `part`.

    number: index of the replaced result among the results of `view`.
    """
    target, more = view.target, [*view.args[1:]]
    if target in _SAME:
        return Call("aten.view_as.default", [Ref(part), Ref(whole)], {}, result, where)
    if target in _PARTS:
        return Call(_PARTS[target], [Ref(whole), Ref(part), *more], view.kwargs, result, where)
    if target == "aten.permute.default" and not view.kwargs:
        (dims,) = more
        axes = [d % len(dims) for d in dims]
        return Call(target, [Ref(part), [axes.index(a) for a in range(len(axes))]], {}, result)
    if target in _MOVED:
        return Call(target, [Ref(part), *more], view.kwargs, result, where)
    if scattered := _scatter(view, number, more):
        name, args = scattered
        return Call(f"aten.{name}", [Ref(whole), Ref(part), *args], {}, result, where)
    raise UnsupportedError(
        f"a tensor is written to through {view.target} at {where or view.where}; write to the "
        "tensor itself, or save the program after run_decompositions()"
    )


def _scatter(view: Call, number: int, more: list[Any]) -> tuple[str, list[Any]] | None:
    """The operator that writes to the part of a tensor that `view` shows, and its arguments after
    the tensors.  None if there is no such operator, or if the part depends on sizes.

    more: the arguments of `view` after its tensor.
    """
    if view.kwargs or any(
        isinstance(a, Ref) for m in more for a in (m if isinstance(m, list) else [m])
    ):
        return None
    match view.target, more:
        case "aten.diagonal.default", _:
            return "diagonal_scatter.default", more
        case "aten.narrow.default", [axis, start, length] if start >= 0:
            return "slice_scatter.default", [axis, start, start + length]
        case "aten.unbind.int", _:
            return "select_scatter.default", [more[0] if more else 0, number]
        case "aten.split.Tensor", [size, *axis]:
            place = [number * size, (number + 1) * size]
            return "slice_scatter.default", [axis[0] if axis else 0, *place]
        case (("aten.split_with_sizes.default" | "aten.split.sizes"), [sizes, *axis]):
            start = sum(sizes[:number])
            return "slice_scatter.default", [axis[0] if axis else 0, start, start + sizes[number]]
    return None
