"""Published packages that make ONNX Runtime's sessions themselves, with and without our provider.

    python -m benchmarks.packages [NAME ...]

Each package runs in two new processes, one of which begins with two more lines (`ts.ort.install`).
A row has the shortest time of a call in both, and whether the results agree.  Packages that are not
installed are left out; all have their models in their wheels.  Exit status 1 if results differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HEAD = """
import sys
import pickle, time
if sys.argv[2] == "own":
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
result = call()
times = []
for _ in range(20):
    begin = time.perf_counter()
    call()
    times.append(time.perf_counter() - begin)
with open(sys.argv[1], "wb") as f:
    pickle.dump((result, min(times)), f)
"""

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


def outcome(name: str, way: str) -> tuple[Any, float]:
    """The result of a call of a package, and its shortest time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcome"
        script = HEAD + PACKAGES[name] + TAIL
        subprocess.run([sys.executable, "-c", script, str(path), way], check=True)
        return pickle.loads(path.read_bytes())


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
        alone, plain = outcome(name, "plain")
        ours, own = outcome(name, "own")
        wrong = differs(alone, ours)
        failed += wrong
        verdict = "results differ" if wrong else "same results"
        print(f"{name:22} {plain * 1e3:8.2f} ms {own * 1e3:8.2f} ms {own / plain:6.2f} {verdict}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
