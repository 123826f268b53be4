"""Capture of a PyTorch module as a program by `torch.export`, and the decompositions to apply."""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tilesmith.frontend.aten.functional import VIEWS
from tilesmith.frontend.aten.program import line_of
from tilesmith.frontend.aten.registry import OPERATORS
from tilesmith.frontend.torch.script import argument_names, as_module
from tilesmith.frontend.torch.state import with_state
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError
from tilesmith.support.foreign import is_exported_program, is_script
from tilesmith.support.forks import wait_in_forks

WHOLE = (
    "linear.default", "conv1d.default", "conv2d.default", "conv3d.default", "conv1d.padding",
    "conv2d.padding", "conv3d.padding", "matmul.default", "layer_norm.default",
    "group_norm.default", "scaled_dot_product_attention.default", "silu.default",
    "hardswish.default", "hardsigmoid.default", "mish.default", "softplus.default",
    "split.Tensor", "chunk.default", "unbind.int", "stack.default", "masked_fill.Scalar",
    "masked_fill.Tensor", "floor_divide.default", "linalg_vector_norm.default",
    "upsample_bicubic2d.vec", "upsample_bilinear2d.vec", "upsample_nearest2d.vec",
    "_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec", "linspace.default",
    "std.correction", "std_mean.correction", "linalg_inv.default", "linalg_solve.default",
    "linalg_det.default", "det.default", "inverse.default", "index_add.default",
    "index_copy.default", "index_fill.int_Scalar", "index_fill.int_Tensor", "lstm.input",
    "gru.input", "rnn_tanh.input", "rnn_relu.input", "_safe_softmax.default",
)  # fmt: skip
"""Overloads that PyTorch could decompose, but that our operators compute in fewer steps."""

TRACING = threading.RLock()
"""A lock held while PyTorch traces a program, since its tracers keep global state."""
wait_in_forks(0, TRACING.acquire, TRACING.release)


def captured(
    model: Any,
    example_inputs: Any,
    dynamic: Any,
    example_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """The exported program of a module, with operators that the importer knows.

    example_inputs: a tuple of positional arguments, a mapping of keyword arguments, or one tensor.
    dynamic: which dimensions stay open (see `driver.compile`).
    example_kwargs: keyword arguments beside positional ones.

    Raises UsageError for arguments that the module does not take, ModelError where PyTorch can't
    export it.
    """
    with TRACING:
        return _captured(model, example_inputs, dynamic, example_kwargs)


def _captured(
    model: Any, example_inputs: Any, dynamic: Any, example_kwargs: Mapping[str, Any] | None
) -> Any:
    if is_exported_program(model):
        return _decomposed(model)
    if example_inputs is None and example_kwargs is None:
        raise UsageError(
            "a torch.nn.Module needs example inputs, with which it is traced: "
            "compile(module, (x,)) or compile(module, {'x': x})"
        )
    args, kwargs = arguments(example_inputs, example_kwargs)
    if is_script(model):
        return _captured_script(model, args, kwargs, dynamic)
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as e:
        raise UsageError(f"example_inputs: {type(model).__name__}.forward: {e}") from None
    bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    shapes = _dynamic_shapes(f"{type(model).__name__}.forward", bound, dynamic)
    return _exported(model, args, kwargs, shapes)


def _captured_script(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any
) -> Any:
    """The exported program of a module of TorchScript; its arguments are positional."""
    module, arguments = as_module(model, args, kwargs)
    bound = dict(zip(argument_names(model), arguments, strict=False))
    shapes = _dynamic_shapes("the script", bound, dynamic)
    with warnings.catch_warnings():  # PyTorch warns about copies that its own converter makes
        warnings.simplefilter("ignore", FutureWarning)
        return _exported(module, arguments, {}, None if shapes is None else tuple(shapes.values()))


def _exported(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> Any:
    torch = sys.modules["torch"]

    try:
        program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as e:  # the user's code may raise anything while it is traced
        raise ModelError(f"torch.export can't export {type(model).__name__}: {e}") from e
    return _decomposed(program)


def _decomposed(program: Any) -> Any:
    """The program without operators that modify tensors, as `run_decompositions` makes it.

    Raises ModelError where PyTorch can't make such a program.
    """
    if program.dialect != "TRAINING" and not any(map(_is_whole_composite, program.graph.nodes)):
        return program

    _check_windows(program.graph)
    try:
        return with_state(program).run_decompositions(decompositions())
    # PyTorch's own checks may raise anything, for example for loops that write to outer tensors
    except Exception as e:
        raise ModelError(
            f"PyTorch can't express the program by operators that write to no tensor: {e}"
        ) from e


def _is_whole_composite(node: Any) -> bool:
    """Whether a node calls a composite operator of PyTorch that has no import function.
    `run_decompositions({})` does not decompose such an operator.
    """
    overload = node.target
    if not isinstance(overload, sys.modules["torch"]._ops.OpOverload):
        return False
    return OPERATORS.find("", str(overload)) is None and overload._can_decompose()


def decompositions() -> Any:
    """PyTorch's table of decompositions to core ATen, without the operators in `WHOLE`."""
    torch = sys.modules["torch"]

    table = torch.export.default_decompositions()
    for name in WHOLE:
        operator, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, operator), overload), None)
    return table


