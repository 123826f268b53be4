"""The native runtime as a stable-ABI extension; everything else stands in pyproject.toml.

`build_backend/tilesmith_build.py` chooses the compiler and the wheel's platform tag.
"""

import sys
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

sys.path.insert(0, str(Path(__file__).parent / "build_backend"))
from tilesmith_build import BuildExtension, BuildWheel

setup(
    cmdclass={"build_ext": BuildExtension, "bdist_wheel": BuildWheel},
    ext_modules=[
        Extension(
            "tilesmith.runtime._native",
            sources=sorted(glob("src/tilesmith/runtime/csrc/*.c")),
            include_dirs=["src/tilesmith/runtime/csrc"],
            depends=sorted(glob("src/tilesmith/runtime/csrc/**/*.h", recursive=True)),
            extra_compile_args=["-std=c11", "-O2", "-pthread", "-Wall", "-Wextra"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
