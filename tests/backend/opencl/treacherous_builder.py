"""A builder for tests: kernels of some decisions never end, others write to no memory."""

from __future__ import annotations

import json
from dataclasses import replace

from tilesmith.codegen.kernel import KernelCode, KernelJob, with_head, without_head
from tilesmith.driver import answer
from tilesmith.support.child import serve

HANGS, CRASHES = 2, 8
"""By the value of the knob `tile`, what kernels do."""

TEXTS = {
    HANGS: "volatile int on = 1; while (on) {}",
    CRASHES: "*(volatile __global int *)8 = 1;",
}


def altered(request: bytes) -> bytes:
    """As `driver.answer`, with a statement at the beginning of each kernel."""
    reply, chosen = answer(request), KernelJob.from_bytes(request).decisions
    text = TEXTS.get(int(str(chosen.get("tile", 0))), "")
    times, code = without_head(reply)
    kernel = KernelCode.from_bytes(code)
    parts = json.loads(kernel.code)
    head, brace, body = parts[0].partition("{")
    assert "__kernel" in head
    parts[0] = head + brace + text + body
    changed = replace(kernel, code=json.dumps(parts).encode())
    return with_head(times, changed.to_bytes())


if __name__ == "__main__":
    serve(altered)
