"""Words of TVM's and Halide's schedules, with the words that replace them here."""

from __future__ import annotations

_WORDS = {
    "thread_axis": "s[t].bind(axis, 'threadIdx.x') takes the name of the index itself",
    "env_threads": "s[t].bind(axis, 'threadIdx.x') gives a loop to threads",
    "decl_buffer": "a te.extern gets the buffers of its tensors",
    "size_var": "an extent that is known at run time is te.var(name)",
    "partition": "tails are peeled by the compiler",
    "bound": "extents are the shape that te.compute is given",
    "compute_with": "s[t].compute_at(s[u], axis) places a stage in loops of another one",
    "infer_bound": "te.lower(s, args) infers all bounds; print it",
}


def word(where: str, name: str) -> str:
    """Message for a missing attribute `name`, with our word if it is another project's."""
    ours = _WORDS.get(name)
    return f"there is no {where}.{name}" + (f": {ours}" if ours else "")
