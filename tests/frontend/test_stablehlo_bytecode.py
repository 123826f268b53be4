"""StableHLO's portable bytecode, and the files of `jax.export` that hold it."""
# ruff: noqa: E501 - lines of the texts

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.frontend.load import inspect, load
from tilesmith.frontend.stablehlo.bytecode import MAGIC
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.text import print_graph
from tilesmith.support.errors import ModelError, TilesmithError, UnsupportedError
from written_models.stablehlo import Writer, bytecode, exported, flagged, listed, section, varint

REAL = Path(__file__).with_name("scan.jaxexp")
"""What `jax.export` 0.10.2 writes for a product, a scan with a mask, and the place of a maximum."""

TEXT = b"""module @m {
  func.func public @main(%x: tensor<?x3xf32>, %n: tensor<i32>) -> (tensor<?x3xf32>, tensor<2x3xbf16>, tensor<3xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %w = stablehlo.constant dense<[[1.0, -2.0, 0.5], [0.0, 3.0, 1.0], [1.0, 1.0, 0x3F800000]]> : tensor<3x3xf32>
    %few = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
    %many = stablehlo.constant dense<[true, false, true, false, true, true, false, false, true]> : tensor<9xi1>
    %all = stablehlo.constant dense<true> : tensor<2x3xi1>
    %low = stablehlo.constant dense<-1.5> : tensor<2x3xbf16>
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<?x3xf32>, tensor<3x3xf32>) -> tensor<?x3xf32>
    %1 = call @twice(%0) : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %2:2 = stablehlo.while(%i = %c, %v = %1) : tensor<i32>, tensor<?x3xf32>
    cond {
      %8 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %i, %one : tensor<i32>
      %9 = stablehlo.add %v, %x : tensor<?x3xf32>
      stablehlo.return %8, %9 : tensor<i32>, tensor<?x3xf32>
    }
    %zero = stablehlo.constant dense<0.0> : tensor<2x3xbf16>
    %3 = stablehlo.select %all, %low, %zero : tensor<2x3xi1>, tensor<2x3xbf16>
    %4 = stablehlo.slice %many [0:9:3] : (tensor<9xi1>) -> tensor<3xi1>
    %5 = stablehlo.xor %4, %few : tensor<3xi1>
    %6 = stablehlo.convert %5 : (tensor<3xi1>) -> tensor<3xi32>
    %7 = stablehlo.while(%q = %6) : tensor<3xi32>
    cond {
      %ten = stablehlo.constant dense<10> : tensor<i32>
      %9 = stablehlo.slice %q [0:1] : (tensor<3xi32>) -> tensor<1xi32>
      %10 = stablehlo.reshape %9 : (tensor<1xi32>) -> tensor<i32>
      %11 = stablehlo.compare LT, %10, %ten, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %11 : tensor<i1>
    } do {
      %more = stablehlo.constant dense<[3, 2, 1]> : tensor<3xi32>
      %9 = stablehlo.add %q, %more : tensor<3xi32>
      stablehlo.return %9 : tensor<3xi32>
    }
    %12 = stablehlo.iota dim = 0 : tensor<3xi32>
    %8:2 = "stablehlo.sort"(%7, %12) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %j: tensor<i32>, %k: tensor<i32>):
      %9 = stablehlo.compare GT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    }) : (tensor<3xi32>, tensor<3xi32>) -> (tensor<3xi32>, tensor<3xi32>)
    return %2#1, %3, %8#1 : tensor<?x3xf32>, tensor<2x3xbf16>, tensor<3xi32>
  }
  func.func private @twice(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
    %0 = stablehlo.add %x, %x : tensor<?x3xf32>
    return %0 : tensor<?x3xf32>
  }
}
"""


def run(model: bytes | Path, *arrays: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(v) for v in evaluate(load(model), [*arrays]).values()]


