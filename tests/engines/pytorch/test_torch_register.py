"""`ts.torch.register`: tensor expressions and schedules as operators of PyTorch."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import tilesmith as ts
from tilesmith import te
from tilesmith.ops.base import OPS, kind_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

EXAMPLE = Path(__file__).parents[3] / "examples" / "torch_operator.py"
OPTIONS = {"threads": 1, "fallback": "error"}


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def running_products(x):
    """The product of each element and those before it in its row, as loops."""
    n, m = x.shape

    def loops(b, x, y):
        with b.independent(n, "row") as r:
            so_far = b.variable("so_far", te.const(1.0, "f32"))
            with b.loop(m, "i") as i:
                so_far.value = so_far.value * x[r, i]
                y[r, i] = so_far.value

    return te.extern(x.shape, [x], loops, name="products")


def test_the_example_runs(example, capsys):
    example["main"]()
    assert "agree with PyTorch" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["snake", "rows"])
def test_operators_pass_pytorchs_own_checks(example, name):
    x = torch.randn(4, 5, requires_grad=name == "snake")
    args = (x, 2.0) if name == "snake" else (x, torch.randn(3, 5))
    found = torch.library.opcheck(example[name], args)
    assert set(found.values()) == {"SUCCESS"}


def test_gradients_are_those_of_finite_differences(example):
    snake = ts.torch.register("test::snake", _snake, gradient=_snake_gradient)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: snake(x, 1.5), (x,))


def _snake(x, alpha: float = 1.0):
    return te.compute(
        x.shape, lambda *i: x[i] + te.sin(alpha * x[i]) * te.sin(alpha * x[i]) / alpha
    )


def _snake_gradient(g, x, alpha):
    return g * (1 + torch.sin(2 * alpha * x))


def test_training_through_the_backend(example):
    snake = example["snake"]
    step = torch.compile(
        lambda x: snake(x @ x, 2.0).sum(), backend=ts.torch.backend, options=OPTIONS
    )
    x = torch.randn(4, 4, requires_grad=True)
    step(x).backward()
    found, x.grad = x.grad, None
    h = x @ x
    (h + torch.sin(2 * h) ** 2 / 2).sum().backward()
    torch.testing.assert_close(found, x.grad, rtol=1e-4, atol=1e-4)


def test_other_sizes_open_one_program(example):
    """Eager calls: the second size opens the dimension, the third one compiles nothing."""
    compiled = []
    double = ts.torch.register("test::double", lambda x: te.compute(x.shape, _doubled(x, compiled)))
    for n in (3, 4):
        torch.testing.assert_close(double(torch.ones(n)), torch.full((n,), 2.0))
    calls = len(compiled)
    for n in (5, 600):
        torch.testing.assert_close(double(torch.ones(n)), torch.full((n,), 2.0))
    assert len(compiled) == calls
    torch.testing.assert_close(double(torch.ones(0)), torch.ones(0))


def _doubled(x, calls):
    calls.append(x.shape)
    return lambda i: x[i] * 2.0


def test_loops_are_an_operator():
    rows = ts.torch.register("test::products", running_products)
    f = torch.compile(
        lambda x: rows(x * 2) + 1, backend=ts.torch.backend, dynamic=True, options=OPTIONS
    )
    for n in (3, 6):
        x = torch.randn(n, 5).T.contiguous().T  # columns in memory
        torch.testing.assert_close(rows(x), x.cumprod(1))
        torch.testing.assert_close(f(x), (x * 2).cumprod(1) + 1)


def two_results():
    x, y = te.placeholder((4, 8), "f32", "x"), te.placeholder((8,), "f32", "y")
    product = te.compute((4, 8), lambda i, j: x[i, j] * y[j], "product")
    more = te.compute((4, 8), lambda i, j: product[i, j] + 1.0, "more")
    s = te.create_schedule([product.op, more.op])
    s[product].vectorize(s[product].axis[1])
    return s, [x, y, product, more]


def test_a_finished_schedule_is_an_operator():
    s, args = two_results()
    two = ts.torch.register("test::two", s, args)
    x, y = torch.randn(4, 8), torch.randn(8)
    compiled = torch.compile(lambda x, y: two(x, y), backend=ts.torch.backend, options=OPTIONS)
    for product, more in (two(x, y), compiled(x, y)):
        torch.testing.assert_close(product, x * y)
        torch.testing.assert_close(more, x * y + 1)
    with pytest.raises(ts.UsageError, match=r"argument 'y': expected f32\[8\].*found f32\[7\]"):
        two(x, y[:7])
    with pytest.raises(ts.UsageError, match=r"expected f32\[8\].*found f64\[8\]"):
        two(x, y.double())


def test_a_schedule_stays_as_its_author_made_it(example):
    """Rules would choose other loops: the unrolled rows are of the schedule."""
    from tilesmith.driver.compiler import fused_graph
    from tilesmith.driver.request import Request
    from tilesmith.frontend.torch.capture import captured
    from tilesmith.graph.nodes import Fused
    from tilesmith.strategy.cpu import lower_by_rule

    module = example["Block"]()
    program = captured(module, (torch.randn(8, 16),), None)
    fused, session = fused_graph(Request(program, ts.Options(threads=1)))
    bodies = [n.op.body for n in fused.nodes if isinstance(n.op, Fused)]
    texts = [str(lower_by_rule(body, session.target, "k")) for body in bodies]
    assert sum("unrolled(4)" in t and "parallel(2)" in t for t in texts) == 1


def test_archives_and_numbers_of_every_type(tmp_path):
    @ts.torch.register("test::shift")
    def shift(x, by: list[int], scale: float = 2.0, kind: str = 'a "b"', on: bool = True):
        more = float(by[1]) if on and kind == 'a "b"' else 0.0
        return te.compute(x.shape, lambda *i: x[i] * scale + more)

    class Shift(torch.nn.Module):
        def forward(self, x):
            return shift(x, [1, 3], 4.0)

    x = torch.randn(2, 3)
    torch.testing.assert_close(shift(x, [1, 3]), x * 2 + 3)
    torch.testing.assert_close(shift(x, [1, 3], on=False), x * 2)
    torch.export.save(torch.export.export(Shift(), (x,)), tmp_path / "shift.pt2")
    exe = ts.compile(tmp_path / "shift.pt2", threads=1)
    torch.testing.assert_close(exe(x), x * 4 + 3)
    assert kind_of(OPS["test.shift"]) == "composite"  # whatever its numbers are called


def test_numbers_with_the_name_of_what_every_operator_has_are_refused():
    """They would take its place in the operator's class."""
    with pytest.raises(ts.UsageError, match=r"test::named.*found 'infer'.*another name"):

        @ts.torch.register("test::named")
        def named(x, infer: float = 2.0):
            return te.compute(x.shape, lambda *i: x[i] * infer)


