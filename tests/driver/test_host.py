"""Nodes that run on the host inside a compiled program: strings, lists, operators without native
code.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilesmith as ts
from tilesmith.driver.entry import FallbackWarning
from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import print_graph
from tilesmith.host_functions import vectorizers
from tilesmith.host_functions.moves import movement
from tilesmith.host_functions.strings import label_encoder
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError

F32, I64, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
info = helper.make_tensor_value_info


def model(nodes: str, inputs: Sequence[Any], outputs: Sequence[str]) -> bytes:
    """A model whose nodes are written as in ONNX's text form."""
    parsed = onnx.parser.parse_graph(f"agraph () => () {{ {nodes} }}")
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(parsed.node, "g", inputs, ends, parsed.initializer)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9).SerializeToString()


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


COUNTS = model(
    """
    words = StringNormalizer <case_change_action = "LOWER"> (text)
    counts = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1,
        max_skip_count = 0, ngram_counts = [0], ngram_indexes = [0, 1, 2],
        pool_strings = ["a", "b", "c"]> (words)
    y = Add (counts, bias)
    z = Mul (y, y)
    """,
    [info("text", TEXT, ["n"]), info("bias", F32, [3])],
    ["z", "words"],
)
"""Text of any length to numbers, which native code goes on with."""


def counted(exe: ts.Executable, *words: str) -> None:
    z, lower = exe(texts(*words), np.array([1, 0, 0], np.float32))
    counts = [sum(w.lower() == c for w in words) for c in "abc"]
    np.testing.assert_array_equal(z, np.add(counts, [1, 0, 0]) ** 2.0)
    assert z.dtype == np.float32 and lower.tolist() == [w.lower() for w in words]


def test_text_becomes_numbers_in_one_program() -> None:
    exe = ts.compile(COUNTS)
    assert [str(s) for s in exe.inputs] == ["text: string[n]", "bias: f32[3]"]
    assert exe.program.needs_callbacks
    assert [c.operator for c in exe.program.host_calls] == ["StringNormalizer", "TfIdfVectorizer"]
    for n in (1, 4, 9):
        counted(exe, *("AbCxB"[i % 5] for i in range(n)))


def test_a_file_holds_what_runs_on_the_host(tmp_path: Path) -> None:
    ts.compile(COUNTS).save(tmp_path / "m.tsm")
    counted(ts.load(tmp_path / "m.tsm"), "A", "c")


def test_runs_at_one_time_have_objects_of_their_own() -> None:
    exe = ts.compile(COUNTS)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(counted, exe, *"AbC"[: 1 + i % 3]) for i in range(64)]:
            done.result()


def test_the_evaluator_agrees_and_the_text_reads_back() -> None:
    graph = load(COUNTS)
    shown = print_graph(graph)
    assert 'host(%text) {function="string_normalizer"' in shown
    assert print_graph(parse_graph(shown)) == shown
    given = {"text": texts("A", "B"), "bias": np.zeros(3, np.float32)}
    assert evaluate(graph, given)["z"].tolist() == [1, 1, 0]


def test_a_profile_names_what_runs_on_the_host() -> None:
    profile = ts.compile(COUNTS).profile(texts("a"), np.zeros(3, np.float32), repeats=1)
    assert len(profile) == 1
    assert [name for name, _ in profile.host] == [
        "StringNormalizer words",
        "TfIdfVectorizer counts",
    ]
    assert all(seconds > 0 for _, seconds in profile.host)
    assert "on the host: TfIdfVectorizer counts" in str(profile)


