"""What eager mode makes of a program: what is right, how exact that is, whether it is specified.

`Checked` refuses calls whose result PyTorch leaves open.  `Disturbed` rounds what calls compute
otherwise; how far results move says how exact they can be.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .program import Program, Tensors, all_copied

MOST_ELEMENTS = 4096


class Rejected(Exception):
    """A statement is not valid, or its result is not specified."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gives and leaves.

    tensors: by a name that says what it is: outputs, inputs and state after the run, gradients.
    """

    tensors: Tensors


def outcomes(
    program: Program,
    call: Callable[..., Any] | None = None,
    module: torch.nn.Module | None = None,
    mode: Callable[[], Any] | None = None,
) -> list[Outcome]:
    """What each run gives; one module serves all of them.

    call: what is called in the place of the module (default: the module itself).
    module: whose state is looked at (default: a new one).
    mode: makes the context of a run and of its gradients.
    """
    module = program.module() if module is None else module
    call = module if call is None else call
    found = []
    for run in program.runs:
        inputs = all_copied(run)
        module.zero_grad()
        with (
            torch.set_grad_enabled(program.gradients),
            mode() if mode else warnings.catch_warnings(),
        ):
            results = call(*inputs.values())
            if program.gradients:
                backward(results)
        found.append(Outcome(_left(program, results, inputs, module)))
    return found


def backward(results: Any) -> None:
    """Adds gradients of a weighted sum of the results to the leaves behind them."""
    total: Any = 0
    for k, r in enumerate(_several(results)):
        if r.requires_grad:
            weights = torch.linspace(-1, 1 + k, r.numel(), dtype=torch.float64)
            total = total + (r * weights.reshape(r.shape).to(r.dtype)).sum().double()
    if isinstance(total, torch.Tensor):
        total.backward()


def _several(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _left(
    program: Program, results: Any, inputs: Tensors, module: torch.nn.Module
) -> dict[str, torch.Tensor]:
    found: dict[str, Any] = {f"output {i}": r for i, r in enumerate(_several(results))}
    found |= {f"{n} after the run": t for n, t in inputs.items()}
    found |= {f"{n} after the run": t for n, t in module.state_dict().items()}
    if program.gradients:
        leaves = {**inputs, **dict(module.named_parameters())}
        # What nothing depends on has no gradient in eager mode, and 0 in AOTAutograd.
        found |= {
            f"gradient of {n}": torch.zeros_like(t) if t.grad is None else t.grad
            for n, t in leaves.items()
            if t.requires_grad
        }
    return {
        n: t.detach().clone() if isinstance(t, torch.Tensor) else torch.as_tensor(t)
        for n, t in found.items()
    }


class Checked(TorchDispatchMode):
    """Raises Rejected for calls whose result is not specified, and for large results."""

    def __init__(self) -> None:
        super().__init__()
        self._whole = _Whole()

    def __enter__(self) -> Any:
        self._whole.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._whole.__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in ("_to_copy", "copy_", "copy"):
            _check_cast(name, args, kwargs)
        if name.strip("_") in _SHIFTS:
            _check_shift(args)
        if any(kernel in name for kernel in _KERNELS):
            _check_finite(args)
        if name in ("searchsorted", "bucketize"):
            _check_sorted(name, args, kwargs)
        results = func(*args, **kwargs)
        if name.startswith("upsample") and isinstance(args[0], torch.Tensor):
            _check_weights(func, args, kwargs, results)
        for r in _several(results):
            if isinstance(r, torch.Tensor) and (r.numel() > MOST_ELEMENTS or r.ndim > 6):
                raise Rejected("the result is large")
            if isinstance(r, torch.Tensor) and (r.is_complex() or r.layout is not torch.strided):
                raise Rejected("not a plain tensor")
        return results


class _Whole(TorchFunctionMode):
    """As `Checked`, for attention, of which dispatch may see only the parts."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if "scaled_dot_product" in getattr(func, "__name__", ""):
            _check_finite(args)
        return func(*args, **(kwargs or {}))


