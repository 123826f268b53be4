"""Counts of the instructions that a kernel's statements execute, loop by loop.

LLVM hoists an expression that doesn't depend on the innermost loop's variable, unless the
expression reads memory that the loop writes.  So the expression is counted in the loop where it
will run.  Each expression counts once per loop body.  Loads and stores of register buffers cost
nothing, but an iteration that adds to a register waits for the previous iteration: this is the
body's dependence chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilesmith.ir import expr as ir
from tilesmith.ir.affine import affine_form
from tilesmith.ir.byte_lookups import lookup_instructions
from tilesmith.ir.context import Context
from tilesmith.ir.expr import Binary, Const, Expr, Load, Var, post_order, substitute
from tilesmith.ir.interval import make
from tilesmith.ir.lane_offsets import rows_of
from tilesmith.ir.simplify import EMPTY
from tilesmith.ir.symbols import expected
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import called
from tilesmith.loop import nodes
from tilesmith.loop.nodes import Buffer, Func, Stmt
from tilesmith.loop.passes.workspace import element_count, is_constant
from tilesmith.loop.visit import own_exprs, walk

from .cycles import Instructions
from .footprint import Access, LoopDigit
from .indices import SCATTERED, computed_from, linear, periods, picked
from .operations import instructions_of, is_integer_division, kind_of

MOST_VECTORS = 8
"""Upper bound on the whole vectors that are loaded and shuffled for a load with gaps between its
lanes.  If the lanes lie in more vectors, the load counts as a gather.
"""


@dataclass(slots=True, eq=False)
class OpenLoop:
    """A loop whose body is being counted.

    loop: the node of the loop nest.
    trips: total executions of the body.
    entries: number of times that the loop is entered.
    depth: number of loops around the body.
    writes: buffers that the loop writes.
    count: instructions per iteration counted so far.
    flops: floating-point operations per iteration counted so far.
    depths: for each expression counted so far, the depth of the loop in which it runs.
    seen: expressions already counted in this body.
    products: products that are not part of a multiply-add yet.
    owned: buffers that the body allocates anew in each iteration.
    chains: cycles of the dependence chain through each buffer element, by (buffer, indices).
    """

    loop: LoopDigit
    trips: float
    entries: float
    depth: int
    writes: frozenset[Buffer]
    count: Instructions = field(default_factory=Instructions)
    flops: float = 0.0
    # the depth of the loop in which each expression runs
    depths: dict[Expr, int] = field(default_factory=dict)
    seen: set[Expr] = field(default_factory=set)
    # products that are not part of a multiply-add yet
    products: set[Expr] = field(default_factory=set)
    # buffers that the body allocates anew in each iteration
    owned: set[Buffer] = field(default_factory=set)
    chains: dict[tuple[Buffer, tuple[Expr, ...]], float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class RegionCount:
    """A parallel loop, or the code outside of all parallel loops (the first region, of extent 1).

    extent: iterations of the parallel loop.
    entries: number of times that it is entered.
    root: the root of its loop nest.
    scopes: the loops counted in it.
    """

    extent: float
    entries: float
    root: LoopDigit = field(default_factory=lambda: LoopDigit(None, 1, 1, 1))
    scopes: list[OpenLoop] = field(default_factory=list)


def count_kernel(func: Func, target: Target) -> list[RegionCount]:
    """The regions of a kernel in final form, with their loop nests and counts.

    Symbolic extents count with their expected sizes.
    """
    reader = _Reader(target, func)
    region = RegionCount(1, 1)
    reader.regions.append(region)
    scope = OpenLoop(region.root, 1, 1, 0, _writes(func.body))
    region.scopes.append(scope)
    reader.read(func.body, region, [scope], 1.0)
    for r in reader.regions:
        for s in r.scopes:
            s.count.chain = max(s.chains.values(), default=0.0)
    return reader.regions


class _OtherLoads:
    """The set of all loads except `own`.  The traversal skips these loads, since their indices
    carry no value between iterations.
    """

    def __init__(self, own: Load) -> None:
        self.own = own

    def __contains__(self, e: Expr) -> bool:
        return type(e) is Load and e is not self.own


class _Reader:
    def __init__(self, target: Target, func: Func) -> None:
        self.target = target
        self.vector = target.vector_bits // 8
        self.regions: list[RegionCount] = []
        self.depth: dict[Var, int] = {}
        # Values of extents and integer lets, for computing addresses.
        self.values: dict[Expr, Expr] = {
            p: Const(expected(p), p.dtype)
            for p in func.params
            if isinstance(p, Var) and p.dtype.is_int
        }
        self.box: Context = EMPTY  # ranges of the loop variables
        self.periods = periods(func.body)

    # statements

    def read(self, s: Stmt, region: RegionCount, scopes: list[OpenLoop], share: float) -> None:
        """Count the instructions of a statement.

        share: the fraction of iterations in which the conditions around the statement let it run.
        """
        if isinstance(s, nodes.Seq):
            for part in s.stmts:
                self.read(part, region, scopes, share)
        elif isinstance(s, nodes.For):
            self.loop(s, region, scopes, share)
        elif isinstance(s, nodes.Allocate):
            scopes[-1].owned.add(s.buffer)
            self.read(s.body, region, scopes, share)
        elif isinstance(s, nodes.LetStmt):
            self.count(s.value, scopes, share)
            self.depth[s.var] = scopes[-1].depths[s.value]
            if s.value.dtype.is_int and s.value.lanes == 1:
                self.values[s.var] = substitute(s.value, self.values)
            self.read(s.body, region, scopes, share)
        elif isinstance(s, nodes.If):
            self.count(s.cond, scopes, share)
            taken = self.probability(s.cond)
            self.read(s.then, region, scopes, share * taken)
            if s.otherwise is not None:
                self.read(s.otherwise, region, scopes, share * (1 - taken))
        elif isinstance(s, nodes.Store):
            self.store(s, scopes, share)
        elif not isinstance(s, nodes.Assert):
            for e in own_exprs(s):
                self.count(e, scopes, share)

    def loop(self, s: nodes.For, region: RegionCount, scopes: list[OpenLoop], share: float) -> None:
        outer = scopes[-1]
        extent = self.size(s.extent)
        if extent <= 0:
            return
        entries = outer.trips * share
        parent = outer.loop
        if s.kind == "parallel" and region.extent == 1:
            region = RegionCount(extent, entries)
            self.regions.append(region)
            parent = region.root
        inner = parent
        whole = extent
        for period in (*reversed(self.periods.get(s.var, ())), 1):
            if period < whole or period == 1:
                inner = LoopDigit(s.var, whole, period, max(whole / period, 1.0))
                parent.loops.append(inner)
                parent, whole = inner, period
        scope = OpenLoop(inner, entries * extent, entries, outer.depth + 1, _writes(s.body))
        region.scopes.append(scope)
        before = self.box, self.depth.get(s.var)
        start = self.size(s.start)
        self.depth[s.var] = scope.depth
        self.box = self.box.with_interval(s.var, make(round(start), round(start + extent) - 1))
        self.read(s.body, region, [*scopes, scope], 1.0)
        self.box = before[0]

    def store(self, s: nodes.Store, scopes: list[OpenLoop], share: float) -> None:
        scope = scopes[-1]
        register = s.buffer.scope == "register"
        indices = set(s.indices)
        for e in (s.value, *(() if s.mask is None else (s.mask,)), *s.indices):
            self.count(e, scopes, share, index=e in indices)
        index = s.indices[0] if len(s.indices) == 1 else None
        lanes = max(s.value.lanes, index.lanes if index is not None else 1)
        if not register and index is not None:
            cost = self.access(s.buffer, index, lanes, True, scope)
            scope.count.store += cost * share
            scope.count.issued += cost * share
        owner = any(s.buffer in x.owned for x in scopes[-1:])
        if not owner:
            self.chain(s, scope, register)

    def chain(self, s: nodes.Store, scope: OpenLoop, register: bool) -> None:
        """Record the cycles from the load of the old value to the store `s`, if `s` depends on that
        load.
        """
        before = Load(s.buffer, s.indices)
        if before not in scope.depths or not self.steady(s.indices, scope):
            return
        longest: dict[Expr, float] = {}
        for e in post_order(s.value, _OtherLoads(before)):
            if e is before:
                longest[e] = 0.0 if register else self.target.model.forward_cycles
                continue
            below = [longest[c] for c in e.children if c in longest]
            if below:
                longest[e] = max(below) + self.latency(e, longest)
        if s.value in longest:
            key = (s.buffer, s.indices)
            scope.chains[key] = scope.chains.get(key, 0.0) + longest[s.value]

    def steady(self, indices: Iterable[Expr], scope: OpenLoop) -> bool:
        """Whether the indices do not depend on the innermost loop's variable."""
        return not any(
            isinstance(s, Var) and self.depth.get(s, 0) >= scope.depth > 0
            for i in indices
            for s in ir.symbols(i)
        )

    def latency(self, e: Expr, longest: dict[Expr, float]) -> float:
        if isinstance(e, Binary) and e.dtype.is_float:
            if e.op in ("add", "sub", "mul", "div"):
                carried = next((c for c in e.children if c in longest), None)
                fused = isinstance(carried, Binary) and carried.op == "mul" and e.op != "mul"
                return 0.0 if fused else float(self.target.model.fma_latency)
            return 2.0
        return (
            0.0 if isinstance(e, (ir.Broadcast, Load)) else 1.0 + 2 * isinstance(e, ir.VectorReduce)
        )

    # expressions

    def count(self, root: Expr, scopes: list[OpenLoop], share: float, index: bool = False) -> None:
        """Add each instruction of an expression to the loop of the innermost variable on which it
        depends.
        """
        here = scopes[-1]
        known = here.depths
        stack = [root]
        while stack:
            e = stack[-1]
            if e in known:
                stack.pop()
                continue
            parts = computed_from(e) if type(e) is Load else e.children
            waiting = [c for c in parts if c not in known]
            if isinstance(e, ir.Let):  # visit the value first: the body needs its depth
                if e.value in known:
                    self.depth[e.var] = known[e.value]
                else:
                    waiting = [e.value]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            d = max([known[c] for c in parts], default=0)
            if isinstance(e, Var):
                d = self.depth.get(e, 0)
            elif isinstance(e, Load):
                d = max([d, *(x.depth for x in scopes if e.buffer in x.writes)])
            known[e] = d = min(d, here.depth)
            scope = scopes[d]
            if e not in scope.seen:
                scope.seen.add(e)
                self.instruction(e, scope, share if scope is here else 1.0, index)

    def instruction(self, e: Expr, scope: OpenLoop, share: float, index: bool) -> None:
        c, model = scope.count, self.target.model
        kind = "select" if isinstance(e, ir.Broadcast) and not _free(e.value) else kind_of(e)
        if isinstance(e, Load):
            if e.buffer.scope != "register":  # type: ignore[attr-defined]  # a loop buffer
                cost = self.access(e.buffer, e.indices[0], e.lanes, False, scope)  # type: ignore[arg-type]
                c.load += cost * share
                c.issued += cost * share
        elif (intrinsic := called(e)) is not None:
            if intrinsic.accumulates:
                scope.flops += 2 * math.prod(intrinsic.extents) * share
            c.fma += intrinsic.time(model) * share
            c.issued += share
        elif kind is None:
            return
        elif e.dtype.is_int and e.lanes == 1:  # `e` is index arithmetic, in which sums are free
            if is_integer_division(e):
                c.issued += model.integer_divide_cycles * share
            elif not index and kind != "cast":
                c.issued += share
        elif isinstance(e, ir.VectorReduce):
            steps = 2 * math.log2(max(e.a.lanes / e.size, 1))
            c.add(Instructions(alu=steps, issued=steps), share)
            scope.flops += (e.a.lanes - e.size) * share
        else:
            self.arithmetic(e, kind, scope, share)

    def arithmetic(self, e: Expr, kind: str, scope: OpenLoop, share: float) -> None:
        """Count an operation on the lanes of vectors."""
        flops = {"fma": 2, "mul": 1, "div": 1}.get(kind, 0)
        product = None
        if kind == "mul":
            scope.products.add(e)
        elif isinstance(e, Binary) and e.op in ("add", "sub") and e.dtype.is_float:
            flops = 1
            product = next((m for m in (e.a, e.b) if m in scope.products), None)
            if any(isinstance(m, Binary) and m.op == "mul" for m in (e.a, e.b)):
                kind = "fma"
        scope.flops += flops * e.lanes * share
        if product is not None:  # a multiply-add that is already counted includes the product
            scope.products.remove(product)
        elif kind == "special":  # a call of the C library, kept by `expand_math`
            scope.count.slow += self.target.model.library_cycles * e.lanes * share
        else:
            read = e.a.dtype if isinstance(e, ir.Cast) else e.dtype
            vectors = e.lanes * max(e.dtype.bytes, read.bytes) / self.vector
            counted = instructions_of(kind, self.target.model, vectors)
            if is_integer_division(e):
                counted.alu = self.target.model.integer_divide_cycles * e.lanes
            scope.count.add(counted, share)

    # memory

    def access(
        self, buffer: Buffer, index: Expr, lanes: int, write: bool, scope: OpenLoop
    ) -> float:
        """Record an access.  Returns the equivalent number of full-width accesses."""
        size = buffer.dtype.bytes
        rows = rows_of(index) if isinstance(index, Binary) else None
        if rows is not None:  # an instruction loads the tile row by row
            apart = ir.Ramp(_ZERO, _ONE, rows.count), rows.distance * size
            form, offset = affine_form(rows.first)
            terms = (*((atom, k * size) for atom, k in form.items()), apart)
            scope.loop.add(Access(buffer, write, terms, rows.width * size), offset * size)
            return rows.count * max(rows.width * size / self.vector, 1.0)
        base, stride = linear(index)
        runs = lanes * size if stride == 1 else size
        vectors = abs(stride)  # number of vectors that contain the lanes of a load
        known = picked(index) if stride == SCATTERED and not write else None
        if known is not None and known[2] <= MOST_VECTORS:
            base, span, vectors = known
            stride, runs = 1, span * size
        base = substitute(base, self.values) if self.values else base
        terms: tuple[tuple[Expr, int], ...] = ()
        offset = 0
        if base.lanes == 1 and base.dtype.is_int:
            form, offset = affine_form(base)
            terms = tuple((atom, k * size) for atom, k in form.items())
        if stride > 1:
            terms = (*terms, (ir.Ramp(_ZERO, _ONE, lanes), stride * size))
        scope.loop.add(Access(buffer, write, terms, runs), offset * size)
        if lanes == 1 or stride == 0:
            return 0.5
        if stride == 1 and known is None:
            return max(runs / self.vector, 0.5)
        if vectors <= MOST_VECTORS and not write:  # a shuffle takes each vector apart
            scope.count.alu += vectors
            scope.count.issued += vectors
            return float(vectors)
        is_list = not write and size == 1 and is_constant(buffer)
        entries = element_count(buffer) if is_list else 0
        lookup = lookup_instructions(self.target, entries, lanes)
        if lookup is not None:
            scope.count.alu += lookup
            scope.count.issued += lookup
            return 0.0
        scope.count.issued += lanes
        return float(lanes)

    # numbers

    def size(self, e: Expr) -> float:
        """The expected extent of a loop: the middle of its range."""
        if isinstance(e, Const):
            return float(e.value)
        extent = self.box.interval(substitute(e, self.values) if self.values else e)
        if extent.lo is None or extent.hi is None:
            return 1.0
        return max((extent.lo + extent.hi) / 2, 0.0)

    def probability(self, cond: Expr) -> float:
        """The probability of a condition if the sides of a comparison are uniformly distributed."""
        if isinstance(cond, Binary) and cond.op == "and":
            return self.probability(cond.a) * self.probability(cond.b)
        if isinstance(cond, ir.Compare) and cond.op in ("lt", "le") and cond.a.dtype.is_int:
            low = self.box.interval(cond.a - cond.b if cond.a.lanes == 1 else cond.a)
            if low.lo is not None and low.hi is not None and cond.a.lanes == 1:
                n = low.hi - low.lo + 1
                below = -low.lo + (cond.op == "le")
                return min(max(below / n, 0.0), 1.0)
        return 1.0


_ZERO, _ONE = Const(0), Const(1)


def _free(e: Expr) -> bool:
    """Whether a broadcast of `e` costs nothing: it is a constant, a variable, or part of a load."""
    return isinstance(e, (Const, Load, Var))


def _writes(s: Stmt) -> frozenset[Buffer]:
    return frozenset(x.buffer for x in walk(s) if isinstance(x, nodes.Store))