def test_kernels_between_host_calls_are_checked() -> None:
    (found,) = ts.check(COUNTS)
    assert found.passed and found.operators == ("add", "mul")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros(2, np.float32), "input 'text': expected strings .*found float32"),
        (np.array(["a", 1], object), r"expected strings, found int at \[1\]"),
        (np.array([["a"]]), r"expected shape \(n,\), found \(1, 1\)"),
    ],
)
def test_wrong_strings(given: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ts.compile(COUNTS)(given, np.zeros(3, np.float32))


def test_an_object_has_no_place_in_memory() -> None:
    exe = ts.compile(COUNTS)
    given = texts("a"), np.zeros(3, np.float32)
    room = np.empty(3, np.float32)
    assert exe(*given, out=[room, None])[0] is room
    with pytest.raises(UsageError, match="output 'words' is a Python object"):
        exe(*given, out=[None, np.empty(1, object)])


def test_kinds_of_strings_are_taken() -> None:
    exe = ts.compile(model("y = Identity (x)", [info("x", TEXT, [2])], ["y"]))
    for given in (np.array(["a", "é"]), texts("a", "é"), np.array([b"a", "é".encode()])):
        assert exe(given).tolist() == ["a", "é"]


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        ("y = Gather <axis = 1> (x, one)", [["b"], ["d"]]),
        ("y = Reshape (x, four)", ["a", "b", "c", "d"]),
        ("y = Concat <axis = 0> (x, x)", [["a", "b"], ["c", "d"]] * 2),
        ("y = Transpose (x)", [["a", "c"], ["b", "d"]]),
        ("s = Constant <value_strings = [\"a\", \"d\"]> () y = Equal (x, s)",
         [[True, False], [False, True]]),
        ("s = Constant <value_string = \"-\"> () c = Equal (x, s) y = Where (c, x, s)",
         [["-", "-"], ["-", "-"]]),
        ("y = Shape (x)", [2, 2]),
        ("y = Unsqueeze (x, one)", [[["a", "b"]], [["c", "d"]]]),
    ],
)  # fmt: skip
def test_strings_are_moved(nodes: str, want: Any) -> None:
    constants = "one = Constant <value_ints = [1]> () four = Constant <value_ints = [4]> ()"
    exe = ts.compile(model(f"{constants} {nodes}", [info("x", TEXT, [2, 2])], ["y"]))
    assert exe(texts("a", "b", "c", "d").reshape(2, 2)).tolist() == want


def test_casts_of_strings() -> None:
    numbers = "f = Cast <to = 1> (x) y = Mul (f, f) t = Cast <to = 8> (y)"
    exe = ts.compile(model(numbers, [info("x", TEXT, ["n"])], ["y", "t"]))
    y, t = exe(texts("1.5", "-inf", "NaN", "0"))
    np.testing.assert_array_equal(y, np.array([2.25, np.inf, np.nan, 0], np.float32))
    assert t.tolist() == ["2.25", "INF", "NaN", "0"]
    with pytest.raises(ModelError, match=r"node 'f' \(Cast\), which runs on the host: a string"):
        exe(texts("one"))


def test_labels_go_both_ways() -> None:
    there = 'k = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [3, 4]> (x)'
    back = 'y = ai.onnx.ml.LabelEncoder <keys_int64s = [3, 4], values_strings = ["A", "B"]> (k)'
    exe = ts.compile(model(f"{there} {back}", [info("x", TEXT, [3])], ["k", "y"]))
    k, y = exe(texts("b", "?", "a"))
    assert k.tolist() == [4, -1, 3] and y.tolist() == ["B", "_Unused", "A"]


ODD = model("p = Exp (x) q = DeformConv (p, w, o) y = Identity (q)",
            [info("x", F32, [1, 1, 3, 3]), info("w", F32, [1, 1, 2, 2]),
             info("o", F32, [1, 8, 2, 2])], ["y"])  # fmt: skip


def test_one_warning_names_what_has_no_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilesmith.frontend.onnx.operators import OPERATORS

    known = dict(OPERATORS._entries)
    del known["", "DeformConv"]
    monkeypatch.setattr(OPERATORS, "_entries", known)
    options = ts.Options(use_cache=False)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype(np.float32) for s in ((1, 1, 3, 3), (1, 1, 2, 2))]
    given.append(np.zeros((1, 8, 2, 2), np.float32))
    with pytest.warns(FallbackWarning, match=r"1 of the model's 2 nodes.*: DeformConv;") as seen:
        exe = ts.compile(ODD, options=options)
    assert len(seen) == 1
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        native = ts.compile(ODD, options=options)
    assert not native.program.needs_callbacks
    np.testing.assert_allclose(exe(*given), native(*given), rtol=1e-5)


