"""Small graphs before and after passes, as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tilesmith.graph.compare import assert_structural_equal
from tilesmith.graph.nodes import Data, Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.passes.byte_tables import byte_tables
from tilesmith.graph.passes.decompose import decompose_only
from tilesmith.graph.passes.layout import pack
from tilesmith.graph.passes.localise import localise
from tilesmith.graph.passes.low_precision import low_precision
from tilesmith.graph.passes.overwrite import lengthen
from tilesmith.graph.passes.place import place
from tilesmith.graph.passes.repack import repack, with_packing
from tilesmith.graph.passes.requantise import requantise
from tilesmith.ir.dtypes import bf16, f16
from tilesmith.ir.layout import Layout
from tilesmith.strategy.windows import windows

Pass = Callable[[Graph], Graph]


def check(run: Pass, before: str, after: str) -> None:
    assert_structural_equal(run(parse_graph(before)), parse_graph(after))


def check_unchanged(run: Pass, text: str) -> None:
    graph = parse_graph(text)
    assert run(graph) is graph


FUNCTION = """
graph net(%q: u8[4]) {
  const %z: i32[] = [128]
  const %s: f32[] = [0.5]
  %0: i32[4] = cast(%q) {to=i32}
  %1: i32[4] = sub(%0, %z)
  %2: f32[4] = cast(%1) {to=f32}
  %3: f32[4] = mul(%2, %s)
  %4: f32[4] = tanh(%3)
  %5: f32[4] = clip(%4) {min=0.0, max=255.0}
  %6: u8[4] = cast(%5) {to=u8}
  return %6 as "y"
}
"""
"""A costly function of a byte."""


def test_a_function_of_a_byte_is_a_table() -> None:
    values = np.tanh((np.arange(256, dtype=np.float32) - 128) * np.float32(0.5))
    table = np.clip(values, 0, 255).astype(np.uint8)
    looked_up = """
    graph net(%q: u8[4]) {{
      const %0: u8[256] = @{digest}
      %1: i32[4] = cast(%q) {{to=i32}}
      %2: u8[4] = gather(%0, %1)
      return %2 as "y"
    }}
    """
    digest = Data.of(table).digest
    expected = parse_graph(looked_up.format(digest=digest), {digest: table})
    assert_structural_equal(byte_tables(parse_graph(FUNCTION)), expected)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tanh(%3)", "relu(%3)"),
        ("const %s: f32[] = [0.5]", "const %s: f32[4] = [0.5, 1.0, 1.5, 2.0]"),
        ("u8[4] = cast(%5) {to=u8}", "i16[4] = cast(%5) {to=i16}"),
    ],
    ids=["cheap", "several constants", "wide result"],
)
def test_functions_that_are_computed(old: str, new: str) -> None:
    check_unchanged(byte_tables, FUNCTION.replace(old, new))


def test_a_byte_may_be_read_twice() -> None:
    square = byte_tables(parse_graph(FUNCTION.replace("mul(%2, %s)", "mul(%2, %2)")))
    assert [n.op.name for n in square.nodes] == ["cast", "gather"]


QUOTIENT = """
graph net(%a: i32[4]) {
  const %s: f32[] = [0.25]
  const %t: f32[] = [0.5]
  const %b: f32[] = [3.0]
  %0: f32[4] = cast(%a) {to=f32}
  %1: f32[4] = mul(%0, %s)
  %2: f32[4] = add(%1, %b)
  %3: f32[4] = div(%2, %t)
  %4: f32[4] = round(%3)
  return %4 as "y"
}
"""


def test_a_divisor_joins_the_scales() -> None:
    after = """
    graph net(%a: i32[4]) {
      const %0: f32[] = [0.5]
      const %1: f32[] = [6.0]
      %2: f32[4] = cast(%a) {to=f32}
      %3: f32[4] = mul(%2, %0)
      %4: f32[4] = add(%3, %1)
      %5: f32[4] = round(%4)
      return %5 as "y"
    }
    """
    check(requantise, QUOTIENT, after)


@pytest.mark.parametrize("divisor", ["0.0", "-2.0", "inf", "1e-45"])
def test_a_divisor_that_scales_cannot_take_stays(divisor: str) -> None:
    check_unchanged(requantise, QUOTIENT.replace("[0.5]", f"[{divisor}]"))


def test_a_dividend_that_others_read_stays() -> None:
    check_unchanged(requantise, QUOTIENT.replace('return %4 as "y"', 'return %4 as "y", %2 as "z"'))


NUMBER = """
graph net(%x: f32[4]) {
  const %zf: f32[] = [3.0]
  const %z: i32[] = [3]
  %0: f32[4] = round(%x)
  %1: f32[4] = add(%0, %zf)
  %2: f32[4] = clip(%1) {min=0.0, max=255.0}
  %3: u8[4] = cast(%2) {to=u8}
  %4: i32[4] = cast(%3) {to=i32}
  %5: i32[4] = sub(%4, %z)
  return %5 as "y"
}
"""
"""A quantised number less its zero point."""


def test_a_zero_point_folds_away() -> None:
    after = """
    graph net(%x: f32[4]) {
      %0: f32[4] = round(%x)
      %1: f32[4] = clip(%0) {min=-3.0, max=252.0}
      %2: i16[4] = cast(%1) {to=i16}
      %3: i32[4] = cast(%2) {to=i32}
      return %3 as "y"
    }
    """
    check(requantise, NUMBER, after)


@pytest.mark.parametrize(
    ("old", "new"),
    [("max=255.0", "max=254.0"), ("[3.0]", "[3.5]"), ("i32[] = [3]", "i32[] = [4]")],
    ids=["other limits", "no whole number", "another zero point"],
)
def test_what_is_no_quantised_number_stays(old: str, new: str) -> None:
    check_unchanged(requantise, NUMBER.replace(old, new))


def test_a_number_for_signed_products_is_a_signed_byte() -> None:
    before = """
    graph net(%x: f32[4]) {
      const %b: f32[] = [0.5]
      const %zf: f32[] = [3.0]
      const %shift: i32[] = [128]
      %r: f32[4] = add(%x, %b)
      %0: f32[4] = round(%r)
      %1: f32[4] = add(%0, %zf)
      %2: f32[4] = clip(%1) {min=0.0, max=255.0}
      %3: u8[4] = cast(%2) {to=u8}
      %4: i32[4] = cast(%3) {to=i32}
      %5: i32[4] = sub(%4, %shift)
      %6: i8[4] = cast(%5) {to=i8}
      return %6 as "y"
    }
    """
    after = """
    graph net(%x: f32[4]) {
      const %0: f32[] = [-124.5]
      %1: f32[4] = add(%x, %0)
      %2: f32[4] = round(%1)
      %3: f32[4] = clip(%2) {min=-128.0, max=127.0}
      %4: i8[4] = cast(%3) {to=i8}
      return %4 as "y"
    }
    """
    check(requantise, before, after)


PRODUCTS = """
graph net(%x: f32[3,4], %y: f32[4,2]) {
  const %w: f32[4,2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1e5]
  %0: f32[3,2] = matmul(%x, %w)  # "constant"
  %1: f32[3,2] = matmul(%x, %y)  # "computed"
  return %0 as "a", %1 as "b"
}
"""


def lowered(form: str | None, low=bf16, name: str = "constant") -> Pass:
    return lambda graph: low_precision(
        graph, lambda loc: low if loc == name else None, lambda *given: form
    )


def test_weights_of_low_precision() -> None:
    rounded = PRODUCTS.replace("const %w: f32", "const %w: bf16").replace("1e5", "99840.0")
    after = rounded.replace("matmul(%x, %w)", "matmul(%x, %w) {to=f32}")
    check(lowered("weights"), PRODUCTS, after)


def test_operands_of_low_precision() -> None:
    rounded = PRODUCTS.replace("const %w: f32", "const %w: bf16").replace("1e5", "99840.0")
    after = rounded.replace(
        "%0: f32[3,2] = matmul(%x, %w)",
        '%l: bf16[3,4] = cast(%x) {to=bf16}  # "constant"\n'
        "  %0: f32[3,2] = matmul(%l, %w) {to=f32}",
    )
    check(lowered("operands"), PRODUCTS, after)


@pytest.mark.parametrize(
    "run",
    [lowered(None), lowered("weights", f16), lowered("weights", name="computed")],
    ids=["not faster", "1e5 is infinite in f16", "no factor is constant"],
)
def test_products_that_stay_f32(run: Pass) -> None:
    check_unchanged(run, PRODUCTS)


def test_extents_become_symbols_of_a_kernel() -> None:
    before = """
    graph fused<n 1..64~8, m 1..32~4>(%x: f32[n,m * 2]) {
      %0: f32[n,m * 2] = relu(%x)
      return %0 as "out0"
    }
    """
    after = """
    graph fused<d0 1..64~8, d1 2..64~8>(%x: f32[d0,d1]) {
      %0: f32[d0,d1] = relu(%x)
      return %0 as "out0"
    }
    """
    graph = parse_graph(before)
    local, extents = localise(graph)
    assert_structural_equal(local, parse_graph(after))
    assert extents == graph.inputs[0].shape


def test_a_kernel_without_symbols_is_its_own() -> None:
    check_unchanged(
        lambda graph: localise(graph)[0],
        'graph fused(%x: f32[4]) {\n  %0: f32[4] = relu(%x)\n  return %0 as "out0"\n}',
    )


RELU = """fused(%x) {body=graph fused(%in0: f32[4,8]) {
    %0: f32[4,8] = relu(%in0)
    return %0 as "out0"
  }}"""
COPY = """fused(%y) {body=graph fused(%in0: f32[4,8]) {
    %y: f32[4,8]@"0 1" = identity(%in0)
    return %y as "out0"
  }}"""
JOIN = """{body=graph fused(%in0: f32[4,8], %in1: f32[4,8]) {
    %c: f32[8,8] = concat(%in0, %in1) {axis=0}
    return %c as "out0"
  }"""
READER = """fused(%c) {body=graph fused(%in0: f32[8,8]) {
    %0: f32[8,8] = abs(%in0)
    return %0 as "out0"
  }}"""


def joined(second: str, join: str) -> str:
    """A group and `second` side by side, and a reader of both."""
    lines = f"%a: f32[4,8] = {RELU}", second, f"%c: f32[8,8] = {join}", f"%d: f32[8,8] = {READER}"
    body = "\n  ".join(lines)
    return f'graph net(%x: f32[4,8], %y: f32[4,8]) {{\n  {body}\n  return %d as "z"\n}}'


COMPUTED = "%b: f32[4,8] = " + RELU.replace("%x", "%y").replace("relu", "exp")
PLACES = ", offsets=(0, 32), joins=True}"
placed = partial(place, windows=windows)


def test_operands_are_computed_in_their_places() -> None:
    before = joined(COMPUTED, f"fused(%a, %b) {JOIN}}}")
    check(placed, before, joined(COMPUTED, f"in_place(%a, %b) {JOIN}{PLACES}"))


def test_an_input_is_copied_into_its_place() -> None:
    before = joined("", f"fused(%a, %y) {JOIN}}}")
    join = JOIN.replace("%in1: f32[4,8]", '%in1: f32[4,8]@"0 1"')
    after = joined(f'%y2: f32[4,8]@"0 1" = {COPY}', f"in_place(%a, %y2) {join}{PLACES}")
    check(placed, before, after)


@pytest.mark.parametrize(
    ("text", "run"),
    [
        (
            joined(COMPUTED, f"fused(%a, %b) {JOIN}}}"),
            partial(place, windows=windows, choose=lambda *given: False),
        ),
        (
            joined(COMPUTED, f"fused(%a, %b) {JOIN}}}")
            .replace("[8,8]", "[4,16]")
            .replace("axis=0", "axis=1"),
            placed,
        ),
    ],
    ids=["not chosen", "pieces of half a cache line"],
)
def test_concatenations_that_are_copies(text: str, run: Pass) -> None:
    check_unchanged(run, text)


VIEWED = """
graph net(%x: f32[4,16]) {
  %a: f32[4,16] = fused(%x) {body=graph fused(%in0: f32[4,16]) {
    %0: f32[4,16] = relu(%in0)
    return %0 as "out0"
  }}
  %b: f32[2,16] = VIEW {body=graph fused(%in0: f32[4,16]) {
    %b: f32[2,16] = slice(%in0) {starts=(2,), ends=(4,), axes=(0,), steps=(1,)}
    return %b as "out0"
  }OFFSETS}
  %c: f32[2,16] = fused(%b) {body=graph fused(%in0: f32[2,16]) {
    %0: f32[2,16] = exp(%in0)
    return %0 as "out0"
  }}
  return %c as "z"
}
"""


VIEW = VIEWED.replace("VIEW", "fused(%a)").replace("OFFSETS", "")


def test_a_slice_is_read_where_it_lies() -> None:
    after = VIEWED.replace("VIEW", "in_place(%a)").replace("OFFSETS", ", offsets=(32,)")
    check(placed, VIEW, after)


def test_an_output_has_memory_of_its_own() -> None:
    check_unchanged(placed, VIEW.replace('return %c as "z"', 'return %c as "z", %b as "v"'))


def test_weights_are_packed_again_from_their_source() -> None:
    text = """
    graph net(%x: f32[3,4]) {
      const %w: f32[4,2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
      %y: f32[3,2] = fused(%x, %w) {body=graph fused(%in0: f32[3,4], %in1: f32[4,2]) {
        %0: f32[3,2] = matmul(%in0, %in1)
        return %0 as "out0"
      }}
      return %y as "z"
    }
    """
    across = text.replace("f32[4,2] = [", 'f32[4,2]@"1 0" = [').replace(
        "%in1: f32[4,2]", '%in1: f32[4,2]@"1 0"'
    ).replace("1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0", "1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0")  # fmt: skip
    plain = parse_graph(text)
    (source,), (node,) = plain.constants, plain.nodes
    rows = pack(source, Layout.parse("0 1"))
    body = with_packing(node.op.body, {1: rows.value.layout})
    packed = replace(
        plain,
        constants=(rows,),
        nodes=(replace(node, op=replace(node.op, body=body), inputs=(node.inputs[0], rows.value)),),
    )
    (group,) = packed.nodes
    assert repack(packed, {}) is packed
    assert_structural_equal(repack(packed, {group: {1: Layout.parse("1 0")}}), parse_graph(across))


COMPOSITES = """
graph net(%x: f32[2,3]) {
  %0: f32[2,3] = hard_swish(%x)  # "swish"
  %1: f32[2,3] = log_softmax(%0)
  return %1 as "y"
}
"""


def test_chosen_composites_are_expanded() -> None:
    after = """
    graph net(%x: f32[2,3]) {
      %0: f32[2,3] = hard_sigmoid(%x) {alpha=0.16666666666666666}  # "swish"
      %1: f32[2,3] = mul(%x, %0)  # "swish"
      %2: f32[2,3] = log_softmax(%1)
      return %2 as "y"
    }
    """
    check(partial(decompose_only, chosen=lambda op: op.name == "hard_swish"), COMPOSITES, after)


def test_composites_that_are_not_chosen_stay() -> None:
    check_unchanged(partial(decompose_only, chosen=lambda op: op.name == "mul"), COMPOSITES)


GROWING = """
graph main<n 0..64~8, m 0..2147483647~8, k 0..2147483647~8>(%t: i64[], %x: f32[n]) {
  %y: f32[m] = loop(%t, %x) {body=graph step(%i: i64[], %a: f32[k]) {
    const %w: f32[1] = [2.0]
    %y: f32[k + 1] = fused(%a, %w) {body=graph fused(%in0: f32[k], %in1: f32[1]) {
      %0: f32[k + 1] = append(%in0, %in1)
      return %0 as "out0"
    }}
    return %y as "out"
  }, carried=1, results=(f32[m],), symbols=(`m`,), bounds=(2147483647,), inside=(`k`,)}
  return %y as "y"
}
"""


def test_a_loop_appends_in_place() -> None:
    after = GROWING.replace("append(%in0, %in1)", "append(%in0, %in1) {in_place=True}")
    check(lengthen, GROWING, after.replace('as "out0"', 'as "out0" in %in0'))


def test_a_carried_value_that_others_read_is_copied() -> None:
    check_unchanged(lengthen, GROWING.replace("const %w: f32[1] = [2.0]", "%w: f32[k] = relu(%a)"))