def _check_windows(graph: Any) -> None:
    """Raises UnsupportedError for writes to the windows of `unfold`.  PyTorch's decomposition of
    such a write puts 0 outside of the windows.
    """
    for windows in graph.nodes:
        if str(windows.target) != "aten.unfold.default":
            continue
        views = [windows]
        for view in views:
            for user in view.users:
                if user.args[:1] != (view,):
                    continue
                if str(user.target) in VIEWS:
                    views.append(user)
                elif getattr(getattr(user.target, "_schema", None), "is_mutable", False):
                    raise UnsupportedError(
                        f"a tensor is written to through {windows.target} at "
                        f"{line_of(user.meta.get('stack_trace') or '') or user.name}; write to the "
                        "tensor itself"
                    )


def arguments(
    example_inputs: Any, example_kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and keyword arguments.  Raises UsageError."""
    if example_kwargs is not None:
        if not isinstance(example_kwargs, Mapping) or isinstance(example_inputs, Mapping):
            raise UsageError(
                "example_kwargs: expected keyword arguments by name beside positional "
                "example_inputs, as in compile(module, (x,), example_kwargs={'mask': mask}); found "
                f"{type(example_inputs).__name__} and {type(example_kwargs).__name__}"
            )
        args = () if example_inputs is None else arguments(example_inputs, None)[0]
        return args, dict(example_kwargs)
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs), {}
    return (example_inputs,), {}


def _dynamic_shapes(what: str, bound: Mapping[str, Any], dynamic: Any) -> Any:
    """`dynamic` in the form of `torch.export`: the axes of each argument.

    what: the function's name in messages.
    bound: the function's arguments by name.
    """
    torch = sys.modules["torch"]
    pytree = torch.utils._pytree

    if dynamic is None:
        return None
    auto = torch.export.Dim.AUTO

    def every(leaf: Any) -> Any:
        return dict.fromkeys(range(leaf.ndim), auto) if isinstance(leaf, torch.Tensor) else None

    if isinstance(dynamic, str):
        if dynamic != "auto":
            raise UsageError(
                f'dynamic: expected "auto", or ranges by input and axis, found {dynamic!r}'
            )
        return pytree.tree_map(every, dict(bound))
    axes_of = dynamic
    if not isinstance(axes_of, Mapping):
        axes_of = dict(zip(bound, axes_of, strict=False))
    unknown = [name for name in axes_of if name not in bound]
    if unknown:
        raise UsageError(
            f"dynamic: no argument of {what} is called {unknown[0]!r}; "
            f"the arguments are {', '.join(bound)}"
        )
    dims: dict[str, Any] = {}
    return {name: _axes(value, axes_of.get(name), name, dims) for name, value in bound.items()}


def _axes(value: Any, given: Any, name: str, dims: dict[str, Any]) -> Any:
    """The open axes of an argument, nested like the argument."""
    torch = sys.modules["torch"]

    if isinstance(value, torch.Tensor):
        if given is None:
            return None
        places = [*(given.items() if isinstance(given, Mapping) else enumerate(given))]
        for axis, _ in places:
            if not isinstance(axis, int) or not -value.ndim <= axis < value.ndim:
                raise UsageError(
                    f"dynamic: {name!r} has {value.ndim} axes, numbered from 0; found {axis!r}"
                )
        known = ((a % value.ndim, d) for a, d in places)
        return {a: _dim(d, f"{name}_{a}", dims) for a, d in known}
    if isinstance(value, Mapping):
        inner = given if isinstance(given, Mapping) else {}
        return {k: _axes(v, inner.get(k), f"{name}_{k}", dims) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        inner = given if isinstance(given, Sequence) else [None] * len(value)
        made = [
            _axes(v, g, f"{name}_{i}", dims)
            for i, (v, g) in enumerate(zip(value, inner, strict=True))
        ]
        return type(value)(made)
    return given


def _dim(given: Any, name: str, dims: dict[str, Any]) -> Any:
    """An axis as a `Dim`, from a `Dim`, a name, the largest size, or the smallest and largest
    size.
    """
    torch = sys.modules["torch"]

    if given is None:
        return None
    if isinstance(given, str):
        return dims.setdefault(given, torch.export.Dim(given, min=1))
    if isinstance(given, bool) or not isinstance(given, (int, tuple)):
        return given
    low, high = given if isinstance(given, tuple) else (1, given)
    return dims.setdefault(name, torch.export.Dim(name, min=low, max=high))
