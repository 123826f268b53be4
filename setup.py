"""Builds the C runtime as a stable-ABI extension; everything else stands in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tilesmith.runtime._native",
            sources=["src/tilesmith/runtime/csrc/module.c", "src/tilesmith/runtime/csrc/pool.c"],
            depends=["src/tilesmith/runtime/csrc/tilesmith.h"],
            extra_compile_args=["-std=c11", "-O2", "-pthread", "-Wall", "-Wextra"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
