"""The tensor intrinsics of a target, for schedules that users write."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.codegen import targets
from tilesmith.ir.target import Target
from tilesmith.ir.tensor_intrinsics import TensorIntrinsic
from tilesmith.strategy.intrinsics import available
from tilesmith.support.arguments import checked
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options


@checked(UsageError)
def tensor_intrinsics(target: str | Target | None = None) -> Mapping[str, TensorIntrinsic]:
    """The shipped intrinsics that a target has, by name, for `Stage.tensorize`.

    target: by default that of the options in the environment, as for `build`.

    `str(intrinsic)` shows what it computes.  `te.decl_tensor_intrin` declares others.  Raises
    UsageError for an unknown target.
    """
    return available(targets.target(target or Options.from_environment().target))
