"""The parts of C99 that OpenCL C lacks: names of types, limits, and helpers that reinterpret
bits.

The other helpers of `codegen.c.prelude` are valid OpenCL C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilesmith.codegen.c import prelude
from tilesmith.codegen.context import VALUES, Code

_INTEGERS = {8: ("char", "CHAR"), 16: ("short", "SHRT"), 32: ("int", "INT"), 64: ("long", "LONG")}

HEADERS = "".join(
    [
        *(
            f"typedef {name} int{bits}_t;\ntypedef u{name} uint{bits}_t;\n"
            f"#define INT{bits}_MIN {limit}_MIN\n#define INT{bits}_MAX {limit}_MAX\n"
            f"#define UINT{bits}_MAX U{limit}_MAX\n"
            for bits, (name, limit) in _INTEGERS.items()
        ),
        "#define INT64_C(n) n##L\n#define UINT64_C(n) n##UL\n",
        f"#define TILESMITH_ASSERTION {Code.ASSERTION:d}\n",
        "struct tilesmith_failure {\n    int code, call, assertion, count;\n"
        f"    long values[{VALUES}];\n}};\n",
        "struct tilesmith_context {\n    struct tilesmith_failure failure;\n};\n",
    ]
)
"""Definitions of C99's names of types, and of the context of a kernel.  This context has only those
fields of `codegen.context` that record a failure.
"""

DOUBLES = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
ROUNDED = "#pragma OPENCL FP_CONTRACT OFF\n"
"""The pragma that forbids contraction, so that a product is rounded before it is added."""

SHUFFLE = "sub_group_shuffle_xor"
"""The function that reads the value of another thread.  The number of that thread is the number of
this thread xor a mask.
"""
SHUFFLES = """\
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
"""

_NOTE = "atomic_cmpxchg((volatile __global int *)&context->failure.code, 0, TILESMITH_ASSERTION)"
FIRST = f" && {_NOTE} == 0"
"""A condition that is true only for the first thread that fails.  This thread records the failure.
"""


def _reinterpret(to: str, source: str, name: str, c: str, d: str) -> tuple[str, str]:
    return (
        f"ts_{to}_of_bits_{source}",
        f"{c} ts_{to}_of_bits_{source}({d} a) {{ return as_{name}(a); }}",
    )


_OWN = dict(
    (
        _reinterpret("f32", "u32", "float", "float", "uint32_t"),
        _reinterpret("u32", "f32", "uint", "uint32_t", "float"),
        _reinterpret("f64", "u64", "double", "double", "uint64_t"),
        _reinterpret("u64", "f64", "ulong", "uint64_t", "double"),
        (
            "ts_check_index",
            f"""\
int64_t ts_check_index(__global struct tilesmith_context *context, int32_t message, int64_t index,
                       int64_t extent, int64_t position) {{
    if ((uint64_t)index + (uint64_t)extent < 2 * (uint64_t)extent)
        return index < 0 ? index + extent : index;
    if ({_NOTE} == 0) {{
        __global struct tilesmith_failure *failure = &context->failure;
        failure->assertion = message, failure->count = 3;
        failure->values[0] = index, failure->values[1] = position, failure->values[2] = extent;
    }}
    return 0;
}}""",
        ),
    )
)


def definitions(names: Iterable[str]) -> str:
    """OpenCL C text of the helpers `names` and of those that they call."""
    called = set(names)
    head = SHUFFLES if SHUFFLE in called else ""
    text = prelude.definitions(called - {SHUFFLE}, _OWN, suffix="")
    return head + text.replace("static const ", "const ")


_VECTORS = [
    f"{name}{n}"
    for n in ("", 2, 3, 4, 8, 16)
    for name in (
        "float",
        "double",
        "half",
        *(u + i for i, _ in _INTEGERS.values() for u in ("", "u")),
    )
]

RESERVED = frozenset(
    (
        *_VECTORS,
        *re.findall(
            r"\w+",
            """kernel global local constant private generic pipe uniform read_only write_only
            read_write size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t barrier mem_fence
            sub_group_shuffle_xor get_group_id get_local_id get_local_size get_num_groups
            workspace_memory workspace_start atomic_cmpxchg as_float as_uint as_double as_ulong
            kernel_exec vec_step complex imaginary inline unroll""",
        ),
    )
)
"""Words that can't be the name of a variable, in addition to those of C."""
