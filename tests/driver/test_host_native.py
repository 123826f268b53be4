"""Host functions that the C runtime has in a form of its own, beside their Python functions."""

from __future__ import annotations

import gc
import io
import itertools
import json
import math
import random
import signal
import sys
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith.host_functions import prepare
from tilesmith.host_functions.moves import movement
from tilesmith.host_functions.strings import label_encoder
from tilesmith.host_functions.table import Function
from tilesmith.runtime.host_runner import HostRunner
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
    assert isinstance(exe.runner, HostRunner)
    host = exe.runner.host
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


@pytest.mark.parametrize("first", [0, -3, (1 << 20) - 2, 1 << 40])
def test_numbers_side_by_side_are_looked_up(first: int) -> None:
    keys = [first, first + 3, first + 1, first + 1]
    names = ["a", "b", "c", "d"]
    exe = single("LabelEncoder", [(I64, ["n"])], ML, keys_int64s=keys, values_strings=names)
    function = label_encoder(keys, names, "_Unused", "string")
    ends = np.iinfo(np.int64)
    x = np.array([*range(first - 2, first + 6), ends.min, ends.max])
    for _ in range(2):
        np.testing.assert_array_equal(exe(x), function(x), strict=True)


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


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_strings_lie_side_by_side(axis: int) -> None:
    shapes = [["m", "a"], ["m", "b"]] if axis else [["a", "m"], ["b", "m"]]
    exe, source = single("Concat", [(TEXT, s) for s in shapes], axis=axis), random.Random(1)
    function = movement("Concat", "", {"axis": axis}, (0, 1))
    assert function is not None
    for m, a, b in ((1, 1, 1), (2, 3, 1), (3, 1, 4)):
        sizes = {"m": m, "a": a, "b": b}
        agree(exe, function, *(all_of(source, *(sizes[d] for d in s)) for s in shapes))


def test_strings_in_other_shapes() -> None:
    exe = single("Reshape", [(TEXT, ["m", 6]), (I64, [3])])
    assert runs_natively(exe)
    x = all_of(random.Random(1), 2, 6)
    for shape in ([2, 3, 2], [-1, 3, 2], [0, 3, 2], [1, 1, 12]):
        for _ in range(2):
            expected = x.reshape([2 if n == 0 else n for n in shape])
            np.testing.assert_array_equal(exe(x, np.array(shape)), expected, strict=True)
    for shape in ([5, 3, 2], [-1, -1, 2], [-1, 5, 1]):
        with pytest.raises(ModelError):
            exe(x, np.array(shape))
    flat = single("Flatten", [(TEXT, ["m", 2, 3])])
    np.testing.assert_array_equal(flat(x.reshape(2, 2, 3)), x, strict=True)
    assert runs_natively(flat)


class Loud(str):
    """A string whose comparison fails."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise KeyError("no hash")


class Once(str):
    """A string whose first comparison is interrupted."""

    __slots__ = ("left",)
    left: list[int]

    def __hash__(self) -> int:
        if self.left:
            self.left.pop()
            raise KeyboardInterrupt
        return super().__hash__()


def test_an_interrupt_is_not_lost(to_numbers: ts.Executable) -> None:
    word = Once("a")
    word.left = [1]
    with pytest.raises(KeyboardInterrupt):
        to_numbers(texts([word]))
    assert to_numbers(texts([word])).tolist() == [1]


class TooLong(Exception):
    """What the handler of a signal raises."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such signal")
