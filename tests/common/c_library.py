"""Functions written in C, built as one shared library: the C compiler starts once."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tilesmith.codegen.c.compiler import shared_library
from tilesmith.codegen.c.emit import translation_unit, write
from tilesmith.codegen.c.vector_functions import vector_unit, write_vectors
from tilesmith.loop.nodes import Buffer, Func
from tilesmith.runtime.native import Context
from tilesmith.support.errors import ModelError


class CLibrary:
    """`funcs` (stage "final") by symbol; `call` runs one as `loop.interpret` would.

    with_vectors: the functions have vectors.
    """

    def __init__(self, funcs: Mapping[str, Func], with_vectors: bool = False) -> None:
        self.funcs = funcs
        if with_vectors:
            vectors = {symbol: write_vectors(f, symbol) for symbol, f in funcs.items()}
            self.written = {symbol: v.function for symbol, v in vectors.items()}
            self.text = vector_unit(vectors.values())
        else:
            self.written = {symbol: write(f, symbol) for symbol, f in funcs.items()}
            self.text = translation_unit(self.written.values())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "library.so")
            path.write_bytes(shared_library(self.text))
            self._library = ctypes.CDLL(str(path))

    def call(self, symbol: str, args: Sequence[np.ndarray | int]) -> None:
        """Run on arrays, changed in place, and integers.  ModelError when an assertion fails."""
        func, written = self.funcs[symbol], self.written[symbol]
        workspace = np.empty(written.workspace_bytes + 64, np.uint8)
        raw: list[ctypes.c_void_p | ctypes.c_int64] = []
        for p, a in zip(func.params, args, strict=True):
            if isinstance(p, Buffer):
                assert isinstance(a, np.ndarray) and a.dtype == p.dtype.numpy
                assert a.flags.c_contiguous
                raw.append(ctypes.c_void_p(a.ctypes.data))
            else:
                raw.append(ctypes.c_int64(int(a)))
        aligned = workspace.ctypes.data + -workspace.ctypes.data % 64
        context = Context.of(1, 0, 0)
        code = self._library[symbol](*raw, ctypes.c_void_p(aligned), ctypes.byref(context))
        if code:
            raise ModelError(context.failure(code).text(written.messages))
