"""Compilation of LLVM text to PTX, an assembly language that the driver compiles for its GPU."""

from __future__ import annotations

from tilesmith.codegen.kernel import Kernel
from tilesmith.codegen.link import assembly
from tilesmith.codegen.packed import packed
from tilesmith.ir.target import Target

from .emit import with_text


def ptx(text: str, target: Target, opt: int = 2) -> str:
    """The PTX of an LLVM module.

    opt: 0 runs no passes, 2 the usual passes, 3 all of LLVM's.

    Raises InternalError if LLVM does not accept the text.
    """
    return assembly(text, target, opt)


def code(kernel: Kernel, target: Target, opt: int) -> bytes:
    """A kernel as bytes (see `codegen.packed`), with PTX as its text.  All its sizes must be
    constant.
    """
    return packed(with_text(kernel, ptx(kernel.text, target, opt)), target, opt)
