"""Which calls give views, and writes through them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import tilesmith.frontend.aten  # noqa: E402, F401  (registers the operators)
from tilesmith.frontend.aten.functional import VIEWS, written_by  # noqa: E402
from tilesmith.frontend.aten.registry import OPERATORS  # noqa: E402


def test_every_operator_that_pytorch_calls_a_view_is_one():
    """Else a write to its result would be lost."""
    missing = []
    for _, name in OPERATORS:
        parts = name.split(".")
        if parts[0] != "aten" or name in VIEWS:
            continue
        packet = getattr(torch.ops.aten, parts[1], None)
        overload = getattr(packet, parts[2], None)
        if overload is None:
            continue
        alias = [r.alias_info for r in overload._schema.returns if r.alias_info is not None]
        if any(not a.is_write for a in alias):
            missing.append(name)
    assert not missing
    assert not [v for v in VIEWS if written_by_name(v)]


def written_by_name(name):
    from tilesmith.frontend.aten.program import Call

    return written_by(Call(name, [], {}, "r"))
