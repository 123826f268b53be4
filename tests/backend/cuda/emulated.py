"""A device that runs the text from which PTX is made: threads of a block are threads of the system.

The text is changed only where it speaks of the GPU: indices, barriers, shuffles, shared memory and
asynchronous copies, which happen when their thread waits for them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.codegen.kernel import DeviceKernel
from tilesmith.codegen.link import Library, compile_object
from tilesmith.codegen.targets import host
from tilesmith.runtime.device import Argument

MOST_ARGS = 24

_CHANGES = (
    (r"internal addrspace\(3\) global", "global"),
    (r"addrspacecast ptr addrspace\(3\) (@\S+) to ptr", r"getelementptr i8, ptr \1, i64 0"),
    (r"define ptx_kernel", "define"),
    (r"addrspacecast ptr (%\S+) to ptr addrspace\([13]\)", r"getelementptr i8, ptr \1, i64 0"),
    (r"ptr addrspace\([13]\)", "ptr"),
    (r"@llvm\.nvvm\.cp\.async\.c[ag]\.shared\.global\.(\d+)\((.*)\)", r"@copy_\1(\2, i32 \1)"),
    (r"@llvm\.nvvm\.cp\.async\.c[ag]\.shared\.global\.(\d+)\.s\(", r"@copy_\1("),
    (r"@copy_(\d+)\(", r"@copy_later(i32 \1, "),
    (r"@llvm\.nvvm\.cp\.async\.commit\.group", "@copies_end"),
    (r"@llvm\.nvvm\.cp\.async\.wait\.group", "@wait_for_copies"),
    (r"@llvm\.nvvm\.barrier\.cta\.sync\.aligned\.all\(i32 0\)", "@wait_for_all()"),
    (r"@llvm\.nvvm\.shfl\.sync\.bfly\.i32\(", "@exchange("),
    (r"@llvm\.nvvm\.read\.ptx\.sreg\.laneid\(\)", "@read_lane()"),
    *(
        (rf"@llvm\.nvvm\.read\.ptx\.sreg\.(c?ta?id)\.{axis}\(\)", rf"@read_\1(i32 {n})")
        for n, axis in enumerate("xyz")
    ),
)

_MMA = re.compile(r"@llvm\.nvvm\.mma\.m16n8k(?:16|32)\.row\.col\.([\w.]+)\(")
_MULTIPLIED = {
    "f32.f32": "f16", "bf16": "bf16", "s8": "s8s8", "u8": "u8u8", "s8.u8": "s8u8", "u8.s8": "u8s8",
}  # fmt: skip
"""The types of factors by the end of an instruction's name."""


def _mma(types: str) -> str:
    """A function that gives the parts of all threads of a warp to `multiply` and takes one back."""
    name = _MULTIPLIED[types]
    factor = "<2 x half>" if name == "f16" else "i32"
    term = "float" if "f" in name else "i32"
    given = [factor] * 6 + [term] * 4
    lines = [
        f"define internal {{ {', '.join([term] * 4)} }} @mma_{name}("
        f"{', '.join(f'{t} %x{n}' for n, t in enumerate(given))}) {{",
        "  %given = alloca [10 x i32]",
        "  %made = alloca [4 x i32]",
    ]
    for n, t in enumerate(given):
        lines.append(f"  %p{n} = getelementptr i32, ptr %given, i64 {n}")
        lines.append(f"  store {t} %x{n}, ptr %p{n}")
    lines.append(f"  call void @multiply(ptr %given, ptr %made, i32 {[*_MULTIPLIED].index(types)})")
    whole = "poison"
    for n in range(4):
        lines += [
            f"  %q{n} = getelementptr i32, ptr %made, i64 {n}",
            f"  %c{n} = load {term}, ptr %q{n}",
            f"  %r{n} = insertvalue {{ {', '.join([term] * 4)} }} {whole}, {term} %c{n}, {n}",
        ]
        whole = f"%r{n}"
    return "\n".join([*lines, f"  ret {{ {', '.join([term] * 4)} }} {whole}", "}", ""])


_DECLARED = (
    "declare void @wait_for_all()\ndeclare i32 @read_tid(i32)\ndeclare i32 @read_ctaid(i32)\n"
    "declare void @multiply(ptr, ptr, i32)\ndeclare void @copy_later(i32, ptr, ptr, i32)\n"
    "declare void @copies_end()\ndeclare void @wait_for_copies(i32)\n"
    "declare i32 @exchange(i32, i32, i32, i32)\ndeclare i32 @read_lane()\n"
)


class EmulatedDevice:
    """As `runtime.device.OpenDevice`, on this machine."""

    def __init__(self, library: Path) -> None:
        self._threads = ctypes.CDLL(str(library))
        names = ("wait_for_all", "read_tid", "read_ctaid", "multiply", "copy_later", "copies_end",
                 "wait_for_copies", "exchange", "read_lane")  # fmt: skip
        self._imports = {
            n: ctypes.cast(getattr(self._threads, n), ctypes.c_void_p).value or 0 for n in names
        }

    def within(self, watch: object) -> EmulatedDevice:
        """The same device: what runs here is not watched."""
        return self

    def load(self, kernels: Iterable[DeviceKernel]) -> dict[str, tuple[Library, str, bool]]:
        found = {}
        for k in kernels:
            text = k.text
            for old, new in _CHANGES:
                text = re.sub(old, new, text)
            multiplied = dict.fromkeys(_MMA.findall(text))
            text = _MMA.sub(lambda m: f"@mma_{_MULTIPLIED[m[1]]}(", text)
            text += "\n".join(map(_mma, multiplied))
            assert "nvvm.barrier" not in text and "sreg" not in text and "addrspace" not in text
            symbols = [x.symbol for x in k.launches]
            made = Library([compile_object(text + _DECLARED, host())], symbols, self._imports)
            assert "nvvm.shfl" not in text
            alone = "wait_for_all" not in text and "exchange" not in text
            found |= {s: (made, s, alone) for s in symbols}
        return found

    def kernel(self, program: Any, symbol: str) -> Any:
        return program[symbol]

    def assembly(self, program: Any) -> str:
        return ""

    def empty(self, size: int) -> np.ndarray:
        whole = np.full(size + 64, 0xA5, np.uint8)
        start = -whole.ctypes.data % 64
        return whole[start : start + size]

    def write(self, memory: np.ndarray, array: np.ndarray) -> None:
        memory[: array.nbytes] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)

    def read(self, array: np.ndarray, memory: np.ndarray) -> None:
        array[...] = memory[: array.nbytes].view(array.dtype).reshape(array.shape)

    def copy(self, to: np.ndarray, end: int, source: np.ndarray, start: int, size: int) -> None:
        to[end : end + size] = source[start : start + size].copy()

    def prepared(
        self,
        kernel: Any,
        blocks: Sequence[int],
        threads: Sequence[int],
        args: Sequence[Argument],
        report: Any,
    ) -> Callable[[], None]:
        library, symbol, alone = kernel
        given = [a[0].ctypes.data + a[1] if isinstance(a, tuple) else a or 0 for a in args]
        given.append(0 if report is None else report.ctypes.data)
        assert len(given) <= MOST_ARGS
        places = (ctypes.c_int64 * MOST_ARGS)(*given)
        sizes = (ctypes.c_uint32 * 6)(*blocks, *threads)
        kept = args, report

        def start() -> None:
            assert kept is not None
            address = ctypes.c_void_p(library.address(symbol))
            self._threads.run(address, places, sizes, int(alone))

        return start
