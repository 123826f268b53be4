"""Samples of PyTorch's operators, and what becomes of them when they are compiled."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tilesmith as ts
from tilesmith.frontend.torch.capture import captured

UNORDERED = ("topk", "sort", "argsort", "msort", "kthvalue", "median", "nanmedian")
"""Operators whose last result holds positions, of which equal elements may have any."""

UNINITIALISED = (
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
)  # fmt: skip
"""Operators whose results hold what was in memory before."""

PASSED, REFUSED, WRONG, CRASHED = "passed", "refused", "wrong", "crashed"
NOT_EXPORTED, SHAPED, RANDOM = "no export", "shaped", "random"
APART = {
    NOT_EXPORTED: "that eager mode or `torch.export` refuses",
    SHAPED: "with uninitialised results, of which shape and type agree",
    RANDOM: "that draw random numbers and are refused",
}
"""Outcomes that are counted apart."""

BEYOND = """
H T __radd__ __rand__ __rdiv__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rsub__ __rxor__
addbmm addcdiv addcmul addmv addr alias_copy all allclose aminmax argsort argwhere
as_strided_copy as_strided_scatter atleast_2d baddbmm bernoulli bitwise_left_shift
bitwise_right_shift block_diag bool broadcast_tensors broadcast_to bucketize byte cdist chunk
clamp_max clamp_min column_stack contiguous copysign count_nonzero cross cummax cummin cumprod
deg2rad diag diag_embed diagflat diagonal_copy diagonal_scatter diff dist dot double dsplit
dstack einsum empty_like empty_permuted equal erfc exp2 expand_as expand_copy eye fft.fft
fft.fft2 fft.fftn fft.fftshift fft.hfft fft.ifft fft.irfft fft.irfft2 fft.irfftn fft.rfft
fft.rfft2 fft.rfftn flatten fliplr flipud float float_power floor_divide fmax fmin frac
grid_sampler_3d half heaviside hsplit hstack hypot index_add index_copy index_fill
index_reduce.amax index_reduce.amin index_reduce.mean index_reduce.prod inner int isclose
isfinite isin isneginf isposinf item kron kthvalue ldexp lerp lgamma linalg.cholesky
linalg.cross linalg.det linalg.inv linalg.matrix_norm linalg.matrix_power linalg.multi_dot
linalg.norm linalg.solve linalg.vander linalg.vecdot linalg.vector_norm linspace log_softmax
log_softmax.with_dtype logaddexp logaddexp2 logcumsumexp logit logspace logsumexp long mH mT
masked.amax masked.amin masked.argmax masked.argmin masked.cumprod masked.cumsum
masked.log_softmax masked.logsumexp masked.mean masked.norm masked.normalize masked.prod
masked.softmax masked.std masked.sum masked.var masked_fill masked_select matmul median
meshgrid.list_of_tensors meshgrid.variadic_tensors movedim msort multinomial mv nan_to_num
nanmean nanmedian nansum narrow native_batch_norm new_empty new_empty_strided new_full new_ones
new_zeros nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d
nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
nn.functional.adaptive_max_pool3d nn.functional.batch_norm nn.functional.bilinear
nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
nn.functional.celu nn.functional.channel_shuffle nn.functional.conv1d nn.functional.conv2d
nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
nn.functional.conv_transpose3d nn.functional.cosine_similarity nn.functional.cross_entropy
nn.functional.dropout nn.functional.dropout2d nn.functional.embedding_bag
nn.functional.feature_alpha_dropout.without_train nn.functional.gaussian_nll_loss
nn.functional.glu nn.functional.grid_sample nn.functional.group_norm nn.functional.hardshrink
nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hinge_embedding_loss
nn.functional.huber_loss nn.functional.instance_norm nn.functional.interpolate.area
nn.functional.interpolate.bicubic nn.functional.interpolate.bilinear
nn.functional.interpolate.linear nn.functional.interpolate.nearest
nn.functional.interpolate.nearest-exact nn.functional.interpolate.trilinear nn.functional.kl_div
nn.functional.l1_loss nn.functional.layer_norm nn.functional.linear
nn.functional.local_response_norm nn.functional.logsigmoid nn.functional.margin_ranking_loss
nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d
nn.functional.max_unpool1d nn.functional.max_unpool2d nn.functional.max_unpool3d
nn.functional.mish nn.functional.mse_loss nn.functional.multi_head_attention_forward
nn.functional.nll_loss nn.functional.normalize nn.functional.one_hot nn.functional.pad.circular
nn.functional.pad.reflect nn.functional.pad.replicate nn.functional.pad.replicate_negative
nn.functional.pairwise_distance nn.functional.pdist nn.functional.pixel_shuffle
nn.functional.pixel_unshuffle nn.functional.poisson_nll_loss nn.functional.prelu
nn.functional.relu6 nn.functional.rms_norm nn.functional.scaled_dot_product_attention
nn.functional.selu nn.functional.silu nn.functional.smooth_l1_loss
nn.functional.soft_margin_loss nn.functional.softmin nn.functional.softplus
nn.functional.softshrink nn.functional.softsign nn.functional.tanhshrink nn.functional.threshold
nn.functional.triplet_margin_loss nn.functional.unfold nn.functional.upsample_bilinear
nn.functional.upsample_nearest nonzero_static norm norm.fro norm.inf normal ones ones_like outer
permute_copy put quantile rad2deg rand_like randint randn_like ravel remainder repeat_interleave
reshape resize_ roll rot90 rsub searchsorted sgn signbit sinc softmax softmax.with_dtype
special.entr special.log_ndtr special.ndtr special.xlog1py split split.list_args
split_with_sizes_copy square squeeze_copy stack std std.unbiased std_mean stft sum_to_size t
t_copy take take_along_dim tensor_split tensordot tile to topk
torch.ops.aten._safe_softmax.default trace transpose transpose_copy trapezoid tril tril_indices
triu triu_indices true_divide unbind unbind_copy unflatten unfold unfold_copy uniform unique
unique_consecutive unsafe_split unsqueeze_copy var_mean vdot view_as view_copy vsplit vstack
xlogy zeros zeros_like
"""
"""Entries of OpInfo, with variants, that are run beside those named as operators of core ATen."""


@dataclass(frozen=True)
class Result:
    """What became of an operator's samples.

    name: the operator's name in OpInfo, with its variant.
    counts: how many samples passed, were refused, and so on.
    reason: of the first that did not pass.
    overloads: of ATen, in the programs of the samples.
    """

    name: str
    counts: dict[str, int]
    reason: str = ""
    overloads: frozenset[str] = field(default=frozenset(), repr=False)

    @staticmethod
    def died(key: tuple[str, str], reason: str) -> Result:
        """An entry whose process ended."""
        return Result(shown_name(*key), {CRASHED: 1}, reason)


def shown_name(name: str, variant: str) -> str:
    """The name of an entry with its variant."""
    return ".".join(filter(None, (name, variant)))


@dataclass(frozen=True)
class Outcome:
    """What became of one sample.

    kind: one of the names above.
    reason: why it did not pass.
    overloads: of ATen, in its program.
    """

    kind: str
    reason: str = ""
    overloads: frozenset[str] = frozenset()


def _core_names() -> set[str]:
    """The names of core ATen's operators, without overloads."""
    import torch

    aten = torch.ops.aten
    packets = {name: getattr(aten, name) for name in dir(aten)}
    return {
        name
        for name, p in packets.items()
        if hasattr(p, "overloads")
        and any(torch.Tag.core in getattr(p, o).tags for o in p.overloads())
    }


