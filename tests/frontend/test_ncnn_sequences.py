"""ncnn's recurrent layers and attention equal PyTorch's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tilesmith.frontend.load import load
from tilesmith.graph.evaluate import evaluate
from tilesmith.support.errors import ModelError, UnsupportedError
from written_models.ncnn import written

STEPS, WIDTH, SIZE = 7, 5, 6
PLAIN = b"\0\0\0\0"
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((STEPS, WIDTH)).astype(np.float32)
INPUT = f"Input data 0 1 data 0={WIDTH} 1={STEPS}"
MODULES = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "RNN": torch.nn.RNN}
ORDERS = {"LSTM": (0, 1, 3, 2), "GRU": (0, 1, 2), "RNN": (0,)}


def stored(module: torch.nn.RNNBase, kind: str) -> bytes:
    """The weights of a layer as ncnn's files have them: by kind, then by direction."""
    ways = ["", "_reverse"] if module.bidirectional else [""]
    content = b""
    for name in ("weight_ih", "bias", "weight_hh", "weight_hr"):
        parts = []
        for way in ways:
            if name == "bias":
                first, last = (getattr(module, f"bias_{x}h_l0{way}").detach() for x in "ih")
                gates = (first + (0 if kind == "GRU" else last)).reshape(len(ORDERS[kind]), -1)
                parts.append(gates.numpy()[list(ORDERS[kind])])
                if kind == "GRU":
                    parts[-1][:2] += last.reshape(3, -1).numpy()[:2]
                    parts.append(last.reshape(3, -1).numpy()[2:])
            elif hasattr(module, f"{name}_l0{way}"):
                matrix = getattr(module, f"{name}_l0{way}").detach().numpy()
                if name != "weight_hr":
                    matrix = matrix.reshape(len(ORDERS[kind]), -1)[list(ORDERS[kind])]
                parts.append(matrix)
        content += PLAIN + b"".join(p.tobytes() for p in parts) if parts else b""
    return content


def run(path: Path, *arrays: np.ndarray) -> dict[str, np.ndarray]:
    return evaluate(load(path), list(arrays))


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("way", [0, 1, 2])
def test_recurrent_layers_in_all_directions(tmp_path: Path, kind: str, way: int) -> None:
    torch.manual_seed(0)
    module = MODULES[kind](WIDTH, SIZE, bidirectional=way == 2)
    path = written(
        tmp_path, INPUT, f"{kind} y 1 1 data y 0={SIZE} 1=1 2={way}", weights=stored(module, kind)
    )
    x = torch.from_numpy(X if way != 1 else X[::-1].copy())
    wanted = module(x)[0].detach().numpy()
    wanted = wanted if way != 1 else wanted[::-1]
    np.testing.assert_allclose(run(path, X)["y"], wanted, rtol=1e-5, atol=1e-6)


def test_states_and_projection_of_an_lstm(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.LSTM(WIDTH, 8, proj_size=SIZE)
    h, c = (RANDOM.standard_normal((1, n)).astype(np.float32) for n in (SIZE, 8))
    states = f"Input h 0 1 h 0={SIZE} 1=1", "Input c 0 1 c 0=8 1=1"
    layer = f"LSTM y 3 3 data h c y h1 c1 0={SIZE} 1=1 2=0 3=8"
    path = written(tmp_path, INPUT, *states, layer, weights=stored(module, "LSTM"))
    found = run(path, X, h, c)
    y, (h1, c1) = module(*map(torch.from_numpy, (X,)), (torch.from_numpy(h), torch.from_numpy(c)))
    for name, wanted in (("y", y), ("h1", h1), ("c1", c1)):
        np.testing.assert_allclose(found[name], wanted.detach(), rtol=1e-5, atol=1e-6)


def test_attention_with_projections_and_a_mask(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(8, 2, kdim=6, vdim=10)
    q, k, v, mask = (
        RANDOM.standard_normal(s).astype(np.float32) for s in ((STEPS, 8), (4, 6), (4, 10), (7, 4))
    )
    biases = module.in_proj_bias.detach().numpy().reshape(3, 8)
    weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    out = module.out_proj
    pairs = [*zip(weights, biases, strict=True), (out.weight, out.bias.detach().numpy())]
    content = b"".join(PLAIN + w.detach().numpy().tobytes() + b.tobytes() for w, b in pairs)
    inputs = (
        f"Input {n} 0 1 {n} 0={a.shape[1]} 1={a.shape[0]}"
        for n, a in (("q", q), ("k", k), ("v", v), ("m", mask))
    )
    layer = "MultiHeadAttention y 4 1 q k v m y 0=8 1=2 2=64 3=6 4=10 5=1"
    path = written(tmp_path, *inputs, layer, weights=content)
    arguments = map(torch.from_numpy, (q, k, v))
    wanted = module(*arguments, attn_mask=torch.from_numpy(mask))[0].detach().numpy()
    np.testing.assert_allclose(run(path, q, k, v, mask)["y"], wanted, rtol=1e-5, atol=1e-6)


def test_attention_of_groups_of_heads(tmp_path: Path) -> None:
    shapes = {"q": (4, 7, 8), "k": (2, 5, 8), "v": (2, 5, 3)}
    arrays = {n: RANDOM.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    inputs = (f"Input {n} 0 1 {n} 0={s[2]} 1={s[1]} 2={s[0]}" for n, s in shapes.items())
    path = written(tmp_path, *inputs, "SDPA y 3 1 q k v y")
    tensors = map(torch.from_numpy, arrays.values())
    wanted = torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=True).numpy()
    np.testing.assert_allclose(run(path, *arrays.values())["y"], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layer, error, message",
    [
        ("LSTM y 1 1 data y 0=6 1=1 2=3", ModelError, "direction: expected 0 to 2, found 3"),
        ("LSTM y 1 1 data y 0=6 1=1 8=2", UnsupportedError, "int8 weights"),
        ("GRU y 1 1 data y 0=6 1=1", ModelError, "bytes from byte"),
        ("MultiHeadAttention y 1 1 data y 0=5 1=2", ModelError, "a multiple of 2 heads, found 5"),
        ("MultiHeadAttention y 1 1 data y 0=5 7=1", UnsupportedError, "cached keys"),
        ("SDPA y 1 1 data y 7=1", UnsupportedError, "cached keys"),
    ],
)
def test_refusals(tmp_path: Path, layer: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        load(written(tmp_path, INPUT, layer, weights=PLAIN + bytes(400)))
