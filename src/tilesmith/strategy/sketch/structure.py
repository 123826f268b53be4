"""The structure that the rules examine: the current stages of a schedule, and the addresses of
their reads.

The structure is derived from the schedule's state.  So it is valid even after steps that rewrite
operations (rfactor, cache_write).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import as_affine
from tilesmith.ir.expr import Expr, Var, const, free_vars, post_order
from tilesmith.ir.simplify import simplify
from tilesmith.ir.symbols import expected_size
from tilesmith.te.lower import inline
from tilesmith.te.schedule import Schedule
from tilesmith.te.state import State
from tilesmith.te.tensor import Compute, Reduce, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One read of a stage's body.

    load: the read.
    source: the stage read.
    strides: stride in elements along each variable; None if not constant.
    periods: for each variable v that occurs only as `v // c`, the constant c.
    """

    load: ir.Load
    source: str
    strides: Mapping[Var, int | None]
    periods: Mapping[Var, int]

    def stride(self, v: Var) -> int | None:
        return self.strides.get(v, 0)

    def depends(self, v: Var, tile: int) -> bool:
        """Whether `tile` neighbours along `v` read different elements."""
        if self.stride(v) != 0:
            return True
        return v in self.periods and self.periods[v] % tile != 0


@dataclass(frozen=True, slots=True, eq=False)
class StageBody:
    """A stage with loops, with inlined stages substituted.

    name: the stage.
    op: its compute.
    values: its expressions; for a reduction, the expressions that are reduced.
    reads: its reads.
    """

    name: str
    op: Compute
    values: tuple[Expr, ...]
    reads: tuple[Read, ...]

    @property
    def spatial(self) -> int:
        """Number of elements that the stage computes."""
        return expected_size(a.extent for a in self.op.axis)

    @property
    def reduced(self) -> int:
        """Number of values reduced to one element."""
        return expected_size(a.extent for a in self.op.reduce_axis)

    @property
    def work(self) -> int:
        return self.spatial * self.reduced

    @property
    def element_bytes(self) -> int:
        """Bytes of the widest element that a lane holds."""
        widths = [t.dtype.bytes for t in self.op.outputs]
        widths += [r.load.dtype.bytes for r in self.reads if any(r.strides.values())]
        return min(max(widths), 8)

    @property
    def operations(self) -> int:
        """Arithmetic instructions per value; a multiply-add counts once."""
        varying = {
            n
            for v in self.values
            for n in post_order(v)
            if isinstance(n, (ir.Binary, ir.Call, ir.Select)) and not n.dtype.is_int
        }
        weight = sum(8 if isinstance(n, ir.Call) else 1 for n in varying)
        return max(weight, 1)


def computes(s: Schedule) -> dict[str, Compute]:
    """The current operations of the stages with loops of `s`, producers first."""
    readers = s.state.consumers()
    return {
        name: stage.compute
        for name, stage in s.state.stages.items()
        if not stage.is_placeholder and stage.attach != "inline"
        and (readers[name] or stage.is_output)
    }  # fmt: skip


def bodies(s: Schedule) -> dict[str, StageBody]:
    """The stages with loops of `s`, producers first."""
    state = s.state
    by_name: dict[str, StageBody] = {}
    for name, values in inline(state).items():
        if not values:  # loops that a user wrote
            continue
        first = values[0]
        sources = first.sources if isinstance(first, Reduce) else values
        reads = dict.fromkeys(n for v in sources for n in post_order(v) if isinstance(n, ir.Load))
        by_name[name] = StageBody(
            name, state.stages[name].compute, tuple(sources),
            tuple(read_of(state, load) for load in reads),
        )  # fmt: skip
    return by_name


def read_of(state: State, load: ir.Load) -> Read:
    """The address of `load` in the current layout of its stage."""
    assert isinstance(load.buffer, Tensor)
    source = state.tensors[load.buffer][0]
    stage = state.stages[source]
    indices: Sequence[Expr | int] = load.indices
    shape: Sequence[object] = load.buffer.shape
    if stage.layout is not None:
        indices = stage.layout.map_indices(load.indices)
        shape = stage.layout.physical_shape(load.buffer.shape)  # type: ignore[arg-type]
    flat: Expr = const(0)
    for index, extent in zip(indices, shape, strict=True):
        flat = flat * extent + index  # type: ignore[operator]
    form = as_affine(simplify(flat))
    strides: dict[Var, int | None] = {}
    periods: dict[Var, int] = {}
    terms = form[0] if form is not None else {}
    for atom, coefficient in terms.items():
        if isinstance(atom, Var):
            strides[atom] = coefficient if strides.get(atom, 0) == 0 else None
            continue
        inside = _within_block(atom)
        if inside is not None:  # neighbours are adjacent within one block
            strides[inside] = coefficient
            continue
        period = _period(atom)
        for v in free_vars(atom):
            if period is not None and _has_block(terms, v):
                continue
            if period is not None and strides.get(v, 0) == 0 and v not in periods:
                periods[v] = period
            else:
                strides[v] = None
    return Read(load, source, strides, {v: c for v, c in periods.items() if not strides.get(v)})


def _within_block(atom: Expr) -> Var | None:
    """v if `atom` is v % c, else None."""
    if isinstance(atom, ir.Binary) and atom.op == "floormod" and isinstance(atom.a, Var):
        return atom.a if isinstance(atom.b, ir.Const) else None
    return None


def _has_block(atoms: Mapping[Expr, int], v: Var) -> bool:
    return any(_within_block(atom) is v for atom in atoms)


def _period(atom: Expr) -> int | None:
    """c if `atom` is v // c, else None."""
    if isinstance(atom, ir.Binary) and atom.op == "floordiv" and isinstance(atom.a, Var):
        return int(atom.b.value) if isinstance(atom.b, ir.Const) else None
    return None


def has_condition(values: Sequence[Expr]) -> bool:
    """Whether elements are selected by a condition, as padding does."""
    return any(isinstance(n, ir.Select) for v in values for n in post_order(v))
