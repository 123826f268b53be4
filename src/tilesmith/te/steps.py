"""The steps a schedule is made of: plain data that names stages and axes by their unique names.

A step says what was asked, nothing derived; `stage_apply` gives each its meaning and checks that it
is legal. Steps print as the calls that made them and convert to JSON and back without loss, so a
schedule can be stored, hashed, sent to another machine and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from tilesmith.ir.expr import Expr
from tilesmith.ir.types import Dim
from tilesmith.support.errors import ScheduleError

Tail = Literal["peel", "guard", "roundup"]
"""What happens where a split does not divide: a guard that peeling removes, a guard that stays, or
computing past the end into padded memory."""

Mark = Literal["serial", "vectorize", "unroll", "parallel"]


@dataclass(frozen=True, slots=True)
class Split:
    """`factor` or `nparts` may be an expression: then the schedule stands for many."""

    stage: str
    axis: str
    factor: Dim | None = None
    nparts: Dim | None = None
    tail: Tail = "peel"


@dataclass(frozen=True, slots=True)
class Fuse:
    stage: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Skew:
    """`axis` begins `(by * factor) % modulus` later."""

    stage: str
    axis: str
    by: str
    factor: int
    modulus: int


@dataclass(frozen=True, slots=True)
class Reorder:
    stage: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Annotate:
    """`mark` the loop of `axis`: "vectorize", "unroll", "parallel" or back to "serial"."""

    stage: str
    axis: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class ComputeAt:
    stage: str
    target: str
    axis: str


@dataclass(frozen=True, slots=True)
class ComputeInline:
    stage: str


@dataclass(frozen=True, slots=True)
class ComputeRoot:
    stage: str


@dataclass(frozen=True, slots=True)
class SetScope:
    stage: str
    scope: str


@dataclass(frozen=True, slots=True)
class CacheRead:
    """Readers of value `value` of `stage` read a copy in `scope` instead."""

    stage: str
    value: int
    scope: str
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CacheWrite:
    stage: str
    scope: str


@dataclass(frozen=True, slots=True)
class RFactor:
    stage: str
    axis: str


@dataclass(frozen=True, slots=True)
class Winograd:
    """`tile`: results along each axis of the window that are computed together."""

    stage: str
    tile: int


@dataclass(frozen=True, slots=True)
class FlattenAxes:
    stage: str
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransformLayout:
    """`layout` is the text form of an `ir.layout.Layout`."""

    stage: str
    layout: str


@dataclass(frozen=True, slots=True)
class Prefetch:
    stage: str
    source: str
    value: int
    axis: str
    offset: int
    over: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class StorageAlign:
    stage: str
    axis: str
    factor: int
    offset: int


@dataclass(frozen=True, slots=True)
class DoubleBuffer:
    stage: str


@dataclass(frozen=True, slots=True)
class Pragma:
    stage: str
    axis: str
    key: str
    value: str


Step: TypeAlias = (
    Split
    | Fuse
    | Skew
    | Reorder
    | Annotate
    | ComputeAt
    | ComputeInline
    | ComputeRoot
    | SetScope
    | CacheRead
    | CacheWrite
    | RFactor
    | Winograd
    | FlattenAxes
    | TransformLayout
    | Prefetch
    | StorageAlign
    | DoubleBuffer
    | Pragma
)

_PRIMITIVES: dict[type, str] = {
    Split: "split",
    Fuse: "fuse",
    Skew: "skew",
    Reorder: "reorder",
    Annotate: "annotate",
    ComputeAt: "compute_at",
    ComputeInline: "compute_inline",
    ComputeRoot: "compute_root",
    SetScope: "set_scope",
    CacheRead: "cache_read",
    CacheWrite: "cache_write",
    RFactor: "rfactor",
    Winograd: "winograd",
    FlattenAxes: "flatten_axes",
    TransformLayout: "transform_layout",
    Prefetch: "prefetch",
    StorageAlign: "storage_align",
    DoubleBuffer: "double_buffer",
    Pragma: "pragma",
}
_TYPES: dict[str, type] = {name: cls for cls, name in _PRIMITIVES.items()}


def primitive(step: Step) -> str:
    """The name of the primitive that makes `step`."""
    return step.mark if isinstance(step, Annotate) else _PRIMITIVES[type(step)]


def to_json(step: Step) -> dict[str, Any]:
    """`step` as JSON values: {"step": name of the primitive, field: value, ...}.  Raises
    ScheduleError for a split by an expression.
    """
    record: dict[str, Any] = {"step": _PRIMITIVES[type(step)]}
    for f in fields(step):
        value = getattr(step, f.name)
        if isinstance(value, Expr):
            raise ScheduleError(
                f"{print_step(step)} has an expression for {f.name}; only steps with numbers can "
                "be written as JSON: make the schedule with a value for each knob"
            )
        record[f.name] = list(value) if isinstance(value, tuple) else value
    return record


_CHECKS: dict[str, Any] = {
    "str": lambda v: isinstance(v, str),
    "int": lambda v: type(v) is int,
    "Dim | None": lambda v: v is None or type(v) is int,
    "tuple[str, ...]": lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v),
    "Tail": lambda v: v in get_args(Tail),
    "Mark": lambda v: v in get_args(Mark),
}


def from_json(record: Any) -> Step:
    """The step for the JSON form.  Raises ScheduleError when it is not one."""
    cls = _TYPES.get(record.get("step")) if isinstance(record, Mapping) else None  # type: ignore[arg-type]
    if cls is None:
        raise ScheduleError(
            f"expected a step with one of the names {', '.join(_TYPES)}; found {record!r}"
        )
    values = {k: v for k, v in record.items() if k != "step"}
    known = {f.name: str(f.type) for f in fields(cls)}
    if set(values) != set(known):
        raise ScheduleError(
            f"a {record['step']} step has fields {', '.join(known)}; found {', '.join(values)}"
        )
    for name, value in values.items():
        if not _CHECKS[known[name]](value):
            raise ScheduleError(
                f"{record['step']}: field {name} needs {known[name]}, found {value!r}"
            )
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def print_step(step: Step) -> str:
    """The step as the call that makes it: `C.split(i, factor=6)`."""
    name = primitive(step)
    args: list[str] = []
    for f in fields(step):
        value = getattr(step, f.name)
        if f.name in ("stage", "mark") or value == f.default:
            continue
        if isinstance(value, tuple):
            args.extend(value)
        elif f.name in ("over", "of"):
            args.append(f"{f.name}={value}")
        elif f.name in ("factor", "modulus", "nparts", "tail", "offset", "value", "tile"):
            args.append(f"{f.name}={value if isinstance(value, Expr) else repr(value)}")
        elif f.name in ("scope", "layout", "key"):
            args.append(repr(value))
        else:
            args.append(str(value))
    return f"{step.stage}.{name}({', '.join(args)})"
