"""Operators and their gradients that Dynamo's backend compiles whole, beside eager mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import tilesmith  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


IMAGES, VOLUMES = drawn(2, 3, 8, 7), drawn(1, 2, 5, 6, 7)
MATRICES = drawn(2, 4, 4) + 4 * torch.eye(4)
TABLE = drawn(6, 4)
PLACES, BEGINS = torch.tensor([3, 1, 3, 0, 5, 3, 1]), torch.tensor([0, 2, 2, 6])
ENDS = torch.tensor([0, 2, 2, 6, 7])
EVEN = torch.arange(24).view(4, 6) % 2 == 0

CASES = {
    "lgamma": (torch.lgamma, drawn(4, 6).abs() + 0.1),
    "digamma": (torch.digamma, drawn(4, 6).abs() + 0.1),
    "i0": (torch.i0, drawn(4, 6)),
    "i1e": (torch.special.i1e, drawn(4, 6)),
    "rrelu": (lambda x: F.rrelu(x, training=False), drawn(4, 6)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), drawn(4, 6)),
    "mode": (lambda x: x.mode(1).values, drawn(4, 9).round()),
    "masked_scatter": (lambda x, y: x.masked_scatter(EVEN, y), drawn(4, 6), drawn(3, 6)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), VOLUMES),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 2)), VOLUMES),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False), VOLUMES),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGES),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), IMAGES),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), VOLUMES),
    "mean_of_volumes": (lambda x: F.adaptive_avg_pool3d(x, 1), VOLUMES),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3), drawn(2, 6, 5, 5)),
    "replicate": (lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"), IMAGES),
    "replicate_less": (lambda x: F.pad(x, (-1, 2, 3, -2), mode="replicate"), IMAGES),
    "replicate_one": (lambda x: F.pad(x, (3, 2), mode="replicate"), drawn(2, 3, 1)),
    "replicate_volume": (lambda x: F.pad(x, (1, 0, 2, 1, 0, 3), mode="replicate"), VOLUMES),
    "circular": (lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"), IMAGES),
    "erfinv": (torch.erfinv, drawn(4, 6).tanh()),
    **{
        f"cdist_{p}": (lambda x, y, p=p: torch.cdist(x, y, p=p), drawn(2, 5, 3), drawn(7, 3))
        for p in (0.5, 1.0, 2.0, 3.0, float("inf"))
    },
    "cdist_of_equal_rows": (
        lambda x: torch.cdist(torch.cat([x, x[:2]]), x.detach()), drawn(5, 3),
    ),
    "bags_sum": (lambda w: F.embedding_bag(PLACES, w, BEGINS, mode="sum"), TABLE),
    "bags_mean": (lambda w: F.embedding_bag(PLACES, w, BEGINS, mode="mean"), TABLE),
    "bags_max": (lambda w: F.embedding_bag(PLACES, w, BEGINS, mode="max"), TABLE),
    "bags_padding": (
        lambda w: F.embedding_bag(PLACES, w, BEGINS, mode="mean", padding_idx=3), TABLE,
    ),
    "bags_to_the_end": (
        lambda w: F.embedding_bag(PLACES, w, ENDS, mode="sum", include_last_offset=True), TABLE,
    ),
    "bags_weighted": (
        lambda w, s: F.embedding_bag(PLACES, w, BEGINS, mode="sum", per_sample_weights=s),
        TABLE, drawn(7),
    ),
    "antialias": (
        lambda x: F.interpolate(x, size=(5, 9), mode="bilinear", antialias=True), IMAGES,
    ),
    "antialias_factor": (
        lambda x: F.interpolate(x, scale_factor=0.6, mode="bicubic", antialias=True), IMAGES,
    ),
    "antialias_corners": (
        lambda x: F.interpolate(x, (4, 5), mode="bilinear", antialias=True, align_corners=True),
        IMAGES,
    ),
}  # fmt: skip


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="tilesmith", options={"fallback": "error"})


def gradients(function, operands):
    given = [t.clone().requires_grad_() for t in operands]
    found = function(*given)
    weights = torch.linspace(0.5, 1.5, found.numel()).view(found.shape)
    return found.detach(), torch.autograd.grad((found * weights).sum(), given)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_and_its_gradients_are_compiled(name):
    function, *operands = CASES[name]
    wanted = gradients(function, operands)
    torch.testing.assert_close(
        gradients(compiled(function), operands), wanted, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("function", "operand"),
    [
        (torch.linalg.det, MATRICES),
        (lambda x: torch.histc(x, 5, -1.0, 1.5), drawn(100)),
        (lambda x: torch.histc(x, 4, 0.0, 1.0), torch.tensor([0.0, 0.25, 0.5, 1.0, 1.5, -0.1])),
        (lambda x: x.mode(0), torch.tensor([[3, 1], [3, 2], [1, 2], [1, 1], [0, 5]])),
        (lambda x: x.mode(1, keepdim=True), torch.tensor([[3, 1, 3], [7, 7, 1]])),
        (lambda x: x.mode(), torch.tensor([True, False, True])),
        (lambda x: x.logcumsumexp(0), torch.tensor([-torch.inf, -torch.inf, 1.0, 200.0, 1e38])),
        (lambda x: x.logcumsumexp(0), torch.tensor([1.0, torch.inf, torch.inf, -torch.inf])),
        (lambda x: x.logcumsumexp(0), torch.tensor([1.0, torch.nan, 2.0])),
    ],
)
def test_an_operator_is_compiled(function, operand):
    wanted = function(operand)
    found = compiled(function)(operand)
    torch.testing.assert_close(tuple(found), tuple(wanted), equal_nan=True, rtol=1e-5, atol=1e-5)


class Smaller(torch.nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.how = how

    def forward(self, x):
        return F.interpolate(x, antialias=True, **self.how)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("how", [{"size": (12, 3)}, {"scale_factor": (1.3, 0.4)}])
@pytest.mark.parametrize("align_corners", [False, True])
def test_antialiased_images_of_a_module(mode, how, align_corners):
    module = Smaller(mode=mode, align_corners=align_corners, **how)
    found = tilesmith.compile(module, (IMAGES,), threads=1)(IMAGES)
    torch.testing.assert_close(found, module(IMAGES), rtol=1e-4, atol=1e-5)


def test_antialiased_images_of_integers_are_refused():
    image = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    with pytest.raises(tilesmith.UnsupportedError, match="floats, found u8"):
        tilesmith.compile(Smaller(mode="bilinear", size=(4, 4)), (image,), threads=1)


def test_a_determinant_of_a_module():
    class Of(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.det(x), x.det()

    found = tilesmith.compile(Of(), (MATRICES,), threads=1)(MATRICES)
    torch.testing.assert_close(found, Of()(MATRICES))


DEPTHWISE = {
    "one_sample": ((1, 24, 9, 7), 24, (3, 3), {"padding": 1}),
    "stride": ((8, 40, 11, 12), 40, (3, 3), {"padding": 1, "stride": 2}),
    "strides": ((3, 17, 10, 15), 17, (5, 3), {"padding": (2, 0), "stride": (1, 2)}),
    "five": ((8, 16, 7, 7), 16, (5, 5), {"padding": 2}),
    "dilation": ((2, 32, 13, 11), 32, (3, 3), {"padding": (1, 2), "dilation": 2}),
    "dilated_strides": ((8, 19, 16, 16), 19, (3, 5), {"stride": 3, "dilation": (1, 2)}),
    "pixels_in_no_window": ((2, 48, 8, 8), 48, (3, 3), {"stride": 3}),
    "two_filters_each": ((4, 20, 9, 9), 40, (3, 3), {"padding": 1, "stride": 2}),
    "sequence": ((4, 33, 21), 33, (4,), {"padding": 3}),
    "volume": ((2, 18, 5, 6, 7), 18, (3, 3, 2), {"padding": 1, "stride": (1, 2, 1)}),
}


@pytest.mark.parametrize("name", DEPTHWISE)
def test_gradients_of_a_depthwise_convolution(name):
    shape, filters, kernel, how = DEPTHWISE[name]
    function = (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 1]
    operands = drawn(*shape), drawn(filters, 1, *kernel), drawn(filters)
    wanted = gradients(lambda *t: function(*t, groups=shape[1], **how), operands)
    found = gradients(compiled(lambda *t: function(*t, groups=shape[1], **how)), operands)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("filters", [6, 12])
def test_gradients_of_a_transposed_depthwise_convolution(filters):
    operands = drawn(3, 6, 7, 6), drawn(6, filters // 6, 3, 3)
    how = {"groups": 6, "stride": 2, "padding": 1}
    wanted = gradients(lambda x, w: F.conv_transpose2d(x, w, **how), operands)
    found = gradients(compiled(lambda x, w: F.conv_transpose2d(x, w, **how)), operands)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
