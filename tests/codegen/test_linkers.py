"""Linkers in memory, which come and go with the libraries that they make."""

from __future__ import annotations

import gc
import weakref

from tilesmith.codegen.link import _LIBRARIES, Library, compile_object
from tilesmith.codegen.targets import host

CODE = compile_object("define i64 @answer() {\n  ret i64 42\n}\n", host())


def first_of_a_linker() -> Library:
    """A library of a linker that has made no library before, such as those of other tests."""
    old = Library([CODE], ["answer"])
    while (library := Library([CODE], ["answer"]))._jit is old._jit:
        pass
    return library


def test_a_linker_is_freed_with_the_last_of_its_libraries() -> None:
    kept = first_of_a_linker()
    linker = weakref.ref(kept._jit)
    addresses = {Library([CODE], ["answer"]).address("answer") for _ in range(2 * _LIBRARIES)}
    assert addresses and linker() is kept._jit
    assert Library([CODE], ["answer"])._jit is not kept._jit
    del kept
    gc.collect()
    assert linker() is None
