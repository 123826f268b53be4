"""Generators of the kind that AutoKernel has for operators, and the steps of its tutorial."""

from __future__ import annotations

import numpy as np
import pytest

import tilesmith.compat.halide as hl
from tilesmith.support.errors import UsageError

x, y, c, n, co, ci, k = (hl.Var(name) for name in ("x", "y", "c", "n", "co", "ci", "k"))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32) - np.float32(0.5)


def padded(source: hl.ImageParam, value: float, left: hl.Expr, top: hl.Expr) -> hl.Func:
    """An image with `value` outside of its first two dimensions, moved by the padding."""
    every = (hl.Expr(), hl.Expr())
    bounded = hl.BoundaryConditions.constant_exterior(
        source, value, [(0, source.dim(0).extent()), (0, source.dim(1).extent()), every, every]
    )
    f = hl.Func("padded")
    f[x, y, c, n] = bounded[x - left, y - top, c, n]
    return f


class DirectConvolution(hl.Generator):
    input = hl.InputBuffer(hl.Float(32), 4)
    kernel = hl.InputBuffer(hl.Float(32), 4)
    bias = hl.InputBuffer(hl.Float(32), 1)
    input_c = hl.InputScalar(hl.Int(32))
    stride = hl.InputScalar(hl.Int(32))
    pad_width = hl.InputScalar(hl.Int(32))
    pad_height = hl.InputScalar(hl.Int(32))
    act = hl.InputScalar(hl.Int(32))
    relu = hl.OutputBuffer(hl.Float(32), 4)

    def generate(self):
        source = padded(self.input, 0.0, self.pad_width, self.pad_height)
        self.conv = hl.Func("conv")
        kernel = self.kernel
        r = hl.RDom(0, kernel.dim(0).extent(), 0, kernel.dim(1).extent(), 0, self.input_c)
        self.conv[x, y, co, n] = self.bias[co]
        self.conv[x, y, co, n] += (
            kernel[r[0], r[1], r[2], co]
            * source[x * self.stride + r[0], y * self.stride + r[1], r[2], n]
        )
        value = self.conv[x, y, co, n]
        self.relu[x, y, co, n] = hl.select(self.act >= 0, hl.max(self.act, value), value)

    def schedule(self):
        if self.auto_schedule:
            self.stride.set_estimate(1)


