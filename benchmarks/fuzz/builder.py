"""Random ONNX graphs, node by node.

A `Builder` holds a graph that grows and the values that the reference evaluator gives for its
inputs.  A recipe (`RECIPES`) adds one operator: it picks operands among the values that there are,
or makes new ones, and chooses attributes.  A node that the reference evaluator does not accept, or
whose result no specification fixes (a quotient by 0 of integers), raises `Rejected` and leaves the
graph as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import infer_shapes

from .corrected import CORRECTED, Array

NEWEST = defs.onnx_opset_version()
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, NEWEST)
MOST_ELEMENTS = 4096

FLOATS = tuple(map(np.dtype, (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)))
SIGNED = tuple(map(np.dtype, (np.int64, np.int32, np.int8, np.int16)))
UNSIGNED = tuple(map(np.dtype, (np.uint8, np.uint16, np.uint32, np.uint64)))
INTS = SIGNED + UNSIGNED
BOOL = np.dtype(bool)
F32, I64 = FLOATS[0], SIGNED[0]
_WEIGHTS = {F32: 12.0, I64: 3.0, FLOATS[1]: 1.5, FLOATS[2]: 1.5, np.dtype(np.int32): 2.0}
_EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33)

Recipe = Callable[["Builder"], None]
RECIPES: dict[str, Recipe] = {}
"""What adds one operator, by the operator's name."""


class Rejected(Exception):
    """A node is not valid, or its result is not specified."""


def recipe(
    *names: str,
) -> Callable[[Callable[[Builder, str], None]], Callable[[Builder, str], None]]:
    """Registers a function of a builder and a name as the recipe of each of the operators."""

    def register(make: Callable[[Builder, str], None]) -> Callable[[Builder, str], None]:
        for name in names:
            RECIPES[name] = lambda b, name=name: make(b, name)
        return make

    return register


