"""The native interface: what `tilesmith.h` promises to a host that brings its own threads."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from c_compiler import compile_c
from models import COLS, ROWS, checked_program, copy_program, expected, program

from tilesmith.codegen.context import FIELDS, SIZE, Code, address
from tilesmith.codegen.link import Library, compile_object
from tilesmith.codegen.targets import host
from tilesmith.ir.dtypes import f32
from tilesmith.program.functions import ENTRY
from tilesmith.runtime import _native
from tilesmith.runtime.native import Context, aligned_bytes
from tilesmith.runtime.program import Program

BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


class Host:
    """Runs a program as a C program would: it fills in a context by hand."""

    def __init__(self, program: Program, *arrays: np.ndarray, threads: int = 2) -> None:
        self.library = Library(list(program.objects.values()), [ENTRY])
        self.outputs = [np.zeros(s.shape, s.dtype.numpy) for s in program.outputs]
        scratch = -(-program.scratch_bytes // 64) * 64
        self.keep = (arrays, aligned_bytes(program.arena_bytes), aligned_bytes(scratch * threads))
        self.context = Context.of(threads, self.keep[2].ctypes.data, scratch)
        self.context.arena, self.context.arena_bytes = (
            self.keep[1].ctypes.data,
            program.arena_bytes,
        )
        self.context.constants = program.constants.ctypes.data
        self.pointers = [
            (ctypes.c_void_p * len(a))(*(x.ctypes.data for x in a)) for a in (arrays, self.outputs)
        ]
        self.context.inputs, self.context.outputs = map(ctypes.addressof, self.pointers)
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.library.address(ENTRY))
        self.run: Callable[[], int] = lambda: function(ctypes.addressof(self.context))


def test_offsets_are_those_of_the_header() -> None:
    declared = tuple((f.name, f.offset, f.bytes) for f in FIELDS)
    assert declared == _native.CONTEXT_LAYOUT
    assert declared == tuple(
        (f.name, getattr(Context, f.name).offset, getattr(Context, f.name).size) for f in FIELDS
    )
    assert ctypes.sizeof(Context) == SIZE


def test_code_refers_to_no_symbol_of_the_runtime() -> None:
    p, _ = program()
    for symbol, code in p.objects.items():
        names = {n for n in code.split(b"\0") if n.startswith(b"tilesmith")}
        assert names <= {ENTRY.encode()}, symbol


@pytest.mark.parametrize("threads", (1, 3))
def test_a_host_brings_its_own_threads(threads: int) -> None:
    """Iterations one by one, the last first: any division of a loop gives the same answer."""
    p, c = program()
    x = np.random.default_rng(0).standard_normal((ROWS, COLS)).astype(np.float32)
    this, loops = Host(p, x, threads=threads), []

    @PARALLEL_FOR
    def parallel_for(context: int, body: int, env: int, extent: int) -> None:
        assert context == ctypes.addressof(this.context)
        loops.append(extent)
        for i in reversed(range(extent)):
            BODY(body)(env, i, i + 1, i % threads)

    this.context.parallel_for = ctypes.cast(parallel_for, ctypes.c_void_p).value
    assert this.run() == Code.OK
    assert loops == [ROWS, ROWS * COLS, ROWS]
    for got, want in zip(this.outputs, expected(x, c), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_c_program_runs_it_without_a_runtime(tmp_path: Path) -> None:
    """Nothing but the objects and the C library is linked."""
    p, c = program()
    files = [tmp_path / f"{symbol}.o" for symbol in p.objects]
    for file, code in zip(files, p.objects.values(), strict=True):
        file.write_bytes(code)
    compile_c(tmp_path / "host", Path(__file__).with_name("host.c"), *files)
    x = np.random.default_rng(1).standard_normal((ROWS, COLS)).astype(np.float32)
    scratch = -(-p.scratch_bytes // 64) * 64
    sizes = (p.constants.nbytes, p.arena_bytes, scratch, x.nbytes, *(s.bytes for s in p.outputs))
    done = subprocess.run(
        [tmp_path / "host", *map(str, sizes)],
        input=p.constants.tobytes() + x.tobytes(),
        capture_output=True,
        check=True,
    )
    y, z = expected(x, c)
    found = np.frombuffer(done.stdout, np.float32)
    np.testing.assert_allclose(found, np.concatenate([y.ravel(), z]), rtol=1e-5)


def test_a_failure_says_where_and_why() -> None:
    this = Host(checked_program(), np.array([1, 50, 2, 3]))
    assert this.run() == Code.ASSERTION == this.context.failure_code
    failure = this.context.failure(Code.ASSERTION)
    assert (failure.call, failure.assertion, failure.values) == (1, 0, (50,))
    assert failure.text(["number not below 10"]) == "number not below 10 (found 50)"
    assert this.context.failure_code == Code.OK


def test_a_run_forgets_the_failure_before_it() -> None:
    x = np.array([1, 50, 2, 3])
    this = Host(checked_program(), x)
    assert this.run() == Code.ASSERTION
    x[1] = 5
    assert this.run() == Code.OK == this.context.failure_code
    np.testing.assert_array_equal(this.outputs[0], x)


def test_a_context_of_another_version_is_refused() -> None:
    x = np.ones(4, np.float32)
    this = Host(copy_program(f32, (4,)), x)
    for name, value in (("abi", 1), ("size", SIZE - 8), ("abi", 3)):
        before = getattr(this.context, name)
        setattr(this.context, name, value)
        assert this.run() == Code.VERSION
        setattr(this.context, name, before)
    assert not this.outputs[0].any()
    this.context.size += 64  # fields that this code does not know
    assert this.run() == Code.OK
    np.testing.assert_array_equal(this.outputs[0], x)


@pytest.mark.parametrize("field", ("arena_bytes", "scratch_bytes"))
def test_too_little_memory_is_refused(field: str) -> None:
    p, _ = program()
    this = Host(p, np.ones((ROWS, COLS), np.float32))
    needed = getattr(p, field)
    assert needed > 0
    setattr(this.context, field, needed - 1)
    assert this.run() == Code.MEMORY
    failure = this.context.failure(Code.MEMORY)
    assert failure.values == (needed, needed - 1)
    assert failure.text(()) == f"{needed} bytes of memory are needed, {needed - 1} were given"
    assert not this.outputs[0].any()


def test_code_reaches_memory_and_host() -> None:
    """A kernel made by hand: memory from `grow` travels through `host`."""
    fields = ("grow", "memory", "host", "host_data")
    text = f"""
