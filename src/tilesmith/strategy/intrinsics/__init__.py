"""The tensor intrinsics that Tilesmith ships; `te.decl_tensor_intrin` declares others."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import AsyncCopies, TensorIntrinsic

from . import aarch64, arm, nvptx, wasm, x86

SHIPPED: tuple[TensorIntrinsic, ...] = (
    *x86.INTRINSICS,
    *aarch64.INTRINSICS,
    *arm.INTRINSICS,
    *wasm.INTRINSICS,
    *nvptx.INTRINSICS,
)
"""All shipped intrinsics.  Each names the features that a target must have."""

_BY_ARCHITECTURE = {
    "x86_64": x86.INTRINSICS,
    "aarch64": aarch64.INTRINSICS,
    "thumbv7em": arm.INTRINSICS,
    "wasm32": wasm.INTRINSICS,
    "nvptx64": nvptx.INTRINSICS,
}

_COPIES = {"nvptx64": nvptx.COPIES}

ROUNDING = frozenset({"avx512bf16", "amx-bf16", "amx-fp16", "bf16", "mma-float"})
"""Features whose instructions round differently from the loops that they replace."""


def exact_target(target: Target) -> Target:
    """`target` without the instructions that strict accuracy forbids."""
    if not target.features & ROUNDING:
        return target
    return replace(target, features=target.features - ROUNDING)


def available(target: Target) -> dict[str, TensorIntrinsic]:
    """The shipped intrinsics that `target` has, by name."""
    declared = _BY_ARCHITECTURE.get(target.architecture, ())
    return {i.name: i for i in declared if i.features <= target.features}


def async_copies(target: Target) -> AsyncCopies | None:
    """The asynchronous copies that `target` has; None if it has none."""
    copies = _COPIES.get(target.architecture)
    return copies if copies is not None and copies.features <= target.features else None