@dataclass(slots=True)
class Builder:
    """A graph under construction.

    random: the source of all choices.
    opset: of the default domain.
    outer: the graph around, for a sub-graph; its values may be used.
    values: what the reference evaluator gives, by name.
    nodes: the nodes so far.
    inputs: names of the graph's inputs.
    constants: names of the stored tensors.
    depth: number of graphs around.
    """

    random: np.random.Generator
    opset: int
    outer: Builder | None = None
    values: dict[str, Array] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    depth: int = 0

    # Choices

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.random.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return int(self.random.integers(low, high + 1))

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.number(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Some distinct axes, each counted from either end."""
        chosen = self.random.permutation(rank)[: self.number(least, rank)]
        return [int(a) - rank * self.chance(0.3) for a in chosen]

    def dtype(self, allowed: Sequence[np.dtype]) -> np.dtype:
        weights = np.array([_WEIGHTS.get(d, 0.6) for d in allowed])
        return allowed[int(self.random.choice(len(allowed), p=weights / weights.sum()))]

    def extent(self, most: int = 33, least: int = 0) -> int:
        if least == 0 and self.chance(0.03):
            return 0
        return self.choose([e for e in _EXTENTS if max(least, 1) <= e <= most])

    def shape(self, low: int = 0, high: int = 4, least: int = 0) -> tuple[int, ...]:
        rank = self.number(low, high)
        return tuple(self.extent((33, 33, 17, 9, 6, 4, 3)[rank], least) for _ in range(rank))

    # Values

    @property
    def visible(self) -> dict[str, Array]:
        """All values that a node may use."""
        return (self.outer.visible if self.outer else {}) | self.values

    def name(self) -> str:
        return f"v{self.depth}_{len(self.values)}"

    def store(self, array: Any) -> str:
        """A stored tensor."""
        name = self.name()
        self.values[name] = np.asarray(array)
        self.constants.append(name)
        return name

    def ints(self, *values: int) -> str:
        return self.store(np.array(values, np.int64))

    def given(self, array: Any) -> str:
        """An input of the graph; in a sub-graph, which can't have more, a stored tensor."""
        if self.outer is not None:
            return self.store(array)
        name = self.name()
        self.values[name] = np.asarray(array)
        self.inputs.append(name)
        return name

    def array(self, shape: Sequence[int], dtype: np.dtype) -> Array:
        """Random numbers of one of several kinds."""
        return random_array(self.random, shape, dtype)

    def fresh(self, shape: Sequence[int], dtype: np.dtype = F32, stored: float = 0.3) -> str:
        """A new operand."""
        array = self.array(shape, dtype)
        return self.store(array) if self.chance(stored) else self.given(array)

    def pick(
        self,
        allowed: Sequence[np.dtype] = (F32,),
        rank: tuple[int, int] = (0, 5),
        fits: Callable[[Array], bool] = lambda a: True,
    ) -> str:
        """A value with one of the element types and of a rank in the range; a new one if there is
        none.
        """
        found = [
            n
            for n, a in self.visible.items()
            if a.dtype in allowed and rank[0] <= a.ndim <= rank[1] and fits(a)
        ]
        if found and self.chance(0.75):
            late = min(int(self.random.exponential(3)), len(found) - 1)
            return found[-1 - late]
        for _ in range(20):
            shape = self.shape(rank[0], min(rank[1], 4) if self.chance(0.95) else rank[1])
            array = self.array(shape, self.dtype(allowed))
            if fits(array):
                return self.given(array) if self.chance(0.8) else self.store(array)
        raise Rejected("no operand fits")

    def of(self, name: str) -> Array:
        """What the reference evaluator gives for a value."""
        return self.visible[name]

    def like(self, name: str) -> str:
        """An operand of the same element type that broadcasts with `name`."""
        want = self.of(name)

        def fits(a: Array) -> bool:
            try:
                np.broadcast_shapes(a.shape, want.shape)
            except ValueError:
                return False
            return True

        same = [n for n, a in self.visible.items() if a.dtype == want.dtype and fits(a)]
        if same and self.chance(0.5):
            return self.choose(same)
        kept = want.shape[self.number(0, want.ndim) :] if self.chance(0.4) else want.shape
        return self.fresh([1 if self.chance(0.2) else e for e in kept], want.dtype)

    # Nodes

    def types(self, op: str, index: int = 0) -> tuple[np.dtype, ...]:
        """The element types that this opset allows for an input of an operator."""
        try:
            schema = defs.get_schema(op, self.opset, "")
        except defs.SchemaError as e:
            raise Rejected(str(e)) from e
        if schema.deprecated:
            raise Rejected(f"{op} is deprecated")
        formal = schema.inputs[min(index, len(schema.inputs) - 1)].types
        return tuple(d for d in (*FLOATS, *INTS, BOOL) if _type_name(d) in formal)

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        """Adds a node; the names of its outputs."""
        names = [f"{self.name()}_{i}" if outputs > 1 else self.name() for i in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        results = evaluate(node, self.visible, self.opset)
        if sum(r.size for r in results) > MOST_ELEMENTS or any(r.ndim > 6 for r in results):
            raise Rejected("the result is large")
        self.nodes.append(node)
        self.values |= zip(names, results, strict=True)
        return names

    def listed(
        self,
        op: str,
        x: Sequence[str],
        since: int,
        name: str,
        values: Sequence[int] | None,
        **more: Any,
    ) -> list[str]:
        """Adds a node with a list that became an input at opset `since`; None: no list."""
        if values is None:
            return self.add(op, x, **more)
        if self.opset < since:
            return self.add(op, x, **{name: list(values)}, **more)
        return self.add(op, [*x, self.ints(*values)], **more)

    def grow(self, count: int, among: Sequence[str]) -> None:
        """Adds up to `count` nodes by recipes of these names."""
        for _ in range(count):
            for _ in range(8):
                kept = len(self.nodes), len(self.inputs), len(self.constants), dict(self.values)
                try:
                    RECIPES[self.choose(among)](self)
                    break
                except Rejected:
                    del self.nodes[kept[0] :], self.inputs[kept[1] :], self.constants[kept[2] :]
                    self.values = kept[3]


def random_array(random: np.random.Generator, shape: Sequence[int], dtype: np.dtype) -> Array:
    """Random numbers: small ones, whole ones, ones from the whole range, special ones."""
    kind = random.random()
    if dtype == BOOL:
        return random.random(shape) < random.choice([0.5, 0.1, 0.9])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if kind < 0.85:
            low = 0 if dtype.kind == "u" else -9
            return random.integers(low, 10, shape).astype(dtype)
        return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if kind < 0.15:
        return random.integers(-4, 5, shape).astype(dtype)
    array = random.standard_normal(shape) * random.choice(
        [0.5, 1.0, 3.0, 30.0], p=[0.3, 0.5, 0.1, 0.1]
    )
    if kind > 0.9:
        info = ml_dtypes.finfo(dtype)
        special = [np.nan, np.inf, -np.inf, -0.0, 0.0, float(info.max), float(info.tiny), 1.0]
        array = np.where(random.random(shape) < 0.3, random.choice(special, shape), array)
    return np.asarray(array).astype(dtype)


def _type_name(dtype: np.dtype) -> str:
    """An element type as schemas write it."""
    kind = onnx.TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(dtype)).lower()
    return f"tensor({kind})"


# The reference


def info_of(name: str, array: Array, shape: Sequence[Any] | None = None) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if shape is None else shape)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[str],
    constants: Mapping[str, Array],
    opset: int,
) -> onnx.ModelProto:
    """A model whose outputs' types are left open."""
    stored = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    infos = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(nodes, "g", list(inputs), infos, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def used(node: onnx.NodeProto) -> list[str]:
    """The values that a node uses, those of its sub-graphs included, each once."""
    names = dict.fromkeys(n for n in node.input if n)
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            inner = [i for n in a.g.node for i in used(n)] + [o.name for o in a.g.output]
            own = {o for n in a.g.node for o in n.output} | {i.name for i in a.g.input}
            own |= {t.name for t in a.g.initializer}
            names |= dict.fromkeys(n for n in inner if n not in own)
    return list(names)


def evaluate(node: onnx.NodeProto, known: Mapping[str, Array], opset: int) -> list[Array]:
    """The results of a node by the reference evaluator.

    Raises Rejected where it fails, where its result is not of the inferred type, and where the
    result is not specified.
    """
    operands = {n: known[n].copy() for n in used(node)}  # the evaluator writes into some
    if _is_undefined(node, [known[n] for n in node.input if n]):
        raise Rejected("the result is not specified")
    if node.op_type == "BatchNormalization" and 9 <= opset < 14:
        opset = 14  # the evaluator's older one trains at any momentum
    model = model_of([node], (info_of(n, a) for n, a in operands.items()), node.output, {}, opset)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            inferred = infer_shapes(model, strict_mode=True)
            found = ReferenceEvaluator(model, new_ops=CORRECTED).run(None, operands)
    except Exception as e:  # whatever it raises: it does not take the node
        raise Rejected(f"{type(e).__name__}: {e}") from e
    results = []
    for info, array in zip(inferred.graph.output, found, strict=True):
        if not isinstance(array, (np.ndarray, np.generic)):
            raise Rejected("not a tensor")
        kind = info.type.tensor_type
        if kind.elem_type != helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype):
            raise Rejected("the reference gives another element type")
        dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        if kind.HasField("shape") and (
            len(dims) != np.ndim(array)
            or any(d not in (None, n) for d, n in zip(dims, np.shape(array), strict=True))
        ):
            raise Rejected("the reference gives another shape")
        results.append(np.array(array))
    return results


