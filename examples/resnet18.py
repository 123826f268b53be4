"""ResNet-18 of torchvision through TorchScript: traced, saved, compiled, run, compared.

    python examples/resnet18.py                 # random weights, nothing is downloaded
    python examples/resnet18.py --pretrained    # torchvision downloads the weights
    python examples/resnet18.py --image cat.jpg --pretrained

Both programs get the same image, and their best classes are compared.  Times are of calls alone:
the model is compiled and called before, and rounds of both take turns, so that both meet the same
state of the machine.  The least round counts.

New code compiles the module itself, `ts.compile(model, (x,))`: PyTorch no longer develops
TorchScript.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tilesmith as ts

ROUNDS, CALLS = 10, 10


def seconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Wall-clock seconds of one call of each function: of the least of `ROUNDS` rounds."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():  # warm-up
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / CALLS)
    return best


def compared(model: Any, x: torch.Tensor, threads: int) -> tuple[int, int, dict[str, float]]:
    """The best class by PyTorch and by Tilesmith, and the seconds that each takes."""
    torch.set_num_threads(threads)
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        torch.jit.save(torch.jit.trace(model, x), path)
        exe = ts.compile(path, (x,), threads=threads)
        (name,) = (i.name for i in exe.inputs)
        (found,) = exe.run({name: x}).values()
        times = seconds({"PyTorch": lambda: model(x), "Tilesmith": lambda: exe(x)})
        return int(model(x).argmax()), int(found.argmax()), times


def image(path: Path | None) -> torch.Tensor:
    """An image as ResNet's training saw it, or noise: [1, 3, 224, 224]."""
    if path is None:
        return torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    from PIL import Image
    from torchvision.models import ResNet18_Weights

    return ResNet18_Weights.DEFAULT.transforms()(Image.open(path).convert("RGB"))[None]


def main() -> None:
    import torchvision

    parser = argparse.ArgumentParser(description="ResNet-18 through TorchScript")
    parser.add_argument("--pretrained", action="store_true", help="download trained weights")
    parser.add_argument("--image", type=Path, help="a picture (default: noise)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights="DEFAULT" if args.pretrained else None).eval()
    theirs, ours, times = compared(model, image(args.image), args.threads)
    print(f"best class: PyTorch {theirs}, Tilesmith {ours}")
    for name, found in times.items():
        print(f"{name}: {found * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
