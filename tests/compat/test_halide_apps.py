"""Programs of the kind that Halide ships as applications, with schedules, against NumPy."""

from __future__ import annotations

import numpy as np

import tilesmith.compat.halide as hl

x, y, z, c, k, i = (hl.Var(n) for n in ("x", "y", "z", "c", "k", "i"))
xi, yi, xo, yo, xx, yy = (hl.Var(n) for n in ("xi", "yi", "xo", "yo", "xx", "yy"))


def picture(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """A smooth picture with some noise, in 0..1 or the range of an integer type."""
    rows, columns = np.mgrid[: shape[-2], : shape[-1]]
    smooth = 0.5 + 0.3 * np.sin(rows / 5.0) * np.cos(columns / 7.0)
    noise = np.random.default_rng(0).random(shape) * 0.4 - 0.2
    values = np.clip(smooth + noise, 0, 1)
    if np.issubdtype(dtype, np.integer):
        values = values * np.iinfo(dtype).max
    return values.astype(dtype)


def around(a: np.ndarray, size: int) -> np.ndarray:
    """A picture with its edges repeated, along the last two axes."""
    return np.pad(a, [(0, 0)] * (a.ndim - 2) + [(size, size)] * 2, mode="edge")


def moved(a: np.ndarray, size: int, dx: int, dy: int) -> np.ndarray:
    """The part of a picture with an edge of `size` that is moved by `dx` and `dy`."""
    height, width = a.shape[-2] - 2 * size, a.shape[-1] - 2 * size
    return a[..., size + dy : size + dy + height, size + dx : size + dx + width]


def test_a_blur_of_3_by_3_slides_in_strips():
    image = picture(68, 130, dtype=np.uint16)
    source = hl.Buffer(image)
    blur_x, blur_y = hl.Func("blur_x"), hl.Func("blur_y")
    blur_x[x, y] = (source[x, y] + source[x + 1, y] + source[x + 2, y]) / 3
    blur_y[x, y] = (blur_x[x, y] + blur_x[x, y + 1] + blur_x[x, y + 2]) / 3
    blur_y.split(y, y, yi, 8).parallel(y).vectorize(x, 8)
    blur_x.store_at(blur_y, y).compute_at(blur_y, yi).vectorize(x, 8)
    across = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) // np.uint16(3)
    wanted = (across[:-2] + across[1:-1] + across[2:]) // np.uint16(3)
    np.testing.assert_array_equal(np.asarray(blur_y.realize([128, 66])), wanted)


def test_unsharp_masking_adds_what_a_gaussian_blur_takes_away():
    image = picture(3, 40, 64)
    source, sigma = hl.Buffer(image), hl.Param(hl.Float(32), "sigma", 1.5)
    kernel, gray, blur_y, blur_x, sharpen, ratio, unsharp = (
        hl.Func(n) for n in ("kernel", "gray", "blur_y", "blur_x", "sharpen", "ratio", "unsharp")
    )
    clamped = hl.BoundaryConditions.repeat_edge(source)
    kernel[x] = hl.exp(-x * x / (2 * sigma * sigma)) / (np.float32(np.sqrt(2 * np.pi)) * sigma)
    gray[x, y] = 0.299 * clamped[x, y, 0] + 0.587 * clamped[x, y, 1] + 0.114 * clamped[x, y, 2]

    def weighted(f: hl.Func, dx: int, dy: int) -> hl.Expr:
        value = kernel[0] * f[x, y]
        for n in (1, 2, 3):
            near = f[x - n * dx, y - n * dy] + f[x + n * dx, y + n * dy]
            value = value + kernel[n] * near
        return value

    blur_y[x, y] = weighted(gray, 0, 1)
    blur_x[x, y] = weighted(blur_y, 1, 0)
    sharpen[x, y] = 2 * gray[x, y] - blur_x[x, y]
    ratio[x, y] = sharpen[x, y] / gray[x, y]
    unsharp[x, y, c] = ratio[x, y] * source[x, y, c]
    kernel.compute_root()
    unsharp.split(y, yo, y, 8).parallel(yo).vectorize(x, 8).reorder(x, c, y, yo)
    ratio.compute_at(unsharp, y).vectorize(x, 8)
    gray.store_at(unsharp, yo).compute_at(unsharp, y).vectorize(x, 8)
    blur_y.compute_at(unsharp, y).vectorize(x, 8)

    luma = np.tensordot(np.array([0.299, 0.587, 0.114]), around(image, 3), 1)
    weights = np.exp(-(np.arange(-3.0, 4) ** 2) / 4.5) / (np.sqrt(2 * np.pi) * 1.5)
    steps = list(zip(range(-3, 4), weights))
    down = sum(w * luma[3 + n : 43 + n] for n, w in steps)
    both = sum(w * down[:, 3 + n : 67 + n] for n, w in steps)
    center = moved(luma, 3, 0, 0)
    wanted = (2 * center - both) / center * image
    np.testing.assert_allclose(
        np.asarray(unsharp.realize([64, 40, 3])), wanted, rtol=1e-4, atol=1e-6
    )


