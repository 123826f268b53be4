"""Operators that users register: compiled from models, checked, and part of every key."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from small_models import node

import tilesmith as ts
from tilesmith import driver, te
from tilesmith.cli import execute as run
from tilesmith.frontend.onnx.custom import load_operators, unregister_op
from tilesmith.frontend.onnx.operators import OPERATORS
from tilesmith.graph.builder import Builder
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import print_graph
from tilesmith.ir.dtypes import f32
from tilesmith.ir.types import TensorType
from tilesmith.loop.nodes import Func
from tilesmith.ops.base import OPS
from tilesmith.support.errors import ModelError, UnsupportedError, UsageError
from tilesmith.tuning.measure import LocalMeasurer
from tilesmith.tuning.tasks import Compiled, tasks_of

X = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_operator.py"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(OPS)
    yield
    OPS.clear()
    OPS.update(before)


@pytest.fixture
def options(tmp_path: Path) -> ts.Options:
    return ts.Options(cache_dir=tmp_path / "cache")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The models that were compiled, whose programs were not there."""
    from tilesmith.driver import compiler

    seen: list[object] = []
    original = compiler.compile_model

    def note(model: object, *rest: Any) -> object:
        seen.append(model)
        return original(model, *rest)

    monkeypatch.setattr(compiler, "compile_model", note)
    return seen


def scale(factor: float) -> type[ts.Op]:
    """x * factor * gain, registered as `Scale`."""

    @ts.register_op("com.example", "Scale")
    @dataclass(frozen=True)
    class Scaled(ts.Op):
        gain: float = 1.0

        def compute(self, *inputs: te.Tensor) -> te.Tensor:
            (x,) = inputs
            return te.compute(x.shape, lambda *i: x[i] * (factor * self.gain))

        def reference(self, *inputs: np.ndarray) -> np.ndarray:
            return inputs[0] * np.float32(factor * self.gain)

    return Scaled


def model(*nodes: onnx.NodeProto, inputs: Sequence[str] = ("x",), **weights: np.ndarray) -> bytes:
    tensor = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, tensor, [3, 4]) for name in inputs],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def custom(name: str, inputs: str = "x", **attributes: Any) -> onnx.NodeProto:
    return node(name, inputs, "y", domain="com.example", **attributes)


def test_a_changed_operator_is_compiled_anew(options: ts.Options, compiled: list[object]) -> None:
    source = model(custom("Scale"))
    scale(2.0)
    np.testing.assert_array_equal(ts.compile(source, options=options)(X), 2 * X)
    np.testing.assert_array_equal(ts.compile(source, options=options)(X), 2 * X)
    assert len(compiled) == 1, "the program in the cache was not used"
    scale(3.0)
    np.testing.assert_array_equal(ts.compile(source, options=options)(X), 3 * X)
    scale(2.0)
    np.testing.assert_array_equal(ts.compile(source, options=options)(X), 2 * X)
    assert len(compiled) == 2, "each definition has a program of its own"


def test_an_operator_that_is_gone_or_does_not_fit_is_an_error(options: ts.Options) -> None:
    source = model(custom("Scale", gain=2.0))
    found = scale(2.0)
    ts.compile(source, options=options)
    unregister_op(found)
    with pytest.raises(UnsupportedError, match="register_op adds operators"):
        ts.compile(source, options=options)

    @ts.register_op("com.example", "Scale")
    class NoGain(ts.Op):
        def compute(self, *inputs: te.Tensor) -> te.Tensor:
            return te.compute(inputs[0].shape, lambda *i: inputs[0][i])

        def reference(self, *inputs: np.ndarray) -> np.ndarray:
            return inputs[0]

    with pytest.raises(ModelError, match="unknown attributes 'gain'"):
        ts.compile(source, options=options)


def test_operands_are_told_apart(options: ts.Options) -> None:
    def register(sign: int) -> None:
        @ts.register_op("com.example")
        class Minus(ts.Op):
            def compute(self, *inputs: te.Tensor) -> te.Tensor:
                a, b = inputs[::sign]
                return te.compute(a.shape, lambda *i: a[i] - b[i])

            def reference(self, *inputs: np.ndarray) -> np.ndarray:
                a, b = inputs[::sign]
                return a - b

    source = model(custom("Minus", "x z"), inputs=("x", "z"))
    for sign in (1, -1):
        register(sign)
        found = ts.compile(source, options=options)(X, np.ones_like(X))
        np.testing.assert_array_equal(found, sign * (X - 1))


