"""Damaged model files: fields of random models changed, and bytes.

A mutant is loaded, and compiled and run where it loads and is small.  Only a ModelError, or a run
that ends, is right.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

import children
import tilesmith as ts
from tilesmith.support.errors import ModelError

from .cases import random_case
from .judge import CRASHED, MEMORY, REFUSED, RIGHT, SECONDS, Verdict

_NUMBERS = (0, 1, -1, 2, 3, 7, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1)
_MOST_ELEMENTS = 1 << 16
"""Elements of inputs with which a mutant is run."""
_NAMES = ("", "x", "v0_0", "v0_1", "\0", "a" * 300, "é", "../w", "v0_0\n")
_OPERATORS = ("Relu", "Add", "Concat", "Conv", "Loop", "If", "Reshape", "NoSuch", "Gather", "Cast")


def mutant(seed: int) -> bytes:
    """The bytes of the mutant of a seed: of a random model with one to three fields or bytes
    changed.
    """
    source = random.Random(seed)
    model = random_case(source.randrange(1 << 16)).model
    for _ in range(source.choice((1, 1, 2, 3))):
        source.choice(_CHANGES)(model, source)
    content = bytearray(model.SerializeToString())
    for _ in range(source.choice((0, 0, 1, 2))):
        at = source.randrange(len(content))
        content[at : at + source.randrange(3)] = source.randbytes(source.randrange(3))
    return bytes(content)


def judge_mutant(seed: int) -> Verdict:
    """What becomes of the mutant of a seed in this process."""
    content = mutant(seed)
    try:
        executable = ts.compile(content, threads=1, fallback="error")
        specs = executable.program.expected_inputs
        elements = sum(math.prod(s.static_shape) for s in specs)
        if elements <= _MOST_ELEMENTS and not _may_run_long(content):
            executable.run({s.name: np.ones(s.static_shape, s.dtype.numpy) for s in specs})
    except ModelError as e:
        assert "\n" not in str(e), "a message has one line"
        return Verdict(REFUSED, str(e))
    except Exception as e:  # a defect, reported with its seed
        return Verdict(CRASHED, f"{type(e).__name__}: {e}")
    return Verdict(RIGHT)


_MOST_TRIPS = 1 << 20
"""Most iterations of a mutant that is run."""


def _may_run_long(content: bytes) -> bool:
    """Whether a model, which could be read, has a loop of very many iterations."""
    model = onnx.load_from_string(content)
    loops = any(n.op_type == "Loop" for n in _nodes(model.graph))
    numbers = (t for t in model.graph.initializer if t.data_type == TensorProto.INT64)
    return loops and any((numpy_helper.to_array(t) > _MOST_TRIPS).any() for t in numbers)


def mutant_verdicts(seeds: Sequence[int]) -> Iterator[Verdict]:
    """What becomes of the mutants of seeds, each in a child process."""
    for v in children.each(seeds, judge_mutant, SECONDS, MEMORY):
        yield Verdict(CRASHED, v.reason) if isinstance(v, children.Died) else v


def _nodes(graph: Any) -> list[Any]:
    """The nodes of a graph and of those inside it."""
    found = list(graph.node)
    for node in graph.node:
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                found += _nodes(a.g)
    return found


def _node(model: Any, source: random.Random) -> Any:
    return source.choice(_nodes(model.graph))


def _edge(model: Any, source: random.Random) -> None:
    node = _node(model, source)
    names = [o for n in _nodes(model.graph) for o in n.output] + [i.name for i in model.graph.input]
    ends = source.choice((node.input, node.output))
    if ends:
        ends[source.randrange(len(ends))] = source.choice((*names, *_NAMES))


def _more_edges(model: Any, source: random.Random) -> None:
    node = _node(model, source)
    ends = source.choice((node.input, node.output))
    if ends and source.random() < 0.5:
        del ends[source.randrange(len(ends))]
    else:
        ends.append(source.choice(_NAMES))


def _operator(model: Any, source: random.Random) -> None:
    others = [n.op_type for n in _nodes(model.graph)]
    _node(model, source).op_type = source.choice((*_OPERATORS, *others))


def _attribute(model: Any, source: random.Random) -> None:
    having = [n for n in _nodes(model.graph) if n.attribute]
    if not having:
        return
    a = source.choice(source.choice(having).attribute)
    kind = source.random()
    if kind < 0.2:
        a.name = source.choice((*_NAMES, "axis", "axes", "to", "perm"))
    elif kind < 0.3:
        a.type = source.choice(AttributeProto.AttributeType.values())
    elif a.type == AttributeProto.INT:
        a.i = source.choice(_NUMBERS)
    elif a.type == AttributeProto.INTS and a.ints:
        a.ints[source.randrange(len(a.ints))] = source.choice(_NUMBERS)
    elif a.type == AttributeProto.INTS:
        a.ints.append(source.choice(_NUMBERS))
    elif a.type == AttributeProto.FLOAT:
        a.f = source.choice((0.0, -1.0, 1e38, float("nan"), float("inf")))
    elif a.type == AttributeProto.STRING:
        a.s = source.choice((b"", b"SAME_UPPER", b"linear", b"\xff\xfe", b"constant"))


def _type(model: Any, source: random.Random) -> None:
    infos = [*model.graph.input, *model.graph.output]
    kind = source.choice(infos).type.tensor_type
    if source.random() < 0.4 or not kind.shape.dim:
        kind.elem_type = source.randrange(26)
    else:
        dim = source.choice(kind.shape.dim)
        if source.random() < 0.3:
            dim.dim_param = source.choice(("n", "s2", "", "a b"))
        else:
            dim.dim_value = source.choice(_NUMBERS)


def _constant(model: Any, source: random.Random) -> None:
    stored = model.graph.initializer
    if not stored:
        return
    t = source.choice(stored)
    kind = source.random()
    if kind < 0.3:
        t.data_type = source.randrange(26)
    elif kind < 0.6 and t.dims:
        t.dims[source.randrange(len(t.dims))] = source.choice(_NUMBERS)
    elif kind < 0.8 and t.data_type == TensorProto.INT64 and len(t.raw_data) >= 8:
        number = source.choice(_NUMBERS).to_bytes(8, "little", signed=True)
        t.raw_data = number + t.raw_data[8:]
    else:
        t.raw_data = t.raw_data[: source.randrange(len(t.raw_data) + 1)]


def _version(model: Any, source: random.Random) -> None:
    imported = model.opset_import[0]
    if source.random() < 0.2:
        imported.domain = source.choice(("ai.onnx", "com.microsoft", "no.such"))
    imported.version = source.choice((*range(1, 30), 0, -1, 1 << 40))


def _order(model: Any, source: random.Random) -> None:
    nodes = list(model.graph.node)
    if source.random() < 0.5:
        source.shuffle(nodes)
    else:
        nodes.append(source.choice(nodes))
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.node[:]
    graph.node.extend(nodes)
    model.graph.CopyFrom(graph)


_CHANGES: tuple[Callable[[Any, random.Random], None], ...] = (
    _edge,
    _more_edges,
    _operator,
    _attribute,
    _attribute,
    _type,
    _constant,
    _version,
    _order,
)
