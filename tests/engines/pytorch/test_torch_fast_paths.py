"""Operators of PyTorch that stand for whole layers, and those that data give sizes or types."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from roads import Module, check, compiled  # noqa: E402

from tilesmith.support.errors import ModelError  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


class Attention(nn.Module):
    """Self-attention with its weights; of masks of tokens or of padding."""

    def __init__(self, average=True):
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)
        self.average = average

    def forward(self, x, mask=None, padding=None):
        return self.layer(
            x, x, x, attn_mask=mask, key_padding_mask=padding, average_attn_weights=self.average
        )


HIDDEN = ~torch.ones(5, 5, dtype=torch.bool).tril()
PADDING = torch.arange(5)[None] >= torch.tensor([[5], [2]])


@pytest.mark.parametrize(
    ("road", "masks"), [("trace", ()), ("trace", (HIDDEN, PADDING)), ("backend", (HIDDEN,))]
)
def test_fast_path_of_attention(road, masks, tmp_path):
    torch.manual_seed(0)
    args = (torch.randn(2, 5, 8), *masks)
    check(road, Attention(average=len(masks) < 2).eval(), args, tmp_path)


@pytest.mark.parametrize(("road", "norm_first"), [("trace", False), ("backend", True)])
def test_fast_path_of_an_encoder(road, norm_first, tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        8,
        2,
        16,
        batch_first=True,
        norm_first=norm_first,
        activation="gelu" if norm_first else "relu",
    )
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    check(road, encoder, (torch.randn(2, 5, 8),), tmp_path)


def as_other_types(x):
    halves = x.view(torch.int16)
    return (
        x.view(torch.int32),
        halves,
        halves.view(torch.float32) + 1,
        x.view(torch.uint8).view(torch.int64),
        (x > 0).view(torch.int8),
    )


@pytest.mark.parametrize("road", ["archive", "backend"])
def test_bits_as_other_types(road, tmp_path):
    torch.manual_seed(0)
    check(road, Module(as_other_types), (torch.randn(3, 4),), tmp_path)


def test_rows_repeated_as_data_say(tmp_path):
    args = torch.randn(3, 2), torch.tensor([2, 0, 3])
    module = Module(lambda x, counts: x.repeat_interleave(counts, 0))
    for road in ("module", "archive"):
        exe = compiled(road, module, args, tmp_path)
        for counts in ([2, 0, 3], [0, 0, 0], [1, 7, 1]):
            given = args[0], torch.tensor(counts)
            torch.testing.assert_close(torch.as_tensor(exe(*given)), module(*given))
        with pytest.raises(ModelError):
            exe(args[0], torch.tensor([2, -1, 3]))


def test_reductions_of_segments(tmp_path):
    torch.manual_seed(0)
    module = Module(
        lambda x, counts: [
            torch.segment_reduce(x, kind, **told, initial=initial)
            for told in ({"lengths": counts}, {"offsets": torch.tensor([0, 2, 2, 5])})
            for kind in ("sum", "mean", "max", "min", "prod")
            for initial in (None, 2.0)
        ]
    )
    args = torch.randn(5, 2), torch.tensor([2, 0, 3])
    check("module", module, args, tmp_path)
    exe = compiled("module", module, args, tmp_path)
    with pytest.raises(ModelError):
        exe(args[0], torch.tensor([2, 0, 4]))
