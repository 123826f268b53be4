"""Published packages that make ONNX Runtime's sessions themselves, with and without our provider.

    python -m benchmarks.packages [NAME ...]

Each package runs in two new processes, one of which begins with two more lines (`ts.ort.install`).
The processes take turns, so that a busy machine slows both.  A row has the shortest time of a call
in both, their ratio, and whether the results agree.  Packages that are not installed are left out;
all have their models in their wheels.  Exit status 1 if results differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

HEAD = """
import os, pickle, sys, time
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what the package prints is no answer
if sys.argv[1] == "own":
    import tilesmith as ts
    ts.ort.install()
import numpy as np
from PIL import Image, ImageDraw, ImageFont

def text(words, size=(320, 64)):
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((12, 12), words, "black", font=ImageFont.load_default(32))
    return image
"""

TAIL = """
def send(answer):
    pickle.dump(answer, answers)
    answers.flush()

send(call())
for _ in sys.stdin:  # a line asks for a turn
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    send(min(times))
"""

TURNS, CALLS = 15, 4
"""Turns of each process, and calls in a turn."""

PACKAGES = {
    "magika": """
from magika import Magika
model = Magika()
contents = [b"import os\\nprint(os.name)\\n" * 40, b"<html><body>a</body></html>" * 30,
            b"{\\"a\\": [1, 2, 3]}" * 50, bytes(range(256)) * 16]
call = lambda: [(r.output.label, r.score) for r in map(model.identify_bytes, contents)]
""",
    "silero_vad": """
import torch
from silero_vad import get_speech_timestamps, load_silero_vad
model = load_silero_vad(onnx=True)
t = np.arange(3 * 16000) / 16000
tone = sum(np.sin(2 * np.pi * 120 * k * t) / k for k in range(1, 20))
tone *= np.sin(2 * np.pi * 3 * t) > 0
noise = np.random.default_rng(0).standard_normal(len(t))
sound = torch.from_numpy((0.2 * tone + 0.01 * noise).astype(np.float32))
def call():
    model.reset_states()
    return [float(model(sound[i:i + 512], 16000)) for i in range(0, len(sound) - 512, 512)]
""",
    "rapidocr_onnxruntime": """
from rapidocr_onnxruntime import RapidOCR
model = RapidOCR()
image = np.asarray(text("Tilesmith 2026"))
def call():
    found, _ = model(image)
    return [(w, np.asarray(box).ravel().tolist(), float(score)) for box, w, score in found or []]
""",
    "ddddocr": """
import io
from ddddocr import DdddOcr
model = DdddOcr(show_ad=False)
data = io.BytesIO()
text("k7x2", (120, 60)).save(data, "PNG")
call = lambda: model.classification(data.getvalue())
""",
    "nudenet": """
from nudenet import NudeDetector
model = NudeDetector()
random = np.random.default_rng(0)
image = np.kron(random.integers(0, 255, (20, 20, 3)), np.ones((16, 16, 1))).astype(np.uint8)
def call():
    x = model.onnx_session.get_inputs()[0]
    feed = {x.name: image.transpose(2, 0, 1)[None].astype(np.float32) / 255}
    return [np.asarray(model.detect(image), object).tolist(),
            *(y for y in model.onnx_session.run(None, feed))]
""",
}


@contextmanager
def started(name: str, way: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that calls a package: it sends a result, then the shortest time of each turn."""
    script = HEAD + PACKAGES[name] + f"\nCALLS = {CALLS}\n" + TAIL
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script, way]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def received(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout
    return pickle.load(process.stdout)


def turn(process: subprocess.Popen[bytes]) -> float:
    """The shortest time of a call, in seconds, in one turn."""
    assert process.stdin
    process.stdin.write(b"\n")
    process.stdin.flush()
    return received(process)


def differs(a: Any, b: Any) -> bool:
    """Whether results differ by more than rounding."""
    if isinstance(a, (list, tuple)):
        return len(a) != len(b) or any(map(differs, a, b))
    if isinstance(a, (float, np.ndarray)):
        scale = max(1.0, float(np.abs(a).max(initial=0) if isinstance(a, np.ndarray) else abs(a)))
        return not np.allclose(a, b, rtol=1e-3, atol=1e-3 * scale)
    return bool(a != b)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[*PACKAGES])
    failed = 0
    for name in parser.parse_args().names:
        if importlib.util.find_spec(name) is None:
            print(f"{name:22} is not installed")
            continue
        with started(name, "plain") as without, started(name, "own") as with_:
            alone, ours = received(without), received(with_)
            pairs = [(turn(without), turn(with_)) for _ in range(TURNS)]
        plain, own = map(min, zip(*pairs, strict=True))
        wrong = differs(alone, ours)
        failed += wrong
        verdict = "results differ" if wrong else "same results"
        print(f"{name:22} {plain * 1e3:8.2f} ms {own * 1e3:8.2f} ms {own / plain:6.2f} {verdict}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