def _convolution(image, kernel, bias, stride: int, pad: int, floor: float) -> np.ndarray:
    wide = np.pad(image, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, kernel.shape[2:], (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows[:, :, ::stride, ::stride], kernel)
    return np.maximum(sums + bias[:, None, None], floor)


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("stride, pad, act", [(1, 1, 0), (2, 0, -1)])
def test_a_convolution_starts_from_its_bias(scheduled, stride, pad, act):
    image, kernel, bias = numbers(2, 3, 9, 11), numbers(4, 3, 3, 3), numbers(4)
    made = DirectConvolution()
    for param, value in zip(made.inputs.values(), (image, kernel, bias, 3, stride, pad, pad, act)):
        param.set(value)
    wanted = _convolution(image, kernel, bias, stride, pad, 0 if act == 0 else -np.inf)
    made.build_pipeline()
    if scheduled:
        made.relu.reorder(co, x, y, n).vectorize(x, 4).parallel(n)
        made.conv.compute_at(made.relu, y).update().vectorize(x, 4)
    found = np.asarray(made.realize(*reversed(wanted.shape)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


class Pool(hl.Generator):
    by_maximum = hl.GeneratorParam(False)
    input = hl.InputBuffer(hl.Float(32), 4)
    stride = hl.InputScalar(hl.Int(32))
    pad_width = hl.InputScalar(hl.Int(32))
    pad_height = hl.InputScalar(hl.Int(32))
    kernel_w = hl.InputScalar(hl.Int(32))
    kernel_h = hl.InputScalar(hl.Int(32))
    output = hl.OutputBuffer(hl.Float(32), 4)

    def generate(self):
        lowest = -3.4e38 if self.by_maximum else 0.0
        source = padded(self.input, lowest, self.pad_width, self.pad_height)
        r = hl.RDom(0, self.kernel_w, 0, self.kernel_h)
        element = source[x * self.stride + r.x, y * self.stride + r.y, c, n]
        if self.by_maximum:
            self.output[x, y, c, n] = hl.maximum(element)
            return
        total = hl.Func("total")
        total[x, y, c, n] += element

        def count(v, pad, size, extent):
            origin = v * self.stride - pad
            return hl.min(size, extent - origin) - hl.max(0, -origin)

        inside = count(x, self.pad_width, self.kernel_w, self.input.dim(0).extent()) * count(
            y, self.pad_height, self.kernel_h, self.input.dim(1).extent()
        )
        self.output[x, y, c, n] = total[x, y, c, n] / inside


@pytest.mark.parametrize("by_maximum", [False, True])
def test_a_pool_ignores_the_padding(by_maximum):
    image = numbers(1, 2, 8, 10)
    made = Pool(by_maximum=by_maximum)
    for param, value in zip(made.inputs.values(), (image, 2, 1, 1, 3, 3)):
        param.set(value)
    wide = np.pad(image, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2]
    wanted = (np.nanmax if by_maximum else np.nanmean)(windows, axis=(4, 5))
    found = np.asarray(made.realize(*reversed(wanted.shape)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


class FullyConnected(hl.Generator):
    hidden = hl.GeneratorParam(0)

    def configure(self):
        self.add_input("input", hl.Float(32), 2)
        self.add_input("filter", hl.Float(32), 2)
        self.add_input("bias", hl.Float(32), 1)
        self.add_output("output", hl.Float(32), 2)

    def generate(self):
        b, product = hl.Var("b"), hl.Func("product")
        h = hl.RDom(0, self.hidden)
        product[co, b] = self.bias[co]
        product[co, b] += self.input[h, b] * self.filter[h, co]
        self.output[co, b] = product[co, b]


def test_a_fully_connected_layer_has_the_inputs_that_it_configures(tmp_path):
    image, weights, bias = numbers(5, 12), numbers(7, 12), numbers(7)
    made = FullyConnected(hidden=12)
    for param, value in zip(made.inputs.values(), (image, weights, bias)):
        param.set(value)
    found = np.asarray(made.realize(7, 5))
    np.testing.assert_allclose(found, image @ weights.T + bias, rtol=1e-5, atol=1e-6)
    made.output.set_estimates([(0, 7), (0, 5)])
    files = made.compile_to_file(tmp_path / "layer")
    assert "const float *filter, const float *bias, float *output" in files.header.read_text()


def test_a_size_that_only_a_call_knows_is_refused_for_a_file(tmp_path):
    made = Pool()
    made.build_pipeline()
    made.input.set_estimates([(0, 8), (0, 8), (0, 1), (0, 1)])
    made.output.set_estimates([(0, 4), (0, 4), (0, 1), (0, 1)])
    with pytest.raises(UsageError, match="expected a number when the pipeline is compiled"):
        made.compile_to_file(tmp_path / "pool")


class PackedProduct(hl.Generator):
    """A product of matrices whose second one is packed in panels, for several ranges of sizes."""

    a = hl.InputBuffer(hl.Float(32), 2)
    b = hl.InputBuffer(hl.Float(32), 2)
    result = hl.OutputBuffer(hl.Float(32), 2)

    def generate(self):
        i, j, ii, ji, io, jo, t, v = (
            hl.Var(m) for m in ("i", "j", "ii", "ji", "io", "jo", "t", "v")
        )
        ti, tj = ([hl.Var(f"{m}{q}") for q in range(3)] for m in ("ti", "tj"))
        rows, columns, s = self.a.height(), self.b.width(), 16
        edge, panels, b = hl.Func("edge"), hl.Func("panels"), hl.Func("b_")
        edge[i, j] = hl.BoundaryConditions.constant_exterior(self.b, 0.0)[i, j]
        panels[i, j, io] = edge[io * s + i, j]
        b[i, j] = panels[i % s, j, i / s]
        product = hl.Func("product")
        r = hl.RDom(0, self.a.width(), name="r")
        product[i, j] += self.a[r, j] * b[i, r]
        self.result[i, j] = product[i, j]

        result = self.result
        result.tile(i, j, ti[1], tj[1], i, j, 2 * s, 2 * s, hl.TailStrategy.GuardWithIf)
        result.tile(i, j, ii, ji, s, 4).tile(i, j, ti[0], tj[0], i, j, 1, s // 4)
        result.specialize((rows >= 64) & (columns >= 64)).tile(
            ti[1], tj[1], ti[2], tj[2], ti[1], tj[1], 2, 2
        ).fuse(tj[2], ti[2], t).parallel(t)
        result.specialize((rows >= 32) & (columns >= 64)).fuse(tj[1], ti[1], t).parallel(t)
        result.rename(tj[0], v)
        product.compute_at(result, i).bound_extent(j, 4).unroll(j).vectorize(i)
        product.update().reorder(i, j, r).unroll(j).unroll(r, 2).vectorize(i)
        panels.compute_root().split(j, jo, ji, s).reorder(i, ji, io, jo).vectorize(i)
        panels.specialize((columns >= 256) & (rows >= 64)).parallel(jo, 4)


@pytest.mark.parametrize("rows, columns, inner", [(128, 128, 16), (40, 72, 20), (20, 24, 17)])
def test_a_packed_product_chooses_its_schedule_by_size(rows, columns, inner):
    a, b = numbers(rows, inner), numbers(inner, columns)
    made = PackedProduct()
    made.a.set(a)
    made.b.set(b)
    found = np.asarray(made.realize(columns, rows))
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)
    text = str(made.build_pipeline().loops(columns, rows))
    assert ("in parallel" in text) is (rows >= 32)


def _naive(product, result, r) -> None:
    product.compute_root()


def _tiled(product, result, r) -> None:
    xi, yi = hl.Var("xi"), hl.Var("yi")
    product.compute_root().update().tile(x, y, xi, yi, 16, 8).reorder(xi, yi, r, x, y)


def _in_vectors(product, result, r) -> None:
    xi, yi = hl.Var("xi"), hl.Var("yi")
    product.compute_root().vectorize(x, 8)
    product.update().tile(x, y, xi, yi, 16, 8).reorder(xi, yi, r, x, y).vectorize(xi, 8)


def _unrolled_by_threads(product, result, r) -> None:
    xi, yi, yii, xy = (hl.Var(m) for m in ("xi", "yi", "yii", "xy"))
    result.tile(x, y, xi, yi, 24, 32).fuse(x, y, xy).parallel(xy)
    result.split(yi, yi, yii, 4).vectorize(xi, 8).unroll(xi).unroll(yii)
    product.compute_at(result, yi).vectorize(x, 8).unroll(y)
    product.update().reorder(x, y, r).vectorize(x, 8).unroll(x).unroll(y).unroll(r, 2)


@pytest.mark.parametrize("schedule", [_naive, _tiled, _in_vectors, _unrolled_by_threads])
def test_each_step_of_a_product_of_matrices_has_the_same_answer(schedule):
    a, b = numbers(64, 48), numbers(48, 72)
    product, result = hl.Func("product"), hl.Func("result")
    r = hl.RDom(0, 48)
    product[x, y] = 0.0
    product[x, y] += hl.Buffer(a)[r, y] * hl.Buffer(b)[x, r]
    result[x, y] = product[x, y]
    schedule(product, result, r)
    found = np.asarray(result.realize(72, 64))
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)
