"""Static counts of launches, against patterns whose costs are known."""

from __future__ import annotations

import pytest

from common import matrices
from tilesmith import te
from tilesmith.cli.explain_device import counts_of, counts_of_loops
from tilesmith.codegen.targets import target
from tilesmith.loop.launches import launches
from tilesmith.loop.parse import parse_func
from tilesmith.perf.launch_counts import LaunchCounts, launch_counts
from tilesmith.perf.warps import bank_conflicts, fewest_sectors, sectors
from tilesmith.strategy.device import default_schedule

GPU = target("cuda-sm_80")


def test_banks():
    words = [4 * n for n in range(32)]
    assert bank_conflicts(words, 4) == 0
    assert bank_conflicts([8 * n for n in range(32)], 4) == 1
    assert bank_conflicts([128 * n for n in range(32)], 4) == 31
    assert bank_conflicts([132 * n for n in range(32)], 4) == 0
    assert bank_conflicts([0] * 32, 4) == 0  # all read one word
    assert bank_conflicts([n // 2 * 4 for n in range(32)], 2) == 0  # two halves of a word
    assert bank_conflicts([16 * n for n in range(32)], 16) == 0  # eight threads at a time
    assert bank_conflicts([32 * n for n in range(32)], 16) == 4
    assert bank_conflicts([8 * n for n in range(32)], 8) == 0


def test_sectors():
    assert (sectors([4 * n for n in range(32)], 4), sectors([36 * n for n in range(32)], 4)) == (
        4,
        32,
    )
    assert sectors([4 * n + 4 for n in range(32)], 4) == 5
    assert fewest_sectors([0] * 32, 4) == 1 and fewest_sectors([8 * n for n in range(32)], 4) == 4


def counts(body: str) -> LaunchCounts:
    (found,) = counts_of_loops(
        "def main(x: f32[64, 64], i: i64[64], y: f32[64, 64]) -> y:\n"
        "    for b in block_x(64):\n        for t in thread_x(64):\n" + body,
        GPU,
    )
    return found


LINES = {
    "y[b, t] = x[b, t]": (2, 0, 0),
    "y[b, t] = x[t, b]": (1, 1, 0),
    "y[t, b] = x[t, b]": (0, 2, 0),
    "y[b, t] = x[0, 0]": (2, 0, 0),
    "y[b, t] = x[b, t // 32 * 32 + t * 2 % 32]": (2, 0, 0),  # half of what is moved
    "y[b, t] = x[i[t], 0]": (2, 0, 1),
    "y[b, t] = select(t < 8, 0.0, x[b, t])": (2, 0, 0),
    "y[b, t] = select(t < 2, x[t, b], 0.0)": (2, 0, 0),  # two threads
}


@pytest.mark.parametrize("line", LINES)
def test_global_memory(line: str):
    found = counts(f"            {line}\n")
    assert (found.coalesced, found.uncoalesced, found.unknown) == LINES[line]


@pytest.mark.parametrize("pitch, conflicts", [(64, 31), (65, 0), (66, 1), (68, 3)])
def test_shared_memory(pitch: int, conflicts: int):
    """A transpose: rows are stored, columns are read."""
    found = counts(
        f"            alloc s: f32[64, {pitch}] shared\n"
        "            for k in range(64):\n                s[k, t] = x[k, t]\n"
        "            barrier\n"
        "            for k in range(64):\n                y[k, t] = s[t, k]\n"
    )
    assert (found.shared, found.bank_conflicts, found.uncoalesced) == (2, conflicts, 0)
    assert found.barriers == 1 and found.shared_bytes == 64 * pitch * 4
    assert GPU.device is not None
    resident = GPU.device.unit_shared_bytes // found.shared_bytes
    assert 0 < found.occupancy <= resident * 64 / GPU.device.unit_threads


def test_registers_limit_blocks():
    (launch,) = launches(parse_func("def main(y: f32[256]) -> y:\n    for t in thread_x(256):\n"
                                    "        y[t] = 1.0\n"))  # fmt: skip
    assert GPU.device is not None
    shares = [launch_counts(launch, GPU.device, n).occupancy for n in (32, 64, 128, 255)]
    assert shares == [1.0, 0.5, 0.25, 0.125]


@pytest.mark.parametrize("size", [1024, 4096])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(
    "types", [("f32", "f32", "f32"), ("f16", "f16", "f32"), ("u8", "i8", "i32")]
)
def test_products_are_without_conflicts(types, is_transposed, size):
    x, w = (te.placeholder((size, size), t, n) for t, n in zip(types, "xw"))
    k, to = te.reduce_axis(size, "k"), types[2]
    y = te.compute(
        (size, size),
        lambda i, j: te.sum(
            x[i, k].astype(to) * (w[j, k] if is_transposed else w[k, j]).astype(to), axis=k
        ),
    )
    (found,) = counts_of(te.lower(default_schedule([x, w, y], GPU, 0.0), [x, w, y]), GPU)
    assert (found.uncoalesced, found.bank_conflicts, found.unknown) == (0, 0, 0)
    assert (found.matrix > 0) == (to != types[0]) and found.coalesced
    assert found.vector_bytes == (4 if to == types[0] else 16)


def test_matrix_instructions_are_counted():
    x, w, out, _ = matrices.product(("f16", "f16", "f32"), (64, 64, 64))
    product, parts = counts_of(te.lower(default_schedule([x, w, out], GPU, 0.0), [x, w, out]), GPU)
    assert product.matrix and not product.bank_conflicts
    assert not parts.matrix and not parts.uncoalesced, "adds the parts of the sums"
