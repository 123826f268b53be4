#!/usr/bin/env python3
"""ONNX's own backend tests, each compiled from its bytes alone and run:
`python -m benchmarks.conformance [WORD ...]`.

No shape and no value is given besides the model.  A test passes if every output has the expected
type, shape and values.  Tests run in a child process; when one ends it or does not end within
`SECONDS`, the next test begins in a new child.

Without WORDs, which select tests by parts of their names, the result is written to
`docs/conformance.md`.  Exit status 1 when a test crashed, or gave a wrong answer without a reason
in `EXPLAINED`.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import children

PAGE = Path(__file__).resolve().parents[1] / "docs" / "conformance.md"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
SECONDS = 60.0

PASSED, REFUSED, WRONG, CRASHED = "passed", "refused", "wrong", "crashed"

_LENGTH = "The specification divides by the length of the result; the test, by scale * length."
_ROUNDING = "The test expects the rounding errors of an FFT where the exact result is 0."
_RANDOM = "The test expects NumPy's random numbers; the specification gives their distribution."
EXPLAINED = {
    "test_resize_downsample_scales_linear_align_corners": _LENGTH,
    "test_resize_downsample_scales_cubic_align_corners": _LENGTH,
    "test_dft_inverse": _ROUNDING,
    "test_dft_inverse_opset19": _ROUNDING,
    "test_maxunpool_export_with_output_shape": "The test reads positions in the smallest image "
    "possible; ONNX Runtime and PyTorch read them in the image that output_shape asks for.",
    **{f"test_bernoulli{kind}{form}": _RANDOM for kind in ("", "_double", "_seed")
       for form in ("", "_expanded")},
    **{f"test_training_dropout{form}": _RANDOM
       for form in ("", "_mask", "_default", "_default_mask")},
}  # fmt: skip
"""Tests whose expectation is not what the specification says, and why."""

NEEDS_VALUES = "a shape depends on the values of an input"
ENGINES_DIFFER = (
    ("`auto_pad` SAME with dilations", "The extent is ceil(input / stride) and pads make room for "
     "the dilated kernel.  ONNX Runtime ignores dilations in pools and refuses convolutions."),
    ("`auto_pad` SAME, a stride above the kernel's extent", "No pad is negative: the first window "
     "begins at the first element.  The reference evaluator cuts elements off; ONNX Runtime "
     "refuses."),
    ("A pool's window that lies in padding", "MaxPool gives the lowest value (-inf), as of no "
     "element at all; AveragePool gives 0."),
    ("ConvTranspose, SAME, a stride above the kernel's extent", "The extent is input * stride, as "
     "specified.  ONNX Runtime leaves out places that no tap reaches."),
    ("Pad, `wrap`, negative pads", "Places are of the input as given; ONNX Runtime cuts first and "
     "wraps what is left."),
    ("Resize of integers", "Interpolated values are rounded to the nearest integer, and limited to "
     "the type's range, as by the reference evaluator and PyTorch.  ONNX Runtime cuts i32."),
    ("NaN in ReduceMax, ReduceMin, MaxPool", "NaN wins, as in NumPy.  ONNX Runtime's result "
     "depends on its position."),
    ("ReduceMean over no elements", "0 / 0 is NaN; ONNX Runtime gives 0."),
    ("Squeeze with an empty list of axes", "No axis is removed; ONNX Runtime removes all of "
     "extent 1, as if there were no list."),
    ("OneHot with fractions as indices", "They are cast to i64, as specified; the reference "
     "evaluator compares them."),
    ("OneHot with NaN or Inf as values", "Both values are chosen from; the reference evaluator "
     "multiplies and adds them."),
    ("Gemm of integers with a fraction as `alpha`", "The product is multiplied in f64 and then "
     "cut; the product itself wraps."),
    ("ReduceL2 of integers whose squares overflow", "Squares and their sum wrap, as in the "
     "function's body; NumPy, and so the reference evaluator, adds them in a wider type."),
    ("Squeeze without axes, an extent that is open", "A ModelError, unless the extent's range "
     "begins at 2 or more: the rank of the result can't depend on the run."),
    ("Special values in LSTM, GRU and RNN", "They go through the formulas; ONNX Runtime limits the "
     "arguments of its activations, so that NaN disappears."),
    ("`sequence_lens` of LSTM, GRU and RNN", "As specified, and as in ONNX Runtime; the reference "
     "evaluator ignores them."),
    ("A declared shape that is not the computed one", "A ModelError that shows both, also where "
     "they differ by extents of 1 only; ONNX Runtime warns."),
)  # fmt: skip
"""Cases for which engines give different answers: what Tilesmith gives."""

_REASONS = (
    (r"has element type string|string constants", "strings"),
    (r"has element type (\w+)", "element type {}"),
    (r"(sequence|optional|map); only tensors|a sequence of", "sequences, optionals and maps"),
    (r"or --shape ", "a dimension is open, and nothing says what it is"),
    (r"must be known when the model is compiled", NEEDS_VALUES),
    (r"([\w.]+) \(opset \d+\) at [^:]*: the operator is not supported", "no operator {}"),
    (r"no operator of this name in domain '([\w.]+)'", "domain {}"),
)
"""What an error's message says, and the reason that it is listed under; `{}` is what the pattern
captures.
"""


@dataclass(frozen=True, slots=True)
class Test:
    """One of ONNX's tests.

    name, kind: as ONNX has them.
    model: its bytes.
    names: of the inputs that a caller gives.
    data: pairs of inputs and expected outputs, each in the model's order.
    relative, absolute: bounds of the difference of floating-point numbers.
    """

    name: str
    kind: str
    model: bytes
    names: tuple[str, ...]
    data: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]
    relative: float
    absolute: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test; `reason` is empty for one that passed."""

    result: str
    reason: str = ""


