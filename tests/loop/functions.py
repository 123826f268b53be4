"""Functions of every form for the tests of text, verifier and interpreter."""

from __future__ import annotations

MATMUL = """\
def matmul(A: f32[n, 40], B: f32[40, 50], C: f32[n, 50], n: i64) -> C:
    attr "kind" = "a \\"test\\""
    for i in parallel(n):
        for j in range(50):
            C[i, j] = 0.0
            for k in range(40):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""

FORMS = """\
def forms(A: f32[64], I: i32[64], C: f32[64], D: f16[4, 4], m: i64, s: f32) -> C, D:
    alloc T: f32[16] stack
    block:
        let y: i64 = m * 2 + 1
        if likely(y < 64):
            C[y] = s
        else:
            C[0] = -inf
    for i in unrolled(3, extent=4):
        assert i < 64, "too \\"long\\""
        eval prefetch(A[i])
        block:
            alloc R: bf16[2, 2] register
            R[0, i % 2] = bf16(A[i])
            C[i] = f32(R[0, i % 2])
        T[i] = select(A[i] < 0.0 or not isnan(A[i]) and i != 5, exp(A[i]), nan)
    for i_1: i32 in range(0:i32, extent=4:i32):
        D[i64(i_1), 0] = 1.5:f16
    if m == 0:
        pass
    let v: f32x16 = A[ramp(0, 1, 16), mask=ramp(0, 1, 16) < broadcast(m, 16)]
    T[ramp(0, 1, 16), mask=broadcast(true, 16)] = v + broadcast(reduce_add(v, 1), 16)
    C[m] = let(w, s * 2.0, w - (w - w)) + bitcast(I[i64(I[0])]):f32
"""

VECTORS = """\
def vectors(A: f32[64], C: f32[64], S: f32[4]) -> C, S:
    for i in range(4):
        let v: f32x16 = A[ramp(i * 16, 1, 16)]
        C[ramp(i * 16, 1, 16)] = max(v, broadcast(0.0, 16)) * broadcast(2.0, 16)
        S[i] = reduce_add(v, 1)
"""