@pytest.mark.parametrize("version", range(7))
def test_each_version_of_the_format_has_the_program_of_the_text(version: int) -> None:
    text = TEXT.replace(b"%x: tensor<?x3xf32>, %n", b"%arg0: tensor<?x3xf32>, %arg1")
    text = text.replace(b"%0 = stablehlo.dot_general %x", b"%0 = stablehlo.dot_general %arg0")
    text = text.replace(b"%i, %n, SIGNED", b"%i, %arg1, SIGNED").replace(
        b"%v, %x :", b"%v, %arg0 :"
    )
    found, wanted = load(bytecode(text, version)), load(text)
    x, n = np.array([[1, -2, 3], [4, 5, -6]], np.float32), np.int32(3)
    assert [str(v.type) for v in found.inputs] == [str(v.type) for v in wanted.inputs]
    for a, b in zip(
        evaluate(found, [x, n]).values(), evaluate(wanted, [x, n]).values(), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert len(found.nodes) == len(wanted.nodes)


def test_a_file_of_jax_export() -> None:
    x = np.array([[1, -2], [0.5, 3], [2, 2], [-1, 0]], np.float32)
    w = np.array([[1, 0, -1], [2, 1, 0.5]], np.float32)
    total, parts, best = run(REAL, x, w)
    np.testing.assert_array_equal(total, [12.5, 5.0, 2.0])
    np.testing.assert_array_equal(parts, [[0, 0, 0], [0, 3, 0], [6.5, 2, 1], [12.5, 0, 1]])
    np.testing.assert_array_equal(best, [0, 1, 0, 1])
    made = ts.compile(REAL).run({"arg0": x, "arg1": w})
    np.testing.assert_allclose(made["output1"], parts)


def test_facts_about_files() -> None:
    facts = inspect(REAL)
    assert facts.format == "a file of jax.export with StableHLO bytecode"
    assert facts.producer == "StableHLO_v1.15.0"
    assert facts.inputs == {"arg0": "f32 [4, 2]", "arg1": "f32 [2, 3]"}
    assert facts.operators["while"] == 1
    assert not facts.unsupported
    facts = inspect(bytecode(TEXT))
    assert facts.format == "StableHLO bytecode"
    assert facts.weight_bytes == inspect(TEXT).weight_bytes


def test_bytecode_in_a_wrapper_is_the_same_program() -> None:
    content = bytecode(TEXT)
    assert print_graph(load(exported(content))) == print_graph(load(content))


# Damaged files


def test_every_truncation_is_refused() -> None:
    content = bytecode(TEXT)
    for end in range(len(MAGIC), len(content)):
        with pytest.raises(ModelError):
            load(content[:end])


def test_changed_bytes_never_crash() -> None:
    source, content = random.Random(0), bytecode(TEXT)
    real = REAL.read_bytes()
    for sound in [content, real] * 150:
        changed = bytearray(sound)
        for _ in range(source.choice((1, 1, 3))):
            changed[source.randrange(4, len(changed))] = source.randrange(256)
        try:
            load(bytes(changed))
        except TilesmithError as e:
            assert "\n" not in str(e) or isinstance(e, UnsupportedError)


def refused(content: bytes, message: str, error: type[TilesmithError] = ModelError) -> None:
    with pytest.raises(error, match=message):
        load(content)


def test_newer_versions_of_the_format() -> None:
    refused(MAGIC + varint(7) + b"\0", "version 7 of MLIR's bytecode", UnsupportedError)


def test_missing_and_repeated_sections() -> None:
    head = MAGIC + varint(6) + b"x\0"
    refused(head, "expected a section of strings, found none")
    refused(head + section(0, varint(0)) * 2, "a second section 0")
    refused(head + b"\x80" + varint(0) + varint(3), "an alignment, a power of two")
    refused(head + b"\x01" + varint(1 << 62), "expected 4611686018427387904 bytes of a section")


def test_numbers_that_name_nothing() -> None:
    writer = Writer(6)
    body = varint(1) + varint(1) + flagged(1, False)
    body += writer.operation_head("vhlo.add_v1", 6) + listed([varint(writer.type("f32"))])
    refused(_module(writer, body + listed([varint(9)])), "a value's number less than 1")
    refused(_module(writer, body[:-1] + varint(77)), "a type's number less than 1")
    many = varint(1) + varint(0) + flagged(1, False) + body[3:] + listed([])
    refused(_module(writer, many), "as many values as the region states")


def test_attributes_that_hold_themselves() -> None:
    writer = Writer(6)
    number = len(writer.attributes)
    assert writer.attribute(varint(1) + listed([varint(number)])) == number
    refused(_function(writer, number), "nested more than 64 deep")


def test_shared_attributes_of_any_size() -> None:
    writer = Writer(6)
    number = writer.value("x")
    for _ in range(30):
        number = writer.attribute(varint(1) + listed([varint(number)] * 9))
    refused(_function(writer, number), "an attribute of at most 65536 members")


def test_regions_without_end() -> None:
    writer = Writer(6)
    inner = varint(0)
    for _ in range(100):
        body = writer.operation_head("vhlo.if_v1", 16) + flagged(1, False) + inner
        inner = varint(1) + varint(0) + flagged(1, False) + body
    refused(_module(writer, inner), "regions are nested more than 64 deep")


def test_regions_of_several_blocks() -> None:
    writer = Writer(6)
    body = writer.operation_head("vhlo.while_v1", 16) + flagged(1, False) + varint(2)
    content = varint(1) + varint(0) + flagged(1, False) + body
    refused(_module(writer, content), "a region of 2 blocks", UnsupportedError)


def test_operations_of_other_dialects_and_versions() -> None:
    writer = Writer(6)
    writer.operators["builtin.unrealized_conversion_cast"] = 0
    body = varint(1) + varint(0) + flagged(1, False) + varint(0) + b"\0" + varint(0)
    message = "expected StableHLO's portable form, as jax.export writes it, or text"
    refused(_module(writer, body), message, UnsupportedError)
    newer = bytecode(TEXT).replace(b"dot_general_v2", b"dot_general_v9")
    refused(newer, "vhlo.dot_general_v9", UnsupportedError)


def test_an_attribute_of_another_kind_is_refused() -> None:
    body = TEXT.replace(b"dimension = 0 : i64", b'dimension = "x"')
    for content in (body, bytecode(body)):
        refused(content, "attribute 'dimension': expected an integer, found 'x'", ModelError)


def _module(writer: Writer, body: bytes) -> bytes:
    """A file whose module has this region."""
    operation = writer.operation_head("builtin.module", 16) + flagged(1, True)
    return writer.file(flagged(1, False) + operation + section(4, body))


def _function(writer: Writer, name: int) -> bytes:
    """A file with a function whose name is the attribute of this number."""
    head = writer.operation_head("vhlo.func_v1", 16, {}) + flagged(1, True)
    writer.properties[-1] = varint(name) * 5
    body = head + section(4, varint(0))
    return _module(writer, varint(1) + varint(0) + flagged(1, False) + body)