def test_kernels_are_checked_with_the_unscheduled_expression(example):
    program = torch.export.export(example["Block"](), (torch.randn(4, 16),))
    kernels = ts.check(program)
    assert {name for k in kernels for name in k.operators} >= {
        "example.rows.loops", "example.snake.expression",
    }  # fmt: skip
    assert all(k.passed for k in kernels)


def test_an_operator_of_the_graph_imports_pytorchs_of_the_same_name():
    """`ts.register_op` alone: PyTorch's operator is somebody else's."""
    from dataclasses import dataclass

    from tilesmith.frontend.onnx.custom import register_op, unregister_op

    schema = "(Tensor x, float plus) -> Tensor"

    @torch.library.custom_op("test::tripled", mutates_args=(), schema=schema)
    def tripled(x, plus):
        return x * 3 + plus

    tripled.register_fake(lambda x, plus: torch.empty_like(x))

    @dataclass(frozen=True)
    class Tripled(ts.Op):
        """3 x + `plus`."""

        plus: float = 0.0

        def compute(self, *inputs):
            (x,) = inputs
            return te.compute(x.shape, lambda *i: x[i] * 3.0 + self.plus)

        def reference(self, *inputs):
            return inputs[0] * 3 + self.plus

    register_op("test", "tripled")(Tripled)
    try:
        f = torch.compile(lambda x: tripled(x, 2.0), backend=ts.torch.backend, options=OPTIONS)
        torch.testing.assert_close(f(torch.ones(3)), torch.full((3,), 5.0))
    finally:
        unregister_op(Tripled)


def test_sizes_that_must_be_equal_are_guarded():
    @ts.torch.register("test::dot")
    def dot(x, y):
        k = te.reduce_axis(x.shape[0], "k")
        return te.compute((1,), lambda _: te.sum(x[k] * y[k], axis=k))

    f = torch.compile(
        lambda x, y: dot(x, y), backend=ts.torch.backend, dynamic=True, options=OPTIONS
    )
    for n in (3, 4):
        torch.testing.assert_close(f(torch.ones(n), torch.ones(n)), torch.tensor([float(n)]))
        torch.testing.assert_close(dot(torch.ones(n), torch.ones(n)), torch.tensor([float(n)]))
    with pytest.raises(ts.ModelError, match=r"test.dot.f32\[4\], f32\[3\].*may leave"):
        dot(torch.ones(4), torch.ones(3))


def test_what_can_not_be_registered_is_said():
    s, _ = two_results()
    open_x = te.placeholder((te.var("n"),), "f32", "x")
    y = te.compute(open_x.shape, lambda i: open_x[i] + 1.0)
    wrong = [
        (("snake", _snake), "expected a name such as 'mylib::snake'"),
        (("aten::relu", _snake), "PyTorch has an operator 'aten::relu' already"),
        (("test::a", 3), "definition: expected a function, a Schedule or None, found 3"),
        (("test::a", lambda *x: x), "expected plain parameters"),
        (("test::a", lambda: None), "expected a parameter that is a tensor"),
        (("test::a", s), "a schedule needs its arguments"),
        (("test::a", te.create_schedule(y), [open_x, y]), "x has symbolic sizes"),
    ]
    for given, message in wrong:
        with pytest.raises(ts.UsageError, match=message):
            ts.torch.register(*given)


def test_errors_of_calls_are_typed():
    snake = ts.torch.register("test::plain_snake", _snake)
    with pytest.raises(ts.ModelError, match=r"test.plain_snake.i64\[3\].*does not fit"):
        snake(torch.ones(3, dtype=torch.int64))
    with pytest.raises(ts.UnsupportedError, match="element type complex64"):
        snake(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(ts.UsageError, match="test::plain_snake has no gradient"):
        snake(torch.ones(3, requires_grad=True)).sum().backward()
    broken = ts.torch.register("test::broken", lambda x: x.nothing)
    with pytest.raises(ts.UsageError, match=r"test::broken of f32\[3\]: AttributeError"):
        broken(torch.ones(3))
    same = ts.torch.register("test::same", lambda x: x)
    with pytest.raises(ts.UsageError, match=r"expected tensors that te\.compute makes"):
        same(torch.ones(3))
    few = ts.torch.register("test::few", _snake, results=2)
    with pytest.raises(ts.UsageError, match="expected 2 results, as registered, found 1"):
        few(torch.ones(3))
