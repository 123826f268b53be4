"""Code finds its constants wherever a process has room left."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAR = """
import ctypes
from tilesmith.codegen.link import Library, compile_object
from tilesmith.codegen.targets import host

text = '''
@table = private constant [2048 x double] [{values}]
define double @f{n}(i64 %i) {{
  %p = getelementptr [2048 x double], ptr @table, i64 0, i64 %i
  %v = load double, ptr %p
  ret double %v
}}
'''
values = ", ".join(f"double {i}.0" for i in range(2048))
codes = [compile_object(text.format(values=values, n=n), host()) for n in range(2)]

def element(n):
    library = Library([codes[n]], [f"f{n}"])
    f = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library.address(f"f{n}"))
    return f(2000), library

first = element(0)
PAGE, NONE, PRIVATE, UNRESERVED, GIB = 4096, 0, 0x22, 0x4000, 1 << 30
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
new = lambda size: libc.mmap(None, size, NONE, PRIVATE | UNRESERVED, -1, 0)
whole = new(3 * GIB)
while new(PAGE) > whole:  # all holes above are filled
    pass
libc.munmap(whole + 5 * GIB // 2, PAGE)  # one that fits the code, not the table
print(first[0], element(1)[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for memory")
def test_sections_lie_together_in_a_process_with_holes() -> None:
    """A hole of one page lies 2.5 GiB above all other free memory."""
    done = subprocess.run([sys.executable, "-c", FAR], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "2000.0 2000.0\n"), done.stderr
