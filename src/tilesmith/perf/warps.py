"""What one memory instruction of a warp costs: its transactions, from the threads' addresses.

Shared memory has 32 banks of four bytes, each of which answers with one word at a time.  Threads
that use the same word share it.  Wide accesses run in parts: 16 threads at a time for 8 bytes, 8
threads for 16 bytes.  Global memory moves sectors of 32 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

WARP = 32
BANKS = 32
WORD = 4
SECTOR = 32


def bank_conflicts(addresses: Sequence[int | None], width: int) -> int:
    """Times that the banks are asked again for one access to shared memory; 0 is best.

    addresses: of the threads, in bytes; None for one that takes no part.
    width: bytes of each.
    """
    words = max(width // WORD, 1)
    together = WARP // words
    extra = 0
    for first in range(0, len(addresses), together):
        asked: dict[int, set[int]] = {}
        for at in addresses[first : first + together]:
            if at is None:
                continue
            for word in range(at // WORD, at // WORD + words):
                asked.setdefault(word % BANKS, set()).add(word)
        extra += max((len(w) for w in asked.values()), default=1) - 1
    return extra


def sectors(addresses: Sequence[int], width: int) -> int:
    """Sectors of global memory that one access touches.

    addresses: of the threads that take part, in bytes.
    width: bytes of each.
    """
    return len({
        sector
        for at in addresses
        for sector in range(at // SECTOR, (at + width - 1) // SECTOR + 1)
    })  # fmt: skip


def fewest_sectors(addresses: Sequence[int], width: int) -> int:
    """Sectors that as many different bytes fill, wherever they begin."""
    used = len({b for at in addresses for b in range(at, at + width)})
    return -(-used // SECTOR)