def _is_undefined(node: onnx.NodeProto, operands: Sequence[Array]) -> bool:
    """Whether the specification leaves the result open, or forbids the operands."""
    op = node.op_type
    first = operands[0] if operands else np.zeros(0)
    whole = first.dtype.kind in "iub"
    wide = first.astype(np.float64)
    if op == "ReduceMean" and whole and (not first.size or np.abs(wide).sum() > 2.0**53):
        return True  # no number, or more digits than the evaluator's floats have
    if op in ("Gemm", "MatMul") and not whole:
        # whether a part of a sum overflows depends on its order, and on when it is scaled
        of_each = [np.abs(a[np.isfinite(a)]).max(initial=0) for a in operands[:2]]
        most = float(of_each[0]) * float(of_each[1]) * first.size
        return most > float(ml_dtypes.finfo(first.dtype).max)
    if op == "MaxPool" and np.isnan(wide).any():
        return True  # a window with NaN and numbers
    if op in ("Resize", "Upsample") and not np.isfinite(wide).all():
        return True  # a weight of 0 times infinity
    if op == "LpPool" and any(a.name == "ceil_mode" and a.i for a in node.attribute):
        return True  # the evaluator repeats the last row in windows that reach beyond it
    if op in ("Div", "Mod") and whole:
        by = operands[1]
        return bool((by == 0).any() or ((by == -1).any() if by.dtype.kind == "i" else False))
    if op == "Pow" and whole:
        return bool((operands[1] < 0).any() or (np.abs(operands[1]) > 6).any())
    if op in ("Cast", "CastLike", "Pow", "ReduceMean", "Mean", "Shrink"):
        # a float that the integer type does not hold
        to = next((a.i for a in node.attribute if a.name == "to"), None)
        wanted = first.dtype if to is None else helper.tensor_dtype_to_np_dtype(to)
        if wanted.kind in "iu" and not whole:
            limits = np.iinfo(wanted)
            inside = (wide > float(limits.min) - 1) & (wide < float(limits.max))
            return not bool(np.isfinite(wide).all() and inside.all())
    if op in ("DynamicQuantizeLinear", "QuantizeLinear"):
        return not np.isfinite(wide).all() or (op[0] == "D" and first.size == 0)
    if op == "ReduceL2" and whole and first.size:
        return float(np.square(wide).sum()) >= float(np.iinfo(first.dtype).max)
    if op in ("ArgMax", "ArgMin", "TopK", "Unique", "NonZero", "Hardmax"):
        return not whole and bool(np.isnan(wide).any())
    if op in ("Gather", "GatherElements", "ScatterElements"):  # the evaluator may loop for years
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        extent = first.shape[axis] if -first.ndim <= axis < first.ndim else 0
        return bool(((operands[1] < -extent) | (operands[1] >= extent)).any())
    if op == "BitShift":
        return bool((operands[1] >= first.dtype.itemsize * 8).any())
    if op == "ReverseSequence":
        time = next((a.i for a in node.attribute if a.name == "time_axis"), 0)
        return bool(((operands[1] < 1) | (operands[1] > first.shape[time])).any())
    return False
