"""What depends on the kind of target, as one value.

A `Backend` names everything that differs between kinds of target; the rest of the compiler works on
any.  It is chosen by `Target.backend` (see `backend.of`) and is a value of functions: a new kind of
target is one more value, made of parts of other rooms and of its own writer in `codegen`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilesmith.codegen.kernel import Kernel
from tilesmith.graph.nodes import Graph
from tilesmith.graph.passes.choices import Choose
from tilesmith.graph.passes.columns import Choice as ColumnsChoice
from tilesmith.graph.passes.factors import Choice as FactorChoice
from tilesmith.graph.passes.layout import LayoutPolicy
from tilesmith.graph.passes.low_precision import Choice as LowPrecisionChoice
from tilesmith.graph.passes.packed_weights import Choice as PackingChoice
from tilesmith.graph.passes.winograd import Choice as WinogradChoice
from tilesmith.ir.dtypes import DType
from tilesmith.ir.target import Target
from tilesmith.loop.nodes import Func
from tilesmith.loop.verify import Stage
from tilesmith.perf.cost import Place
from tilesmith.program.nodes import Step
from tilesmith.runtime.arguments import Arguments, KernelFunction
from tilesmith.runtime.function import native
from tilesmith.strategy.rules import ScheduleRules
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Tensor


@dataclass(frozen=True, slots=True)
class LoopPass:
    """A step from a loop nest to the form that code is written from.

    name: what reports, dumps and `tilesmith opt` call it.
    run: the step itself; returns the same object when nothing changed.
    stage: the stage of loop IR whose rules hold after it.
    """

    name: str
    run: Callable[[Func], Func]
    stage: Stage


class WriteKernel(Protocol):
    """The writer of kernels."""

    def __call__(
        self, func: Func, target: Target, *, shared: Collection[int] = (), strict: bool = False
    ) -> Kernel:
        """The text of a kernel in final form.

        shared: by number, the buffer parameters of which two may be the same memory.
        strict: every operation has the interpreter's result, bit by bit.
        """
        ...


class MakeFunction(Protocol):
    """Makes a kernel callable."""

    def __call__(
        self, kernel: Kernel, arguments: Arguments, target: Target, *, opt: int, threads: int | None
    ) -> KernelFunction:
        """A function of arrays.

        opt: the optimisation level, from 0 to 3.
        threads: number of threads, on a CPU.
        """
        ...


class WriteEntry(Protocol):
    """The writer of a program's main function."""

    def __call__(
        self,
        steps: Sequence[Step],
        target: Target,
        *,
        arena_bytes: int,
        scratch_bytes: int,
        sizes: int,
    ) -> str:
        """The text for the steps on a target.  They need so many bytes of the arena, and of each
        thread's scratch memory; if `sizes` is not 0, the bytes that the first of so many values
        say, which the function for sizes computes.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Toolchain:
    """From texts to code.

    compile: object code of a text, at an optimisation level from 0 to 3.
    assembly: machine code of a text, to be read.
    code: what is kept of a kernel: object code, at an optimisation level from 0 to 3, or its text.
    function: a kernel as a function of arrays.
    """

    compile: Callable[[str, Target, int], bytes]
    assembly: Callable[[str, Target], str]
    code: Callable[[Kernel, Target, int], bytes]
    function: MakeFunction


def native_toolchain(
    compile: Callable[[str, Target, int], bytes], assembly: Callable[[str, Target], str]
) -> Toolchain:
    """For kernels that run on the CPU."""

    def code(kernel: Kernel, target: Target, opt: int) -> bytes:
        return compile(kernel.text, target, opt)

    return Toolchain(compile, assembly, code, native(compile, assembly))


@dataclass(frozen=True, slots=True)
class Lines:
    """Of targets with very many threads: operators that are sequential along lines.

    longest: steps that a thread may take alone without being slow.
    are_few: whether an operator written as loops has too few independent iterations for a target.
    """

    longest: int
    are_few: Callable[[Graph, Target], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """How programs for one kind of target are made.

    name: what `Target.backend` says.
    layout_policy: what the layouts of values cost.
    has_halos: whether values have borders of zeros for readers that would test where they read.
    winograd: tile sizes of convolutions, given the error that is allowed, how to choose, and the
        type of the factors of the kernel that is replaced.
    columns: which convolutions of variables become products of matrices.
    packing: which products read weights of few bits packed, given how to choose.
    low_precision: which factors of a product are worth storing in a low type.
    factors: how the factors of integer products are stored.
    lines: how operators that are sequential along lines share threads; None: any number of lines
        will do.
    rules: the schedules of fused groups.
    auto_schedule: a schedule for tensor expressions alone, given the error that is allowed.
    loop_passes: from a loop nest to final loop IR, in order.
    lower_intrinsics: the last pass: replaces the functions that the writer has no text for.
    emit: the writer: the text of a kernel in final form.
    tools: what makes code of the texts.
    entry: the text of a program's main function for its steps; None where there are only kernels.
    bare: the writer of functions of their parameters alone, without workspace and context; None
        without `entry`.
    predict: seconds that a kernel in final form is expected to take, given the
    number of threads and the memory where each argument lies.
    """

    name: str
    layout_policy: Callable[[Target], LayoutPolicy]
    has_halos: bool
    winograd: Callable[[Target, float, Choose, DType], WinogradChoice]
    columns: Callable[[Target], ColumnsChoice]
    packing: Callable[[Target, Choose], PackingChoice]
    low_precision: Callable[[Target], LowPrecisionChoice]
    factors: Callable[[Target], FactorChoice]
    lines: Lines | None
    rules: ScheduleRules
    auto_schedule: Callable[[Sequence[Tensor], Target, float], Schedule]
    loop_passes: tuple[LoopPass, ...]
    lower_intrinsics: Callable[[Func, Target], Func]
    emit: WriteKernel
    tools: Toolchain
    entry: WriteEntry | None
    bare: Callable[[Func, Target], str] | None
    predict: Callable[[Func, Target, int, Sequence[Place]], float]