def _check_cast(name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Floating-point numbers that an integer type does not hold have no specified cast."""
    source = args[0] if name == "_to_copy" else args[1]
    to = kwargs.get("dtype") if name == "_to_copy" else args[0].dtype
    if to is None or to.is_floating_point or to == torch.bool or not source.is_floating_point():
        return
    limits = torch.iinfo(to)
    wide = source.double()
    if not ((wide > float(limits.min) - 1) & (wide < float(limits.max) + 1)).all():
        raise Rejected("a number that the integer type does not hold")


def _check_shift(args: Any) -> None:
    x, by = args[:2]
    dtype = x.dtype if isinstance(x, torch.Tensor) else by.dtype
    bits = torch.iinfo(dtype).bits if dtype != torch.bool else 1
    by = torch.as_tensor(by)
    if ((by < 0) | (by >= bits)).any():
        raise Rejected("a shift by more than the bits")


_SHIFTS = ("lshift", "rshift", "ilshift", "irshift", "bitwise_left_shift", "bitwise_right_shift")
_KERNELS = ("convolution", "scaled_dot_product")
"""Calls of which PyTorch has several kernels; these disagree about numbers that are not finite."""


def _check_finite(args: Any) -> None:
    tensors = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    if not all(t.isfinite().all() for t in tensors):
        raise Rejected("a number that is not finite")


def _check_sorted(name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Places among elements that are not sorted are what a search happens to meet."""
    keys = args[0] if name == "searchsorted" else args[1]
    sorter = kwargs.get("sorter")
    keys = keys if sorter is None else keys.gather(-1, sorter)
    right, _ = keys.sort(-1)  # NaN last
    if not ((keys == right) | (keys.isnan() & right.isnan())).all():
        raise Rejected("elements that are not sorted")


def _check_weights(func: Any, args: Any, kwargs: Mapping[str, Any], results: Any) -> None:
    """Eager mode multiplies a pixel that a sample doesn't touch by 0, which makes an infinity NaN;
    Tilesmith doesn't read the pixel.
    """
    x, *rest = args
    if not x.is_floating_point() or x.isfinite().all():
        return
    with_0, with_1 = (func(torch.where(x.isfinite(), x, k), *rest, **kwargs) for k in (0.0, 1.0))
    if not results[with_0 == with_1].isfinite().all():
        raise Rejected("a number that is not finite, of weight 0")


_EXACT_NAMES = """
    abs neg relu relu_ clone copy_ copy _to_copy floor ceil round trunc sign sgn where gather
    index index_select maximum minimum fmax fmin amax amin max min sort topk cat stack scatter
    slice_scatter select_scatter index_put index_put_ _index_put_impl_ index_copy flip roll tril
    triu constant_pad_nd clamp clamp_ clamp_min clamp_max masked_fill masked_fill_ fill_ fill
    zero_ embedding max_pool2d_with_indices max_pool3d_with_indices repeat masked_select
    zeros_like ones_like full_like full zeros ones arange eye nan_to_num threshold hardtanh
    median
"""
_EXACT = frozenset(_EXACT_NAMES.split())
"""Calls that choose among numbers, and compute none."""
_SUMS_NAMES = """
    sum mean prod var std var_mean std_mean norm linalg_vector_norm mm bmm addmm baddbmm addmv
    dot mv convolution _convolution _softmax _log_softmax native_layer_norm native_group_norm
    native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cumsum
    cumprod logsumexp nansum index_add scatter_add scatter_add_ index_add_ index_put
    scatter_reduce avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
    upsample_bilinear2d upsample_linear1d upsample_bicubic2d
    _scaled_dot_product_flash_attention_for_cpu dist trace native_layer_norm_backward
    native_group_norm_backward convolution_backward native_batch_norm_backward
    _softmax_backward_data _log_softmax_backward_data embedding_dense_backward _fused_rms_norm
    _cdist_forward linalg_inv_ex logcumsumexp mse_loss binary_cross_entropy nll_loss_forward
    _embedding_bag
"""
_SUMS = frozenset(_SUMS_NAMES.split())
"""Calls whose terms may cancel: what they read is rounded otherwise, too."""
_INTERPOLATES_NAMES = """
    upsample_bilinear2d upsample_linear1d upsample_trilinear3d upsample_bicubic2d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler_2d grid_sampler_3d
"""
_INTERPOLATES = frozenset(_INTERPOLATES_NAMES.split())
"""Calls that round coordinates: as far as any element is off, another way of rounding puts another
element.
"""
_UNITS = 8.0


class Disturbed(TorchDispatchMode):
    """Changes results that are not exact at random, by some units in the last place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        returns = func._schema.returns
        if name in _EXACT or (
            returns and returns[0].alias_info and not returns[0].alias_info.is_write
        ):
            return func(*args, **kwargs)
        wide = None if func._schema.is_mutable else _in_double(func, args, kwargs)
        if name in _SUMS and not func._schema.is_mutable:
            args = tree_map(lambda a: self._moved(a, 1.0), args)
        results = func(*args, **kwargs)
        several = _several(results)
        if func._schema.is_mutable:
            for r in several:
                if isinstance(r, torch.Tensor) and r.is_floating_point():
                    r.copy_(self._moved(r, _UNITS))
            return results
        right = _several(wide) if wide is not None else (None,) * len(several)
        spread = name in _INTERPOLATES
        moved = [self._moved(r, _UNITS, w, spread) for r, w in zip(several, right, strict=True)]
        if isinstance(results, (tuple, list)):
            return type(results)(moved)
        return moved[0]

    def _moved(self, value: Any, units: float, exact: Any = None, spread: bool = False) -> Any:
        """The tensor, each number that is not exactly `exact` changed by up to so many units.

        spread: whether the largest distance from `exact` counts for all elements.
        """
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        wide = value.double()
        size = units * torch.finfo(value.dtype).eps * wide.abs()
        if isinstance(exact, torch.Tensor) and exact.shape == value.shape:
            off = (wide - exact.double()).abs()  # as far as PyTorch's own kernel is
            off = off.nan_to_num(0.0, 0.0, 0.0)
            if spread and off.numel():
                off = off.max()
            size = torch.where(off == 0, 0.0, size + off)
        noise = torch.rand(value.shape, generator=self._random, dtype=torch.float64) * 2 - 1
        moved = (wide + size * noise).to(value.dtype)
        return torch.where(wide.isfinite(), moved, value)


def _in_double(func: Any, args: Any, kwargs: Any) -> Any:
    """What a call gives for the same numbers in float64; None if it does not take them."""

    def widened(a: Any) -> Any:
        return a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a

    if kwargs.get("dtype") is not None:
        return None
    try:
        return func(*tree_map(widened, args), **tree_map(widened, kwargs))
    except Exception:  # whatever it raises: there is no second opinion
        return None
