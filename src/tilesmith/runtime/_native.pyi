"""Types of the C extension (csrc/module.c)."""

ABI: int
PARALLEL_FOR: int
CONTEXT_LAYOUT: tuple[tuple[str, int, int], ...]

def set_cores(cores: int, /) -> None: ...
def keep_arenas(seconds: float, /) -> float: ...

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
        /,
    ) -> Runner: ...
    def call(
        self, inputs: tuple[object, ...], outputs: tuple[object, ...], /
    ) -> int | tuple[int, int, int, tuple[int, ...]]: ...
    def trim(self) -> int: ...
