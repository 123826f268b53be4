"""The tensor intrinsics that Tilesmith ships; `te.decl_tensor_intrin` declares others."""

from __future__ import annotations

from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic

from . import aarch64, x86

SHIPPED: tuple[TensorIntrinsic, ...] = (*x86.INTRINSICS, *aarch64.INTRINSICS)
"""All of them; each names the features that a target must have."""


def available(target: Target) -> dict[str, TensorIntrinsic]:
    """The shipped intrinsics that `target` has, by name."""
    family = "x86" if target.triple.startswith("x86_64") else target.triple.split("-")[0]
    declared = {"x86": x86.INTRINSICS, "aarch64": aarch64.INTRINSICS}.get(family, ())
    return {i.name: i for i in declared if i.features <= target.features}
