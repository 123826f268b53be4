"""Runs of models on samples, and distances between their answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilesmith.driver import compile
from tilesmith.graph.nodes import Graph, Value
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options

from .histogram import Observed
from .samples import Sample

Answers = dict[str, np.ndarray]
"""The outputs of a run, by name."""


@dataclass(slots=True)
class Distance:
    """The distance of answers from the answers of the model of floats, over all samples so far.

    noise: for each output, the sum of the squared differences.
    signal: for each output, the sum of the squared answers of the model of floats.
    cosines: for each sample, the cosine similarity of the answers, all outputs concatenated.
    """

    noise: dict[str, float]
    signal: dict[str, float]
    cosines: list[float]

    @staticmethod
    def none() -> Distance:
        return Distance({}, {}, [])

    def add(self, found: Answers, expected: Answers) -> None:
        """Include the answers to one sample.  Only outputs of floats count."""
        products = squares = own = 0.0
        for name, e in expected.items():
            if e.dtype.kind != "f":
                continue
            x, y = (a.astype(np.float64).reshape(-1) for a in (found[name], e))
            self.noise[name] = self.noise.get(name, 0.0) + float(np.square(x - y).sum())
            signal = float(y @ y)
            self.signal[name] = self.signal.get(name, 0.0) + signal
            products, squares, own = products + float(x @ y), squares + signal, own + float(x @ x)
        if squares and own:
            self.cosines.append(products / np.sqrt(squares * own))
        elif self.noise:
            self.cosines.append(1.0 if squares == own else 0.0)

    @property
    def ratio(self) -> float:
        """The power of the noise relative to the signal, as the mean over the outputs."""
        shares = [self.noise[k] / self.signal[k] for k in self.noise if self.signal[k]]
        return float(np.mean(shares)) if shares else 0.0

    @property
    def decibels(self) -> float:
        """The signal-to-noise ratio in decibels; infinite if nothing differs."""
        return decibels(self.ratio)

    @property
    def cosine(self) -> float:
        """The mean cosine similarity of the answers."""
        return float(np.mean(self.cosines)) if self.cosines else 1.0


def decibels(noise: float) -> float:
    """The signal-to-noise ratio in decibels, from the power of the noise relative to the signal."""
    return float(-10 * np.log10(noise)) if noise > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Reference:
    """Results of the model of floats on the samples.

    answers: answers to each sample.
    observed: statistics of the tensors that layers read.
    """

    answers: Sequence[Answers]
    observed: Mapping[Value, Observed]


def observe(
    graph: Graph,
    axes: Mapping[Value, int],
    samples: Iterable[Sample],
    options: Options,
    moments: Collection[Value] = (),
) -> Reference:
    """Run `graph` on the samples and record statistics of values in it.

    axes: the values to observe, and for each its axis of channels.
    moments: the values for which the second moments of the channels are recorded too.

    Raises UsageError for a value that is not finite.
    """
    inside = [v for v in axes if v not in graph.inputs and v not in graph.outputs]
    names = [f"observed {i}" for i in range(len(inside))]
    watched = replace(
        graph,
        outputs=(*graph.outputs, *inside),
        output_names=(*graph.output_names, *names),
    )
    exe = compile(watched, options=options)
    seen = {v: Observed(axis % v.type.rank, with_moments=v in moments) for v, axis in axes.items()}
    label = dict(zip(watched.outputs, watched.output_names, strict=True))
    answers: list[Answers] = []
    for number, sample in enumerate(samples):
        results = exe.run(sample)
        for v, stats in seen.items():
            array = sample[v.name] if v in graph.inputs else results[label[v]]
            if not np.isfinite(array).all():
                raise UsageError(
                    f"sample {number}: expected finite values inside the model, found others at "
                    f"{v.name or 'a value without a name'!r}; calibrate without this sample"
                )
            stats.add(array)
        answers.append({name: results[name] for name in graph.output_names})
    if not any(a.dtype.kind == "f" for a in answers[0].values()):
        raise UsageError("expected an output of floats to compare, found none in the model")
    return Reference(answers, seen)


def distance(
    graph: Graph, samples: Iterable[Sample], reference: Reference, options: Options
) -> Distance:
    """The distance between the answers of `graph`, compiled, and those of the reference."""
    exe = compile(graph, options=options)
    sum_of_errors = Distance.none()
    for sample, expected in zip(samples, reference.answers, strict=True):
        sum_of_errors.add(exe.run(sample), expected)
    return sum_of_errors