@pytest.mark.parametrize("kind", ["counts", "table", "letters"])
def test_what_the_handler_of_a_signal_raises_ends_the_run(kind: str) -> None:
    def handler(*_: Any) -> None:
        raise TooLong

    if kind == "counts":
        exe = single(
            "TfIdfVectorizer", [(TEXT, ["n"])], mode="TF", min_gram_length=1, max_gram_length=2,
            max_skip_count=1 << 60, ngram_counts=[0, 1], ngram_indexes=[0, 1],
            pool_strings=["a", "a", "a"],
        )  # fmt: skip
        x = texts(["a"] * 300_000)  # a minute of work
    else:
        pattern = "a*b" if kind == "table" else "(?i)a*.*b"
        exe = single("RegexFullMatch", [(TEXT, ["n"])], pattern=pattern)
        x = texts(["a" * (1 << 15)] * (1 << 18 if kind == "table" else 1 << 10))
    assert runs_natively(exe)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TooLong):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            exe(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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


def all_of(source: random.Random, *shape: int) -> np.ndarray:
    """Words at random, with blanks and repeats between them."""
    made = [source.choice([*WORDS, "a b", "  b  a ", "a--b-", "\u2003a"]) for _ in range(100)]
    return texts(made[: math.prod(shape)], math.prod(shape)).reshape(shape)


def agree(exe: ts.Executable, function: Function, *inputs: np.ndarray) -> None:
    """Both give the same, each time."""
    assert runs_natively(exe)
    expected = function(*inputs)
    for _ in range(2):
        found = exe(*inputs)
        many = isinstance(expected, tuple)
        for a, b in zip(found, expected, strict=True) if many else [(found, expected)]:
            np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize(
    ("a", "b"), [(["n"], ["n"]), (["n"], [1]), (["m", 1], ["n"]), (["m", "n"], [])], ids=str
)
def test_pairs_of_strings(a: list[Any], b: list[Any]) -> None:
    kinds = [(TEXT, a), (TEXT, b)]
    equal, join = single("Equal", kinds), single("StringConcat", kinds)
    source, x, y = random.Random(3), texts([]), texts([])
    for m, n in ((1, 1), (2, 3), (3, 1), (1, 4), (3, 3)):
        sizes: dict[Any, Any] = {"m": m, "n": n}
        x, y = (all_of(source, *(sizes.get(d, d) for d in shape)) for shape in (a, b))
        agree(equal, prepare("string_equal", ""), x, y)
        agree(join, prepare("string_concat", ""), x, y)
    mixed = np.full(x.shape, np.str_("a"), object)  # of another type, which Python compares
    np.testing.assert_array_equal(equal(mixed, y), mixed == y, strict=True)


@pytest.mark.parametrize("most", [None, 0, 1, 2])
@pytest.mark.parametrize("delimiter", ["", "-", "--", "a"])
def test_strings_are_split(delimiter: str, most: int | None) -> None:
    attributes: dict[str, Any] = {"delimiter": delimiter}
    attributes |= {} if most is None else {"maxsplit": most}
    names = ["y", "counts"]
    node = helper.make_node("StringSplit", ["x"], names, **attributes)
    x = helper.make_tensor_value_info("x", TEXT, ["m", "n"])
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name=n) for n in names])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    exe, source = ts.compile(made.SerializeToString()), random.Random(5)
    function = prepare("string_split", json.dumps({"delimiter": delimiter, "maxsplit": most}))
    for m, n in ((1, 1), (2, 3), (4, 9)):
        agree(exe, function, all_of(source, m, n))


