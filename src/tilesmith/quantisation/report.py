"""The report of a quantisation: the scheme of each layer, its cost and its gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One line of the report.

    name: the name of the layer's source node.
    scheme: the layer's scheme.
    low, high: the range of the layer's input that integers represent; None unless the range is
        fixed.
    snr: signal-to-noise ratio in dB of the model's answers if only this layer is quantised;
        infinite if the layer stays in floats, None without samples.
    cosine: cosine similarity of the same answers; None without samples.
    seconds: predicted time of the layer.
    float_seconds: predicted time without quantisation.
    """

    name: str
    scheme: str
    low: float | None
    high: float | None
    snr: float | None
    cosine: float | None
    seconds: float
    float_seconds: float


@dataclass(frozen=True, slots=True)
class QuantisationReport:
    """The effect of quantisation on a model.  `str` prints a line for each layer.

    layers: the layers, in the model's order.
    snr: signal-to-noise ratio in dB of the quantised model's answers, from the mean noise of all
        outputs; None without samples.
    cosine: mean cosine similarity of the answers; None without samples.
    drop: loss of the metric or, without a metric, of the cosine similarity.
    value, float_value: the metric of the quantised model and of the model of floats; None without a
        metric.
    seconds, float_seconds: predicted times of all layers.
    samples: number of samples.
    """

    layers: Sequence[LayerReport]
    snr: float | None
    cosine: float | None
    drop: float | None
    value: float | None
    float_value: float | None
    seconds: float
    float_seconds: float
    samples: int

    def __str__(self) -> str:
        width = min(max((len(x.name) for x in self.layers), default=5), 40)
        head = f"{'layer':{width}}  {'scheme':14} {'range':>19} {'SNR dB':>7} {'cosine':>8}"
        lines = [f"{head} {'predicted ms':>13} {'gain':>5}"]
        for x in self.layers:
            range_ = "" if x.low is None else f"{x.low:9.4g}..{x.high:.4g}"
            gain = x.float_seconds / x.seconds if x.seconds else 1.0
            name = x.name if len(x.name) <= width else f"...{x.name[3 - width :]}"
            lines.append(
                f"{name:{width}}  {x.scheme:14} {range_:>19} {_number(x.snr, '7.1f'):>7} "
                f"{_number(x.cosine, '8.5f'):>8} {x.seconds * 1e3:13.4f} {gain:5.2f}"
            )
        return "\n".join((*lines, *self._summary()))

    def _summary(self) -> list[str]:
        gain = self.float_seconds / self.seconds if self.seconds else 1.0
        lines = [
            f"predicted for these layers: {self.seconds * 1e3:.4g} ms, "
            f"{self.float_seconds * 1e3:.4g} ms without quantisation ({gain:.2f} times)"
        ]
        if self.snr is not None:
            lines.append(
                f"the answers to {self.samples} samples: SNR {_number(self.snr, '.1f')} dB, cosine "
                f"similarity {_number(self.cosine, '.6f')}"
            )
        if self.value is not None:
            lines.append(
                f"metric: {self.value:.6g}, {self.float_value:.6g} without quantisation "
                f"(drop {self.drop:.4g})"
            )
        return lines

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values.  Infinite and unknown numbers are None."""

        def plain(value: float | None) -> float | None:
            return value if value is not None and math.isfinite(value) else None

        return {
            "snr": plain(self.snr),
            "cosine": self.cosine,
            "drop": self.drop,
            "metric": self.value,
            "float_metric": self.float_value,
            "predicted_ms": self.seconds * 1e3,
            "float_predicted_ms": self.float_seconds * 1e3,
            "samples": self.samples,
            "layers": [
                {
                    "name": x.name,
                    "scheme": x.scheme,
                    "low": x.low,
                    "high": x.high,
                    "snr": plain(x.snr),
                    "cosine": x.cosine,
                    "predicted_ms": x.seconds * 1e3,
                    "float_predicted_ms": x.float_seconds * 1e3,
                }
                for x in self.layers
            ],
        }


def _number(value: float | None, form: str) -> str:
    return "" if value is None or math.isinf(value) else f"{value:{form}}"
