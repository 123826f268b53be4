"""Compilation of LLVM text to object code, and linking of objects in memory, by llvmlite.

Objects are position-independent and need nothing but the C library.  So the same bytes serve the
in-memory linker, saved executables and exported libraries.  llvmlite holds one lock around every
call into LLVM, so kernels are compiled in several processes instead of threads.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import llvmlite.binding as llvm

from tilesmith.ir.target import Target
from tilesmith.support.errors import InternalError, ModelError
from tilesmith.support.forks import wait_in_forks

from .levels import ABIS
from .targets import base_cpu

_library_numbers = itertools.count()

# llvmlite holds this lock while LLVM works, and a fork of the process waits for it.  With a version
# of llvmlite that has no such lock, a fork does not wait.
if (_working := getattr(llvm.ffi.lib, "_lock", None)) is not None:
    wait_in_forks(1, _working.__enter__, partial(_working.__exit__, None, None, None))


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@lru_cache(maxsize=16)
def _machine(target: Target, opt: int) -> llvm.TargetMachine:
    """A target machine for emitting objects.  It is cached and shared, so no engine may own it."""
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=base_cpu(target),
        features="" if target.device is not None else target.feature_string,
        opt=opt,
        reloc="pic",
        codemodel="small",
        abiname=ABIS.get(target.triple.split("-")[0], ""),
    )


def _pipeline(
    machine: llvm.TargetMachine, opt: int
) -> tuple[llvm.PassBuilder, llvm.FunctionPassManager]:
    """The passes that run over each function.

    A kernel's loops are already transformed by its schedule, and its invariants are hoisted.  So
    passes that put values into registers and fold instructions are enough.  LLVM's own pipeline was
    measured: it takes four times as long, and the code is not faster.
    """
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    tuning.loop_unrolling = tuning.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, tuning)
    if opt > 2:
        return builder, builder.getFunctionPassManager()
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return builder, passes


def _optimized(
    llvm_text: str, target: Target, opt: int
) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    machine = _machine(target, opt)
    # a new context for each module, so that names and types of kernels do not accumulate
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(llvm_text, context)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as e:
        raise InternalError(
            f"LLVM refuses the generated text: {e}\n{_around(llvm_text, str(e))}"
        ) from e
    if opt:
        builder, passes = _pipeline(machine, opt)
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    return module, machine


def compile_object(llvm_text: str, target: Target, opt: int = 2) -> bytes:
    """Relocatable object code of an LLVM module (ELF on Linux).

    opt: 0 runs no passes, 2 the usual passes, 3 all of LLVM's.

    Raises InternalError if LLVM does not accept the text.
    """
    module, machine = _optimized(llvm_text, target, opt)
    return machine.emit_object(module)


def assembly(llvm_text: str, target: Target, opt: int = 2) -> str:
    """Assembly text of the code that `compile_object` makes."""
    module, machine = _optimized(llvm_text, target, opt)
    return machine.emit_assembly(module)


def _around(text: str, message: str) -> str:
    """The lines of `text` around the position in LLVM's message."""
    match = re.search(r":(\d+):\d+: error", message)
    if not match:
        return ""
    number = int(match[1])
    lines = text.splitlines()
    return "\n".join(
        f"{n + 1:5}: {lines[n]}" for n in range(max(number - 4, 0), min(number + 2, len(lines)))
    )


class Library:
    """Objects that are linked into this process.  Their code stays mapped while the library exists.

    symbols: the functions to look up.
    imports: addresses of functions that the objects call, by name.  Functions of the C library are
        found without an entry.

    Raises ModelError if a symbol is missing.
    """

    def __init__(
        self,
        objects: Sequence[bytes],
        symbols: Sequence[str],
        imports: Mapping[str, int] | None = None,
    ) -> None:
        _initialize()
        builder = llvm.JITLibraryBuilder()
        for code in objects:
            builder.add_object_img(code)
        builder.add_current_process()
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        for name in symbols:
            builder.export_symbol(name)
        number = next(_library_numbers)
        self._jit = _jit(number // _LIBRARIES)
        try:
            self._tracker: Any = builder.link(self._jit, f"tilesmith.{number}")
        except RuntimeError as e:
            raise ModelError(f"the object code does not link: {e}") from e

    def address(self, symbol: str) -> int:
        """The address of one of `symbols`.  Raises KeyError for other names."""
        return self._tracker[symbol]


_LIBRARIES = 64
"""Libraries that one linker makes.  A linker keeps 9 KB for each library, also for those that exist
no more, and to make a linker takes as long as to link a few libraries.
"""


@lru_cache(maxsize=1)
def _jit(_: int) -> llvm.LLJIT:
    """The process's linker, a new one for each number; the libraries of an old one keep it alive.
    The target machine given to it only determines the platform.

    Code addresses constants by 32-bit offsets.  LLVM's older linker maps each section separately.
    In a process that has mapped more than 2 GiB, the constants may then be too far away, and the
    code reads wrong memory.  The newer linker maps all sections of a library in one piece, so it is
    used, except on Windows, where it is incomplete.
    """
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        opt=0, reloc="pic", codemodel="small"
    )
    return llvm.create_lljit_compiler(machine, use_jit_link=sys.platform != "win32")
