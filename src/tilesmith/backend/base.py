"""The value that holds all differences between kinds of target.

A `Backend` names everything that differs between kinds of target; the rest of the compiler works
for all kinds.  `Target.backend` names a target's backend (see `backend_of`).  A new kind of target
is one more `Backend`, made of functions from other packages and a writer in `codegen`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilesmith.codegen.kernel import Kernel
from tilesmith.graph.left import LeftLayer
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
    """A loop pass between the scheduled loop nest and code generation.

    name: its name in reports, dumps and `tilesmith opt`.
    run: the pass; it returns the same object if nothing changed.
    stage: the stage of the loop IR after the pass.
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
        strict: whether every operation must give the interpreter's result to the bit.
        """
        ...


class MakeFunction(Protocol):
    """The function that makes a kernel callable."""

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
    """The functions that turn a kernel's text into code.

    compile: returns object code for a text and an optimisation level from 0 to 3.
    assembly: returns readable assembly for a text.
    code: returns the stored form of a kernel for an optimisation level: object code, or the text.
    function: returns a kernel as a function of arrays.
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
    """Limits of a target with very many threads on operators that are sequential along lines.

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
    has_halos: whether values are stored with a halo of zeros, so that readers need no bounds
        checks.
    winograd: chooses tile sizes of Winograd convolutions.  Arguments are the allowed error, the
        decision function, and the factors' element type in the direct convolution.
    columns: decides which convolutions of two variables become matrix products.
    packing: decides, by a decision function, which products read weights packed in few bits.
    low_precision: decides which factors of a product are stored in a low type.
    factors: storage types of the factors of integer products.
    lines: limits on operators that are sequential along lines; None: no limits.
    rules: the schedules of fused groups.
    auto_schedule: schedules tensor expressions that belong to no graph, within an allowed error.
    loop_passes: the passes from a loop nest to final loop IR, in order.
    lower_intrinsics: the last pass; it expands mathematical functions that the writer can't write.
    emit: writes the text of a kernel in final form.
    tools: its toolchain.
    bare: writes functions that use only their parameters: the main function and size functions.
        None if the backend has only kernels.
    predict: predicts the seconds of a kernel in final form, from the number of threads and the
        memory level of each argument.
    offload: gives layers to another machine, as nodes that the host computes, and tells those that
        stay; None if there is no other machine.
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
    offload: Callable[[Graph], tuple[Graph, tuple[LeftLayer, ...]]] | None = None