def tests(kinds: Sequence[str] = KINDS, words: Sequence[str] = ()) -> Iterator[Test]:
    """The tests of the installed onnx package whose names contain one of `words` (or all)."""
    for kind in kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the cases divide by zero on purpose
            found = load_model_tests(kind=kind)
        for case in found:
            if not words or any(w in case.name for w in words):
                yield _test(case)


def _test(case: Any) -> Test:
    model, data = case.model, case.data_sets
    if model is None:
        folder = Path(case.model_dir)
        model = onnx.load(folder / "model.onnx")
        data = [
            (_stored(model.graph.input, f, "input"), _stored(model.graph.output, f, "output"))
            for f in sorted(folder.glob("test_data_set_*"))
        ]
    stored = {t.name for t in model.graph.initializer}
    names = tuple(i.name for i in model.graph.input if i.name not in stored)
    sets = tuple((tuple(map(_plain, i)), tuple(map(_plain, o))) for i, o in data)
    return Test(case.name, case.kind, model.SerializeToString(), names, sets, case.rtol, case.atol)


def _stored(infos: Any, folder: Path, what: str) -> list[Any]:
    """The values of `what`_0.pb, `what`_1.pb, ..., by the types that the model declares."""
    protos = {"tensor_type": onnx.TensorProto, "sequence_type": onnx.SequenceProto}
    reads = {"tensor_type": numpy_helper.to_array, "sequence_type": numpy_helper.to_list}
    count, values = len(list(folder.glob(f"{what}_*.pb"))), []
    for i, info in zip(range(count), infos, strict=False):
        kind = info.type.WhichOneof("value")
        if kind in protos:
            proto = protos[kind].FromString((folder / f"{what}_{i}.pb").read_bytes())
            values.append(reads[kind](proto))
        else:
            proto = onnx.OptionalProto.FromString((folder / f"{what}_{i}.pb").read_bytes())
            values.append(numpy_helper.to_optional(proto))
    return values