@pytest.mark.parametrize("case", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("stopwords", [["none"], ["a", "STRASSE", "\0", "i̇"], WORDS])
def test_strings_are_normalised(case: str, sensitive: int, stopwords: list[str]) -> None:
    known = [w for w in stopwords if w.isprintable() or w == "\0"]  # not the half of a pair
    exe = single(
        "StringNormalizer", [(TEXT, ["n"])], case_change_action=case,
        is_case_sensitive=sensitive, stopwords=known,
    )  # fmt: skip
    settings = {"case": case, "sensitive": bool(sensitive), "stopwords": known}
    function, source = prepare("string_normalizer", json.dumps(settings)), random.Random(7)
    for x in (all_of(source, 1), all_of(source, 20), texts(known or ["a"])):
        agree(exe, function, x)


@pytest.mark.parametrize("pattern", ["a*", "", "(a|ä)+.?", "(a+)+b", "^a", "(?i)[^a]", "(?s).+"])
def test_strings_are_matched(pattern: str) -> None:
    exe = single("RegexFullMatch", [(TEXT, ["n"])], pattern=pattern)
    function = prepare("regex_full_match", json.dumps({"pattern": pattern}))
    agree(exe, function, texts([*WORDS, "aaaa", "aaab", "äa", "a\n"]))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(
    "ends", [(1, 1, 0), (1, 3, 0), (2, 3, 2), (1, 2, (1 << 63) - 1), (3, 3, 1)]
)
def test_sequences_of_words_are_counted(mode: str, ends: tuple[int, int, int]) -> None:
    source = random.Random(11)
    ones, chosen = ["a", "", "ä"], ["a", "b", "ä", ""]
    twos, threes = (
        [w for p in source.sample([*itertools.product(chosen, repeat=n)], 7) for w in p]
        for n in (2, 3)
    )
    places = source.sample(range(20), 17)
    weights = [source.choice([0.5, -1.25, 3.0]) for _ in places]
    starts = [0, 3, 17]
    exe = single(
        "TfIdfVectorizer", [(TEXT, ["m", "n"])], mode=mode, min_gram_length=ends[0],
        max_gram_length=ends[1], max_skip_count=ends[2], ngram_counts=starts,
        ngram_indexes=places, pool_strings=[*ones, *twos, *threes], weights=weights,
    )  # fmt: skip
    function = prepare(exe.program.host_calls[0].function, exe.program.host_calls[0].settings)
    for m, n in ((1, 1), (3, 2), (2, 12)):
        x = texts([source.choice([*chosen, "other"]) for _ in range(m * n)], m * n)
        agree(exe, function, x.reshape(m, n))


@pytest.mark.parametrize(
    "starts", [[0, 1 << 60, -3 << 60], [-1, 2], [0, 5], [3, 2], [0, 1], [0, 1, 3, 2]]
)
def test_misplaced_sequences_are_refused(starts: list[int]) -> None:
    """As a loop over all places of a sequence some would not end."""
    given = {"pool": ["a", "b", "c", "d"], "starts": starts, "weights": None, "skips": 0}
    ends = {"mode": "TF", "indexes": [0, 1], "shortest": 9, "longest": 9}
    with pytest.raises(ModelError, match=r"expected whole .-grams from"):
        prepare("tf_idf", json.dumps({**given, **ends}))
    with pytest.raises(ModelError, match=r"expected whole .-grams from"):
        single(
            "TfIdfVectorizer", [(TEXT, ["n"])], mode="TF", min_gram_length=9, max_gram_length=9,
            max_skip_count=0, ngram_counts=starts, ngram_indexes=[0, 1], pool_strings=given["pool"],
        )  # fmt: skip


def test_descriptions_of_other_calls_are_refused() -> None:
    """Code that calls more, fewer or other functions than the file says reads no other memory."""
    made = io.BytesIO()
    single("StringConcat", [(TEXT, ["n"]), (TEXT, ["n"])]).save(made)
    archive = zipfile.ZipFile(made)
    manifest = json.loads(archive.read("manifest.json"))
    described = manifest["main"]["steps"]
    (at,) = [i for i, s in enumerate(described) if s["step"] == "host"]
    right = described[at]
    fewer = {"inputs": right["inputs"][:1]}
    fixed = {"outputs": [{**right["outputs"][0], "shape": [2]}]}
    more = {"inputs": [*right["inputs"], right["inputs"][0]]}
    x = texts(["a", "b"])
    for steps in ([], [{**right, **fewer}], [{**right, **fixed}], [{**right, **more}]):
        described[at:] = steps
        damaged = io.BytesIO()
        with zipfile.ZipFile(damaged, "w") as z:
            for name in archive.namelist():
                is_manifest = name == "manifest.json"
                z.writestr(name, json.dumps(manifest) if is_manifest else archive.read(name))
        exe = ts.load(damaged.getvalue())
        for _ in range(2):
            with pytest.raises(ModelError, match="the program is damaged: its code calls"):
                exe(x, x)


def test_bytes_that_are_no_text_are_refused() -> None:
    exe, x = single("StringConcat", [(TEXT, ["n"]), (TEXT, ["n"])]), texts(["a", b"\xff"])
    with pytest.raises(ModelError, match=r"input 'x1': expected bytes in UTF-8, .* at \[1\]"):
        exe(texts(["a", b"\xc3\xa4"]), x)


@pytest.mark.parametrize("kind", [F32, F64])
@pytest.mark.parametrize("keys", [["a", "", "ä"], [3, -1, 1 << 60]], ids=["text", "numbers"])
def test_rows_become_dicts(kind: int, keys: list[Any]) -> None:
    name = "classlabels_strings" if isinstance(keys[0], str) else "classlabels_int64s"
    exe = single("ZipMap", [(kind, ["n", 3])], ML, **{name: keys})
    rng = np.random.default_rng(0)
    for n in (1, 5):
        x = rng.standard_normal((n, 3)).astype(helper.tensor_dtype_to_np_dtype(kind))
        x[0, :2] = np.nan, -0.0
        for _ in range(2):
            found = exe(x)
            expected = prepare("zip_map", json.dumps({"keys": keys}))(x)
            assert repr(found) == repr(expected) and runs_natively(exe)


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        (F32, [0.1, -1e300, 3, True, np.float32(2.5), float("nan"), 1 << 70]),
        (I64, [1, -(1 << 63), True, np.int64(3), 2.5]),
        (TEXT, ["a", "", "ä", np.str_("b")]),
    ],
)
def test_dicts_become_rows(kind: int, of: list[Any]) -> None:
    keys = ["a", "", "ä", "a"]
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML, string_vocabulary=keys)
    value = helper.make_tensor_type_proto(kind, [])
    x = helper.make_value_info("x", helper.make_map_type_proto(TEXT, value))
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    exe = ts.compile(made.SerializeToString())
    call = exe.program.host_calls[0]
    function = prepare(call.function, call.settings)
    assert runs_natively(exe)
    for one in of:
        for items in ({"a": one}, {"b": one}, {"": of[0], "ä": one}, {}):
            with np.errstate(all="ignore"):
                try:
                    expected = function(items)
                except OverflowError as e:
                    with pytest.raises(ModelError, match=str(e)):
                        exe(items)
                    continue
                for _ in range(2):
                    np.testing.assert_array_equal(exe(items), expected, strict=True)
    for _ in range(2):
        with pytest.raises(ModelError, match="expected a dict"):
            exe([1])
        if kind == TEXT:
            with pytest.raises(ModelError, match="expected strings, found int at 'a'"):
                exe({"a": 3})
