"""CPUs through LLVM: explicit vectors, unrolled register tiles, threads."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.codegen.emit import emit
from tilesmith.codegen.entry import emit_entry
from tilesmith.codegen.link import assembly, compile_object
from tilesmith.codegen.math import expand_math
from tilesmith.codegen.sizes import emit_sizes
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func
from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.hoist import hoist
from tilesmith.loop.passes.peel import peel
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.tensorize import tensorize
from tilesmith.loop.passes.trim import trim
from tilesmith.loop.passes.unroll import unroll
from tilesmith.loop.passes.vectorize import vectorize
from tilesmith.perf.cost import Place, Setting, predict
from tilesmith.perf.kernel_work import work_of
from tilesmith.perf.machine import nominal
from tilesmith.runtime.function import native
from tilesmith.strategy import cpu
from tilesmith.strategy.cpu.layouts import layout_policy
from tilesmith.strategy.cpu.low_precision import factor_choice, low_precision_choice
from tilesmith.strategy.cpu.packing import packed_layouts
from tilesmith.strategy.cpu.scaled_chunks import packing_choice, versions
from tilesmith.strategy.cpu.winograd_cost import winograd_choice
from tilesmith.strategy.rules import ScheduleRules
from tilesmith.strategy.sketch import default_schedule, schedule_expression

from .base import Backend, LoopPass

RULES = ScheduleRules(
    expressions=cpu.expressions,
    schedule=cpu.schedule,
    generate=schedule_expression,
    is_generic=cpu.is_generic,
    is_fixed=cpu.is_concat,
    packed_layouts=packed_layouts,
    versions=versions,
    lower_group=cpu.lower_by_rule,
    lower_scheduled=cpu.lower_scheduled,
)


def predict_seconds(final: Func, target: Target, threads: int, places: Sequence[Place]) -> float:
    """The prediction of the performance model, by the rates in the target's description."""
    setting = Setting(threads, places)
    return predict(work_of(final, target), nominal(target), target, setting).seconds


CPU = Backend(
    name="cpu",
    layout_policy=layout_policy,
    winograd=winograd_choice,
    packing=packing_choice,
    low_precision=low_precision_choice,
    factors=factor_choice,
    rules=RULES,
    auto_schedule=default_schedule,
    loop_passes=(
        LoopPass("simplify", simplify_func, "nest"),
        LoopPass("flatten", flatten, "flat"),
        LoopPass("trim", trim, "flat"),
        LoopPass("peel", peel, "flat"),
        LoopPass("tensorize", tensorize, "flat"),
        LoopPass("vectorize", vectorize, "flat"),
        LoopPass("unroll", unroll, "final"),
        LoopPass("simplify-again", simplify_func, "final"),
        LoopPass("hoist", hoist, "final"),
    ),
    lower_intrinsics=expand_math,
    emit=emit,
    function=native(compile_object, assembly),
    code=lambda kernel, target, opt: compile_object(kernel.text, target, opt),
    entry=emit_entry,
    sizes=emit_sizes,
    compile=compile_object,
    assembly=assembly,
    predict=predict_seconds,
)
