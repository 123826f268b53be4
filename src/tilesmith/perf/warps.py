"""The number of memory transactions of one warp instruction, from the threads' addresses.

Shared memory has 32 banks of four bytes.  Each bank serves one word at a time.  Threads that access
the same word share it.  Wide accesses are served in parts: 16 threads at a time for 8 bytes, 8
threads for 16 bytes.  Global memory moves sectors of 32 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

WARP = 32
BANKS = 32
WORD = 4
SECTOR = 32


def bank_conflicts(addresses: Sequence[int | None], width: int) -> int:
    """Bank conflicts: the number of additional times that the banks are accessed; 0 is best.

    addresses: addresses of the threads, in bytes; None for inactive threads.
    width: bytes per thread.
    """
    words = max(width // WORD, 1)
    together = WARP // words
    extra = 0
    for first in range(0, len(addresses), together):
        asked: dict[int, set[int]] = {}
        for address in addresses[first : first + together]:
            if address is None:
                continue
            for word in range(address // WORD, address // WORD + words):
                asked.setdefault(word % BANKS, set()).add(word)
        extra += max((len(w) for w in asked.values()), default=1) - 1
    return extra


def sectors(addresses: Sequence[int], width: int) -> int:
    """Number of sectors of global memory that one access touches.

    addresses: addresses of the active threads, in bytes.
    width: bytes per thread.
    """
    return len({
        sector
        for address in addresses
        for sector in range(address // SECTOR, (address + width - 1) // SECTOR + 1)
    })  # fmt: skip


def fewest_sectors(addresses: Sequence[int], width: int) -> int:
    """Number of sectors that the accessed bytes, each counted once, would fill with the best
    alignment.
    """
    used = len({b for address in addresses for b in range(address, address + width)})
    return -(-used // SECTOR)
