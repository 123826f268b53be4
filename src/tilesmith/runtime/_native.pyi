"""Types of the C extension (csrc/module.c)."""

PARALLEL_FOR: int

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
    def call(self, inputs: tuple[object, ...], outputs: tuple[object, ...], /) -> int: ...
