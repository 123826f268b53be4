"""Models on strings for `benchmarks/everyday.py`: single operators, and what skl2onnx exports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Row = tuple[str, onnx.ModelProto, dict[str, np.ndarray]]
SIZES = (1, 30, 1000)
WORDS = [f"{a}{b}{c}" for a in ("st", "k", "br") for b in "aeiou" for c in ("n", "ld", "rm", "p")]
ML = "ai.onnx.ml"


def strings(values: Sequence[str], *shape: int) -> np.ndarray:
    """An array of objects, as users give strings."""
    return np.array([str(v) for v in values], object).reshape(shape)


def drawn(*shape: int) -> np.ndarray:
    """Words, one in ten of which is in no vocabulary."""
    rng = np.random.default_rng(0)
    return strings(rng.choice([*WORDS, *["unknown"] * 6], int(np.prod(shape))), *shape)


def model(nodes: Sequence[onnx.NodeProto], x: np.ndarray, kind: int) -> onnx.ModelProto:
    """A model of strings `x`, whose first extent is open, with result `y`."""
    given = helper.make_tensor_value_info("x", TensorProto.STRING, ["n", *x.shape[1:]])
    result = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(list(nodes), "case", [given], [result])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def operators() -> Iterator[Row]:
    """Single operators on 1 to 1000 strings."""
    pairs = [w for pair in pairwise(WORDS) for w in pair]
    grams = 2 * len(WORDS) - 1
    for n in SIZES:
        for what, node, x, kind in (
            ("LabelEncoder to int64", helper.make_node(
                "LabelEncoder", ["x"], ["y"], domain=ML, keys_strings=WORDS,
                values_int64s=list(range(len(WORDS)))), drawn(n), TensorProto.INT64),
            ("LabelEncoder to string", helper.make_node(
                "LabelEncoder", ["x"], ["y"], domain=ML, keys_strings=WORDS,
                values_strings=WORDS[::-1]), drawn(n), TensorProto.STRING),
            ("OneHotEncoder", helper.make_node(
                "OneHotEncoder", ["x"], ["y"], domain=ML, cats_strings=WORDS, zeros=1),
                drawn(n, 1), TensorProto.FLOAT),
            ("StringNormalizer", helper.make_node(
                "StringNormalizer", ["x"], ["y"], case_change_action="UPPER",
                is_case_sensitive=0, locale="C", stopwords=WORDS[:3]), drawn(n),
                TensorProto.STRING),
            ("TfIdfVectorizer", helper.make_node(
                "TfIdfVectorizer", ["x"], ["y"], mode="TFIDF", min_gram_length=1,
                max_gram_length=2, max_skip_count=0, ngram_counts=[0, len(WORDS)],
                ngram_indexes=list(range(grams)), pool_strings=WORDS + pairs,
                weights=[1.5] * grams), drawn(n, 30), TensorProto.FLOAT),
            ("StringSplit", helper.make_node(
                "StringSplit", ["x"], ["y", "z"], delimiter=" "),
                strings([" ".join(row) for row in drawn(n, 10)], n), TensorProto.STRING),
            ("StringConcat", helper.make_node("StringConcat", ["x", "x"], ["y"]), drawn(n),
                TensorProto.STRING),
            ("RegexFullMatch", helper.make_node(
                "RegexFullMatch", ["x"], ["y"], pattern="st.*n"), drawn(n), TensorProto.BOOL),
        ):  # fmt: skip
            yield f"{what} of {n}", model([node], x, kind), {"x": x}


def pipelines() -> Iterator[Row]:
    """Pipelines of scikit-learn: categories, texts, and labels that are strings."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    rng = np.random.default_rng(0)
    labels = rng.choice(["good", "bad", "ugly"], 500)
    words = strings(rng.choice(WORDS, 1500), 500, 3)
    numbers = rng.standard_normal((500, 4)).astype(np.float32)
    plain: dict[str, Any] = {"zipmap": False}

    def named(made: Any, exported: onnx.ModelProto, what: str, n: int) -> Row:
        feed = {"x": words[rng.integers(0, 500, n)]}
        if len(exported.graph.input) > 1:
            feed["f"] = numbers[rng.integers(0, 500, n)]
        return f"{what} of {n}", exported, feed

    for what, encoder in (
        ("OneHotEncoder, LogisticRegression", OneHotEncoder(handle_unknown="ignore")),
        ("OrdinalEncoder, LogisticRegression", OrdinalEncoder()),
    ):
        made = make_pipeline(encoder, LogisticRegression()).fit(words, labels)
        types = [("x", StringTensorType([None, 3]))]
        for zipmap in (True, False):
            exported = to_onnx(made, initial_types=types, options=None if zipmap else plain)
            for n in SIZES:
                yield named(made, exported, what + (", ZipMap" if zipmap else ""), n)
    mixed = ColumnTransformer(
        [
            ("x", OneHotEncoder(handle_unknown="ignore"), [0, 1, 2]),
            ("f", StandardScaler(), [3, 4, 5, 6]),
        ]
    )
    made = make_pipeline(mixed, LogisticRegression())
    made.fit(np.concatenate([words, numbers.astype(object)], 1), labels)
    types = [("x", StringTensorType([None, 3])), ("f", FloatTensorType([None, 4]))]
    exported = to_onnx(made, initial_types=types, options=plain)
    for n in SIZES:
        yield named(made, exported, "columns of strings and numbers", n)


def texts() -> Iterator[Row]:
    yield from operators()
    yield from pipelines()
