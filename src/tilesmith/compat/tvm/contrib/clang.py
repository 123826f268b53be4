"""TVM's compiler of C, for functions that tensor intrinsics call."""

from __future__ import annotations

from typing import Any


def create_llvm(inputs: str, output: Any = None, options: Any = None, cc: Any = None) -> str:
    """The C text, for the pragma "import_llvm".  It is not compiled, since `tensorize` takes the
    expression of an intrinsic (`te.decl_tensor_intrin`), and the code of that is made here.
    """
    return inputs