def test_histogram_equalisation_spreads_the_values_of_a_picture():
    image = picture(48, 64, dtype=np.uint8)
    source = hl.Buffer(image)
    rows, histogram, cdf, equalised = (
        hl.Func(n) for n in ("rows", "histogram", "cdf", "equalised")
    )
    r_x, r_y, b = hl.RDom(0, 64), hl.RDom(0, 48), hl.RDom(1, 255)
    rows[i, y] = hl.u32(0)
    rows[source[r_x, y], y] += hl.u32(1)
    histogram[i] = hl.u32(0)
    histogram[i] += rows[i, r_y]
    cdf[i] = histogram[0]
    cdf[b.x] = cdf[b.x - 1] + histogram[b.x]
    scaled = hl.f32(cdf[source[x, y]]) * (255.0 / (48 * 64))
    equalised[x, y] = hl.u8(hl.clamp(scaled, 0.0, 255.0))
    rows.compute_root().vectorize(i, 8).parallel(y).update().parallel(y)
    histogram.compute_root().vectorize(i, 8).update().reorder(i, r_y.x).vectorize(i, 8)
    cdf.compute_root()
    equalised.parallel(y, 8).vectorize(x, 8)
    counts = np.cumsum(np.bincount(image.ravel(), minlength=256))
    table = np.clip(counts.astype(np.float32) * np.float32(255.0 / (48 * 64)), 0, 255)
    wanted = table[image].astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(equalised.realize([64, 48])), wanted)


S = 8  # pixels of a cell of the bilateral grid