def test_fallback_may_be_an_error() -> None:
    from tilesmith.frontend.onnx.operators import OPERATORS

    taken = OPERATORS._entries.pop(("", "DeformConv"))
    try:
        with pytest.raises(UnsupportedError, match=r"DeformConv .*is not supported"):
            ts.compile(ODD, fallback="error", options=ts.Options(use_cache=False))
    finally:
        OPERATORS._entries["", "DeformConv"] = taken


def test_numbers_of_unknown_rank_are_refused_like_other_fallbacks() -> None:
    """Strings and lists belong on the host; what computes with numbers there does not."""
    sequence = onnx.helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    one = model(
        "i = Constant <value_int = 0> () t = SequenceAt (s, i) y = Relu (t)", [sequence], ["y"]
    )
    with pytest.warns(UserWarning, match="Relu"):
        exe = ts.compile(one)
    np.testing.assert_array_equal(exe([np.array([-1, 2], np.float32)]), [0, 2])
    with pytest.raises(UnsupportedError, match=r"Relu .* reads a value of the host"):
        ts.compile(one, fallback="error")


def test_pixels_of_an_image_are_native() -> None:
    image = pytest.importorskip("PIL.Image")
    nodes = "p = ImageDecoder (x) f = Cast <to = 1> (p) y = Mul (f, f)"
    exe = ts.compile(model(nodes, [info("x", TensorProto.UINT8, ["n"])], ["y"]))
    assert exe.program.calls
    for shape in ((2, 3, 3), (5, 4, 3)):
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        file = io.BytesIO()
        image.fromarray(pixels).save(file, "PNG")
        got = exe(np.frombuffer(file.getvalue(), np.uint8))
        np.testing.assert_array_equal(got, pixels.astype(np.float32) ** 2)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("most", [0, 1 << 18])  # entries of a table; larger trees are searched
def test_runs_of_words_are_counted(mode: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorizers, "TABLE", most)
    rng = np.random.default_rng(7)
    pairs, triples = [("a", "b"), ("b", "b"), ("c", "a")], [("a", "b", "a"), ("b", "c", "d")]
    grams = [("a",), ("d",), *pairs, *triples]
    order = rng.permutation(len(grams)).tolist()
    weights = rng.uniform(1, 2, len(grams)).astype(np.float32)
    for shortest, longest, skips in ((1, 3, 0), (1, 3, 2), (2, 2, 1), (2, 3, 0)):
        count = vectorizers.tf_idf(
            mode, [w for g in grams for w in g], [0, 2, 8], order, weights.tolist(),
            shortest, longest, skips,
        )  # fmt: skip
        rows = rng.choice(np.array([*"abcdx"], object), (6, 8))
        want = np.zeros((6, len(grams)))
        for row, found in zip(rows.tolist(), want, strict=True):
            for place, gram in zip(order, grams, strict=True):
                n = len(gram)
                for d in range(1, (skips if n > 1 else 0) + 2):
                    runs = (tuple(row[i : i + (n - 1) * d + 1 : d]) for i in range(8 - (n - 1) * d))
                    found[place] += sum(run == gram for run in runs) * (shortest <= n <= longest)
        want = np.minimum(want, 1) if mode == "IDF" else want
        np.testing.assert_allclose(count(rows), want if mode == "TF" else want * weights, 1e-6)
        np.testing.assert_array_equal(count(rows)[2], count(rows[2]))
    assert count(rows[:0]).shape == (0, len(grams)) and not count(rows[:, :0]).any()


def test_words_of_no_counted_length() -> None:
    assert vectorizers.tf_idf("TF", ["a"], [0], [0], None, 2, 3, 0)(texts("a", "a")).tolist() == [0]


