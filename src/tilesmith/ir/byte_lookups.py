"""Instructions that look bytes up in a short list which lies in vector registers.

A vector load of bytes at indices that depend on data is a gather.  If the list has at most 256
bytes, permutations of registers are faster: a list of 256 bytes fills four registers of 64 bytes.
The index then needs only its lowest 8 bits.  Code generation writes these instructions
(`codegen.byte_lookups`), and predictions count them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .target import Target

MOST_ENTRIES = 256
"""Upper bound on the bytes of a list."""

SEPARATE = 3
"""Number of instructions of a separate load for one lane: extract the index, load, insert the byte.
"""

Form = Literal["permute", "shuffle", "table"]


@dataclass(frozen=True, slots=True)
class ByteLookup:
    """The widest lookup instruction of a target.

    form: "permute" (AVX-512 VBMI's vpermi2b), "shuffle" (pshufb), "table" (AArch64's tbl).
    lanes: indices that an instruction takes.
    reach: entries of the list that an instruction covers.
    """

    form: Form
    lanes: int
    reach: int

    def copies(self, lanes: int) -> int:
        """Number of copies of the `lanes` indices that one instruction takes.  A shuffle works on
        rows of 16 bytes, and each row of a register has its own entries.  So each copy looks up
        another row of the list.
        """
        if self.form != "shuffle":
            return 1
        return self.lanes // min(max(1 << (lanes - 1).bit_length(), self.reach), self.lanes)

    def instructions(self, entries: int, lanes: int) -> int:
        """Instructions to look `lanes` bytes up in a list of `entries` bytes."""
        copies = self.copies(lanes)
        steps = math.ceil(entries / self.reach / copies)
        # each further step selects by the index: a blend, or arithmetic on the index
        each = {"permute": 3 * steps - 2, "shuffle": 4 * steps, "table": 2 * steps - 1}[self.form]
        return math.ceil(lanes / self.lanes) * each + 2 * (copies.bit_length() - 1)


def byte_lookup(target: Target) -> ByteLookup | None:
    """The lookup instruction of `target`; None if it has none."""
    if target.device is not None or target.backend != "cpu":
        return None
    features = target.features
    if target.architecture == "aarch64" and "neon" in features:
        return ByteLookup("table", 16, 64)
    if target.architecture != "x86_64":
        return None
    if "avx512vbmi" in features:
        return ByteLookup("permute", 64, 128)
    widths = (("avx512bw", 64), ("avx2", 32), ("ssse3", 16))
    return next((ByteLookup("shuffle", n, 16) for f, n in widths if f in features), None)


def lookup_instructions(target: Target, entries: int, lanes: int) -> int | None:
    """Instructions to look `lanes` bytes up in a list of `entries` bytes; None if separate loads
    are as fast, or if the list is too long.
    """
    lookup = byte_lookup(target)
    if lookup is None or not 0 < entries <= MOST_ENTRIES or lanes < 2:
        return None
    count = lookup.instructions(entries, lanes)
    return count if count < SEPARATE * lanes else None
