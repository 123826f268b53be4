"""The value that holds all differences between kinds of target.

A `Backend` names everything that differs between kinds of target; the rest of the compiler works on
any.  `Target.backend` chooses it (see `backend.of`).  A new kind of target is one more value.  It
consists of functions from other packages and of its own writer in `codegen`.
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
from tilesmith.runtime.arguments import Arguments, KernelFunction
from tilesmith.runtime.function import native
from tilesmith.strategy.rules import ScheduleRules
from tilesmith.te.schedule import Schedule
from tilesmith.te.tensor import Tensor


@dataclass(frozen=True, slots=True)
class LoopPass:
    """A pass on the way from a loop nest to the loops from which code is written.

    name: its name in reports, dumps and `tilesmith opt`.
    run: the pass; it returns the same object if nothing changed.
    stage: the stage of loop IR after it.
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

        shared: numbers of the buffer parameters that may share memory with one another.
        strict: every operation gives the interpreter's result to the bit.
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


@dataclass(frozen=True, slots=True, eq=False)
class Toolchain:
    """The way from a kernel's text to code.

    compile: object code of a text, at an optimisation level from 0 to 3.
    assembly: machine code of a text, for people.
    code: the stored form of a kernel: object code, at an optimisation level from 0 to 3, or its
        text.
    function: a kernel as a function of arrays.
    """

    compile: Callable[[str, Target, int], bytes]
    assembly: Callable[[str, Target], str]
    code: Callable[[Kernel, Target, int], bytes]
    function: MakeFunction


def native_toolchain(
    compile: Callable[[str, Target, int], bytes], assembly: Callable[[str, Target], str]
) -> Toolchain:
    """The toolchain for kernels that run on the CPU."""

    def code(kernel: Kernel, target: Target, opt: int) -> bytes:
        return compile(kernel.text, target, opt)

    return Toolchain(compile, assembly, code, native(compile, assembly))


@dataclass(frozen=True, slots=True)
class Lines:
    """Choices of a target with very many threads for operators that are sequential along lines.

    longest: upper bound on the steps of one thread along a line.
    are_few: decides whether an operator written as loops has too few independent iterations for a
        target.
    """

    longest: int
    are_few: Callable[[Graph, Target], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """The choices, passes and writers for one kind of target.

    name: the value of `Target.backend`.
    layout_policy: costs of the layouts of values.
    has_halos: whether values have a halo of zeros, so that readers need not test indices.
    winograd: chooses tile sizes of convolutions, given the allowed error, the way of choosing, and
        the element type of the factors of the direct convolution.
    columns: decides which convolutions of variables become products of matrices.
    packing: decides which products read packed weights of few bits, given the way of choosing.
    low_precision: decides which factors of a product are stored in a low type.
    factors: storage types of the factors of integer products.
    lines: limits for operators that are sequential along lines; None if any number of lines is
        fast.
    rules: the schedules of fused groups.
    auto_schedule: makes a schedule for tensor expressions that belong to no graph, given the
        allowed error.
    loop_passes: from a loop nest to final loop IR, in order.
    lower_intrinsics: the last pass, which replaces the functions that the writer has no text for.
    emit: the writer: the text of a kernel in final form.
    tools: its toolchain.
    bare: the writer of functions that use only their parameters: the main function and the
        functions for sizes; None where there are only kernels.
    predict: predicted seconds of a kernel in final form, from the number of threads and the memory
        where each argument lies.
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
    bare: Callable[[Func, Target], str] | None
    predict: Callable[[Func, Target, int, Sequence[Place]], float]
