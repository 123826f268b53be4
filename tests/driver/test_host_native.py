"""Host functions that the C runtime has in a form of its own, beside their Python functions."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith.host.moves import movement
from tilesmith.host.strings import label_encoder
from tilesmith.runtime.hosting import HostFunctions
from tilesmith.support.errors import ModelError

F32, F64, I64, TEXT = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
WORDS = ["", "a", "A", "ä", "ａ", "straße", "STRASSE", "\0", "a\0", "🜁", "\udc80", "İ", "no key"]
ML = "ai.onnx.ml"
letters = st.text("aAäßＡİı\0\udc80🜁 ", max_size=3)
words = st.lists(st.sampled_from(WORDS) | letters, min_size=1, max_size=9)


def texts(values: Sequence[Any], *shape: int) -> np.ndarray:
    made = np.empty(len(values), object)
    made[:] = values
    return made.reshape(shape or (len(values),))


def single(
    operator: str, kinds: Sequence[tuple[int, Any]], domain: str = "", **attributes: Any
) -> ts.Executable:
    """An executable of one node, whose inputs are `(element type, shape)`."""
    names = [f"x{i}" for i in range(len(kinds))]
    node = helper.make_node(operator, names, ["y"], domain=domain, **attributes)
    inputs = [helper.make_tensor_value_info(n, *k) for n, k in zip(names, kinds, strict=True)]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 0, None)])
    domains = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    made = helper.make_model(graph, opset_imports=domains, ir_version=9)
    return ts.compile(made.SerializeToString())


def runs_natively(exe: ts.Executable) -> bool:
    """Whether every function has a form in C."""
    host = exe._host
    assert isinstance(host, HostFunctions)
    return all(c.native is not None for c in host.prepared)


KEYS = ["", "a", "ä", "straße", "\0", "🜁", "İ"]


@pytest.fixture(scope="module")
def to_numbers() -> ts.Executable:
    return single(
        "LabelEncoder", [(TEXT, ["n"])], ML, keys_strings=KEYS,
        values_int64s=list(range(7)), default_int64=-5,
    )  # fmt: skip


@pytest.fixture(scope="module")
def to_words() -> ts.Executable:
    return single(
        "LabelEncoder", [(TEXT, ["n"])], ML, keys_strings=KEYS,
        values_strings=KEYS[::-1], default_string="ö",
    )  # fmt: skip


@given(words)
def test_strings_are_looked_up(
    to_numbers: ts.Executable, to_words: ts.Executable, given: list[str]
) -> None:
    assert runs_natively(to_numbers) and runs_natively(to_words)
    x = texts(given)
    numbers = label_encoder(KEYS, list(range(7)), -5, "int64")
    names = label_encoder(KEYS, KEYS[::-1], "ö", "string")
    for _ in range(2):  # the second run takes the short way
        np.testing.assert_array_equal(to_numbers(x), numbers(x), strict=True)
        np.testing.assert_array_equal(to_words(x), names(x), strict=True)


@pytest.mark.parametrize("kind", [F32, I64])
def test_numbers_are_looked_up(kind: int) -> None:
    nan = float("nan")
    keys: dict[str, Any] = {"keys_floats": [float(np.float32(0.1)), nan, -0.0, float("inf")]}
    x = np.array([0.1, nan, 0.0, -nan, 3, np.inf, -np.inf], np.float32)
    if kind == I64:
        keys, x = {"keys_int64s": [1, -7, 1 << 62, 0]}, np.array([0, 1 << 62, 2, -7, 1])
    exe = single("LabelEncoder", [(kind, ["n"])], ML, **keys, values_strings=["a", "b", "c", "d"])
    assert runs_natively(exe)
    expected = label_encoder(next(iter(keys.values())), ["a", "b", "c", "d"], "_Unused", "string")
    for _ in range(2):
        np.testing.assert_array_equal(exe(x), expected(x), strict=True)


@pytest.fixture(scope="module")
def gather() -> ts.Executable:
    return single("Gather", [(TEXT, ["a", "b", "c"]), (I64, ["i", "j"])], axis=1)


@given(st.data())
def test_strings_are_picked(gather: ts.Executable, data: st.DataObject) -> None:
    assert runs_natively(gather)
    a, b, c, i, j = (data.draw(st.integers(1, 3)) for _ in range(5))
    x = texts(data.draw(st.lists(letters, min_size=27, max_size=27))[: a * b * c])
    x = x.reshape(a, b, c)
    at = np.array(data.draw(st.lists(st.integers(-b, b - 1), min_size=9, max_size=9)))
    places = at[: i * j].reshape(i, j)
    for _ in range(2):
        np.testing.assert_array_equal(gather(x, places), x.take(places, 1), strict=True)
    function = movement("Gather", "", {"axis": 1}, (0, 1))
    for beyond in (b, -b - 1):
        with pytest.raises(IndexError) as right:
            assert function is not None and function(x, places * 0 + beyond)
        with pytest.raises(ModelError) as found:
            gather(x, places * 0 + beyond)
        assert str(right.value) in str(found.value)


class Loud(str):
    """A string whose comparison fails."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise KeyError("no hash")


def test_what_is_no_string_is_an_error_each_time(to_numbers: ts.Executable) -> None:
    assert to_numbers(texts(["a", "b"])).tolist() == [1, -5]
    for bad, name in ((1, "int"), (None, "NoneType"), (float("nan"), "float"), ([], "list")):
        for _ in range(2):
            with pytest.raises(ModelError, match=rf"found {name} at \[1\]"):
                to_numbers(texts(["a", bad]))
    with pytest.raises(ModelError, match="KeyError: 'no hash'"):
        to_numbers(texts(["a", Loud("a")]))
    with pytest.raises(ModelError, match="found float64"):
        to_numbers(np.zeros(2))
    with pytest.raises(ModelError, match="expected"):
        to_numbers(texts(["a", "b"], 1, 2))


def test_strings_in_other_forms(to_numbers: ts.Executable) -> None:
    expected = [1, -5, 3]
    given = ["a", "b", "straße"]
    strided = texts([*given, *given], 3, 2)
    strided[:, 0] = given
    for x in (
        texts(given), np.array(given), given, strided[:, 0],
        texts([s.encode() for s in given]), texts([np.str_(s) for s in given]),
    ):  # fmt: skip
        for _ in range(2):
            assert to_numbers(x).tolist() == expected


def test_an_array_is_not_kept_and_results_are_fresh() -> None:
    exe = single("Identity", [(TEXT, ["n"])])
    x = texts(["a", "b"])
    for _ in range(2):
        y = exe(x)
        assert y is not x and y.tolist() == ["a", "b"]
        y[0] = "c"
    assert x.tolist() == ["a", "b"]


def test_no_reference_is_lost_or_taken(to_words: ts.Executable, gather: ts.Executable) -> None:
    word = "a word that nobody else holds " + str(len(WORDS))
    x = texts([word, "a", word], 1, 3, 1)
    places = np.array([[0, 2, 2]])
    before = sys.getrefcount(word)
    for _ in range(100):
        to_words(x.reshape(-1))
        gather(x, places)
        with pytest.raises(ModelError):
            gather(x, places + 3)
    gc.collect()
    assert sys.getrefcount(word) == before
