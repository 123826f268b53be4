#!/usr/bin/env python3
"""Models of torchvision and transformers through `ts.compile(module, example_inputs)` and
`torch.compile(module, backend="tilesmith")`:
`python -m benchmarks.torch_models [NAME ...]`.

`--help` lists the names.  Weights are random.  Each model is compiled in a process of its own, and
its results are compared with eager's: the largest difference relative to the largest magnitude.
Exit status 1 where one is refused, crashes or differs by more than `CLOSE`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # the other modules, however this one is found

import children
import tilesmith as ts

CLOSE = 1e-3
SECONDS, MEMORY = 400.0, 12 << 30

VISION = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet",
    "inception_v3", "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small",
    "regnet_y_400mf", "resnet18", "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1",
    "swin_t", "swin_v2_t", "vgg11", "vit_b_32", "wide_resnet50_2",
)  # fmt: skip
"""A small member of each family of torchvision's classifiers."""

Made = tuple[Any, dict[str, Any]]


def vision(name: str) -> Made:
    import torch
    import torchvision

    given = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = getattr(torchvision.models, name)(weights=None, **given).eval()
    side = 299 if name == "inception_v3" else 224
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
        if isinstance(module, torch.nn.Linear) and not module.weight.any():
            torch.nn.init.normal_(module.weight, std=0.02)  # zeros would hide what is wrong
    with torch.no_grad():  # statistics of the layers as they are, so that nothing fades away
        model.train()(torch.randn(4, 3, side, side))
    model.eval()
    return model, {"x": torch.randn(1, 3, side, side)}


def _ids(**shapes: int) -> dict[str, Any]:
    import torch

    return {name: torch.randint(1, 90, (1, n)) for name, n in shapes.items()}


def text(kind: str, **settings: Any) -> Made:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**settings)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    config.use_cache = False
    config.return_dict = False
    return model, _ids(input_ids=16)


def t5() -> Made:
    import transformers

    config = transformers.T5Config(
        vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, use_cache=False
    )
    model = transformers.T5Model(config).eval()
    config.return_dict = False
    return model, _ids(input_ids=16, decoder_input_ids=8)


def images(kind: str, **settings: Any) -> Made:
    import torch
    import transformers

    config = getattr(transformers, f"{kind}Config")(image_size=224, **settings)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    return model, {"pixel_values": torch.randn(1, 3, 224, 224)}


def whisper() -> Made:
    import torch
    import transformers

    config = transformers.WhisperConfig(
        d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=128, vocab_size=100,
        pad_token_id=0, bos_token_id=1, eos_token_id=1, decoder_start_token_id=1,
    )  # fmt: skip
    model = transformers.WhisperModel(config).encoder.eval()
    config.return_dict = False
    return model, {"input_features": torch.randn(1, 80, 3000)}


_SMALL = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_WIDE = {**_SMALL, "intermediate_size": 128}
MODELS: dict[str, Callable[[], Made]] = {
    **{name: partial(vision, name) for name in VISION},
    "bert": partial(text, "Bert", **_WIDE),
    "distilbert": partial(
        text, "DistilBert", vocab_size=100, dim=64, hidden_dim=128, n_layers=2, n_heads=4
    ),
    "gpt2": partial(text, "GPT2", vocab_size=100, n_embd=64, n_layer=2, n_head=4),
    "llama": partial(text, "Llama", **_WIDE, num_key_value_heads=2),
    "t5": t5,
    "hf_vit": partial(images, "ViT", **{k: v for k, v in _WIDE.items() if k != "vocab_size"}),
    "hf_swin": partial(images, "Swin", embed_dim=24, depths=[2, 2], num_heads=[2, 4]),
    "whisper_encoder": whisper,
}


Found = dict[str, tuple[float, float]]
"""By road, the difference from eager mode, and the seconds of compiling or of the first call."""


def run(name: str) -> Found:
    import torch

    from zoo import without_compiled_torchvision_ops

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    with without_compiled_torchvision_ops():
        import torchvision  # noqa: F401  (transformers imports it too)
    model, inputs = MODELS[name]()
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(model(**inputs))
        start = time.perf_counter()
        exe = ts.compile(model, inputs, fallback="error")
        seconds = time.perf_counter() - start
        found = {"ts.compile": (_difference(exe(**inputs), wanted), seconds)}
        compiled = torch.compile(model, backend=ts.torch.backend, options={"fallback": "error"})
        start = time.perf_counter()
        results = compiled(**inputs)
        seconds = time.perf_counter() - start
        found["torch.compile"] = (_difference(results, wanted), seconds)
    return found


def _difference(found: Any, wanted: list[Any]) -> float:
    """The largest difference relative to the largest magnitude of a result."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(found)
    pairs = [(f, w) for f, w in zip(leaves, wanted, strict=True) if isinstance(w, torch.Tensor)]
    return max(float((f - w).abs().max() / w.abs().max()) for f, w in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"Models: {', '.join(MODELS)}.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model; all by default")
    names = parser.parse_args().names or [*MODELS]
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        parser.error(f"no model is called {', '.join(unknown)}; expected {', '.join(MODELS)}")
    bad = 0
    for name, found in zip(names, children.each(names, run, SECONDS, MEMORY), strict=True):
        if isinstance(found, children.Died):
            bad += 1
            print(f"{name}: {' '.join(found.reason.split())[:400]}", flush=True)
            continue
        bad += not all(error <= CLOSE for error, _ in found.values())
        for road, (error, seconds) in found.items():
            print(
                f"{name}, {road}: difference {error:.1e}, compiled in {seconds:.1f} s", flush=True
            )
    print(f"{len(names) - bad} of {len(names)} models agree with eager mode")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