def test_a_bilateral_grid_smooths_inside_of_edges():
    image = picture(32, 48)
    source, range_sigma = hl.Buffer(image), hl.Param(hl.Float(32), "range_sigma", 0.1)
    clamped = hl.BoundaryConditions.repeat_edge(source)
    histogram, blur_z, blur_x, blur_y, inside, result = (
        hl.Func(n) for n in ("histogram", "blur_z", "blur_x", "blur_y", "inside", "result")
    )
    r = hl.RDom([(0, S), (0, S)])
    value = hl.clamp(clamped[x * S + r.x - S // 2, y * S + r.y - S // 2], 0.0, 1.0)
    cell = hl.i32(value * (1.0 / range_sigma) + 0.5)
    histogram[x, y, z, c] = 0.0
    histogram[x, y, hl.clamp(cell, 0, 10), c] += hl.select(c == 0, value, 1.0)

    def smoothed(f: hl.Func, dx: int, dy: int, dz: int) -> hl.Expr:
        def at(n: int) -> hl.Expr:
            return f[x + n * dx, y + n * dy, z + n * dz, c]

        return at(-2) + at(-1) * 4 + at(0) * 6 + at(1) * 4 + at(2)

    blur_z[x, y, z, c] = smoothed(histogram, 0, 0, 1)
    blur_x[x, y, z, c] = smoothed(blur_z, 1, 0, 0)
    blur_y[x, y, z, c] = smoothed(blur_x, 0, 1, 0)
    place = hl.clamp(source[x, y], 0.0, 1.0) * (1.0 / range_sigma)
    zi = hl.clamp(hl.i32(place), 0, 10)
    zf, xf, yf = place - zi, hl.f32(x % S) / S, hl.f32(y % S) / S
    left, top = x / S, y / S

    def level(n: int) -> hl.Expr:
        rows = [hl.lerp(blur_y[left, top + m, zi + n, c], blur_y[left + 1, top + m, zi + n, c], xf)
                for m in (0, 1)]  # fmt: skip
        return hl.lerp(*rows, yf)

    inside[x, y, c] = hl.lerp(level(0), level(1), zf)
    result[x, y] = inside[x, y, 0] / inside[x, y, 1]
    blur_z.compute_root().reorder(c, z, x, y).parallel(y).vectorize(x, 8).unroll(c)
    histogram.compute_at(blur_z, y)
    histogram.update().reorder(c, r.x, r.y, x, y).unroll(c)
    for f in (blur_x, blur_y):
        f.compute_root().reorder(c, x, y, z).parallel(z).vectorize(x, 8).unroll(c)
    result.compute_root().parallel(y).vectorize(x, 8)

    # the grid, with an edge of 2 cells on each side, and 3 below and above along z
    edge, height, width, depth = 2, 32 // S + 2, 48 // S + 2, 12
    grid = np.zeros((2, depth + 6, height + 2 * edge, width + 2 * edge))
    for gy in range(height + 2 * edge):
        for gx in range(width + 2 * edge):
            ys = np.clip((gy - edge) * S + np.arange(S) - S // 2, 0, 31)
            xs = np.clip((gx - edge) * S + np.arange(S) - S // 2, 0, 47)
            values = image[np.ix_(ys, xs)]
            cells = np.clip((values * np.float32(10) + np.float32(0.5)).astype(int), 0, 10)
            np.add.at(grid[0, :, gy, gx], cells + 3, values)
            np.add.at(grid[1, :, gy, gx], cells + 3, 1)
    for axis in (1, 3, 2):
        n = grid.shape[axis]
        parts = [np.take(grid, range(m, n - 4 + m), axis) for m in range(5)]
        grid = sum(w * part for w, part in zip((1, 4, 6, 4, 1), parts))
    rows, columns = np.mgrid[:32, :48]
    place = image * np.float32(10)
    zi = np.clip(place.astype(int), 0, 10)
    total = np.zeros((2, 32, 48))
    for dz, dy, dx in np.ndindex(2, 2, 2):
        fractions = [(dz, place - zi), (dy, rows % S / S), (dx, columns % S / S)]
        weight = np.prod([f if d else 1 - f for d, f in fractions], axis=0)
        total += weight * grid[:, zi + dz + 1, rows // S + dy, columns // S + dx]
    np.testing.assert_allclose(np.asarray(result.realize([48, 32])), total[0] / total[1], rtol=1e-4)


def _down(f: hl.Func) -> hl.Func:
    across, down = hl.Func(f"{f.name()}_across"), hl.Func(f"{f.name()}_down")
    across[x, y, hl._] = (
        f[2 * x - 1, y, hl._] + 3.0 * (f[2 * x, y, hl._] + f[2 * x + 1, y, hl._])
        + f[2 * x + 2, y, hl._]
    ) / 8.0  # fmt: skip
    down[x, y, hl._] = (
        across[x, 2 * y - 1, hl._] + 3.0 * (across[x, 2 * y, hl._] + across[x, 2 * y + 1, hl._])
        + across[x, 2 * y + 2, hl._]
    ) / 8.0  # fmt: skip
    return down


def _up(f: hl.Func) -> hl.Func:
    across, up = hl.Func(f"{f.name()}_upx"), hl.Func(f"{f.name()}_up")
    across[x, y, hl._] = 0.25 * f[x / 2 - 1 + 2 * (x % 2), y, hl._] + 0.75 * f[x / 2, y, hl._]
    up[x, y, hl._] = 0.25 * across[x, y / 2 - 1 + 2 * (y % 2), hl._] + 0.75 * across[x, y / 2, hl._]
    return up


class Pyramid:
    """Pictures over all coordinates: the reference of the two pyramids.

    at: the values at coordinates, rows and columns.
    """

    def __init__(self, at) -> None:
        self.known: dict[tuple[int, int], np.ndarray] = {}
        self.at_place = at

    def __call__(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        found = [self.one(int(a), int(b)) for a, b in zip(rows.ravel(), columns.ravel())]
        return np.array(found).reshape(*rows.shape, *np.shape(found[0]))

    def one(self, row: int, column: int) -> np.ndarray:
        place = row, column
        if place not in self.known:
            self.known[place] = self.at_place(row, column)
        return self.known[place]

    def down(self) -> Pyramid:
        steps = list(zip((-1, 0, 1, 2), (0.125, 0.375, 0.375, 0.125)))
        return Pyramid(
            lambda row, column: sum(
                a * b * self.one(2 * row + m, 2 * column + n) for m, a in steps for n, b in steps
            )
        )

    def up(self) -> Pyramid:
        def at(row: int, column: int) -> np.ndarray:
            rows = [(row // 2 - 1 + 2 * (row % 2), 0.25), (row // 2, 0.75)]
            columns = [(column // 2 - 1 + 2 * (column % 2), 0.25), (column // 2, 0.75)]
            return sum(a * b * self.one(m, n) for m, a in rows for n, b in columns)

        return Pyramid(at)


def test_a_local_laplacian_filter_changes_details_and_keeps_edges():
    image, levels, count = picture(16, 24), 4, 3
    alpha, beta = 0.5, 0.8
    clamped = hl.BoundaryConditions.repeat_edge(hl.Buffer(image))
    gray, remap = hl.Func("gray"), hl.Func("remap")
    gray[x, y] = clamped[x, y]
    distance = hl.f32(x) / 256.0
    remap[x] = alpha * distance * hl.exp(-distance * distance / 2.0)
    gaussian = [hl.Func("gaussian0")]
    level = k * (1.0 / (levels - 1))
    place = hl.clamp(hl.i32(gray[x, y] * (levels - 1) * 256.0), 0, (levels - 1) * 256)
    gaussian[0][x, y, k] = beta * (gray[x, y] - level) + level + remap[place - 256 * k]
    inputs = [gray]
    for j in range(1, count):
        for pyramid, name in ((gaussian, "gaussian"), (inputs, "inputs")):
            f, axes = hl.Func(f"{name}{j}"), (x, y, k)[: pyramid[-1].dimensions()]
            f[axes] = _down(pyramid[-1])[axes]
            pyramid.append(f)
    laplacian = [hl.Func(f"laplacian{j}") for j in range(count)]
    laplacian[-1][x, y, k] = gaussian[-1][x, y, k]
    for j in range(count - 1):
        laplacian[j][x, y, k] = gaussian[j][x, y, k] - _up(gaussian[j + 1])[x, y, k]
    details = [hl.Func(f"details{j}") for j in range(count)]
    for j in range(count):
        value = inputs[j][x, y] * hl.f32(levels - 1)
        li = hl.clamp(hl.i32(value), 0, levels - 2)
        lf = value - hl.f32(li)
        details[j][x, y] = (1.0 - lf) * laplacian[j][x, y, li] + lf * laplacian[j][x, y, li + 1]
    results = [hl.Func(f"results{j}") for j in range(count)]
    results[-1][x, y] = details[-1][x, y]
    for j in reversed(range(count - 1)):
        results[j][x, y] = _up(results[j + 1])[x, y] + details[j][x, y]
    remap.compute_root()
    results[0].parallel(y, 4).vectorize(x, 8)
    gray.compute_root().parallel(y, 4).vectorize(x, 8)
    for j in range(1, count):
        inputs[j].compute_root().parallel(y, 4).vectorize(x, 8)
        gaussian[j].compute_root().reorder_storage(x, k, y).reorder(k, y).parallel(y, 4)
        gaussian[j].vectorize(x, 8)
        results[j].compute_root().parallel(y, 4).vectorize(x, 8)
    found = np.asarray(results[0].realize([24, 16]))

    ks = np.arange(levels)

    def pixel(row: int, column: int) -> float:
        return float(image[np.clip(row, 0, 15), np.clip(column, 0, 23)])

    def remapped(row: int, column: int) -> np.ndarray:
        value, lift = pixel(row, column), ks / (levels - 1)
        index = int(np.clip(int(np.float32(value) * 3 * 256), 0, 768))
        offset = (index - 256 * ks) / 256.0
        return beta * (value - lift) + lift + alpha * offset * np.exp(-(offset**2) / 2)

    g, n = [Pyramid(remapped)], [Pyramid(pixel)]
    for _ in range(1, count):
        g.append(g[-1].down())
        n.append(n[-1].down())

    def detail(j: int) -> Pyramid:
        above = g[j + 1].up() if j + 1 < count else None

        def at(row: int, column: int) -> float:
            stack = g[j].one(row, column) - (above.one(row, column) if above else 0)
            value = n[j].one(row, column) * (levels - 1)
            li = int(np.clip(int(value), 0, levels - 2))
            return (1 - value + li) * stack[li] + (value - li) * stack[li + 1]

        return Pyramid(at)

    wanted = detail(count - 1)
    for j in reversed(range(count - 1)):
        wide, own = wanted.up(), detail(j)
        wanted = Pyramid(
            lambda row, column, wide=wide, own=own: wide.one(row, column) + own.one(row, column)
        )
    rows, columns = np.mgrid[:16, :24]
    np.testing.assert_allclose(found, wanted(rows, columns), atol=2e-4)


def test_interpolation_fills_gaps_from_coarser_pictures():
    image = picture(4, 16, 24)
    image[3] = np.random.default_rng(1).random((16, 24)) > 0.6
    levels = 3
    clamped = hl.BoundaryConditions.repeat_edge(hl.Buffer(image))
    downsampled = [hl.Func(f"downsampled{n}") for n in range(levels)]
    across = [hl.Func(f"across{n}") for n in range(levels)]
    upsampled = [hl.Func(f"upsampled{n}") for n in range(levels)]
    wide = [hl.Func(f"wide{n}") for n in range(levels)]
    interpolated = [hl.Func(f"interpolated{n}") for n in range(levels)]
    downsampled[0][x, y, c] = hl.select(
        c < 3, clamped[x, y, hl.clamp(c, 0, 3)] * clamped[x, y, 3], clamped[x, y, 3]
    )
    for n in range(1, levels):
        f = downsampled[n - 1]
        across[n][x, y, c] = (
            f[x * 2 - 1, y, c] + 2.0 * f[x * 2, y, c] + f[x * 2 + 1, y, c]) * 0.25  # fmt: skip
        downsampled[n][x, y, c] = (
            across[n][x, y * 2 - 1, c] + 2.0 * across[n][x, y * 2, c] + across[n][x, y * 2 + 1, c]
        ) * 0.25
    interpolated[-1][x, y, c] = downsampled[-1][x, y, c]
    for n in reversed(range(levels - 1)):
        f = interpolated[n + 1]
        wide[n][x, y, c] = (f[x / 2, y, c] + f[(x + 1) / 2, y, c]) / 2.0
        upsampled[n][x, y, c] = (wide[n][x, y / 2, c] + wide[n][x, (y + 1) / 2, c]) / 2.0
        alpha = 1.0 - downsampled[n][x, y, 3]
        interpolated[n][x, y, c] = downsampled[n][x, y, c] + alpha * upsampled[n][x, y, c]
    normalised = hl.Func("normalised")
    normalised[x, y, c] = interpolated[0][x, y, c] / interpolated[0][x, y, 3]
    for n in range(1, levels):
        downsampled[n].compute_root().parallel(y, 8).vectorize(x, 4)
        across[n].compute_at(downsampled[n], y).vectorize(x, 4)
        interpolated[n].compute_root().parallel(y, 8).vectorize(x, 4)
    downsampled[0].compute_root().parallel(c)
    normalised.tile(x, y, xx, yy, xi, yi, 4, 4).unroll(xi).unroll(yi).reorder(c, xi, yi, xx, yy)
    normalised.bound(c, 0, 3).parallel(yy)
    found = np.asarray(normalised.realize([24, 16, 3]))

    def first(row: int, column: int) -> np.ndarray:
        pixel = image[:, np.clip(row, 0, 15), np.clip(column, 0, 23)].astype(float)
        return np.array([*(pixel[:3] * pixel[3]), pixel[3]])

    stack = [Pyramid(first)]
    steps = ((-1, 0.25), (0, 0.5), (1, 0.25))
    for _ in range(1, levels):
        below = stack[-1]
        stack.append(Pyramid(lambda row, column, below=below: sum(
            a * b * below.one(2 * row + m, 2 * column + q) for m, a in steps for q, b in steps
        )))  # fmt: skip
    wanted = stack[-1]
    for n in reversed(range(levels - 1)):

        def filled(row: int, column: int, own=stack[n], above=wanted) -> np.ndarray:
            mean = sum(above.one((row + a) // 2, (column + b) // 2) for a in (0, 1) for b in (0, 1))
            value = own.one(row, column)
            return value + (1 - value[3]) * mean / 4

        wanted = Pyramid(filled)
    values = wanted(*np.mgrid[:16, :24])
    np.testing.assert_allclose(
        found, np.moveaxis(values[..., :3] / values[..., 3:], -1, 0), rtol=1e-4, atol=1e-5
    )


def test_non_local_means_averages_pixels_with_similar_surroundings():
    image, patch, search, sigma = picture(3, 24, 32), 3, 5, 0.3
    clamped = hl.BoundaryConditions.repeat_edge(hl.Buffer(image))
    dx, dy, tx, ty = (hl.Var(n) for n in ("dx", "dy", "tx", "ty"))
    d, blur_y, blur, with_alpha, total, result = (
        hl.Func(n) for n in ("d", "blur_y", "blur", "with_alpha", "total", "result")
    )
    channels = hl.RDom([(0, 3)])
    difference = clamped[x, y, channels] - clamped[x + dx, y + dy, channels]
    d[x, y, dx, dy] = hl.sum(difference * difference)
    window = hl.RDom([(-(patch // 2), patch)])
    blur_y[x, y, dx, dy] = hl.sum(d[x, y + window, dx, dy])
    blur[x, y, dx, dy] = hl.sum(blur_y[x + window, y, dx, dy])
    with_alpha[x, y, c] = hl.select(c < 3, clamped[x, y, hl.clamp(c, 0, 2)], 1.0)
    s = hl.RDom([(-(search // 2), search), (-(search // 2), search)])
    weight = hl.fast_exp(blur[x, y, s.x, s.y] * (-1.0 / (sigma * sigma * patch * patch)))
    total[x, y, c] += weight * with_alpha[x + s.x, y + s.y, c]
    result[x, y, c] = hl.clamp(total[x, y, c] / total[x, y, 3], 0.0, 1.0)
    result.reorder(c, x, y).tile(x, y, tx, ty, x, y, 16, 8).parallel(ty).vectorize(x, 8)
    blur_y.compute_at(result, tx).reorder(y, x).vectorize(x, 8)
    d.compute_at(result, tx).vectorize(x, 8)
    total.compute_at(result, x).bound(c, 0, 4)
    total.update().reorder(c, x, y, s.x, s.y).unroll(c).vectorize(x, 8)
    blur.compute_at(total, s.x).vectorize(x, 8)

    edge = search // 2 + patch // 2
    wide = around(image, edge).astype(float)
    above, below = np.zeros_like(image, float), np.zeros(image.shape[1:])
    for oy, ox in np.ndindex(search, search):
        oy, ox = oy - search // 2, ox - search // 2
        distance = 0
        for py, px in np.ndindex(patch, patch):
            py, px = py - patch // 2, px - patch // 2
            # coordinates are clamped after both offsets are added
            there = moved(wide, edge, px + ox, py + oy)
            distance = distance + ((moved(wide, edge, px, py) - there) ** 2).sum(0)
        w = np.exp(-distance / (sigma**2 * patch**2))
        above += w * moved(wide, edge, ox, oy)
        below += w
    wanted = np.clip(above / below, 0, 1)
    np.testing.assert_allclose(np.asarray(result.realize([32, 24, 3])), wanted, rtol=1e-4)


MATRIX = np.array([[298, -70, 9], [-52, 342, -31], [20, -88, 330]])
"""Colours of a camera to those of a screen, times 256."""


def _curve() -> np.ndarray:
    """The brightness on the screen of each brightness in the camera, 10 bits to 8."""
    return (255 * (np.arange(1024) / 1023) ** (1 / 1.8) + 0.5).astype(np.uint8)


def _mean(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return hl.cast(a.type(), (hl.i32(a) + hl.i32(b) + 1) / 2)


def _interleaved(a: hl.Func, b: hl.Func, along_x: bool) -> hl.Func:
    """The elements of `a` and `b` in turn."""
    f, step = hl.Func("interleaved"), x if along_x else y
    place = (x / 2, y) if along_x else (x, y / 2)
    f[x, y] = hl.select(step % 2 == 0, a[place], b[place])
    return f


def _demosaiced(planes: hl.Func) -> tuple[hl.Func, list[hl.Func]]:
    """The three colours of each pixel, and the Funcs that several others read.

    planes: green beside red, red, blue, and green beside blue.
    """
    gr, r, b, gb = (hl.Func(n) for n in ("gr", "r", "b", "gb"))
    for number, plane in enumerate((gr, r, b, gb)):
        plane[x, y] = planes[x, y, number]

    def nearer(a, b, c, d):
        """The mean of the pair, a and b or c and d, whose members differ less."""
        return hl.select(hl.absd(a, b) < hl.absd(c, d), _mean(a, b), _mean(c, d))

    green_r, green_b, red_gr, blue_gr, red_gb, blue_gb, red_b, blue_r = (
        hl.Func(n)
        for n in ("green_r", "green_b", "red_gr", "blue_gr", "red_gb", "blue_gb", "red_b", "blue_r")
    )
    green_r[x, y] = nearer(gr[x + 1, y], gr[x, y], gb[x, y - 1], gb[x, y])
    green_b[x, y] = nearer(gb[x - 1, y], gb[x, y], gr[x, y + 1], gr[x, y])
    red_gr[x, y] = _mean(r[x - 1, y], r[x, y]) + gr[x, y] - _mean(green_r[x - 1, y], green_r[x, y])
    blue_gr[x, y] = _mean(b[x, y], b[x, y - 1]) + gr[x, y] - _mean(green_b[x, y], green_b[x, y - 1])
    red_gb[x, y] = _mean(r[x, y], r[x, y + 1]) + gb[x, y] - _mean(green_r[x, y], green_r[x, y + 1])
    blue_gb[x, y] = _mean(b[x, y], b[x + 1, y]) + gb[x, y] - _mean(green_b[x, y], green_b[x + 1, y])
    red_b[x, y] = (
        _mean(r[x, y], r[x - 1, y + 1])
        + green_b[x, y]
        - _mean(green_r[x, y], green_r[x - 1, y + 1])
    )
    blue_r[x, y] = (
        _mean(b[x, y], b[x + 1, y - 1])
        + green_r[x, y]
        - _mean(green_b[x, y], green_b[x + 1, y - 1])
    )
    colours = [
        _interleaved(_interleaved(a, b, True), _interleaved(c, d, True), False)
        for a, b, c, d in ((red_gr, r, red_b, red_gb), (gr, green_r, green_b, gb),
                           (blue_gr, blue_r, b, blue_gb))
    ]  # fmt: skip
    output = hl.Func("demosaiced")
    output[x, y, c] = hl.mux(c, [f[x, y] for f in colours])
    return output, [green_r, green_b]


def _camera_by_numpy(raw: np.ndarray, edge: int) -> np.ndarray:
    """The reference, for a picture with an edge of repeated pixels."""

    def at(a: np.ndarray, dx: int, dy: int) -> np.ndarray:
        return np.roll(a, (-dy, -dx), (0, 1))

    def mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a + b + 1) // 2

    wide = np.pad(raw.astype(int), edge, mode="edge")
    near = np.max([at(wide, *d) for d in ((-2, 0), (2, 0), (0, -2), (0, 2))], axis=0)
    calm = np.clip(wide, 0, near)
    gr, r, b, gb = (calm[m::2, n::2] for m, n in ((0, 0), (0, 1), (1, 0), (1, 1)))

    def nearer(a, b, c, d):
        return np.where(abs(a - b) < abs(c - d), mean(a, b), mean(c, d))

    green_r = nearer(at(gr, 1, 0), gr, at(gb, 0, -1), gb)
    green_b = nearer(at(gb, -1, 0), gb, at(gr, 0, 1), gr)

    def corrected(colour, green, own, dx, dy):
        return mean(colour, at(colour, dx, dy)) + own - mean(green, at(green, dx, dy))

    rows = {
        0: ([corrected(r, green_r, gr, -1, 0), r],
            [corrected(r, green_r, green_b, -1, 1), corrected(r, green_r, gb, 0, 1)]),
        1: ([gr, green_r], [green_b, gb]),
        2: ([corrected(b, green_b, gr, 0, -1), corrected(b, green_b, green_r, 1, -1)],
            [b, corrected(b, green_b, gb, 1, 0)]),
    }  # fmt: skip
    colours = np.empty((3, *wide.shape), int)
    for n, planes in rows.items():
        for m, dy in enumerate(planes):
            for q, plane in enumerate(dy):
                colours[n, m::2, q::2] = plane
    shown = _curve()[np.clip(np.tensordot(MATRIX, colours, 1) // 256, 0, 1023)].astype(int)
    blurred = np.array([
        mean(mean(at(a, 0, -1), at(a, 0, 1)), a) for a in
        [mean(mean(at(p, -1, 0), at(p, 1, 0)), p) for p in shown]
    ])  # fmt: skip
    sharp = np.clip(shown + (shown - blurred) * 2, 0, 255)
    return moved(sharp, edge, 0, 0).astype(np.uint8)


def test_a_camera_pipeline_makes_a_picture_of_the_values_of_a_sensor():
    raw = (picture(32, 64) * 1023).astype(np.uint16)
    source, table = hl.BoundaryConditions.repeat_edge(hl.Buffer(raw)), hl.Buffer(_curve())
    denoised, planes, corrected, curved, blur_x, blur_y, processed = (
        hl.Func(n)
        for n in ("denoised", "planes", "corrected", "curved", "blur_x", "blur_y", "processed")
    )
    near = hl.max(source[x - 2, y], source[x + 2, y], source[x, y - 2], source[x, y + 2])
    denoised[x, y] = hl.i16(hl.clamp(source[x, y], 0, near))
    planes[x, y, c] = hl.mux(c, [denoised[2 * x + n, 2 * y + m] for m in (0, 1) for n in (0, 1)])
    demosaiced, greens = _demosaiced(planes)
    red, green, blue = (hl.i32(demosaiced[x, y, n]) for n in range(3))
    corrected[x, y, c] = hl.mux(
        c, [(red * int(a) + green * int(b) + blue * int(d)) / 256 for a, b, d in MATRIX]
    )
    curved[x, y, c] = table[hl.clamp(corrected[x, y, c], 0, 1023)]
    blur_x[x, y, c] = _mean(_mean(curved[x - 1, y, c], curved[x + 1, y, c]), curved[x, y, c])
    blur_y[x, y, c] = _mean(_mean(blur_x[x, y - 1, c], blur_x[x, y + 1, c]), blur_x[x, y, c])
    detail = hl.i16(curved[x, y, c]) - hl.i16(blur_y[x, y, c])
    processed[x, y, c] = hl.u8_sat(curved[x, y, c] + detail * 2)

    yii = hl.Var("yii")
    processed.bound(c, 0, 3).reorder(c, x, y).split(y, yi, yii, 2).split(yi, yo, yi, 4)
    processed.vectorize(x, 16).unroll(yii).unroll(c).parallel(yo)
    denoised.compute_at(processed, yo).vectorize(x, 16)
    planes.compute_at(processed, yo).reorder(c, x, y).vectorize(x, 8).unroll(c)
    for f in greens:
        f.compute_at(processed, yo).vectorize(x, 8)
    curved.compute_at(processed, yo).reorder(c, x, y).vectorize(x, 16)
    demosaiced.compute_at(curved, x).vectorize(x)
    blur_x.compute_at(processed, yi).vectorize(x, 16)
    np.testing.assert_array_equal(
        np.asarray(processed.realize([64, 32, 3])), _camera_by_numpy(raw, 8)
    )