def _plain(value: Any) -> Any:
    """A value as callers give it: an array, a list of arrays, or None."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value if value is None or isinstance(value, (list, dict)) else np.asarray(value)


def run_alone(test: Test) -> Outcome:
    """Compiles the model from its bytes, without shapes or values, runs and compares it."""
    import tilesmith as ts
    from tilesmith.support.errors import ModelError

    try:
        executable = ts.compile(test.model, threads=1)
        for inputs, outputs in test.data:
            given = dict(zip(test.names, inputs, strict=False))
            compare([*executable.run(given).values()], outputs, test)
    except AssertionError as e:
        return Outcome(WRONG, _first_line(e))
    except ModelError as e:
        return Outcome(REFUSED, reason_of(str(e)))
    except Exception as e:  # a defect, reported with its test instead of ending the run
        return Outcome(CRASHED, f"{type(e).__name__}: {_first_line(e)}")
    return Outcome(PASSED)


def compare(got: Sequence[Any], want: Sequence[Any], test: Test) -> None:
    """Raises AssertionError where outputs differ from the expected ones."""
    assert len(got) == len(want), f"expected {len(want)} outputs, found {len(got)}"
    for g, w in zip(got, want, strict=True):
        if isinstance(w, (list, type(None))):
            assert isinstance(g, type(w)), f"expected {type(w).__name__}, found {type(g).__name__}"
            compare(g or (), w or (), test)
            continue
        expected, found = f"{w.dtype}{list(w.shape)}", f"{g.dtype}{list(g.shape)}"
        assert found == expected, f"expected {expected}, found {found}"
        if w.dtype.kind not in "fVc":
            np.testing.assert_array_equal(g, w)
            continue
        # 2 units in the last place of bf16, whose rounding after each step varies.
        relative = 1.6e-2 if w.dtype.name == "bfloat16" else max(test.relative, 1e-3)
        absolute = max(test.absolute, 1e-3 if w.dtype.itemsize <= 2 else 1e-7)
        wide = np.complex128 if w.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            g.astype(wide), w.astype(wide), relative, absolute, equal_nan=True
        )


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "")


def reason_of(message: str) -> str:
    """A short reason for the message of an error."""
    for pattern, reason in _REASONS:
        found = re.search(pattern, message)
        if found:
            return reason.format(next((g for g in found.groups() if g), ""))
    said = re.split(r" \(give|; give|; export|; compile|, or --", message)[0]
    return said.rsplit(": ", 1)[-1]


def outcomes(suite: Sequence[Test]) -> dict[str, Outcome]:
    """Runs every test, by name; a child that dies takes only the test that it was at with it."""
    found = children.each(suite, run_alone, SECONDS)
    return {
        test.name: Outcome(CRASHED, o.reason) if isinstance(o, children.Died) else o
        for test, o in zip(suite, found, strict=True)
    }


def page(suite: Sequence[Test], found: dict[str, Outcome]) -> str:
    """docs/conformance.md."""
    by_kind: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for test in suite:
        by_kind[test.kind][found[test.name].result] += 1
    total = Counter(o.result for o in found.values())
    columns = ("tests", "number", PASSED, REFUSED, WRONG, CRASHED)
    rows = [(kind, by_kind[kind]) for kind in KINDS] + [("all", total)]
    text = [
        "# Conformance",
        "",
        f"ONNX {onnx.__version__} has {len(suite)} backend tests.  Each is compiled from the bytes "
        "of its model",
        "alone, without shapes or values of inputs, run, and compared.",
        "`python -m benchmarks.conformance` writes this page.",
        "",
        _row(columns),
        _row(["---"] + ["---:"] * (len(columns) - 1)),
        *(_row([kind, c.total(), *(c[r] for r in columns[2:])]) for kind, c in rows),
    ]
    for result, title in _TITLES.items():
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for name, o in found.items():
            if o.result == result:
                reason = EXPLAINED.get(name, o.reason) if result == WRONG else o.reason
                groups[reason].append(name.removeprefix("test_"))
        text += ["", f"## {title}"] if groups else []
        for reason, names in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
            text += ["", f"**{len(names)}: {reason}**", "", "```text"]
            text += [*wrap(" ".join(sorted(names)), 100, break_on_hyphens=False), "```"]
    text += ["", "## Where engines differ", "", _row(("case", "Tilesmith")), _row(["---"] * 2)]
    text += map(_row, ENGINES_DIFFER)
    return "\n".join(text) + "\n"


_TITLES = {
    REFUSED: "What is refused",
    WRONG: "Answers that differ from the test's",
    CRASHED: "What crashed",
}


def listed(text: str) -> dict[str, Outcome]:
    """What a page says of the tests that it names."""
    found: dict[str, Outcome] = {}
    for section in text.split("\n## ")[1:]:
        title, _, blocks = section.partition("\n")
        result = next((r for r, t in _TITLES.items() if t == title), PASSED)
        for reason, names in re.findall(r"\*\*\d+: (.*)\*\*\n\n```text\n([^`]*)```", blocks):
            found |= {f"test_{n}": Outcome(result, reason) for n in names.split()}
    return found


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main(words: list[str]) -> int:
    suite = list(tests(words=words))
    found = outcomes(suite)
    if words:
        for name, o in found.items():
            print(f"{o.result:8} {name}  {o.reason}")
    else:
        PAGE.write_text(page(suite, found), encoding="utf-8")
    counts = Counter(o.result for o in found.values())
    print(", ".join(f"{n} {result}" for result, n in counts.most_common()))
    unexplained = [n for n, o in found.items() if o.result == WRONG and n not in EXPLAINED]
    return 1 if counts[CRASHED] or unexplained else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    sys.exit(main(parser.parse_args().words))
