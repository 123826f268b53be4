"""Every public entry of the package, each with a valid call.

An entry is a function, a class, or a method of a class.  They are found by looking at the modules,
and their parameters by their signatures.  The tables below say only what a valid value of a
parameter is, by its name; where a name means several things, by entry and name.  A parameter that
has a default is left out of the valid call.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

import tilesmith as ts
from tilesmith import te
from tilesmith.agent.server import Agent
from tilesmith.agent.settings import DEVICE_FILE, Secrets, init
from tilesmith.driver.module import CompiledModule
from tilesmith.graph.builder import Builder
from tilesmith.ir.expr import Expr
from tilesmith.ir.types import TensorType
from tilesmith.loop.builder import Array, Variable
from tilesmith.loop.nodes import Evaluate
from tilesmith.ops.elementwise import Exp
from tilesmith.quantisation.options import QuantizeChoices, QuantizeOptions
from tilesmith.runtime.arguments import KernelFunction
from tilesmith.te import steps
from tilesmith.te.knobs import Config
from tilesmith.training.losses import LOSSES, Loss
from tilesmith.training.optimizers import OPTIMIZERS, Optimizer
from tilesmith.training.schedules import Schedule
from tilesmith.tuning.options import TuneChoices, TuneOptions

MODULES = (ts, te, steps, ts.torch, ts.ort, ts.training)
"""All that their `__all__` names is public."""
CLASSES = (Array, Builder, CompiledModule, Config, KernelFunction, QuantizeOptions,
           TuneOptions, Variable)  # fmt: skip
"""Classes of which other entries give objects."""
UNMADE = (CompiledModule, Config, te.Axis, te.Compute, te.IterVar, te.Placeholder, te.Reducer,
          te.Schedule, te.Stage, te.Tensor, ts.Graph, ts.ort.Accelerated, Array, KernelFunction,
          Variable)  # fmt: skip
"""Classes of which nobody but us makes objects, so only their methods are entries."""
SCHEDULES = (ts.training.Constant, ts.training.Cosine, ts.training.StepDecay, ts.training.WarmUp)
OVERRIDDEN = {
    ts.Op: ("compute", "decompose", "loops", "reference", "vjp"),
    ts.ort.Accelerated: ("session",),
    **dict.fromkeys(LOSSES.values(), ("accuracy", "check", "labels", "value")),
    **dict.fromkeys(OPTIMIZERS.values(), ("update",)),
    **dict.fromkeys(SCHEDULES, ("at",)),
}
"""Methods that are there to be defined by users, or that pass their arguments on to a library."""
DYNAMOS = {"torch.backend": ("graph", "example_inputs")}
"""Parameters that only Dynamo gives."""
FUNCTIONS = (
    "definition",
    "gradient",
    "interrupt",
    "keep_alive",
    "load",
    "metric",
    "reads",
    "report",
)
"""Optional parameters that are functions of the user's."""
OPERATORS = ("__add__", "__and__", "__call__", "__contains__", "__floordiv__", "__getitem__",
             "__gt__", "__invert__", "__lt__", "__matmul__", "__mod__", "__mul__", "__neg__",
             "__or__", "__pow__", "__rsub__", "__rtruediv__", "__setitem__", "__sub__",
             "__truediv__")  # fmt: skip
CHOICES = {"quantize": QuantizeChoices, "tune": TuneChoices, "tune_expression": TuneChoices,
           "tune_template": TuneChoices}  # fmt: skip
"""What the keyword arguments of these are: `**choices` in their signatures."""


