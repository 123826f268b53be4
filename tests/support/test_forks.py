"""A child of a fork waits for no lock that a thread of its parent held."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ir.expr import interned
from tilesmith.support.cache import Cache

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def in_child(work: Callable[[], object]) -> int:
    """The status of a forked child that does `work`; a child that hangs is ended."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


class Holder:
    """Another thread that is inside `lock` when the fork begins, and leaves it a moment later."""

    def __init__(self, lock) -> None:
        self._lock, self._inside = lock, threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        with self._lock:
            self._inside.set()
            threading.Event().wait(0.2)

    def __enter__(self) -> None:
        self._thread.start()
        self._inside.wait()

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def build() -> None:
    x = te.placeholder((8,), "f32", "x")
    y = te.compute((8,), lambda i: x[i] * 2.0 + 1.0, "y")
    out = np.empty(8, np.float32)
    ts.build(te.create_schedule(y.op), [x, y])(np.ones(8, np.float32), out)
    assert (out == 3).all()


@pytest.mark.parametrize("which", ["LLVM", "expressions"])
def test_a_child_compiles_though_a_thread_compiled(which):
    build()
    with Holder(llvm.ffi.lib._lock if which == "LLVM" else interned._lock):
        assert in_child(build) == 0


def test_a_child_has_new_locks_of_objects(tmp_path):
    cache = Cache(tmp_path)
    with Holder(cache._lock):
        assert in_child(lambda: cache.get("0" * 8)) == 0
    cache.put("0" * 8, b"x")
    assert cache.get("0" * 8) == b"x"


def test_a_child_traces_though_a_thread_traced():
    torch = pytest.importorskip("torch")
    from tilesmith.frontend.torch.capture import TRACING

    module, x = torch.nn.ReLU(), torch.ones(2)
    ts.compile(module, (x,))
    with Holder(TRACING):
        assert in_child(lambda: ts.compile(module, (x,))) == 0