def test_a_constant_operand_is_not_folded(options: ts.Options) -> None:
    """A folded result would not change with the operator."""
    source = model(
        node("Scale", "w", "v", domain="com.example"), node("Add", "x v", "y"), w=np.ones_like(X)
    )
    for factor in (2.0, 3.0):
        scale(factor)
        np.testing.assert_array_equal(ts.compile(source, options=options)(X), X + factor)


def test_loops(options: ts.Options) -> None:
    def register(start: float) -> None:
        @ts.register_op("com.example")
        class RunningSum(ts.Op):
            def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
                return types

            def loops(self, *types: TensorType) -> Func:
                n, m = types[0].static_shape
                b = te.LoopBuilder("running_sum")
                x, y = b.input("x", types[0]), b.output("y", types[0])
                with b.independent(n) as i:
                    total = b.variable("total", te.const(start, f32))
                    with b.loop(m) as j:
                        total.value = total.value + x[i, j]
                        y[i, j] = total.value
                return b.finish()

            def reference(self, *inputs: np.ndarray) -> np.ndarray:
                return np.float32(start) + np.cumsum(inputs[0], 1)

    source = model(node("Relu", "x", "r"), custom("RunningSum", "r"))
    for start in (0.0, 5.0):
        register(start)
        found = ts.compile(source, options=options)(X)
        np.testing.assert_array_equal(found, start + np.cumsum(np.maximum(X, 0), 1))
        assert all(k.passed for k in ts.check(source, options=options))


def test_loops_inside_an_expression_are_refused(options: ts.Options) -> None:
    @ts.register_op("com.example")
    class Copy(ts.Op):
        def compute(self, *inputs: te.Tensor) -> te.Tensor:
            def body(b: te.LoopBuilder, x: Any, y: Any) -> None:
                with b.nest((3, 4)) as at:
                    y[at] = x[at]

            return te.extern((3, 4), inputs, body, name="copied")

        def reference(self, *inputs: np.ndarray) -> np.ndarray:
            return inputs[0]

    with pytest.raises(UnsupportedError, match=r"gives 'copied', a te.extern; .* has loops"):
        ts.compile(model(custom("Copy")), options=options)


def test_composites(options: ts.Options, compiled: list[object]) -> None:
    scale(2.0)

    @ts.register_op("com.example")
    class Twice(ts.Op):
        def decompose(self, b: Any, *inputs: Any) -> Any:
            op = OPS["com.example.Scale"]()
            return b.add(op, b.add(op, inputs[0]))

    source = model(custom("Twice"))
    np.testing.assert_array_equal(ts.compile(source, options=options)(X), 4 * X)
    np.testing.assert_array_equal(ts.compile(source, options=options)(X), 4 * X)
    assert len(compiled) == 1
    scale(3.0)
    np.testing.assert_array_equal(ts.compile(source, options=options)(X), 9 * X)


def test_check_finds_what_differs_from_the_reference(options: ts.Options) -> None:
    @ts.register_op("com.example", "Scale")
    class Wrong(scale(2.0)):  # type: ignore[misc]  # a base made at run time
        def reference(self, *inputs: np.ndarray) -> np.ndarray:
            return inputs[0] * np.float32(2.5)

    (found,) = ts.check(model(custom("Scale")), options=options)
    assert not found.passed and found.operators == ("com.example.Scale",)

    @ts.register_op("com.example", "Scale")
    class OtherType(Wrong):
        def reference(self, *inputs: np.ndarray) -> np.ndarray:
            return inputs[0] * 2.5 + np.zeros(1)

    with pytest.raises(UsageError, match=r"expected a result of type f32\[3,4\]"):
        ts.check(model(custom("Scale")), options=options)


