#!/usr/bin/env python3
"""Tokens per second of a decoder with weights of 4 bits, against the memory's limit:
`python -m benchmarks.decoder`.

The model is that of `examples/decoder.py`: random weights at real sizes.  A generated token reads
every weight once, so the limit is the rate at which as many threads read memory, divided by the
bytes of the weights.  A kernel that only reads (the best of some prefetch distances) and the
decoder take turns; `share` is the median over rounds of the decoder's rate over the reader's, and
`least_share` that of the shortest times of both, for a machine that others use too.  The prompt's
rate stands beside them.
Prints one JSON object; exit status 1 where the bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # examples, however this is found

from benchmarks.few_bits import DISTANCES, readers, share
from examples.decoder import SIZES, Decoder, DecoderModel

from tilesmith.support.measure import interleave

BAR = 0.85
STREAMED = 1 << 29
"""Bytes that the reading kernels read in a call: more than any cache holds."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="1b")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    sizes = SIZES[given.size]
    maker = DecoderModel(sizes, 4 * given.prompt)
    decoder = Decoder(maker.model(), sizes, maker.positions, given.threads)
    prompt = np.random.default_rng(1).integers(0, sizes.vocabulary, given.prompt).tolist()
    decoder(prompt)  # the first call meets pages that were never touched
    decoder.length = 0
    start = time.perf_counter()
    scores = decoder(prompt)
    seconds = time.perf_counter() - start

    def generate() -> None:
        """One token, always at the same place: the cache is as long in each call."""
        decoder.length = given.prompt
        decoder([int(scores.argmax())])

    weights = maker.read_bytes()
    size = max(STREAMED, weights)
    runs = {**readers(size, given.threads), "tilesmith": generate}
    times = interleave(runs, rounds=given.rounds, turn_seconds=0.3)
    scale = weights / size
    fastest = min(times[f"read {d}"].minimum for d in DISTANCES)
    row = {
        "size": given.size,
        "threads": given.threads,
        "megabytes": round(weights / 1e6),
        "prompt_tokens_per_second": round(given.prompt / seconds, 1),
        "tokens_per_second": round(1 / times["tilesmith"].median, 1),
        "limit": round(1 / (fastest * scale), 1),
        "share": round(share(times, "tilesmith") * scale, 2),
        "least_share": round(fastest * scale / times["tilesmith"].minimum, 2),
        "bar": BAR,
    }
    print(json.dumps(row))
    return int(row["share"] < BAR)


if __name__ == "__main__":
    sys.exit(main())