@dataclass(frozen=True)
class Entry:
    """A public function, class or method.

    name: `te.Stage.split`.
    call: what is called; a method gets its object as an argument.
    required: the parameters of the valid call, in order, with how to make their values; one named
        `*x` stands for all further arguments by position.
    given: those of the valid call that are given by name.
    optional: further parameters, which are given by name.
    """

    name: str
    call: Callable[..., Any]
    required: Mapping[str, Callable[[], Any]]
    given: Mapping[str, Callable[[], Any]]
    optional: tuple[str, ...]

    def takes_function(self, parameter: str) -> bool:
        """Whether a function is a valid value of a parameter."""
        make = self.required.get(parameter) or self.given.get(parameter)
        return parameter in FUNCTIONS or (make is not None and callable(make()))

    @property
    def parameters(self) -> tuple[str, ...]:
        skipped = ("self", *DYNAMOS.get(self.name, ()))
        return (*(p for p in self.required if p not in skipped), *self.optional)

    def arguments(self, **replaced: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of the valid call with some replaced, by position and by name."""
        named = {p: make() for p, make in self.given.items() if p not in replaced}
        named |= {p: replaced[p] for p in self.optional if p in replaced}
        places = [replaced[p] if p in replaced else make() for p, make in self.required.items()]
        return places, named


# Expressions are immutable, so all calls share these.
A = te.placeholder((8, 8), "f32", "A")
B = te.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="B")
_k = te.reduce_axis(8, "k")
C = te.compute((8, 8), lambda i, j: te.sum(B[i, _k] * A[_k, j], axis=_k), name="C")
X = te.var("x")
F = te.cast(X, "f32")
_STATE = te.placeholder((4, 8), "f32", "state")
_FIRST = te.compute((1, 8), lambda t, i: A[t, i], name="first")
_NEXT = te.compute((4, 8), lambda t, i: _STATE[t - 1, i] + A[t, i], name="next")


def schedule() -> te.Schedule:
    return te.create_schedule(C.op)


@cache
def model() -> bytes:
    """A small ONNX model: `relu(x @ w)`."""
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
              for n, s in {"x": (2, 4), "y": (2, 4)}.items()}  # fmt: skip
    weight = helper.make_tensor("w", TensorProto.FLOAT, (4, 4), np.ones(16, np.float32))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "small", [values["x"]], [values["y"]], [weight])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@cache
def executable() -> ts.Executable:
    return ts.compile(model(), threads=1)


@cache
def open_executable() -> ts.Executable:
    """`relu(x @ w)` for any number of rows."""
    loaded = onnx.load_from_string(model())
    for value in (*loaded.graph.input, *loaded.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return ts.compile(loaded.SerializeToString(), dynamic={"batch": (1, 64)}, threads=1)


@cache
def _batcher(process: int) -> ts.Batcher:
    """The batcher of a process: it has threads."""
    return ts.Batcher(open_executable())


def open_file() -> Path:
    path = folder() / "open.tsm"
    open_executable().save(path)
    return path


@cache
def _service(process: int) -> ts.Service:
    return ts.Service(open_file())


@cache
def _device(process: int) -> ts.RemoteDevice:
    """A device of a process, whose agent is a part of it.  Its key is where it is looked for."""
    own = folder().resolve()
    secrets = own / "agent"
    init(secrets, plain=True)
    agent = Agent(Secrets.load(secrets), own / "objects", plain=True)
    agent.__enter__()
    port = agent.place[1]
    os.environ["TILESMITH_DEVICES"] = str(own)
    (own / f"127.0.0.1_{port}.json").write_bytes((secrets / DEVICE_FILE).read_bytes())
    return ts.RemoteDevice(f"tcp://127.0.0.1:{port}")


@cache
def kernel() -> KernelFunction:
    return ts.build(schedule(), [A, C], threads=1)


@cache
def module() -> Any:
    return ts.compile(torch.nn.Linear(4, 4), example_inputs=(torch.ones(2, 4),), threads=1)


def graph() -> ts.Graph:
    b = Builder("small")
    return b.finish(b.add(Exp(), b.input("x", TensorType(te.f32, (2, 4)))))


def folder() -> Path:
    return Path(tempfile.mkdtemp(dir="."))


def saved() -> Path:
    path = folder() / "model.tsm"
    executable().save(path)
    return path


@cache
def _target() -> ts.Target:
    from tilesmith.codegen.targets import host

    return host()


class _Last(ts.Op):
    """An operator of a user's."""

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        return te.compute(inputs[0].shape, lambda *i: inputs[0][i] + 1.0)


class _Tuple(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.relu(x),)


def _template(config: Any, n: int = 8) -> Any:
    s = schedule()
    s["C"].split("i", factor=config.choice("factor", (1, 2, 4), 2))
    return s, [A, C]


def _instruction() -> te.Tensor:
    a = te.placeholder((8,), "f32", "a")
    return te.compute((8,), lambda i: a[i] + 1.0, name="c")


def _builder() -> te.LoopBuilder:
    return te.LoopBuilder("f")


def _array() -> Array:
    return _builder().output("y", TensorType(te.f32, (8,)))


def _rows() -> np.ndarray:
    return np.ones((2, 4), np.float32)


def _batch() -> list[np.ndarray]:
    """The inputs and the labels of a training step of the small model."""
    return [_rows(), np.zeros(2, np.int64)]


def _checkpoint() -> Path:
    path = folder() / "training.safetensors"
    ts.Trainer(model(), optimizer="sgd", threads=1).save(path)
    return path


def _square() -> np.ndarray:
    return np.ones((8, 8), np.float32)


@cache
def _graph() -> tuple[Builder, Any]:
    b = Builder("g")
    return b, b.input("x", TensorType(te.f32, (2, 4)))


def _zeros(b: te.LoopBuilder, x: Array, y: Array) -> None:
    with b.nest((8, 8)) as (i, j):
        y[i, j] = 0


def _bound() -> ts.Instance:
    """An instance with its inputs."""
    bound = ts.Instance(executable())
    bound.set_input("x", _rows())
    bound.run()
    return bound


def _attached() -> te.Stage:
    """A stage that is computed at a loop of another."""
    s = schedule()
    s["B"].compute_at("C", "i")
    return s["B"]


SELVES: dict[type, Callable[[], Any]] = {
    ts.ort.Accelerated: lambda: ts.ort.Accelerated(Path("m.onnx"), None, (), 1.0, 1.0),
    ts.ort.InferenceSession: lambda: ts.ort.InferenceSession(model()),
    te.Axis: lambda: schedule()["C"]["i"],
    ts.Batcher: lambda: _batcher(os.getpid()),
    Array: _array,
    Builder: lambda: _graph()[0],
    te.Compute: lambda: C.op,
    CompiledModule: module,
    Config: lambda: Config({"factor": 2}),
    ts.Executable: executable,
    ts.Graph: graph,
    ts.Instance: lambda: ts.Instance(executable()),
    te.IterVar: lambda: te.reduce_axis(8, "r"),
    KernelFunction: kernel,
    te.LoopBuilder: _builder,
    ts.Op: _Last,
    ts.Options: ts.Options,
    te.Placeholder: lambda: A.op,
    QuantizeOptions: QuantizeOptions,
    te.Reducer: lambda: C.op.body[0].reducer,
    te.Schedule: schedule,
    ts.RemoteDevice: lambda: _device(os.getpid()),
    ts.Service: lambda: _service(os.getpid()),
    ts.Streams: lambda: ts.Streams(executable(), streams=1),
    te.Stage: lambda: schedule()["C"],
    steps.Step: lambda: steps.Unroll("C", "i"),
    ts.Target: _target,
    te.Tensor: lambda: te.placeholder((), "f32", "scalar"),
    ts.Trainer: lambda: ts.Trainer(model(), optimizer="sgd", threads=1),
    ts.training.Batches: lambda: ts.training.Batches(_batch(), size=2),
    ts.training.EarlyStopping: ts.training.EarlyStopping,
    ts.training.Epoch: lambda: ts.training.Epoch(1, 1, {"loss": 1.0}),
    Loss: ts.training.CrossEntropy,
    Optimizer: ts.training.SGD,
    Schedule: lambda: ts.training.Constant(0.1),
    TuneOptions: TuneOptions,
    Variable: lambda: _builder().variable("v", 0),
}
"""An object of each class, as fresh as its methods need it."""

VALUES: dict[str, Callable[[], Any]] = {
    "*arguments": lambda: 8,
    "*arrays": _rows,
    "*axes": lambda: "i",
    "*conds": lambda: X > 1,
    "*args": lambda: X,
    "*indices": lambda: 0,
    "*inputs": lambda: A,
    "*types": lambda: TensorType(te.f32, (8, 8)),
    "a": lambda: X,
    "address": lambda: _device(os.getpid()).address,
    "args": lambda: [A, C],
    "array": _rows,
    "arrays": lambda: [_rows()],
    "axis": lambda: "i",
    "b": lambda: X,
    "before": lambda: 1.0,
    "after": lambda: 1.0,
    "by": lambda: "j",
    "combine": lambda: lambda x, y: x + y,
    "cond": lambda: X > 1,
    "content": lambda: b"content",
    "depth": lambda: 2,
    "device": lambda: _device(os.getpid()),
    "dtype": lambda: "f32",
    "emit": lambda: lambda code, *operands: operands[0],
    "extent": lambda: 8,
    "factor": lambda: 2,
    "folder": folder,
    "graph": graph,
    "history": schedule,
    "identity": lambda: lambda *dtypes: 0,
    "if_false": lambda: 0,
    "if_true": lambda: X,
    "index": lambda: "threadIdx.x",
    "indices": lambda: (0, 0),
    "intrinsic": lambda: "no_such",
    "inputs": lambda: {"x": _rows()},
    "key": lambda: "x",
    "layout": lambda: "1 0",
    "library": lambda: None,
    "message": lambda: "no",
    "path_or_bytes": model,
    "model": model,
    "modulus": lambda: 2,
    "name": lambda: "i",
    "names": lambda: ["y"],
    "op": lambda: C.op,
    "ops": lambda: {"last": _Last()},
    "options": lambda: ("none", "unroll"),
    "other": lambda: X,
    "outputs": lambda: [C.op],
    "parts": lambda: (),
    "path": lambda: folder() / "file",
    "readers": lambda: ["B"],
    "record": lambda: {"step": "unroll", "stage": "C", "axis": "i"},
    "result": _instruction,
    "results": lambda: C,
    "schedule": schedule,
    "scope": lambda: "stack",
    "shape": lambda: (8, 8),
    "stage": lambda: "C",
    "state": lambda: schedule().state,
    "step": lambda: steps.Unroll("C", "i"),
    "steps": lambda: [steps.Unroll("C", "i")],
    "stmt": lambda: Evaluate(X + 1),
    "target": lambda: "C",
    "template": lambda: _template,
    "tensor": lambda: "B",
    "threads": lambda: 1,
    "tile": lambda: 2,
    "type": lambda: TensorType(te.f32, (2, 4)),
    "value": lambda: X,
    "values": lambda: (0,),
    "weights": dict,
    "x": lambda: F,
    "x_factor": lambda: 2,
    "y": lambda: F,
    "y_factor": lambda: 2,
    "cpu": lambda: "generic",
    "data": lambda: "[]",
    "domain": lambda: "no.such",
    "element_bytes": lambda: 4,
    "exe": executable,
    "features": frozenset,
    "m": lambda: _target().to_json(),
    "matches": lambda: "NoSuch",
    "offset": lambda: 1,
    "point": lambda: schedule().checkpoint(),
    "program": lambda: executable().program,
    "result_bytes": lambda: 64,
    "start": lambda: 0,
    "triple": lambda: "x86_64-unknown-linux-gnu",
    "vector_bits": lambda: 256,
    "vector_registers": lambda: 16,
    # where a name means several things
    "Batcher.exe": open_executable,
    "Batcher.close.self": lambda: ts.Batcher(open_executable()),
    "Service.path": open_file,
    "Service.close.self": lambda: ts.Service(open_file()),
    "Config.choice.default": lambda: "none",
    "Config.factors.default": lambda: (2, 4),
    "Config.factors.parts": lambda: 2,
    "Config.reorder.axes": lambda: ("i", "j"),
    "Config.reorder.default": lambda: ("i", "j"),
    "Config.stage": lambda: schedule()["C"],
    "te.compute.body": lambda: lambda i, j: A[i, j] + 1.0,
    "te.extern.body": lambda: _zeros,
    "te.extern.inputs": lambda: [A],
    "te.scan.init": lambda: _FIRST,
    "te.scan.state": lambda: _STATE,
    "te.scan.update": lambda: _NEXT,
    "te.max.axis": lambda: _k,
    "te.min.axis": lambda: _k,
    "te.prod.axis": lambda: _k,
    "Executable.load.path": saved,
    "CompiledModule.load.path": saved,
    "load.path": saved,
    "Instance.get_output.key": lambda: "y",
    "Instance.get_output.self": _bound,
    "Instance.run.self": _bound,
    "Instance.submit.self": _bound,
    "Instance.set_input.value": _rows,
    "Instance.set_output.array": _rows,
    "Instance.set_output.key": lambda: "y",
    "CompiledModule.*args": _rows,
    "CompiledModule.load_state_dict.self": lambda: ts.compile(
        torch.nn.Linear(4, 4), example_inputs=(torch.ones(2, 4),), threads=1
    ),
    "CompiledModule.load_state_dict.state": lambda: torch.nn.Linear(4, 4).state_dict(),
    "CompiledModule.run.inputs": lambda: {"input": _rows()},
    "KernelFunction.*args": _square,
    "export_op.op": lambda: "relu",
    "export_op.shapes": lambda: [(2, 4)],
    "te.Stage.split.factor": lambda: 2,
    "te.steps.Split.factor": lambda: 2,
    "Builder.value": lambda: _graph()[1],
    "Builder.outputs": lambda: _graph()[1],
    "Expr.__truediv__.self": lambda: F,
    "Expr.__rtruediv__.self": lambda: F,
    "Expr.__truediv__.other": lambda: F,
    "Expr.__rtruediv__.other": lambda: F,
    "export_plugin.ops": lambda: {"last": (schedule(), [A, C])},
    "ort.export_custom_ops.ops": lambda: {"last": (schedule(), [A, C])},
    "verify.path": saved,
    "Expr.__pow__.other": lambda: 2,
    "te.IterVar.__pow__.other": lambda: 2,
    "te.Schedule.__getitem__.key": lambda: "C",
    "te.Schedule.cache_read.readers": lambda: ["C"],
    "te.Schedule.flatten_axes.*axes": lambda: "i",
    "te.Schedule.rfactor.tensor": lambda: "C",
    "te.Schedule.rfactor.axis": lambda: "k",
    "te.Schedule.transform_layout.layout": lambda: "1 0",
    "te.Schedule.from_json.ops": lambda: C.op,
    "te.Schedule.replay.ops": lambda: C.op,
    **{
        f"te.Stage.{m}.self": lambda: schedule()["B"]
        for m in ("compute_at", "compute_inline", "fold_storage", "set_scope", "storage_align")
    },
    **{
        f"te.Stage.{m}.self": lambda: _attached()
        for m in ("double_buffer", "pipeline", "store_at", "store_root")
    },
    "te.Stage.tile.x": lambda: "i",
    "te.Stage.tile.y": lambda: "j",
    "te.Tensor.other": lambda: F,
    "te.Tensor.__call__.self": lambda: te.placeholder((8,), "f32", "row"),
    "te.Tensor.__getitem__.self": lambda: te.placeholder((8, 8), "f32", "square"),
    "te.call.name": lambda: "exp",
    "te.call.*args": lambda: F,
    "te.const.value": lambda: 1,
    "te.steps.axes": lambda: ("i", "j"),
    "te.steps.source": lambda: "A",
    "te.steps.value": lambda: 0,
    "te.steps.ComputeAt.stage": lambda: "B",
    "te.steps.ComputeInline.stage": lambda: "B",
    "te.steps.CacheRead.stage": lambda: "B",
    "te.steps.CacheRead.readers": lambda: ("C",),
    "te.steps.CacheWrite.stage": lambda: "B",
    "te.steps.FlattenAxes.stage": lambda: "B",
    "te.steps.RFactor.axis": lambda: "k",
    "te.steps.SetScope.stage": lambda: "B",
    "te.steps.StorageAlign.stage": lambda: "B",
    "te.steps.TransformLayout.layout": lambda: "1 0",
    "te.steps.UnflattenAxis.stage": lambda: "B",
    "te.steps.Pragma.value": lambda: "1",
    "te.sum.axis": lambda: _k,
    "torch.backend.example_inputs": lambda: [torch.ones(2, 4)],
    "torch.backend.graph": lambda: torch.fx.symbolic_trace(_Tuple()),
    "Array.__setitem__.indices": lambda: 0,
    "Array.__setitem__.value": lambda: 1.0,
    "Builder.add.op": Exp,
    "Builder.part.inputs": lambda: [_graph()[1]],
    "Builder.part.output": lambda: _graph()[1],
    "Builder.add.*inputs": lambda: _graph()[1],
    **{
        f"{f}.seconds": lambda: 0.01
        for f in ("tune", "tune_expression", "tune_template", "ort.accelerate")
    },
    **{f"{f}.trials": lambda: 1 for f in ("tune", "tune_expression", "tune_template")},
    "batches": lambda: [tuple(_batch())],
    "number": lambda: 0,
    "rate": lambda: 0.1,
    "training.Batches.arrays": _batch,
    "training.Batches.size": lambda: 2,
    "training.Cosine.steps": lambda: 10,
    "training.EarlyStopping.__call__.epoch": lambda: ts.training.Epoch(1, 1, {"loss": 1.0}),
    "training.EarlyStopping.__call__.trainer": lambda: None,
    "training.Epoch.measures": lambda: {"loss": 1.0},
    "training.Epoch.number": lambda: 1,
    "training.Epoch.steps": lambda: 1,
    "training.StepDecay.steps": lambda: 10,
    "training.WarmUp.steps": lambda: 10,
    "training.WarmUp.then": lambda: 0.1,
    "Trainer.restore.path": _checkpoint,
    "quantize.data": lambda: {"x": _rows()},
}


def _values(entry: str, parameter: str) -> Callable[[], Any] | None:
    """How a valid value is made: by what the table says of it in the
    entry, in its class, in its module, or anywhere.
    """
    parts = entry.split(".")
    names = (".".join((*parts[:n], parameter)) for n in range(len(parts), -1, -1))
    return next((VALUES[name] for name in names if name in VALUES), None)


def _awaited(call: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine function as a function."""

    @wraps(call)
    def wait(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(call(*args, **kwargs))

    return wait


def _entry(name: str, call: Callable[..., Any], owner: Callable[[], Any] | None) -> Entry | None:
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except ValueError:  # no signature: not written in Python
        return None
    if inspect.iscoroutinefunction(call):
        call = _awaited(call)
    required: dict[str, Callable[[], Any]] = {}
    given: dict[str, Callable[[], Any]] = {}
    optional: list[str] = []
    for p in parameters:
        if p.name == "self" and owner is not None:
            required["self"] = owner
        elif p.kind is p.VAR_KEYWORD:
            choices = CHOICES.get(name.split(".")[-1])
            for choice in get_type_hints(choices) if choices else ():
                optional.append(choice)
                if make := VALUES.get(f"{name}.{choice}"):
                    given[choice] = make
        elif p.default is not p.empty:
            optional.append(p.name)
            if make := VALUES.get(f"{name}.{p.name}"):
                given[p.name] = make
        else:
            key = f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name
            make = _values(name, key)
            if make is None:
                raise LookupError(f"{name}: say in VALUES what a valid {key} is")
            if p.kind is p.KEYWORD_ONLY:
                raise LookupError(f"{name}: {key} is required by keyword")
            required[key] = make
    return Entry(name, call, required, given, tuple(optional))


def _valid(entry: Entry) -> Any:
    places, named = entry.arguments()
    return entry.call(*places, **named)


def _members(name: str, cls: type) -> Iterator[Entry]:
    """The class itself, and its methods."""
    if issubclass(cls, Warning | BaseException):
        return
    if inspect.isabstract(cls) or cls in UNMADE:
        made = None
    elif made := _entry(name, cls, None):
        yield made
    owner = next((SELVES[c] for c in cls.__mro__ if c in SELVES), None)
    if issubclass(cls, steps.Step) and made:
        owner = partial(_valid, made)
    for member in sorted(dir(cls)):
        if (member.startswith("_") and member not in OPERATORS) or member in OVERRIDDEN.get(
            cls, ()
        ):
            continue
        found = inspect.getattr_static(cls, member)
        if getattr(found, "__module__", "").startswith("onnxruntime"):
            continue  # a method that a session has from its base class
        if isinstance(found, (staticmethod, classmethod)):
            made = _entry(f"{name}.{member}", getattr(cls, member), None)
        elif callable(found):
            if owner is None:
                raise LookupError(f"{name}: say in SELVES how an object of this class is made")
            its = VALUES.get(f"{name}.{member}.self", owner)
            made = _entry(f"{name}.{member}", found, its)
        else:
            continue
        if made:
            yield made


@cache
def entries() -> tuple[Entry, ...]:
    """All public entries.  Raises LookupError for a parameter without a valid value."""
    found: dict[str, Entry] = {}
    classes: set[type] = set()
    for module_ in MODULES:
        for public in module_.__all__:
            thing = getattr(module_, public)
            name = (
                f"{module_.__name__.removeprefix('tilesmith.').removeprefix('tilesmith')}.{public}"
            )
            name = name.removeprefix(".")
            if inspect.isclass(thing):
                if thing not in classes:
                    classes.add(thing)
                    found |= {e.name: e for e in _members(name, thing)}
            elif callable(thing) and (made := _entry(name, thing, None)):
                found[name] = made
    for operator in (*OPERATORS, "astype"):
        if hasattr(Expr, operator) and operator not in ("__call__", "__getitem__"):
            its = VALUES.get(f"Expr.{operator}.self", lambda: X + 1)
            made = _entry(f"Expr.{operator}", getattr(Expr, operator), its)
            found |= {made.name: made} if made else {}
    for cls in CLASSES:
        if cls not in classes:
            found |= {e.name: e for e in _members(cls.__name__, cls)}
    return tuple(found.values())