def test_kernels_are_compiled_here_and_tuned(
    options: ts.Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes do not know the operator: they get loops."""
    monkeypatch.setattr("tilesmith.driver.kernels.WORTH_A_WORKER", 1)
    monkeypatch.setattr("tilesmith.tuning.tasks.WORTH_SHARE", 0.0)
    scale(2.0)
    options = options.with_(jobs=2, threads=1)
    source = model(
        node("Scale", "x", "s", domain="com.example"), node("Softmax", "s", "t"),
        node("Transpose", "t", "y"),
    )  # fmt: skip
    ts.compile(source, options=options)
    session = driver.Session.of(options)
    compiled = Compiled.of(
        driver.load_graph(driver.Request(source, session.options), session), session
    )
    task = next(t for t in tasks_of(compiled, session) if "com.example.Scale" in t.label)
    with LocalMeasurer("tilesmith.driver.worker", 1, 1) as measurer:
        (trial,) = measurer.measure(task, [{}], 0.0)
    assert trial.status in ("ok", "slow"), trial.cause


def test_text_round_trip() -> None:
    op = scale(2.0)
    b = Builder()
    x = b.input("x", TensorType(f32, (3, 4)))
    graph = b.finish(b.add(op(gain=0.5), x))  # type: ignore[call-arg]  # a field of the subclass
    text = print_graph(graph)
    assert "com.example.Scale(%x) {gain=0.5}" in text
    assert print_graph(parse_graph(text)) == text


def test_attributes_of_every_type(options: ts.Options) -> None:
    seen: list[ts.Op] = []

    @ts.register_op("com.example")
    @dataclass(frozen=True)
    class Many(ts.Op):
        n: int
        f: float = 0.5
        b: bool = False
        s: str = "a"
        ns: tuple[int, ...] = ()
        fs: tuple[float, ...] = ()
        ss: tuple[str, ...] = ()

        def compute(self, *inputs: te.Tensor) -> te.Tensor:
            seen.append(self)
            return te.compute(inputs[0].shape, lambda *i: inputs[0][i])

        def reference(self, *inputs: np.ndarray) -> np.ndarray:
            return inputs[0]

    given = {"n": 3, "b": 1, "s": "z", "ns": [1, 2], "fs": [0.5], "ss": ["p", "q"]}
    ts.compile(model(custom("Many", **given)), options=options)
    assert seen[0] == Many(3, 0.5, True, "z", (1, 2), (0.5,), ("p", "q"))
    with pytest.raises(ModelError, match="expected attribute 'n', which is required"):
        ts.compile(model(custom("Many")), options=options)
    with pytest.raises(ModelError, match="attribute 'n': expected int, found string"):
        ts.compile(model(custom("Many", n="3")), options=options)


def _none(self: ts.Op, *inputs: Any) -> Any:
    return inputs[0]


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda: ts.register_op("")(scale(1.0)), "expected a domain of your own"),
        (lambda: ts.register_op("ai.onnx")(scale(1.0)), "expected a domain of your own"),
        (lambda: ts.register_op("a.b", "x y")(scale(1.0)), "expected a name such as"),
        (lambda: ts.register_op("a.b", "F")(len), "expected a subclass of tilesmith.Op"),
        (lambda: made(), "expected one of compute, loops and decompose, found none"),
        (lambda: made(compute=_none, loops=_none), "found compute and loops"),
        (lambda: made(compute=_none), "an operator with compute also defines reference"),
        (lambda: made(loops=_none, reference=_none), "with loops also defines infer"),
        (lambda: made(compute=_none, reference=_none, gradient=_none), "'gradient' is reserved"),
        (lambda: made(compute=_none, reference=_none, __annotations__={"alpha": "float"}),
         r"'alpha' is no field; put @dataclass\(frozen=True\)"),
        (lambda: made(dataclass(frozen=True), __annotations__={"a": complex}),
         "attribute 'a': expected one of int, bool, float"),
    ],
)  # fmt: skip
def test_what_is_no_operator(register: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        register()


def test_our_operators_are_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPERATORS, "_entries", dict(OPERATORS._entries))
    OPERATORS.register("Scale", domain="com.example")(len)
    with pytest.raises(UsageError, match=r"com\.example\.Scale is an operator that Tilesmith has"):
        scale(1.0)


def made(decorate: Callable[[type], type] = lambda cls: cls, **members: Any) -> object:
    return ts.register_op("a.b")(decorate(type("Made", (ts.Op,), members)))


def test_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLE))
    source = example["model"](alpha=2.0)
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    w = numpy_helper.to_array(source.graph.initializer[0])
    h = x.astype(np.float64) @ w
    np.testing.assert_allclose(ts.compile(source)(x), h + np.sin(2 * h) ** 2 / 2, rtol=1e-4)
    unregister_op(example["Snake"])
    path = tmp_path / "snake.onnx"
    path.write_bytes(source.SerializeToString())
    assert run(["check", str(path), "--operators", str(EXAMPLE)]) == 0
    assert "1 kernels, 0 out of bounds" in capsys.readouterr().out


def test_a_file_that_fails_registers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    text = EXAMPLE.read_text().replace('("com.example")', '("com.failing")')
    path.write_text(text.replace("def model", "1 / 0\n\n\ndef model"))
    with pytest.raises(UsageError, match=r"file of operators .*line \d+ fails: ZeroDivisionError"):
        load_operators(path)
    assert "com.failing.Snake" not in OPS
