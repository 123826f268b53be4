from __future__ import annotations

from itertools import pairwise

import pytest

from tilesmith.codegen.link import Library, compile_object
from tilesmith.codegen.targets import covers, host, missing_features, target
from tilesmith.support.errors import InternalError, ModelError, UsageError


def test_the_host_is_detected() -> None:
    t = target("native")
    assert t is host()
    assert t.vector_bits in (128, 256, 512)
    assert 0 < t.model.l1_bytes < t.model.l2_bytes
    assert covers(t, t)
    assert target(t) is t


def test_levels_contain_each_other() -> None:
    levels = [target(n) for n in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")]
    for low, high in pairwise(levels):
        assert covers(high, low)
        assert not covers(low, high)
    assert missing_features(levels[2], levels[3]) == (
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512f",
        "avx512vl",
    )


def test_an_unknown_target_gets_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r"unknown target 'z80': expected one of native, x86-64, x86-64-v2"
    ):
        target("z80")


def test_bad_text_is_reported_with_its_line() -> None:
    with pytest.raises(InternalError, match=r"(?s)LLVM refuses the generated text.*%x = add i32"):
        compile_object("define void @f() {\n  %x = add i32 1, i32 2\n  ret void\n}\n", host())


def test_a_missing_symbol_is_reported() -> None:
    code = compile_object(
        "declare void @nowhere_to_be_found()\ndefine void @f() "
        "{\n  call void @nowhere_to_be_found()\n  ret void\n}\n",
        host(),
    )
    with pytest.raises(ModelError, match="does not link"):
        Library([code], ["f"])