def entries(wanted: Sequence[str] = (), beyond: bool = True) -> list[tuple[str, str]]:
    """Names and variants in OpInfo: of core ATen and `BEYOND`, or the wanted ones.

    beyond: whether those of `BEYOND` are among them.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    core, more = _core_names(), {*BEYOND.split()} if beyond else set[str]()
    found = []
    for info in op_db:
        full = shown_name(info.name, info.variant_test_name)
        aten = {info.aten_name, info.name, info.name.removeprefix("nn.functional.")}
        if {full, info.name} & {*wanted} if wanted else aten & core or full in more:
            found.append((info.name, info.variant_test_name))
    return found


def run(name: str, variant: str, most: int) -> Result:
    """The samples of one entry in this process.

    most: samples for each type; 0: all.
    """
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    (info,) = (i for i in op_db if (i.name, i.variant_test_name) == (name, variant))
    counts: Counter[str] = Counter()
    reason, overloads = "", frozenset[str]()
    supported = info.supported_dtypes("cpu")
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype not in supported:
            continue
        samples = info.sample_inputs("cpu", dtype, requires_grad=False)
        for outcome in _judged(info, list(itertools.islice(samples, most or None))):
            counts[outcome.kind] += 1
            overloads |= outcome.overloads
            if outcome.kind != PASSED and outcome.kind not in APART and not reason:
                reason = f"{dtype}: {outcome.reason}"
    shown = shown_name(name, variant)
    return Result(shown, dict(counts), " ".join(reason.split())[:300], overloads)


def _judged(info: Any, samples: Sequence[Any]) -> list[Outcome]:
    """What becomes of samples: together, or else one by one."""
    if len(samples) > 1:
        together = _outcomes(info, samples)
        if all(o.kind in (PASSED, SHAPED) for o in together):
            return together
    return [o for s in samples for o in _outcomes(info, [s])]


def _outcomes(info: Any, samples: Sequence[Any]) -> list[Outcome]:
    """What becomes of samples that are one program."""
    import torch

    pytree: Any = vars(torch.utils)["_pytree"]
    leaves, spec = pytree.tree_flatten([((s.input, *s.args), s.kwargs) for s in samples])
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            filled = list(leaves)
            for i, t in zip(places, tensors, strict=True):
                filled[i] = t
            calls = pytree.tree_unflatten(filled, spec)
            return [info.op(*args, **kwargs) for args, kwargs in calls]

    tensors = tuple(leaves[i].detach().clone() for i in places)
    try:
        wanted = Module()(*(t.clone() for t in tensors))
        program = captured(Module(), tensors, None)
    except Exception as e:  # eager or the exporter refuses a sample
        return [Outcome(NOT_EXPORTED, str(e))] * len(samples)
    targets = {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}
    overloads = frozenset(map(str, targets))
    try:
        exe = ts.compile(program, threads=1, fallback="error", options=ts.Options(opt_level=1))
        found = exe(*tensors)
    except ts.TilesmithError as e:
        is_random = any(torch.Tag.nondeterministic_seeded in t.tags for t in targets)
        return [Outcome(RANDOM if is_random else REFUSED, str(e), overloads)] * len(samples)
    except Exception as e:  # a defect
        return [Outcome(CRASHED, f"{type(e).__name__}: {e}", overloads)] * len(samples)
    return [_compared(info, *pair, overloads) for pair in zip(found, wanted, strict=True)]


def _compared(info: Any, found: Any, wanted: Any, overloads: frozenset[str]) -> Outcome:
    import torch

    if info.name in UNINITIALISED:
        is_same = (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        kinds = f"expected {wanted.dtype} {wanted.shape}, found {found.dtype} {found.shape}"
        return Outcome(SHAPED if is_same else WRONG, "" if is_same else kinds, overloads)
    if isinstance(wanted, bool):  # a result that is no tensor is a number of the program's
        found = bool(found)
    if info.name in UNORDERED and isinstance(wanted, tuple):
        found, wanted = found[:-1], wanted[:-1]
    try:
        torch.testing.assert_close(found, wanted, equal_nan=True)
    except AssertionError as e:
        return Outcome(WRONG, str(e), overloads)
    return Outcome(PASSED, "", overloads)
