"""A runner for tests that runs nothing: it notes that it was asked."""

from __future__ import annotations

from echo_builder import log

from tilesmith.support.child import serve
from tilesmith.tuning.jobs import Answer, answer_bytes


def answer(request: bytes) -> bytes:
    del request
    log("run")
    return answer_bytes(Answer("ok", 1.0, 1.0))


if __name__ == "__main__":
    serve(answer)
