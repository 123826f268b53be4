"""Types of the C extension (csrc/module.c, csrc/function.c, csrc/growth.c, csrc/unchanged.c,
csrc/host.c, csrc/native_*.c, csrc/accel_*.c)."""

from collections.abc import Callable

import numpy as np

ABI: int
PARALLEL_FOR: int
CONTEXT_LAYOUT: tuple[tuple[str, int, int], ...]

def set_cores(cores: int, /) -> None: ...
def own_pool() -> None: ...
def keep_arenas(seconds: float, /) -> float: ...

class Block:
    def __new__(cls, array: object = ..., /) -> Block: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Runner:
    def __new__(
        cls,
        entry: int,
        constants: int,
        arena_bytes: int,
        scratch_bytes_per_thread: int,
        threads: int,
        inputs: tuple[tuple[str, int, tuple[int, ...]], ...],
        outputs: tuple[tuple[str, int, tuple[int, ...]], ...],
        owner: object,
        slots: int = ...,
        first: int = ...,
        limit: int = ...,
        homes: tuple[int, ...] = ...,
        /,
    ) -> Runner: ...
    def call(
        self,
        inputs: tuple[object, ...],
        outputs: tuple[object, ...],
        sizes: tuple[int, ...] | None = ...,
        host: Host | None = ...,
        /,
    ) -> int | list[object] | tuple[int, int, int, tuple[int, ...]]: ...
    def call_at(
        self,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        sizes: tuple[int, ...] = ...,
        /,
    ) -> int | tuple[int, int, int, tuple[int, ...]]: ...
    def trim(self) -> int: ...

class Host:
    def __new__(
        cls,
        calls: tuple[tuple[object, int, tuple[tuple[str, int, tuple[int, ...]], ...]], ...],
        empty: Callable[[tuple[int, ...], type], object],
        function: Callable[[int, tuple[int, ...], tuple[object, ...]], list[object]],
        /,
    ) -> Host: ...
    def seconds(self) -> list[float]: ...

class Lookup:
    def __new__(
        cls, table: dict[object, int], results: tuple[str, ...] | bytes, item: int, nan: object, /
    ) -> Lookup: ...

class Equal:
    def __new__(cls) -> Equal: ...

class Join:
    def __new__(cls) -> Join: ...

class Split:
    def __new__(cls, separator: str | None, most: int, /) -> Split: ...

class Normalize:
    def __new__(
        cls,
        change: Callable[[str], str] | None,
        compared: Callable[[str], str] | None,
        banned: frozenset[str] | None,
        /,
    ) -> Normalize: ...

class Test:
    def __new__(cls, function: Callable[[str], object], /) -> Test: ...

class Match:
    def __new__(
        cls, function: Callable[[str], object], table: bytes, accepts: bytes, /
    ) -> Match: ...

class Grams:
    def __new__(
        cls,
        numbers: dict[object, int],
        keys: bytes,
        nodes: bytes,
        place: bytes,
        scale: bytes | None,
        size: int,
        shortest: int,
        longest: int,
        skips: int,
        is_capped: bool,
        /,
    ) -> Grams: ...

class Maps:
    def __new__(cls, keys: tuple[object, ...], /) -> Maps: ...

class Row:
    def __new__(cls, keys: tuple[object, ...], /) -> Row: ...

class Reshape:
    def __new__(cls) -> Reshape: ...

class Concat:
    def __new__(cls, axis: int, /) -> Concat: ...

class Take:
    def __new__(cls, axis: int, /) -> Take: ...

class Function:
    def __new__(
        cls,
        kernel: int,
        arena: tuple[tuple[int, int], ...],
        scratch: tuple[tuple[int, int], ...],
        threads: int,
        arrays: tuple[
            tuple[str, int, tuple[tuple[tuple[int, int], ...], ...], bool, tuple[int, ...]], ...
        ],
        symbols: int,
        given: tuple[int, ...],
        buffers: tuple[int, ...],
        scalars: tuple[int, ...],
        owner: object,
        /,
    ) -> Function: ...
    def call(
        self, arguments: tuple[object, ...], /
    ) -> bool | tuple[int, int, int, tuple[int, ...]] | None: ...

class Unchanged:
    def __new__(
        cls,
        address_of: int,
        writes_of: int,
        offset: int,
        numbers: tuple[int, ...],
        objects: tuple[object, ...],
        addresses: tuple[int, ...],
        writes: tuple[int, ...],
        sizes: tuple[int, ...],
        threads: int,
        patience: int,
        may_watch: Callable[[], bool],
        /,
    ) -> Unchanged: ...
    def is_in(self, arguments: list[object] | tuple[object, ...], /) -> bool: ...
    def watched(self) -> int: ...

def memory(address: int, bytes: int, /) -> memoryview: ...
def digest(address: int, bytes: int, /) -> bytes: ...
def page_bytes() -> int: ...
def set_provider(answers: object, /) -> None: ...
def accel_run(
    machine: bytes, encoding: bytes, words: bytes, steps: bytes, memory: np.ndarray, /
) -> tuple[int, int, int, int, int] | None: ...
def accel_clock(
    machine: bytes, encoding: bytes, words: bytes, times: np.ndarray, /
) -> list[int] | tuple[int, int, int, int, int]: ...