define i32 @kernel(ptr %context) {{
{
        "".join(
            f'''  %{n}.p = {address(n)}
  %{n} = load ptr, ptr %{n}.p
'''
            for n in fields
        )
    }
  %arguments = alloca ptr
  %block = call ptr %grow(ptr %memory, i64 3, i64 100, i64 40)
  store ptr %block, ptr %arguments
  %code = call i32 %host(ptr %host_data, i64 7, ptr %arguments, i64 1)
  ret i32 %code
}}
"""
    library = Library([compile_object(text, host())], ["kernel"])
    seen: list[tuple[int | None, ...]] = []
    room = aligned_bytes(128)
    i64 = ctypes.c_int64

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, i64, i64, i64)
    def grow(memory: int, slot: int, size: int, keep: int) -> int:
        seen.append((memory, slot, size, keep))
        return room.ctypes.data

    pointers = ctypes.POINTER(ctypes.c_void_p)

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, i64, pointers, i64)
    def call(data: int, function: int, arguments: ctypes.Array[ctypes.c_void_p], n: int) -> int:
        seen.append((data, function, arguments[0], n))
        return 5

    context = Context.of(1, 0, 0)
    for name, function in (("grow", grow), ("host", call)):
        setattr(context, name, ctypes.cast(function, ctypes.c_void_p).value)
    context.memory, context.host_data = 11, 22
    kernel = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address("kernel"))
    assert kernel(ctypes.addressof(context)) == 5
    assert seen == [(11, 3, 100, 40), (22, 7, room.ctypes.data, 1)]
