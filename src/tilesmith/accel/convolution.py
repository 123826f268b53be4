"""Convolutions and dense layers of int8 on the accelerator: the expression, and the schedule by
rule.

Values are packed in blocks of channels: inputs i8[blocks, height, width, block_in], weights
i8[blocks out, blocks in, kernel height, kernel width, block_out, block_in], results like inputs
with block_out.  Groups of channels, as in depthwise convolutions, lie inside of blocks: a block of
results reads its own channels only, and weights between groups are zeros.  A result is
`max(round((sum + bias) * scale + offset), low)`, limited to i8.  Each channel has a scale, an
offset and, if the layer has any, an integer bias; see `AluOp.RESCALE`.

    for tiles of output channels, rows and columns:      # `threads` tiles at a time
        for blocks of input channels:
            load inputs with padding; load weights; multiply
        rescale; store

The rule tries all tiles that divide the extents and fit the buffers, and takes the one of least
predicted time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilesmith import te
from tilesmith.support.errors import ScheduleError, UsageError

from .alu import AluOp
from .instructions import Load, layout
from .intrinsics import SCOPES, alu, alu_value, copy, gemm
from .kernel import AccelKernel, build
from .machine import Machine, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Shapes of a convolution of one image.  A dense layer of many rows is one of a single row of
    pixels and a kernel of 1 x 1.

    inputs, outputs: numbers of channels.
    height, width: extents of the input in pixels.
    kernel: height and width of the kernel.
    stride: pixels from one window to the next one, in both directions.
    padding: rows of zeros above, columns to the left, rows below, columns to the right.
    has_bias: whether integers are added to the sums.
    groups: number of groups of channels; each has as many outputs as inputs if there are several.
    """

    inputs: int
    outputs: int
    height: int
    width: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    has_bias: bool = False
    groups: int = 1

    def __post_init__(self) -> None:
        sizes = (self.inputs, self.outputs, *self.result, *self.kernel, self.stride)
        if min(sizes) < 1 or min(self.padding) < 0:
            raise UsageError(f"{self}: expected positive sizes, and windows inside the image")
        if self.groups != 1 and (self.inputs != self.outputs or self.groups < 1):
            raise UsageError(f"{self}: expected groups with as many outputs as inputs")
        if self.inputs % self.groups:
            raise UsageError(f"{self}: expected groups of equal sizes")

    @property
    def result(self) -> tuple[int, int]:
        """Height and width of the result."""
        top, left, bottom, right = self.padding
        rows = (self.height + top + bottom - self.kernel[0]) // self.stride + 1
        return rows, (self.width + left + right - self.kernel[1]) // self.stride + 1

    def blocks(self, machine: Machine) -> tuple[int, int]:
        """Blocks of output and of input channels; the last ones may be filled with zeros."""
        out = -(-self.outputs // machine.block_out)
        if self.groups > 1:
            return out, out * self.read_blocks(machine)
        return out, -(-self.inputs // machine.block_in)

    def read_blocks(self, machine: Machine) -> int:
        """Blocks of input channels that a block of results reads."""
        if self.groups > 1:
            return machine.block_out // machine.block_in
        return self.blocks(machine)[1]

    @property
    def group(self) -> int:
        """Input channels of a group."""
        return self.inputs // self.groups

    def has_blocks(self, machine: Machine) -> bool:
        """Whether groups lie inside of blocks of results, and blocks of inputs too."""
        sizes = () if self.groups == 1 else (self.group, machine.block_in)
        return all(machine.block_out % n == 0 for n in sizes)

    @property
    def factors(self) -> int:
        """Numbers for each channel: a bias if there is one, a scale, an offset."""
        return 3 if self.has_bias else 2

    @property
    def row_step(self) -> int:
        """Rows of the image from one loaded row to the next one: rows between the windows of a
        kernel of 1 x 1 are not loaded.
        """
        return self.stride if self.kernel[0] == 1 else 1


@dataclass(frozen=True, slots=True)
class Tiles:
    """Sizes of tiles, and who computes them.

    channels: blocks of output channels.
    rows, columns: rows and columns of the result.
    inputs: blocks of input channels, which are loaded at a time.
    threads: number of virtual threads.
    """

    channels: int
    rows: int
    columns: int
    inputs: int
    threads: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted cycles.

    gemm: those in which the matrix unit multiplies.
    compute, load, store: those in which each unit is busy.
    total: those of the whole program.
    """

    gemm: int
    compute: int
    load: int
    store: int
    total: int


def predict(conv: Convolution, tiles: Tiles, machine: Machine) -> Prediction:
    """The cycles of a program with these tiles.

    With one virtual thread, nothing is loaded while the matrix unit works.  With several, a part of
    a sum is loaded while another one is multiplied, and the first part of a tile also while another
    tile is rescaled; the busier unit determines the time.
    """
    out, _ = conv.blocks(machine)
    height, width = conv.result
    taps = math.prod(conv.kernel)
    rows, columns = _window(conv, tiles)
    many = out * height * width // (tiles.channels * tiles.rows * tiles.columns)
    sums = conv.read_blocks(machine) // tiles.inputs
    issue = machine.instruction_cycles

    def moved(memory: Memory, count: int, instructions: int) -> int:
        bytes = count * machine.tile_bytes(memory)
        return -(-bytes // machine.dma_bytes) + instructions * (machine.dma_latency + issue)

    # Padding is not loaded: the share of the pixels of windows that the image has.
    inside = min(conv.height * conv.width / _pixels(conv), 1.0)
    blocks = _loaded(conv, tiles)
    part = moved(Memory.INP, int(blocks * rows * columns * inside), blocks)
    part += moved(Memory.WGT, tiles.channels * tiles.inputs * taps, 1)
    cells = tiles.channels * tiles.rows * tiles.columns
    product = cells * tiles.inputs * taps * machine.gemm_cycles
    rescale = (conv.factors - 1) * (cells * machine.alu_cycles + issue)
    saved = moved(Memory.OUT, cells, tiles.channels)
    gemm_cycles = many * sums * product
    compute = many * (sums * (product + issue) + issue + rescale)
    load, store = many * sums * part, many * saved
    if tiles.threads == 1:
        total = compute + load + saved
    else:
        later = (sums - 1) * max(part, product + issue)
        tile = later + max(part, product + 2 * issue + rescale)
        total = max(many * tile, store) + part + saved
    return Prediction(gemm_cycles, compute, load, store, total)


def _loaded(conv: Convolution, tiles: Tiles) -> int:
    """Blocks of input channels that are loaded at a time."""
    return tiles.inputs if conv.groups == 1 else tiles.inputs * tiles.channels


def _pixels(conv: Convolution) -> int:
    """Pixels of the image with its padding."""
    top, left, bottom, right = conv.padding
    return (conv.height + top + bottom) * (conv.width + left + right)


def _window(conv: Convolution, tiles: Tiles) -> tuple[int, int]:
    """Rows and columns of the input that a tile of the result needs."""
    (kh, kw), stride = conv.kernel, conv.stride
    return (tiles.rows - 1) * (stride // conv.row_step) + kh, (tiles.columns - 1) * stride + kw


def fits(conv: Convolution, tiles: Tiles, machine: Machine) -> bool:
    """Whether the tiles of all virtual threads fit the buffers, and their copies the fields of an
    instruction.
    """
    out, _ = conv.blocks(machine)
    rows, columns = _window(conv, tiles)
    taps, threads = math.prod(conv.kernel), tiles.threads
    cells = threads * tiles.channels * tiles.rows * tiles.columns + conv.factors * out
    return (
        threads * _loaded(conv, tiles) * rows * columns <= machine.depth(Memory.INP)
        and threads * tiles.channels * tiles.inputs * taps <= machine.depth(Memory.WGT)
        and cells <= min(machine.depth(Memory.ACC), machine.depth(Memory.OUT))
        and _shared_axis(conv, tiles, machine) is not None
        and _is_copied(conv, tiles, machine)
    )


def _is_copied(conv: Convolution, tiles: Tiles, machine: Machine) -> bool:
    """Whether each window of the input is a copy: it has a pixel of the image, and the fields hold
    its sizes and its padding.
    """
    most = {slot.name: slot.range[1] for slot in layout(Load, machine)}
    window = _window(conv, tiles)
    if window[0] > most["rows"] or window[1] > most["columns"]:
        return False
    if not any(conv.padding):
        return True
    top, left, *_ = conv.padding
    ways = (
        (conv.height, top, conv.result[0], tiles.rows, window[0], conv.row_step, "top"),
        (conv.width, left, conv.result[1], tiles.columns, window[1], 1, "left"),
    )
    for extent, padding, result, tile, size, step, side in ways:
        for n in range(0, result, tile):
            begin = n * conv.stride - padding
            before = min(max(-(begin // step), 0), size)
            until = min(max(-((begin - extent) // step), 0), size)
            if before == until or max(before, size - until) > most[side]:
                return False
    return conv.width * conv.row_step <= most["stride"]


def _shared_axis(conv: Convolution, tiles: Tiles, machine: Machine) -> int | None:
    """The axis of the result along which virtual threads have neighbouring tiles: the first one
    with a multiple of as many tiles; None if there is none.
    """
    extents = (conv.blocks(machine)[0], *conv.result)
    sizes = (tiles.channels, tiles.rows, tiles.columns)
    counts = (n // size for n, size in zip(extents, sizes, strict=True))
    return next((axis for axis, n in enumerate(counts) if n % tiles.threads == 0), None)


def candidates(conv: Convolution, machine: Machine, threads: int) -> Iterator[Tiles]:
    """All tiles that divide the extents and fit the buffers."""
    if not conv.has_blocks(machine):
        return
    out, _ = conv.blocks(machine)
    height, width = conv.result
    reads = conv.read_blocks(machine)
    for channels in _divisors(out):
        for rows in _divisors(height):
            for columns in _divisors(width):
                for inputs in _divisors(reads) if conv.groups == 1 else (reads,):
                    tiles = Tiles(channels, rows, columns, inputs, threads)
                    if fits(conv, tiles, machine):
                        yield tiles


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@lru_cache(maxsize=64)
def choose(conv: Convolution, machine: Machine, threads: int = 2) -> Tiles:
    """The tiles of least predicted time; for one thread if there are none for several, as where all
    extents are odd.  They are kept, since networks repeat layers.

    Raises ScheduleError if none fit.
    """
    for number in (threads, 1):
        found = min(
            candidates(conv, machine, number),
            key=lambda tiles: predict(conv, tiles, machine).total,
            default=None,
        )
        if found is not None:
            return found
    raise ScheduleError(
        f"{conv}: no tiles for {threads} virtual threads, or for one, fit the buffers"
    )


def expression(conv: Convolution, machine: Machine, low: int) -> tuple[te.Tensor, ...]:
    """The tensors: inputs, weights, factors, the loaded inputs, sums, sums with bias, results.

    low: the least result: of a ReLU, the zero point.
    """
    if machine.batch != 1:
        raise UsageError(f"convolutions need a machine with batch 1, found {machine.batch}")
    out, into = conv.blocks(machine)
    (height, width), (kh, kw), stride = conv.result, conv.kernel, conv.stride
    (top, left, *_), operand = conv.padding, machine.operand
    x = te.placeholder((into, conv.height, conv.width, machine.block_in), operand, "x")
    reads = conv.read_blocks(machine)
    w = te.placeholder((out, reads, kh, kw, machine.block_out, machine.block_in), operand, "w")
    p = te.placeholder((out, conv.factors, machine.block_out), "i32", "p")
    step = conv.row_step
    zero = te.const(0, operand)

    def loaded(c: Any, i: Any, j: Any, k: Any) -> Any:
        i, j = i * step - top, j - left
        inside = te.all(i >= 0, i < conv.height, j >= 0, j < conv.width)
        return te.if_then_else(inside, x[c, i, j, k], zero)

    rows = (height - 1) * stride // step + kh
    columns = (width - 1) * stride + kw
    pixels = te.compute((into, rows, columns, machine.block_in), loaded, "pixels")
    c, i, j = te.reduce_axis(reads, "c"), te.reduce_axis(kh, "i"), te.reduce_axis(kw, "j")
    k = te.reduce_axis(machine.block_in, "k")
    apart = stride // step

    def term(o: Any, y: Any, z: Any, n: Any) -> Any:
        block = c if conv.groups == 1 else o * reads + c
        pixel = pixels[block, y * apart + i, z * stride + j, k]
        return te.sum(pixel.astype("i32") * w[o, c, i, j, n, k].astype("i32"), axis=[c, i, j, k])

    sums = te.compute((out, height, width, machine.block_out), term, "sums")

    biased = sums
    if conv.has_bias:
        biased = te.compute(
            sums.shape,
            lambda o, y, z, n: alu_value(AluOp.ADD, [sums[o, y, z, n], p[o, 0, n]]),
            "biased",
        )
    scale = conv.factors - 2

    def rescaled(o: Any, y: Any, z: Any, n: Any) -> Any:
        read = (biased[o, y, z, n], p[o, scale, n], p[o, scale + 1, n])
        return alu_value(AluOp.RESCALE, read, imm=low, to=operand)

    return x, w, p, pixels, sums, biased, te.compute(sums.shape, rescaled, "y")


def scheduled(
    conv: Convolution, tiles: Tiles, machine: Machine, low: int = -128
) -> tuple[te.Schedule, list[te.Tensor]]:
    """The schedule with these tiles, and the tensors of its parameters: inputs, weights, factors of
    channels, results.
    """
    x, w, p, pixels, sums, biased, y = expression(conv, machine, low)
    s = te.create_schedule(y)
    result = s.cache_write(y, SCOPES[Memory.OUT])
    s[sums].set_scope(SCOPES[Memory.ACC])
    s[pixels].set_scope(SCOPES[Memory.INP])
    weights = s.cache_read(w, SCOPES[Memory.WGT], [sums])
    readers = [biased, result] if conv.has_bias else [result]
    factors = s.cache_read(p, SCOPES[Memory.ACC], readers)

    outer: list[Any] = []
    inner: list[Any] = []
    *axes, lane = s[y].axis
    for axis, size in zip(axes, (tiles.channels, tiles.rows, tiles.columns), strict=True):
        a, b = s[y].split(axis, factor=size)
        outer.append(a)
        inner.append(b)
    shared = _shared_axis(conv, tiles, machine)
    if shared is None:
        raise ScheduleError(f"{tiles}: no axis has a multiple of {tiles.threads} tiles")
    outer[shared], thread = s[y].split(outer[shared], factor=tiles.threads)
    s[y].bind(thread, "vthread")
    s[y].reorder(*outer, thread, *inner, lane)
    s[result].compute_at(s[y], thread)
    if conv.has_bias:
        s[biased].set_scope(SCOPES[Memory.ACC])
        s[biased].compute_at(s[y], thread)
        s[biased].tensorize(s[biased].axis[-1], alu(machine, AluOp.ADD))
    s[sums].compute_at(s[y], thread)
    o, i, j, n = s[sums].axis
    c, kh, kw, k = s[sums].reduce_axis
    co, ci = s[sums].split(c, factor=tiles.inputs)
    s[sums].reorder(co, o, ci, kh, kw, i, j, n, k)
    s[pixels].compute_at(s[sums], co)
    s[weights].compute_at(s[sums], co)

    s[sums].tensorize(n, gemm(machine))
    s[pixels].tensorize(s[pixels].axis[-1], copy(machine, Memory.INP))
    s[weights].tensorize(s[weights].axis[-2], copy(machine, Memory.WGT))
    s[factors].tensorize(s[factors].axis[-1], copy(machine, Memory.ACC))
    s[result].tensorize(s[result].axis[-1], alu(machine, AluOp.RESCALE, low, to_out=True))
    s[y].tensorize(lane, copy(machine, Memory.OUT))
    return s, [x, w, p, y]


@lru_cache(maxsize=64)
def compiled(
    conv: Convolution, machine: Machine, *, threads: int = 2, low: int = -128
) -> AccelKernel:
    """The program of a convolution with the tiles of least predicted time; kept, since networks
    repeat layers.

    Its parameters are `x`, `w`, `p` and `y`; see `packed`.

    Raises ScheduleError if no tiles fit the machine.
    """
    s, args = scheduled(conv, choose(conv, machine, threads), machine, low)
    return build(s, args, machine, "convolution")


def packed(
    conv: Convolution,
    machine: Machine,
    x: np.ndarray,
    w: np.ndarray,
    factors: np.ndarray,
) -> dict[str, np.ndarray]:
    """The parameters `x`, `w` and `p` of a program; see `packed_image` and `packed_weights`."""
    return {"x": packed_image(conv, machine, x), **packed_weights(conv, machine, w, factors)}


def packed_image(conv: Convolution, machine: Machine, x: np.ndarray) -> np.ndarray:
    """The parameter `x` of a program for an image i8[inputs, height, width]."""
    _, into = conv.blocks(machine)
    x = np.pad(x, ((0, into * machine.block_in - conv.inputs), (0, 0), (0, 0)))
    return x.reshape(into, machine.block_in, *x.shape[1:]).transpose(0, 2, 3, 1)


def packed_weights(
    conv: Convolution, machine: Machine, w: np.ndarray, factors: np.ndarray
) -> dict[str, np.ndarray]:
    """The parameters `w` and `p` of a program, the same for all images.

    w: i8[outputs, inputs of a group, kernel height, kernel width].
    factors: i32[2 or 3, outputs], the bias if there is one, then the bits of scale and offset.
    """
    out, reads = conv.blocks(machine)[0], conv.read_blocks(machine)
    bo, bi = machine.block_out, machine.block_in
    more_out = out * bo - conv.outputs
    spread = np.zeros((out * bo, reads * bi, *conv.kernel), w.dtype)
    if conv.groups == 1:
        spread[: conv.outputs, : conv.inputs] = w
    else:
        channels = np.arange(conv.outputs)
        first = channels % bo // conv.group * conv.group  # of the group, in its block
        for n in range(conv.group):
            spread[channels, first + n] = w[:, n]
    p = np.pad(factors, ((0, 0), (0, more_out)))
    return {
        "w": spread.reshape(out, bo, reads, bi, *conv.kernel).transpose(0, 2, 4, 5, 1, 3),
        "p": p.reshape(conv.factors, out, bo).transpose(1, 0, 2),
    }


def unpacked(conv: Convolution, machine: Machine, y: np.ndarray) -> np.ndarray:
    """The results i8[outputs, rows, columns] of the packed ones."""
    blocks = y.reshape(-1, *conv.result, machine.block_out)
    return blocks.transpose(0, 3, 1, 2).reshape(-1, *conv.result)[: conv.outputs]