def test_keys_that_are_no_numbers_and_unknown_ones() -> None:
    named = label_encoder([1.0, float("nan")], ["one", "none"], "other", "string")
    found = named(np.array([np.nan, 2, 1], np.float32))
    assert found.tolist() == ["none", "other", "one"]
    numbered = label_encoder(["a", "NaN"], [1, 2], -1, "int64")
    assert numbered(texts("NaN", "b", "a")).tolist() == [2, -1, 1]


MOVED = np.array([["a", "b", "c"], ["d", "e", "f"]], object)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("Gather", [MOVED, np.array([[1, -2], [0, 0]])], {}),
        ("Gather", [MOVED, np.array(-1)], {"axis": 1}),
        ("Gather", [MOVED, np.array([2])], {"axis": -1}),
        ("Concat", [MOVED, MOVED, MOVED], {"axis": -1}),
        ("Concat", [MOVED, MOVED], {"axis": 0}),
        ("Transpose", [MOVED], {}),
        ("Transpose", [MOVED[None]], {"perm": [2, 0, 1]}),
        ("Identity", [MOVED], {}),
        ("ArrayFeatureExtractor", [MOVED, np.array([2, 0])], {}),
        ("ArrayFeatureExtractor", [MOVED, np.array([[1]])], {}),
        ("ArrayFeatureExtractor", [MOVED[0], np.array([1, 2, 1])], {}),
    ],
)
def test_moves_of_strings_are_those_of_the_reference(
    operator: str, inputs: list[np.ndarray], attributes: dict[str, Any]
) -> None:
    names = ["x", *(f"i{k}" for k in range(1, len(inputs)))]
    domain = "ai.onnx.ml" if operator == "ArrayFeatureExtractor" else ""
    node = helper.make_node(operator, names, ["y"], domain=domain, **attributes)
    kinds = [TEXT if a.dtype == object else I64 for a in inputs]
    given = [info(n, k, a.shape) for n, k, a in zip(names, kinds, inputs, strict=True)]
    graph = helper.make_graph([node], "g", given, [info("y", TEXT, None)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    move = movement(operator, domain, attributes, range(len(inputs)))
    assert move is not None
    (want,) = ReferenceEvaluator(made).run(None, dict(zip(names, inputs, strict=True)))
    np.testing.assert_array_equal(move(*inputs), want, strict=True)
    got = ts.compile(made)(*inputs)
    np.testing.assert_array_equal(got, want, strict=True)


def test_rows_of_strings_vary_from_call_to_call() -> None:
    """What is prepared for one number of rows is not used for another, of which 0 is one."""
    x, i = info("x", TEXT, ["n", 3]), info("i", I64, ["k"])
    moved = model("y = Gather <axis: int = 1> (x, i)", [x, i], ["y"])
    exe = ts.compile(moved, dynamic={"n": (0, 100)})
    for rows in (2, 0, 1, *range(70), 2):
        given = np.resize(MOVED, (rows, 3))
        for columns in ([2, 0], [1]):
            got = exe(given, np.array(columns, np.int64))
            np.testing.assert_array_equal(got, given[:, columns], strict=True)


@pytest.mark.parametrize(
    ("node", "x", "shape"),
    [
        ("Gather <axis: int = 1> (x, i)", (0, 3), (0, 2)),
        ("Transpose (x)", (0, 3), (3, 0)),
        ("Concat <axis: int = 0> (x, x)", (0, 3), (0, 3)),
        ("Squeeze (x)", (0, 1), (0,)),
    ],
)
def test_strings_without_elements_stay_strings(
    node: str, x: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    inputs = [info("x", TEXT, x), *([info("i", I64, [2])] if "i)" in node else [])]
    given = [np.empty(x, object), *([np.array([2, 0])] if "i)" in node else [])]
    got = ts.compile(model(f"y = {node}", inputs, ["y"]))(*given)
    assert got.shape == shape and got.dtype == object


def test_an_index_of_strings_that_is_no_place_is_refused() -> None:
    exe = ts.compile(model("y = Gather (x, i)", [info("x", TEXT, [3]), info("i", I64, [1])], ["y"]))
    with pytest.raises(ModelError, match="which runs on the host"):
        exe(texts("a", "b", "c"), np.array([3]))


def test_other_operators_are_the_evaluators() -> None:
    assert movement("Reshape", "", {}, (0, 1)) is None
    assert movement("Gather", "mine", {}, (0, 1)) is None
    assert movement("Gather", "", {}, (0, -1)) is None  # an input that is not there
    swapped = movement("Concat", "", {"axis": 0}, (1, 0))
    assert swapped is not None
    assert swapped(texts("a"), texts("b")).tolist() == ["b", "a"]


def test_strings_that_pass_through_are_objects() -> None:
    """Native memory holds one number for all of them, which a copy of six elements exceeds."""
    x = info("x", TEXT, [2, 3])
    exe = ts.compile(model("y = Identity (x) z = Identity (x)", [x], ["y", "z"]))
    assert {c.function for c in exe.program.host_calls} == {"identity"}
    for result in exe(MOVED):
        np.testing.assert_array_equal(result, MOVED, strict=True)


@pytest.mark.parametrize(
    "nodes, message",
    [
        ("y = Exp(text)", r"exp(string[2]): expected an input of kind float, found string[2]"),
        ("y = Concat <axis = 0> (text, x)", "concat(string[2], f32[2]): expected inputs of one"),
        ("y = ScatterElements(text, i, x)", "expected updates of string, found f32"),
    ],
)
def test_messages_call_strings_strings(nodes, message):
    given = [info("text", TEXT, [2]), info("x", F32, [2]), info("i", I64, [2])]
    with pytest.raises(ModelError) as found:
        ts.compile(model(nodes, given, ["y"]))
    assert message in str(found.value)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_loop_collects_strings_along_a_new_axis(
    steps: int, shape: tuple[int, ...], is_known: bool
) -> None:
    """Also in no iteration, where only the declared shape of a row is known."""
    inside = onnx.parser.parse_graph(
        f"body (int64 i, bool c, string v) => (d, w, string{[*shape]} s, int64[{len(shape)}] k)"
        "{ d = Identity (c) w = StringConcat (v, v) s = Identity (v) k = Shape (v) }"
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y", "rows", "shapes"], body=inside)
    count = np.array(steps)
    given, known = [info("x", TEXT, shape)], []
    if is_known:
        known = [onnx.numpy_helper.from_array(count, "n")]
    else:
        given.append(info("n", I64, []))
    ends = [onnx.ValueInfoProto(name=o) for o in ("y", "rows", "shapes")]
    graph = helper.make_graph([loop], "g", given, ends, known)
    opsets = [helper.make_opsetid("", 21)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    exe = ts.compile(proto.SerializeToString())
    x = np.full(shape, "a", object)
    y, rows, shapes = exe(x, *([] if is_known else [count]))
    want = [np.full(shape, "a" * 2**i, object) for i in range(steps + 1)]
    np.testing.assert_array_equal(y, want[-1])
    assert rows.shape == (steps, *shape) and shapes.shape == (steps, len(shape))
    for row, wanted in zip(rows, want):
        np.testing.assert_array_equal(row, wanted)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_loop_collects_strings_of_the_graph_around_it(is_known: bool) -> None:
    inside = onnx.parser.parse_graph(
        "body (int64 i, bool c) => (d, string[2] s) { d = Identity (c) s = Identity (x) }"
    )
    loop = helper.make_node("Loop", ["n", ""], ["rows"], body=inside)
    given, known = [info("x", TEXT, [2])], []
    if is_known:
        known = [onnx.numpy_helper.from_array(np.array(3), "n")]
    else:
        given.append(info("n", I64, []))
    graph = helper.make_graph([loop], "g", given, [onnx.ValueInfoProto(name="rows")], known)
    opsets = [helper.make_opsetid("", 21)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.warns(FallbackWarning, match="Loop"):
        exe = ts.compile(proto.SerializeToString())
    rows = exe(texts("a", "b"), *([] if is_known else [np.array(3)]))
    np.testing.assert_array_equal(rows, [["a", "b"]] * 3)
