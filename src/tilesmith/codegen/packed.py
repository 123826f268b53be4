"""Kernels for devices as bytes: the form in which programs and the cache store them."""

from __future__ import annotations

import json

from tilesmith.codegen.kernel import DeviceKernel, Kernel, LaunchCall
from tilesmith.ir.expr import Const, const
from tilesmith.ir.target import Target
from tilesmith.support.errors import UnsupportedError


def packed(kernel: Kernel, target: Target, opt: int) -> bytes:
    """A kernel as bytes.  All its sizes must be constant.

    Raises UnsupportedError if a size is known only at run time.
    """
    p = kernel.parts
    assert p is not None
    sizes = [p.workspace_bytes, *(n for x in p.launches for n in x.blocks)]
    if not all(isinstance(n, (int, Const)) for n in sizes):
        raise UnsupportedError(
            f"target {target.name!r} needs all sizes of a model before it runs; give shapes="
        )
    launches = [
        (x.symbol, [int(n.value) for n in x.blocks if isinstance(n, Const)], x.threads, x.stops)
        for x in p.launches
    ]
    flags = p.has_doubles, p.is_strict
    return json.dumps([p.text, sorted(p.helpers), p.messages, launches, *flags]).encode()


def unpacked(symbol: str, code: bytes) -> DeviceKernel:
    """The kernel in the bytes that `packed` wrote.  Its workspace has size 0 here: the program
    stores the size.
    """
    text, helpers, messages, launches, *flags = json.loads(code)
    calls = (
        LaunchCall(name, (const(x), const(y), const(z)), tuple(threads), stops)
        for name, (x, y, z), threads, stops in launches
    )
    return DeviceKernel(symbol, text, frozenset(helpers), 0, tuple(messages), tuple(calls), *flags)
