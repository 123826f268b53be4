"""Random programs, statement by statement.

A `Draw` holds a program that grows, and the values that eager mode gives.  A recipe (`RECIPES`)
adds one or a few statements: it picks operands among the values that there are, or makes new ones,
and chooses arguments.  A statement that eager mode does not accept, or whose result PyTorch leaves
open, raises `Rejected` and leaves the program as it was.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from .eager import Checked, Rejected, outcomes
from .program import Program, Statement, copied

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
I64, I32, I16, I8, U8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
BOOL = torch.bool
FLOATS = (F32, F64, F16, BF16)
INTS = (I64, I32, I16, I8, U8)
NUMBERS = (*FLOATS, *INTS)
ANY = (*NUMBERS, BOOL)
_WEIGHTS = {F32: 14.0, I64: 3.0, F64: 1.0, F16: 1.0, BF16: 1.0, BOOL: 1.0}
_EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)
_MOST_BY_RANK = (17, 17, 17, 8, 5, 3, 2)
STATEMENTS = 12
"""Most statements of a program, but for what a recipe adds."""

Recipe = Callable[["Draw"], None]
RECIPES: dict[str, tuple[Recipe, float]] = {}
"""What adds statements, by name, and how often it is chosen beside others."""


def recipe(weight: float = 1.0) -> Callable[[Recipe], Recipe]:
    def register(make: Recipe) -> Recipe:
        RECIPES[f"{make.__module__}.{make.__name__}"] = make, weight
        return make

    return register


@dataclass(slots=True)
class Draw:
    """A program under construction.

    random: the source of all choices.
    is_open: sizes are written as those of values, not as numbers.
    gradients: inputs of floating-point numbers may require gradients.
    values: what eager mode gives, by name.
    inputs, parameters, buffers: tensors as they were before the first statement, by name.
    """

    random: np.random.Generator
    is_open: bool = False
    gradients: bool = False
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)

    # Choices

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.random.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        if high < low:
            raise Rejected("no number fits")
        return int(self.random.integers(low, high + 1))

    def real(self) -> float:
        return self.choose(
            [0.5, 1.0, -1.0, 2.0, 0.1, -0.75, 3.0, 0.0, round(self.random.normal(), 3)]
        )

    def axis(self, x: str, back: bool = True) -> int:
        """An axis of a value, counted from either end."""
        rank = self.values[x].ndim
        return self.number(-rank if back else 0, rank - 1)

    def axes(self, x: str, least: int = 1) -> tuple[int, ...]:
        """Some distinct axes."""
        rank = self.values[x].ndim
        chosen = self.random.permutation(rank)[: self.number(least, rank)]
        return tuple(int(a) - rank * self.chance(0.3) for a in chosen)

    def dtype(self, allowed: Sequence[torch.dtype]) -> torch.dtype:
        weights = np.array([_WEIGHTS.get(d, 0.6) for d in allowed])
        return allowed[int(self.random.choice(len(allowed), p=weights / weights.sum()))]

    def extent(self, most: int = 17) -> int:
        if not self.is_open and self.chance(0.02):
            return 0
        return self.choose([e for e in _EXTENTS if e <= most])

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        rank = self.number(low, high)
        return tuple(self.extent(_MOST_BY_RANK[rank]) for _ in range(rank))

    # Values

    def of(self, name: str) -> torch.Tensor:
        return self.values[name]

    def new(self, shape: Sequence[int], dtype: torch.dtype = F32) -> str:
        """A new operand: an input, a parameter or a buffer."""
        return self.given(random_tensor(self.random, shape, dtype))

    def given(self, t: torch.Tensor, only_input: bool = False) -> str:
        kind = self.random.random()
        if kind < 0.72 or only_input or (self.is_open and kind < 0.9):
            if self.chance(0.25):
                t = strided(self.random, t)
            if self.gradients and t.is_floating_point() and self.chance(0.6):
                t = t.requires_grad_()
            return self._kept("x", self.inputs, t)
        if kind < 0.88 and t.is_floating_point():
            return self._kept("p", self.parameters, t.requires_grad_(self.chance(0.9)))
        return self._kept("b", self.buffers, t)

    def _kept(self, letter: str, room: dict[str, torch.Tensor], t: torch.Tensor) -> str:
        name = f"{letter}{len(room)}"
        room[name] = t
        self.values[name] = copied(t)
        return name

    def pick(
        self,
        allowed: Sequence[torch.dtype] = FLOATS,
        rank: tuple[int, int] = (0, 5),
        fits: Callable[[torch.Tensor], bool] = lambda t: True,
    ) -> str:
        """A value with one of the types and of a rank in the range; a new one if there is none."""
        found = [
            n
            for n, t in self.values.items()
            if t.dtype in allowed and rank[0] <= t.ndim <= rank[1] and fits(t)
        ]
        if found and self.chance(0.85):
            late = min(int(self.random.exponential(2)), len(found) - 1)
            return found[-1 - late]
        for _ in range(20):
            shape = self.shape(rank[0], min(rank[1], 4))
            t = random_tensor(self.random, shape, self.dtype(allowed))
            if fits(t):
                return self.given(t)
        raise Rejected("no operand fits")

    def like(self, x: str, dtype: torch.dtype | None = None) -> str:
        """A value that broadcasts with `x`, mostly of its type."""
        want = self.values[x]

        def fits(t: torch.Tensor) -> bool:
            try:
                return torch.broadcast_shapes(t.shape, want.shape) is not None
            except RuntimeError:
                return False

        dtype = dtype or (want.dtype if self.chance(0.85) else self.dtype(ANY))
        same = [n for n, t in self.values.items() if t.dtype == dtype and fits(t)]
        if same and self.chance(0.6):
            return self.choose(same)
        kept = want.shape[self.number(0, want.ndim) :] if self.chance(0.4) else want.shape
        return self.new([1 if self.chance(0.15) else e for e in kept], dtype)

    def size(self, x: str, axis: int) -> str:
        """The text of a size."""
        return f"{x}.shape[{axis}]" if self.is_open else str(self.values[x].shape[axis])

    # Statements

    def add(self, form: str, *operands: str, results: int = 1) -> tuple[str, ...]:
        """Adds a statement; the names of its results."""
        count = sum(len(s.results) for s in self.statements)
        names = tuple(f"v{count + i}" for i in range(results))
        statement = Statement(form, operands, names)
        room = dict(self.values) | _ROOM
        try:
            with warnings.catch_warnings(), torch.set_grad_enabled(self.gradients), Checked():
                warnings.simplefilter("ignore")
                exec(statement.text, room)
        except Exception as e:  # whatever it raises: eager mode does not take the statement
            raise Rejected(f"{type(e).__name__}: {e}") from e
        made = [room[n] for n in names]
        if not all(isinstance(t, torch.Tensor) and t.dtype in ANY for t in made):
            raise Rejected("not a tensor of a known type")
        for t in made:
            finite = t.detach().isfinite().double().mean() if t.numel() else 1.0
            if finite < 0.5 and not self.chance(0.05):
                raise Rejected("few numbers are left")
        self.statements.append(statement)
        self.values |= zip(names, made, strict=True)
        return names

    def grow(self, count: int) -> None:
        """Adds about `count` statements."""
        names = list(RECIPES)
        weights = np.array([RECIPES[n][1] for n in names])
        weights /= weights.sum()
        for _ in range(12 * count):
            if len(self.statements) >= count:
                return
            kept = len(self.statements), [dict(r) for r in self._rooms()]
            try:
                RECIPES[names[int(self.random.choice(len(names), p=weights))]][0](self)
            except Rejected:
                del self.statements[kept[0] :]
                for room, before in zip(self._rooms(), kept[1], strict=True):
                    room.clear()
                    room.update(before)
                self._replay()

    def _rooms(self) -> tuple[dict[str, torch.Tensor], ...]:
        return self.values, self.inputs, self.parameters, self.buffers

    def _replay(self) -> None:
        """Computes all values again: a statement that was refused may have written to some."""
        start = self.inputs | self.parameters | self.buffers
        room = {n: copied(t) for n, t in start.items()} | _ROOM
        with warnings.catch_warnings(), torch.set_grad_enabled(self.gradients):
            warnings.simplefilter("ignore")
            for s in self.statements:
                exec(s.text, room)
        self.values.update((n, room[n]) for n in self.values)

    def program(self) -> Program:
        """The program with some of its values as outputs."""
        used = {o for s in self.statements for o in s.operands}
        made = [r for s in self.statements for r in s.results]
        outputs = [r for r in made if r not in used or self.chance(0.15)]
        if self.chance(0.05):
            outputs.append(self.choose([*self.values]))
        outputs = outputs[-5:] or made[-1:]
        if not outputs or not self.inputs:
            raise Rejected("nothing goes in or comes out")
        return Program(
            tuple(self.statements), tuple(outputs), dict(self.parameters), dict(self.buffers),
            (dict(self.inputs),), {}, self.gradients,
        )  # fmt: skip


_ROOM = {"torch": torch, "F": torch.nn.functional, "inf": math.inf, "nan": math.nan}


def random_program(seed: int, statements: int = STATEMENTS) -> Program:
    """The program of a seed, of up to about so many statements.  Some have open dimensions and are
    run with several sizes, some get gradients.
    """
    from . import families  # they import this module

    assert families.LOADED
    random = np.random.default_rng(seed)
    while True:
        draw = Draw(random, is_open=seed % 3 == 0, gradients=seed % 4 == 1 or seed % 6 == 0)
        draw.grow(int(random.integers(3, statements + 1)))
        try:
            program = _settled(draw.program())
            return _with_open_axes(program, random) if draw.is_open else program
        except Rejected:
            continue


def _settled(program: Program) -> Program:
    """The program, without gradients if eager mode has none.  Raises Rejected where a run is not
    specified.
    """
    if program.gradients:
        try:
            _tried(program)
            return program
        except Rejected:
            program = replace(program, gradients=False)
    _tried(program)
    return program


def _tried(program: Program) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes(program, mode=Checked)
    except Exception as e:  # whatever it raises: eager mode does not take the program
        raise Rejected(str(e)) from e


def _with_open_axes(program: Program, random: np.random.Generator) -> Program:
    """The program with some extents of its inputs open, and inputs of other sizes that eager mode
    takes too.
    """
    inputs = program.inputs
    extents = sorted({d for t in inputs.values() for d in t.shape if d > 1})
    for _ in range(6):
        chosen = [d for d in extents if random.random() < 0.6]
        sizes = {d: int(random.choice([2, 3, d + 1, d + 5, 2 * d, 1])) for d in chosen}
        other = {
            n: random_tensor(random, [sizes.get(d, d) for d in t.shape], t.dtype).requires_grad_(
                t.requires_grad
            )
            if any(d in sizes for d in t.shape)
            else t
            for n, t in inputs.items()
        }
        axes = {
            n: {a: f"s{d}" for a, d in enumerate(t.shape) if d in sizes} for n, t in inputs.items()
        }
        tried = replace(
            program, runs=(inputs, other), open_axes={n: a for n, a in axes.items() if a}
        )
        try:
            _tried(tried)
        except Rejected:
            continue
        if tried.open_axes:
            return tried
    return program


def random_tensor(
    random: np.random.Generator, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Random numbers: small ones, whole ones, ones from the whole range, special ones."""
    kind = random.random()
    shape = tuple(shape)
    if dtype == BOOL:
        return torch.from_numpy(np.asarray(random.random(shape) < random.choice([0.5, 0.1, 0.9])))
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        low, high = (0 if dtype == U8 else -9, 10) if kind < 0.9 else (limits.min, limits.max)
        return torch.from_numpy(np.asarray(random.integers(low, high, shape))).to(dtype)
    if kind < 0.12:
        return torch.from_numpy(np.asarray(random.integers(-4, 5, shape))).to(dtype)
    array = np.asarray(random.standard_normal(shape) * random.choice([0.5, 1.0, 3.0]))
    if kind > 0.95:
        special = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0]
        array = np.where(random.random(shape) < 0.2, random.choice(special, shape), array)
    return torch.from_numpy(np.asarray(array)).to(dtype)


def strided(random: np.random.Generator, t: torch.Tensor) -> torch.Tensor:
    """The same numbers with other strides."""
    kind = random.integers(4)
    if kind == 0 and t.ndim > 1:  # the axes in another order
        order = [int(a) for a in random.permutation(t.ndim)]
        back = [order.index(a) for a in range(t.ndim)]
        return t.permute(order).contiguous().permute(back)
    if kind == 1 and t.ndim and t.numel():  # a part of something larger
        axis = int(random.integers(t.ndim))
        wide = torch.cat([t, t, t], axis)
        wide.narrow(axis, 1, t.shape[axis]).copy_(t)
        return wide.narrow(axis, 1, t.shape[axis])
    if kind == 2 and t.ndim and t.numel():  # every second
        axis = int(random.integers(t.ndim))
        return torch.stack([t, t], axis + 1).flatten(axis, axis + 1)[
            (slice(None),) * axis + (slice(None, None, 2),)
        ]
    if kind == 3 and t.ndim and t.numel():  # one number for an axis
        axis = int(random.integers(t.ndim))
        return t.narrow(axis, 0, 1).expand(t.shape)
    return t
