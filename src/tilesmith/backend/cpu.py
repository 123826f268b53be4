"""CPUs through LLVM: explicit vectors, unrolled register tiles, threads."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.codegen.emit import emit, emit_bare
from tilesmith.codegen.link import assembly, compile_object
from tilesmith.codegen.math import expand_math
from tilesmith.graph.nodes import Graph
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func
from tilesmith.perf.cost import Place, Setting, predict
from tilesmith.perf.kernel_work import work_of
from tilesmith.perf.machine import nominal
from tilesmith.strategy import cpu
from tilesmith.strategy.cpu.full_lanes import columns_choice
from tilesmith.strategy.cpu.layouts import layout_policy
from tilesmith.strategy.cpu.low_precision import factor_choice, low_precision_choice
from tilesmith.strategy.cpu.packing import packed_layouts
from tilesmith.strategy.cpu.scaled_chunks import chunk_versions, packing_choice
from tilesmith.strategy.cpu.versions import batch_versions, repeated_rows
from tilesmith.strategy.cpu.winograd_cost import winograd_choice
from tilesmith.strategy.group import Group
from tilesmith.strategy.rules import ScheduleRules
from tilesmith.strategy.versions import Versions
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Tensor

from . import loop_passes as p
from .base import Backend, native_toolchain


def _versions(body: Graph) -> Versions | None:
    return chunk_versions(body) or repeated_rows(body) or batch_versions(body)


# The rules of sketches are imported here, since only tuned kernels and schedules "auto" need them.
def _generate(s: Schedule, group: Group, target: Target, cfg: Config) -> None:
    from tilesmith.strategy.sketch import schedule_expression

    schedule_expression(s, group, target, cfg)


def _default_schedule(args: Sequence[Tensor], target: Target, bound: float) -> Schedule:
    from tilesmith.strategy.sketch import default_schedule

    return default_schedule(args, target, bound)


RULES = ScheduleRules(
    expressions=cpu.expressions,
    schedules=cpu.schedules,
    generate=_generate,
    is_generic=cpu.is_generic,
    is_fixed=cpu.is_concat,
    packed_layouts=packed_layouts,
    versions=_versions,
    lower_group=cpu.lower_by_rule,
    lower_scheduled=cpu.lower_scheduled,
    lower_plain=cpu.lower_plain,
)


def predict_seconds(final: Func, target: Target, threads: int, places: Sequence[Place]) -> float:
    """The prediction of the performance model, by the rates in the target's description."""
    setting = Setting(threads, places)
    return predict(work_of(final, target), nominal(target), target, setting).seconds


_LOOP_PASSES = (
    p.SIMPLIFY, p.FLATTEN, p.TRIM, p.PEEL, p.TENSORIZE, p.VECTORIZE, p.UNROLL, p.SIMPLIFY_AGAIN,
    p.HOIST_CHECKS, p.HOIST,
)  # fmt: skip

CPU = Backend(
    name="cpu",
    layout_policy=layout_policy,
    has_halos=True,
    winograd=winograd_choice,
    columns=columns_choice,
    packing=packing_choice,
    low_precision=low_precision_choice,
    factors=factor_choice,
    lines=None,
    rules=RULES,
    auto_schedule=_default_schedule,
    loop_passes=_LOOP_PASSES,
    lower_intrinsics=expand_math,
    emit=emit,
    tools=native_toolchain(compile_object, assembly),
    bare=emit_bare,
    predict=predict_seconds,
)
