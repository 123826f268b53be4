"""The loop passes, each with its name and the stage after it.  Each backend lists some of them."""

from __future__ import annotations

from tilesmith.loop.passes.flatten import flatten
from tilesmith.loop.passes.hoist import hoist
from tilesmith.loop.passes.hoist_checks import hoist_checks
from tilesmith.loop.passes.peel import peel
from tilesmith.loop.passes.scalarize import scalarize, without_threads
from tilesmith.loop.passes.simplify import simplify_func
from tilesmith.loop.passes.tensorize import tensorize, without_intrinsics, without_own_intrinsics
from tilesmith.loop.passes.thread_registers import unroll_registers
from tilesmith.loop.passes.trim import trim
from tilesmith.loop.passes.unroll import unroll
from tilesmith.loop.passes.vector_copies import vector_copies
from tilesmith.loop.passes.vectorize import vectorize

from .base import LoopPass

SIMPLIFY = LoopPass("simplify", simplify_func, "nest")
FLATTEN = LoopPass("flatten", flatten, "flat")
TRIM = LoopPass("trim", trim, "flat")
PEEL = LoopPass("peel", peel, "flat")
TENSORIZE = LoopPass("tensorize", tensorize, "flat")
VECTORIZE = LoopPass("vectorize", vectorize, "flat")
UNROLL = LoopPass("unroll", unroll, "final")
SIMPLIFY_AGAIN = LoopPass("simplify-again", simplify_func, "final")
HOIST_CHECKS = LoopPass("hoist-checks", hoist_checks, "final")
HOIST = LoopPass("hoist", hoist, "final")
LOOPS_OF_INTRINSICS = LoopPass("loops-of-intrinsics", without_intrinsics, "nest")
LOOPS_OF_OWN_INTRINSICS = LoopPass("loops-of-intrinsics", without_own_intrinsics, "nest")
SCALARIZE = LoopPass("scalarize", scalarize, "nest")
ONE_THREAD = LoopPass("one-thread", without_threads, "nest")
UNROLL_REGISTERS = LoopPass("unroll-registers", unroll_registers, "nest")
VECTOR_COPIES = LoopPass("vector-copies", vector_copies, "flat")
