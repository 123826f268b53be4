"""Illegal steps raise ScheduleError, say why, and leave the schedule as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilesmith import te
from tilesmith.ir.expr import Var
from tilesmith.support.errors import ScheduleError
from tilesmith.te.steps import PRIMITIVES


class Example:
    """X -> Y = X + 1 -> R = sum over k -> Z = R * 2 (output)."""

    def __init__(self) -> None:
        self.x = te.placeholder((8, 10), name="X")
        self.y = te.compute((8, 10), lambda i, j: self.x[i, j] + 1.0, name="Y")
        self.k = te.reduce_axis(10, "k")
        self.r = te.compute((8,), lambda i: te.sum(self.y[i, self.k], axis=self.k), name="R")
        self.z = te.compute((8,), lambda i: self.r[i] * 2.0, name="Z")
        self.s = te.create_schedule(self.z.op)

    def __getitem__(self, name: str) -> te.Stage:
        return self.s[name]


def attached(e: Example) -> None:
    e["R"].compute_at(e["Z"], "i")


def inlined(e: Example) -> None:
    e["Y"].compute_inline()


def split_z(e: Example) -> None:
    e["Z"].split("i", 4)


def skewed(e: Example) -> None:
    e["Y"].skew("j", "i", 5, 4)


def nothing(_: Example) -> None:
    pass


CASES: list[tuple[Callable[[Example], object], Callable[[Example], object], str]] = [
    (nothing, lambda e: e["Z"].split("q", 2), "Z has no axis 'q'; its loops are i"),
    (nothing, lambda e: e["Z"].split("i", 0), "factor of at least 1, found 0"),
    (nothing, lambda e: e["Z"].split("i"), "needs either factor= or nparts="),
    (nothing, lambda e: e["Z"].split("i", 2, tail="what"), "tail must be"),  # type: ignore[arg-type]
    (nothing, lambda e: e["X"].split("i", 2), "X has no axis 'i'"),
    (nothing, lambda e: e["R"].split("k", 4, tail="roundup"), "would change the result"),
    (split_z, lambda e: e["Z"].split("i", 2), "it was split into io and ii"),
    (attached, lambda e: e["Z"].split("i", 2), "R is computed there; split first"),
    (nothing, lambda e: e["R"].fuse("i", "k"), "k is a reduction axis and the others are not"),
    (nothing, lambda e: e["Y"].fuse("j", "i"), "must be neighbours in this order"),
    (nothing, lambda e: e["Y"].skew("j", "j", 5, 4), "expected two different axes"),
    (nothing, lambda e: e["R"].skew("i", "k", 5, 4), "axes of the result"),
    (nothing, lambda e: e["Y"].skew("j", "i", 5, 1), "modulus of at least 2, found 5 and 1"),
    (skewed, lambda e: e["Y"].split("j", 2), "it was skewed to js"),
    (nothing, lambda e: e["Y"].reorder("i", "i"), "named twice"),
    (nothing, lambda e: e["R"].parallel("k"), "use rfactor"),
    (nothing, lambda e: e["Z"].split(e.k, 2), "is no axis of Z"),
    (nothing, lambda e: e["Z"].vectorize(e["Y"].axis[0]), "belongs to stage Y, not to Z"),
    (nothing, lambda e: e["Y"].compute_at(e["Z"], "i"), "its reader R is not inside that loop"),
    (nothing, lambda e: e["Z"].compute_at(e["R"], "i"), "no stage reads it"),
    (nothing, lambda e: e["R"].compute_at(e["R"], "i"), "at its own loop"),
    (attached, lambda e: e["Z"].compute_at(e["R"], "i"), "lies inside itself"),
    (inlined, lambda e: e["Y"].split("i", 2), "it is inlined"),
    (attached, lambda e: e["Z"].vectorize("i"), "loop i is vectorised"),
    (nothing, lambda e: e["R"].compute_inline(), "it is a reduction"),
    (nothing, lambda e: e["Z"].compute_inline(), "it is an output"),
    (nothing, lambda e: e["X"].compute_inline(), "argument of the program"),
    (nothing, lambda e: e["Z"].set_scope("stack"), "it is an output, whose memory the caller owns"),
    (nothing, lambda e: e["R"].set_scope("moon"), "scope must be"),  # type: ignore[arg-type]
    (nothing, lambda e: e["R"].double_buffer(), "compute_at first"),
    (nothing, lambda e: e["Y"].storage_align("j", 8), "innermost dimension"),
    (nothing, lambda e: e["Y"].storage_align("i", 0), "factor >= 1"),
    (nothing, lambda e: e["Z"].prefetch(e.x, "i"), "which does not read it"),
    (nothing, lambda e: e["Y"].prefetch(e.x, "i", over="k"), "k"),
    (
        nothing,
        lambda e: e.s.cache_read(e.x, "heap", [e.z]),
        "Z does not read it; its readers are Y",
    ),
    (split_z, lambda e: e.s.cache_write(e.z, "heap"), "must come before its loops are scheduled"),
    (
        nothing,
        lambda e: e.s.winograd(e.r, 2),
        r"winograd of R needs a float sum .* found tiles of 2",
    ),
    (nothing, lambda e: e.s.rfactor(e.r, "i"), r"needs one of its reduction loops \(k\)"),
    (nothing, lambda e: e.s.flatten_axes(e.z, "i"), "it is an output"),
    (nothing, lambda e: e.s.flatten_axes(e.y, "j", "i"), "neighbours in order"),
    (nothing, lambda e: e.s.unflatten_axis(e.z, "i", 2), "it is an output"),
    (nothing, lambda e: e.s.unflatten_axis(e.r, e.k, 2), "one of its axes i"),
    (nothing, lambda e: e.s.unflatten_axis(e.y, "i", 0), "at least 1; found i and 0"),
    (nothing, lambda e: e.s.transform_layout(e.x, "0 1 2"), "has 3 axes, X has rank 2"),
    (nothing, lambda e: e.s.transform_layout(e.x, "0 nonsense"), "bad layout dimension"),
    (nothing, lambda e: e.s.transform_layout(e.y, "0+1:1 1"), "nothing would fill its halo"),
    (nothing, lambda e: e.s.transform_layout(e.x, lambda i, j: (i + j, j)), "v, v // c or v % c"),
    (nothing, lambda e: e.s[te.placeholder((1,))], "is not part of this schedule"),
    (nothing, lambda e: e.s["nobody"], "no stage 'nobody'"),
]


@pytest.mark.parametrize(("before", "step", "message"), CASES, ids=[c[2][:40] for c in CASES])
def test_illegal_step(
    before: Callable[[Example], object], step: Callable[[Example], object], message: str
) -> None:
    e = Example()
    before(e)
    point = e.s.checkpoint()
    with pytest.raises(ScheduleError, match=message):
        step(e)
    assert e.s.checkpoint() == point


def test_tile_is_all_or_nothing() -> None:
    e = Example()
    with pytest.raises(ScheduleError):
        e["Y"].tile("i", "j", 2, 0)
    assert e.s.steps == ()


def test_lanes_of_a_users_reduction_cannot_be_combined() -> None:
    x = te.placeholder((4, 8), name="X")
    k = te.reduce_axis(8, "k")
    reduce = te.comm_reducer(lambda a, b: a + b + a * b, lambda d: te.const(0, d))
    y = te.compute((4,), lambda i: reduce(x[i, k], axis=k), name="Y")
    s = te.create_schedule(y.op)
    with pytest.raises(ScheduleError, match="lanes can only be combined"):
        s[y].vectorize(k)


def test_register_indices_must_become_constants() -> None:
    e = Example()
    e["R"].set_scope("register")
    e["R"].compute_at(e["Z"], e["Z"].split("i", 4)[0])
    with pytest.raises(ScheduleError, match=r"R is in register memory.*unroll or vectorise"):
        te.lower(e.s, [e.x, e.z])


def test_vector_loops_need_a_constant_extent() -> None:
    n = Var("n")
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="Y")
    s = te.create_schedule(y.op)
    s[y].vectorize("i")
    with pytest.raises(ScheduleError, match="extent n is not a constant"):
        te.lower(s, [x, y])


def test_output_attached_where_it_would_not_be_written_whole() -> None:
    x = te.placeholder((9,), name="X")
    y = te.compute((9,), lambda i: x[i] + 1.0, name="Y")
    z = te.compute((4,), lambda i: y[i * 2], name="Z")
    s = te.create_schedule([y.op, z.op])
    with pytest.raises(ScheduleError, match="does not read it element by element"):
        s[y].compute_at(s[z], "i")


def test_double_buffer_needs_iterations_that_follow_each_other() -> None:
    e = Example()
    e["R"].compute_at(e["Z"], "i")
    e["R"].double_buffer()
    e["Z"].parallel("i")
    with pytest.raises(ScheduleError, match=r"cannot be double-buffered in parallel loop Z\.i"):
        te.lower(e.s, [e.x, e.z])


def test_a_stage_whose_readers_are_gone_is_computed_nowhere() -> None:
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="Y")
    both = te.compute((), lambda: (y[1], x[0] * 2.0), name="both")
    z = te.compute((2,), lambda i: both[1][()] + x[i], name="Z")
    s = te.create_schedule(z.op)
    s["both"].compute_inline()
    s["Y"].compute_at(s["Z"], "i")
    with pytest.raises(ScheduleError, match=r"Y cannot be computed at Z\.i: no stage reads it"):
        te.lower(s, [x, z])


def test_registers_are_no_memory_to_prefetch() -> None:
    e = Example()
    e.s.cache_write(e.z, "register")
    for name in ("Z", "Z_register"):
        e[name].unroll("i")
    e["Z"].prefetch("Z_register", "i", offset=0)
    with pytest.raises(ScheduleError, match="scope 'register', which is no memory"):
        te.lower(e.s, [e.x, e.z])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "does not parse"),
        ("{}", "is a list of steps"),
        ('[{"step": "explode"}]', "expected a step with one of the names"),
        ('[{"step": "fuse", "stage": "Z"}]', "has fields stage, axes"),
        ('[{"step": "fuse", "stage": "Z", "axes": [1]}]', "field axes needs"),
        ('[{"step": "compute_root", "stage": "Q"}]', "no stage 'Q'"),
    ],
)  # fmt: skip
def test_bad_json(data: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        te.Schedule.from_json(Example().z.op, data)


def test_every_primitive_has_a_method() -> None:
    for name in PRIMITIVES:
        assert hasattr(te.Stage, name) or hasattr(te.Schedule, name), name


def test_outputs_are_computed() -> None:
    with pytest.raises(ScheduleError, match=r"made by te\.compute"):
        te.create_schedule(te.placeholder((1,)).op)
    with pytest.raises(ScheduleError, match="at least one operation"):
        te.create_schedule([])
