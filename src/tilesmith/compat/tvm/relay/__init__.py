"""TVM's `relay`: models of other frameworks, and of Relay's own expressions, to executables.

mod, params = relay.frontend.from_onnx(model, {"data": (1, 3, 224, 224)})
lib = relay.build(mod, target="llvm", params=params)
module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

import tilesmith as ts
from tilesmith.frontend.load import load
from tilesmith.frontend.relay.export import to_relay
from tilesmith.ir.dtypes import dtype as to_dtype
from tilesmith.support.errors import UsageError

from ...names import elsewhere
from ..nd import NDArray, array
from ..runtime import Device, ExecutorFactoryModule
from ..target import Target
from . import expressions, transform
from .expressions import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    analysis,
    const,
    image,
    nn,
    qnn,
    var,
    vision,
)  # fmt: skip

__all__ = [
    "Call", "Constant", "ExecutorFactoryModule", "Expr", "Function", "If", "RelayModule",
    "TensorType", "Tuple", "TupleGetItem", "Var", "analysis", "build", "const", "create_executor",
    "frontend", "image", "nn", "parse", "qnn", "transform", "var", "vision",
]  # fmt: skip


class RelayModule:
    """A model as a frontend took it.

    model: what `tilesmith.compile` gets.
    shapes: shapes of inputs whose dimensions the model leaves open.
    examples: example inputs, for a model of PyTorch.
    values: values of inputs, which become constants.
    """

    def __init__(
        self,
        model: Any,
        shapes: Mapping[str, Any] | None = None,
        examples: Any = None,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.model, self.examples = model, examples
        self.shapes, self.values = dict(shapes or {}), dict(values or {})

    @staticmethod
    def from_expr(expr: Any) -> RelayModule:
        """The module of a function, or of an expression whose variables are its inputs."""
        is_function = isinstance(expr, Function)
        function = expr if is_function else Function(analysis.free_vars(expr), expr)
        text, values = expressions.text_of(function)
        return RelayModule(text.encode(), values=values)

    def astext(self, show_meta_data: bool = True) -> str:
        """The program in Relay's text.  Raises UnsupportedError for operators without a form."""
        if self.examples is not None:
            raise UsageError("astext: export the module of PyTorch to ONNX first")
        text = to_relay(load(self.model, self.shapes or None))
        return text if show_meta_data else text.partition("\n#[metadata]\n")[0]

    __str__ = astext


Imported = tuple[RelayModule, dict[str, NDArray]]
"""A module and its parameters.  Weights are constants of the module, so the dict is empty."""


def _with_shapes(model: Any, shape: Any = None, *_: Any, **__: Any) -> Imported:
    return RelayModule(model, shape), {}


def _from_pytorch(
    script_module: Any,
    input_infos: Sequence[tuple[str, Any]],
    custom_convert_map: Any = None,
    default_dtype: str = "float32",
    **other: Any,
) -> Imported:
    """The Relay module of a PyTorch module, which may be traced, scripted or neither.

    input_infos: the name of each input with its shape, or with its shape and element type.
    """
    import torch

    if custom_convert_map:
        raise UsageError("custom_convert_map: tilesmith.register_op gives an operator its meaning")
    examples = []
    for _, info in input_infos:
        shape, dtype = info, default_dtype
        if len(info) == 2 and isinstance(info[1], str):
            shape, dtype = info
        examples.append(torch.from_numpy(np.zeros(tuple(shape), to_dtype(dtype).numpy)))
    return RelayModule(script_module, None, tuple(examples)), {}


frontend = SimpleNamespace(
    from_pytorch=_from_pytorch,
    **{f"from_{name}": _with_shapes for name in (
        "onnx", "tflite", "keras", "tensorflow", "tensorflow2", "coreml", "caffe", "mxnet",
        "paddle", "darknet",
    )},
)  # fmt: skip
"""Functions that import a model, given the shapes of inputs by name.  A model is a path, a file's
bytes, or an object that `tilesmith.compile` takes.
"""


def parse(text: str) -> RelayModule:
    """The program in Relay's text, with its constants."""
    return RelayModule(text.encode())


fromtext = parse
build_config = transform.PassContext

ELSEWHERE = {
    "load_param_dict": "tilesmith.compile(('model.relay', 'weights.params'))",
    "op": "relay.NAME for each operator",
    "quantize": "`tilesmith quantize MODEL`",
    "save_param_dict": "lib.export_library(file), since weights are constants",
    "ty": "relay.TensorType",
    "vm": "relay.build, whose executables have branches, loops and open sizes",
}
"""What to use for names of TVM."""


def build(
    ir_mod: RelayModule | Function,
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> ExecutorFactoryModule:
    """Compile a model.

    params: values of inputs, which become constants.

    Raises the errors of `tilesmith.compile`.
    """
    if isinstance(target, Mapping):
        target = next(iter(target.values()))
    if not isinstance(ir_mod, RelayModule):
        ir_mod = RelayModule.from_expr(ir_mod)
    values = ir_mod.values | {k: np.asarray(v) for k, v in (params or {}).items()}
    chosen = Target.current() if target is None else Target(target)
    exe = ts.compile(
        ir_mod.model,
        ir_mod.examples,
        target=None if chosen is None else chosen.native,
        shapes=ir_mod.shapes or None,
        values=values or None,
    )
    return ExecutorFactoryModule(exe)


def create_executor(
    kind: str = "graph",
    mod: RelayModule | None = None,
    device: Device | None = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Any:
    """An object whose `evaluate()` is a function of the inputs, in order or by name."""
    if mod is None:
        raise UsageError("create_executor: expected a module, found None")
    exe = build(mod, target, params=params).executable

    def evaluate(*args: Any, **named: Any) -> Any:
        results = exe(*args, **named)
        several = isinstance(results, (tuple, list))
        return [array(r) for r in results] if several else array(results)

    return SimpleNamespace(evaluate=lambda expr=None: evaluate)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "testing":  # it imports this module
        return import_module(f"{__name__}.testing")
    return elsewhere("relay", name, ELSEWHERE) if name in ELSEWHERE else expressions.operator(name)
