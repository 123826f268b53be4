"""Protobuf messages by a schema: both forms give what was written, and damage is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilesmith.frontend.common.protobuf import Schema, varints
from tilesmith.frontend.common.protobuf_text import parse
from tilesmith.support.errors import ModelError
from written_models.protobuf import encode, varint

SCHEMA = Schema(
    {
        "Net": "1:name:string 2:layer:[Layer] 3:attr:{string:Layer} 20:mode:Mode 4:sizes:{i32:f32}",
        "Layer": "1:kind:string=Conv 2:sizes:[i64] 3:eps:f32=0.5 4:on:bool=true 5:raw:bytes "
        "6:w:[f32] 7:s:s32 8:inner:Layer 9:modes:[Mode] 10:names:[string] 11:d:[f64] 12:u:u64",
    },
    {"Mode": ("SUM", "MAX")},
)


def test_fields_are_what_was_written():
    layer = {"sizes": [1, -2, 300], "eps": 0.25, "on": False, "raw": b"\0\xff", "w": [1.5, -2.0]}
    layer |= {"s": -7, "inner": {"s": 5}, "names": ["a", "b"], "d": [0.1], "u": 2**64 - 1}
    content = encode(
        SCHEMA,
        "Net",
        {"name": "n", "layer": [layer, {}], "attr": {"x": layer}, "mode": "MAX", "sizes": {3: 0.5}},
    )
    net = SCHEMA.decode(content, "Net")
    assert (net.name, net.mode, net.sizes, len(net.layer)) == ("n", "MAX", {3: 0.5}, 2)
    for found in (net.layer[0], net.attr["x"]):
        assert found.sizes.tolist() == [1, -2, 300] and found.w.tolist() == [1.5, -2.0]
        assert (found.eps, found.on, bytes(found.raw), found.s) == (0.25, False, b"\0\xff", -7)
        assert (found.inner.s, found.names, found.d.tolist()) == (5, ("a", "b"), [0.1])
        assert found.u == 2**64 - 1
    empty = net.layer[1]
    assert (empty.kind, empty.eps, empty.on, empty.inner, empty.names) == (
        "Conv",
        0.5,
        True,
        None,
        (),
    )
    assert empty.sizes.shape == (0,) and not empty.has("eps") and empty.which("eps", "u") is None
    assert net.layer[0].which("kind", "s", "on") == "s"


def test_lists_may_be_packed_or_not_and_enums_may_be_unknown():
    unpacked = b"".join(varint(2 << 3) + varint(n) for n in (5, 600))
    assert SCHEMA.decode(unpacked, "Layer").sizes.tolist() == [5, 600]
    packed = varint(9 << 3 | 2) + varint(3) + bytes([1, 0, 9])
    assert SCHEMA.decode(packed, "Layer").modes == ("MAX", "SUM", "9")


def test_an_entry_of_a_map_without_a_value_has_an_empty_message():
    entry = varint(3 << 3 | 2) + varint(3) + bytes([1 << 3 | 2, 1]) + b"x"
    assert SCHEMA.decode(entry, "Net").attr["x"].kind == "Conv"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared
@given(st.lists(st.integers(0, 2**64 - 1), max_size=40))
def test_numbers_of_variable_length(numbers):
    encoded = b"".join(map(varint, numbers))
    assert varints(memoryview(encoded)).tolist() == numbers


def test_text_gives_the_same_message():
    net = parse(
        SCHEMA,
        """# a network
        name: "n" 'm\\n' mode: MAX
        layer { sizes: [1, -2] sizes: 0x10; eps: 125e-3f on: false raw: "\\000\\377" w: inf
                inner < s: -7 > modes: SUM modes: 1 }
        layer: { }""",
        "Net",
    )
    first = net.layer[0]
    assert (net.name, net.mode, len(net.layer)) == ("nm\n", "MAX", 2)
    assert first.sizes.tolist() == [1, -2, 16] and first.w.tolist() == [np.inf]
    assert (first.eps, first.on, bytes(first.raw)) == (0.125, False, b"\0\xff")
    assert (first.inner.s, first.modes, net.layer[1].kind) == (-7, ("SUM", "MAX"), "Conv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layer {\n  depth: 3 }", "line 2, column 3: expected a field of Layer, found 'depth'"),
        ("layer {", "line 1, column 8: expected '}', found the end of the text"),
        ("mode: MIN", "expected an integer, found 'MIN'"),
        ("layer { sizes: 1e }", "expected"),
        ("layer { s: 9999999999 }", "field 's': expected numbers of int32"),
        ('name: "a', "expected a name, a number, a string or a mark"),
        ("layer {" + "inner {" * 80, "expected messages at most 64 deep"),
    ],
)
def test_text_that_is_wrong_is_refused(text, said):
    with pytest.raises(ModelError, match=said):
        parse(SCHEMA, text, "Net")


def test_damaged_bytes_are_refused_or_read():
    whole = encode(SCHEMA, "Net", {"name": "n", "layer": [{"sizes": [1, 2], "inner": {"s": 5}}]})
    draw = random.Random(7)
    for _ in range(3000):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        try:
            net = SCHEMA.decode(bytes(content[: draw.randint(1, len(content))]), "Net")
            _ = net.name, net.mode, [(x.sizes, x.inner and x.inner.s) for x in net.layer]
        except ModelError as e:
            assert "damaged file" in str(e)
